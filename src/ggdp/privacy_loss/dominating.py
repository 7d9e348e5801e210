# SPDX-License-Identifier: Apache-2.0
"""From a mechanism and an adjacency to the worst pairs of output laws, one list per direction.

Each direction is composed on its own and the worse answer taken at the end: composing the worse of the two at every
step is not valid in general (Lebeda, Regehr, Kamath, Steinke 2024). The proofs that these pairs dominate every record are in
docs/adjacency.md; tests/privacy_loss/test_dominating.py tries them against brute force.
"""

from ggdp import arguments
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism, PoissonSampled
from ggdp.privacy_loss.shift_pair import ShiftPair

Parts = tuple[tuple[ShiftPair, int], ...]

BETA = arguments.Range("beta", least=1.0, most=8.0, typical=(1.0, 4.0))
NOISE_MULTIPLIER = arguments.Range("noise_multiplier", least=0.3, most=1000.0, typical=(0.5, 20.0))
RATE = arguments.Range("rate", least=1e-7, most=1.0, typical=(1e-3, 1.0))
MOST_TIMES = 10_000_000


def directions(mechanism: Mechanism, adjacency: Adjacency) -> list[Parts]:
    """The compositions whose largest delta is the mechanism's.

    Raises:
        ValueError: the mechanism lies outside what the accountant covers.
    """
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    total = sum(times for _, times in composed.parts)
    arguments.whole("times", total, most=MOST_TIMES)
    steps = [(_checked(step), times) for step, times in composed.parts]
    wanted = [Adjacency.REMOVE, Adjacency.ADD] if adjacency is Adjacency.ADD_REMOVE else [adjacency]
    found: list[Parts] = []
    for direction in wanted:
        counts: dict[ShiftPair, int] = {}
        for (noise, rate), times in steps:
            pair = _pair(noise, rate, direction)
            counts[pair] = counts.get(pair, 0) + times
        parts = tuple(counts.items())
        if parts not in found:
            found.append(parts)
    return found


def _checked(step: AdditiveNoise | PoissonSampled) -> tuple[AdditiveNoise, float]:
    noise, rate = (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0)
    BETA.check(noise.noise.beta)
    NOISE_MULTIPLIER.check(noise.noise.scale / (2.0**0.5 * noise.sensitivity))
    RATE.check(rate)
    return noise, rate


def _pair(step: AdditiveNoise, rate: float, direction: Adjacency) -> ShiftPair:
    shift = step.sensitivity / step.noise.scale
    if direction is Adjacency.REPLACE:
        # without sampling only the distance of the two centres matters
        up, down = (2.0 * shift, 0.0) if rate == 1.0 else (shift, -shift)
    elif direction is Adjacency.ADD and rate < 1.0:
        up, down = 0.0, -shift
    else:
        up, down = shift, 0.0
    return ShiftPair(step.noise.beta, up, down, rate)
