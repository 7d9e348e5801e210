# SPDX-License-Identifier: Apache-2.0
"""Where a run's randomness comes from: one source for the batches, another for the noise.

They are kept apart so that drawing batches ahead, in loader processes, changes no noise. The processes of a
run draw from the same two sources: the same batches, of which each takes its part, and where the model is
sharded the same noise, of which each adds its part. Both are
unpredictable unless the caller gives a generator with a seed, whose noise anybody can repeat and remove. No
state of either is ever written down: a run that is resumed draws anew.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions.secure import SecureGenerator, secure_generator
from ggdp.training.process_group import ProcessGroup

Generator = torch.Generator | SecureGenerator


@dataclass
class Randomness:
    """The generators of one process of a run."""

    batches: Generator
    noise: Generator

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
        self.batches, self.noise = secure_generator(), secure_generator()
        self.share(group)

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
