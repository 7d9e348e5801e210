# SPDX-License-Identifier: Apache-2.0
"""Where a run's randomness comes from: one source for the batches, another for the noise.

They are kept apart so that drawing batches ahead, in loader processes, changes no noise. The processes of a
run draw from the same two sources: the same batches, of which each takes its part, and where the model is
sharded the same noise, of which each adds its part. Both are
unpredictable unless the caller gives a generator with a seed, whose noise anybody can repeat and remove. No
state of either is ever written down: a run that is resumed draws anew.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.pytorch.sampling import Piece, add_noise_, add_noise_to_pieces_, sample
from ggdp.distributions.secure import SecureGenerator, secure_generator
from ggdp.distributions.spherical import SphericalGeneralizedGaussian
from ggdp.training.process_group import ProcessGroup

Generator = torch.Generator | SecureGenerator
Noise = GeneralizedGaussian | SphericalGeneralizedGaussian

_AHEAD = 1 << 15  # numbers; the noise of few steps costs little more to draw on a CPU than that of one


class _Ahead(NamedTuple):
    """Noise that was drawn for steps to come, and for whom: each number is handed out once."""

    law: GeneralizedGaussian
    dtype: torch.dtype
    process: int
    numbers: Tensor


@dataclass
class Randomness:
    """The generators of one process of a run."""

    batches: Generator
    noise: Generator
    _ahead: _Ahead | None = field(default=None, repr=False)

    @classmethod
    def of(cls, generator: Generator | None, *, rank: int = 0) -> "Randomness":
        """Two independent generators for process `rank`, drawn from the caller's or from the system's.

        Processes that were given equal seeds still choose their batches independently.
        """
        if generator is None:
            return cls(secure_generator(), secure_generator())
        if isinstance(generator, SecureGenerator):
            children = [secure_generator(key=generator.bytes(32)) for _ in range(2 * rank + 2)]
            return cls(children[-2], children[-1])
        arguments.instance(
            "generator", generator, torch.Generator, hint="leave it out for one that nobody can predict"
        )
        seeds = torch.randint(2**62, (2 * rank + 2,), generator=generator, device=generator.device).tolist()
        return cls(torch.Generator().manual_seed(seeds[-2]), torch.Generator().manual_seed(seeds[-1]))

    def share(self, group: ProcessGroup) -> None:
        """Have every process draw what process 0 does; call it in all of them, before anything is drawn."""
        if group.world_size > 1:
            told = group.from_leader(lambda: [_described(each) for each in (self.batches, self.noise)])
            if not group.is_leader:
                self.batches, self.noise = (_made(each) for each in told)

    def renew(self, group: ProcessGroup) -> None:
        """Go on with new keys from the operating system, whatever the generators were before.

        The same noise on two different sums is removed by subtracting them. A run that is resumed was given
        the generator that it had before, whose noise has been used.
        """
        self.batches, self.noise, self._ahead = secure_generator(), secure_generator(), None
        self.share(group)

    def __getstate__(self) -> dict[str, object]:
        """What a copy gets: noise that was drawn ahead is not among it, since both would use it."""
        return {**vars(self), "_ahead": None}

    def add_noise_(self, tensors: Sequence[Tensor], noise: Noise) -> None:
        """Add the noise of one step to tensors, in place."""
        drawn = self._drawn_ahead(tensors, [each.numel() for each in tensors], noise)
        if drawn is None:
            add_noise_(list(tensors), noise, generator=self.noise)
            return
        parts = [part.view(each.shape) for each, part in zip(tensors, drawn, strict=True)]
        torch._foreach_add_(list(tensors), parts)

    def add_noise_to_pieces_(self, pieces: Sequence[Piece], noise: GeneralizedGaussian) -> None:
        """Add to pieces of tensors what `add_noise_` would add to them in the whole tensors."""
        drawn = self._drawn_ahead([each.tensor for each in pieces], [each.whole for each in pieces], noise)
        if drawn is None:
            add_noise_to_pieces_(pieces, noise, generator=self.noise)
            return
        for each, part in zip(pieces, drawn, strict=True):
            own = part[each.start : each.start + each.tensor.numel()]
            each.tensor.add_(own.view(each.tensor.shape))

    def _drawn_ahead(
        self, tensors: Sequence[Tensor], sizes: list[int], noise: Noise
    ) -> "Sequence[Tensor] | None":
        """The noise of one step by tensor, where so little is needed that several steps' is drawn at once.

        What is left is thrown away where another law is asked for, and in a process that was forked off:
        that would use the same numbers as the one it comes from.
        """
        total, dtype = sum(sizes), tensors[0].dtype
        if not 0 < total <= _AHEAD // 2 or not isinstance(noise, GeneralizedGaussian):
            return None
        if any(each.dtype != dtype or not each.is_cpu for each in tensors):
            return None
        ahead = self._ahead
        if ahead is None or (ahead.law, ahead.dtype, ahead.process) != (noise, dtype, os.getpid()):
            ahead = None
        if ahead is None or len(ahead.numbers) < total:
            numbers = sample(noise, (_AHEAD // total * total,), generator=self.noise, dtype=dtype)
            ahead = _Ahead(noise, dtype, os.getpid(), numbers)
        self._ahead = ahead._replace(numbers=ahead.numbers[total:])
        return torch.split(ahead.numbers[:total], sizes)

    def for_workers(self, given: torch.Generator | None, rank: int) -> torch.Generator:
        """The generator from which a `DataLoader` seeds its workers, different in every process.

        Args:
            given: the data loader's own, from whose seed it then follows.
            rank: of this process.
        """
        source = given if given is not None else self.batches
        if isinstance(source, SecureGenerator):
            return torch.Generator().manual_seed(int.from_bytes(secure_generator().bytes(7), "little"))
        name = f"workers of process {rank}: {source.initial_seed()}".encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:7], "little"))


def _described(generator: Generator) -> int | dict[str, str | int]:
    """A generator that has drawn nothing, as another process of the run is told of it."""
    return (
        generator.export_state() if isinstance(generator, SecureGenerator) else int(generator.initial_seed())
    )


def _made(described: int | dict[str, str | int]) -> Generator:
    if isinstance(described, int):
        return torch.Generator().manual_seed(described)
    return SecureGenerator.restore_state(described)


def uniforms(generator: Generator, count: int) -> NDArray[np.float64]:
    """Independent uniforms on the multiples of 2^-53 in [0, 1)."""
    if isinstance(generator, SecureGenerator):
        return np.asarray(generator.random(count))
    drawn = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    values: NDArray[np.float64] = drawn.cpu().numpy()
    return values


def words(generator: Generator, count: int) -> NDArray[np.int64]:
    """Independent uniform words of 64 bits."""
    if isinstance(generator, SecureGenerator):
        return generator.words(count)
    drawn = torch.empty(count, dtype=torch.int64, device=generator.device)
    values: NDArray[np.int64] = drawn.random_(-(2**63), None, generator=generator).cpu().numpy()
    return values


def integers(generator: Generator, bound: int, count: int) -> NDArray[np.int64]:
    """Independent integers, uniform on 0 ... bound - 1 exactly: words that are too large are left out."""
    mask = np.int64((1 << (bound - 1).bit_length()) - 1)
    found = np.empty(0, np.int64)
    while len(found) < count:
        drawn = words(generator, 2 * (count - len(found)) + 8) & mask
        found = np.concatenate([found, drawn[drawn < bound]])
    return found[:count]
