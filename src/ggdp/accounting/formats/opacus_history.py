# SPDX-License-Identifier: Apache-2.0
"""Read the history of Opacus's accountants, which is plain data: Opacus itself is not needed."""

from collections.abc import Mapping
from typing import Any

from ggdp import arguments
from ggdp.distributions import Gaussian
from ggdp.mechanisms import AdditiveNoise, Composed, PoissonSampled

_KINDS = ("rdp", "prv", "gdp")


def from_opacus_state_dict(state: Mapping[str, Any]) -> Composed:
    """What an Opacus accountant's `state_dict()` says was released.

    Its history is a list of (noise_multiplier, sample_rate, num_steps): num_steps times, a Poisson sample at
    sample_rate of gradients clipped in the l2 norm, summed, plus Gaussian noise of standard deviation
    noise_multiplier times the clipping norm on every coordinate.

    Guarantees:
        The result stands for the vector release exactly, in every dimension: Gaussian noise looks the same in
        every direction, so one may turn the axes until the record's clipped gradient lies along the first,
        and the other coordinates then carry no information about it. What is left is a number moved by at
        most the clipping norm, which is the scalar release described here.

    The history says how batches were meant to be drawn, not how they were: with a loader that shuffles and
    cuts into batches instead of sampling each record independently, no epsilon computed from it is proved.

    Args:
        state: The `state_dict()` of Opacus's RDP, PRV or GDP accountant, in memory or back from a file.

    Raises:
        ValueError: The data is not such a state, its history is empty, or an entry has no noise.

    >>> read = from_opacus_state_dict({"mechanism": "prv", "history": [(1.1, 0.01, 500)]})
    >>> read == Composed(PoissonSampled(AdditiveNoise(Gaussian(std=1.1)), rate=0.01), times=500)
    True
    """
    arguments.instance("state", state, Mapping, hint="pass accountant.state_dict()")
    for field in ("history", "mechanism"):
        if field not in state:
            raise ValueError(f"state must have the field {field!r}, got only {sorted(map(str, state))}")
    arguments.one_of("mechanism", state["mechanism"], _KINDS)
    arguments.instance("history", state["history"], (list, tuple))
    if not state["history"]:
        raise ValueError("history must hold at least one entry, got an empty one: nothing was released")
    return Composed([_part(entry) for entry in state["history"]])


def _part(entry: Any) -> tuple[AdditiveNoise | PoissonSampled, int]:
    if not (isinstance(entry, (tuple, list)) and len(entry) == 3):
        raise ValueError(
            "each entry of history must be (noise_multiplier, sample_rate, num_steps), got "
            f"{arguments.shown(entry)}"
        )
    noise_multiplier, sample_rate, num_steps = entry
    std = arguments.real(
        "noise_multiplier", noise_multiplier, above=0.0, hint="steps without noise are not private"
    )
    rate = arguments.real("sample_rate", sample_rate, above=0.0, most=1.0)
    step = AdditiveNoise(Gaussian(std=std))
    return (PoissonSampled(step, rate) if rate < 1.0 else step), arguments.whole("num_steps", num_steps)
