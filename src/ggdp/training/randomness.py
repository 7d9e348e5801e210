# SPDX-License-Identifier: Apache-2.0
"""Where a run's randomness comes from: one source for the batches, another for the noise.

They are kept apart so that drawing batches ahead, in loader processes, changes no noise. Both are
unpredictable unless the caller gives a generator with a seed, whose noise anybody can repeat and remove.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions.secure import SecureGenerator, secure_generator

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

    def state_dict(self) -> dict[str, Any]:
        """The state of both, keys included: whoever reads it can remove the noise. Keep it as the data."""
        return {"batches": _state(self.batches), "noise": _state(self.noise)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        self.batches, self.noise = _restored(state["batches"]), _restored(state["noise"])


def uniforms(generator: Generator, count: int) -> NDArray[np.float64]:
    """Independent uniforms on the multiples of 2^-53 in [0, 1)."""
    if isinstance(generator, SecureGenerator):
        return np.asarray(generator.random(count))
    drawn = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    values: NDArray[np.float64] = drawn.cpu().numpy()
    return values


def _state(generator: Generator) -> dict[str, Any]:
    if isinstance(generator, SecureGenerator):
        return {"kind": "secure", **generator.export_state()}
    return {"kind": "torch", "state": generator.get_state()}


def _restored(state: dict[str, Any]) -> Generator:
    if state["kind"] == "secure":
        return SecureGenerator.restore_state({name: value for name, value in state.items() if name != "kind"})
    generator = torch.Generator()
    generator.set_state(state["state"])
    return generator
