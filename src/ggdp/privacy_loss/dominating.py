# SPDX-License-Identifier: Apache-2.0
"""From a mechanism and an adjacency to the worst pairs of output laws, one list per direction.

Each direction is composed on its own and the worse answer taken at the end: composing the worse of the two at
every step is not valid in general (Lebeda, Regehr, Kamath, Steinke 2024). The proofs that these pairs
dominate every record are in docs/adjacency.md for a number and in docs/vector-releases.md for a vector;
tests/privacy_loss/test_dominating.py tries them against brute force. Vectors for which no dominating pair is
known are refused here; `accounting.vector` bounds them.
"""

import math
from dataclasses import dataclass

from ggdp import arguments
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism, PoissonSampled
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.shift_pair import ShiftPair

Parts = tuple[tuple[ShiftPair, int], ...]
Sizes = tuple[tuple[float, int], ...]
"""Coordinates of a shift in units of the noise's scale, as pairs (size, count)."""

BETA = arguments.Range("beta", least=1.0, most=32.0, typical=(1.0, 4.0))
MOST_VECTOR_BETA = 8.0
"""Largest beta of a vector that has no single coordinate's cost: its worst split is tried up to here."""
NOISE_MULTIPLIER = arguments.Range("noise_multiplier", least=0.02, most=1000.0, typical=(0.5, 20.0))
RATE = arguments.Range("rate", least=1e-7, most=1.0, typical=(1e-3, 1.0))
MOST_TIMES = 10_000_000


@dataclass(frozen=True)
class WorstShift:
    """The shift that dominates all those a step allows, and the argument that shows it.

    When a record is replaced: the distance of the two centres, or, for one number and for sampled vectors,
    that of either from the centre without the record.
    """

    sizes: Sizes
    reason: str


def directions(mechanism: Mechanism, adjacency: Adjacency) -> list[Parts]:
    """The compositions whose largest delta is the mechanism's.

    Raises:
        ValueError: the mechanism lies outside what the accountant covers.
        NoDominatingPairError: a step is a vector release without a known worst shift.
    """
    steps = checked_steps(mechanism, adjacency)
    wanted = [Adjacency.REMOVE, Adjacency.ADD] if adjacency is Adjacency.ADD_REMOVE else [adjacency]
    found: list[Parts] = []
    for direction in wanted:
        counts: dict[ShiftPair, int] = {}
        for noise, rate, times in steps:
            for pair, count in _pairs(noise, rate, direction):
                counts[pair] = counts.get(pair, 0) + count * times
        parts = _rotated(tuple(counts.items()))
        if parts not in found:
            found.append(parts)
    return found


def _rotated(parts: Parts) -> Parts:
    """All Gaussian releases without sampling as one: the shifts are a vector, and a rotation that leaves the
    noise what it is turns it into the first axis. Its length is the root of the sum of squares."""
    gaussian = [(pair, times) for pair, times in parts if pair.beta == 2.0 and pair.rate == 1.0]
    if sum(times for _, times in gaussian) <= 1:
        return parts
    length = math.sqrt(math.fsum(times * (pair.up - pair.down) ** 2 for pair, times in gaussian))
    others = tuple(part for part in parts if part not in gaussian)
    return ((ShiftPair(2.0, length, 0.0, 1.0), 1), *others)


def checked_steps(mechanism: Mechanism, adjacency: Adjacency) -> list[tuple[AdditiveNoise, float, int]]:
    """The steps as (noise, rate, times), each within what the accountant covers.

    Raises:
        ValueError: one is not.
    """
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    arguments.whole("times", sum(times for _, times in composed.parts), most=MOST_TIMES)
    return [(*_checked(step, adjacency), times) for step, times in composed.parts]


def worst_shift(step: AdditiveNoise, rate: float, adjacency: Adjacency) -> WorstShift | None:
    """The one shift that dominates every shift the step allows, where there is a proof; None where there is
    none.

    Guarantees:
        For every x >= 0 the hockey-stick divergence of order x of any allowed shift, Poisson-sampled at
        `rate` in the direction given, is at most that of `sizes`.
    """
    double = 2.0 if adjacency is Adjacency.REPLACE and rate == 1.0 else 1.0
    factor = double * step.sensitivity / step.noise.scale
    if step.shift is not None:
        return _known(step, rate)
    if step.dimension == 1:
        return WorstShift(((step.sensitivity / step.noise.scale, 1),), "one number")
    p, d = step.p, float(step.dimension)
    if step.noise.beta == 2.0:
        # |mu|_2 <= d^(1/2 - 1/p) |mu|_p for p >= 2, with equality for equal coordinates
        return WorstShift(((factor * d ** max(0.5 - 1.0 / p, 0.0), 1),), "rotation")
    if p == 1.0:
        return WorstShift(((factor, 1),), "hybrid")
    if math.isinf(p) and rate == 1.0:
        return WorstShift(((factor, int(step.dimension)),), "every coordinate")
    return None


def _known(step: AdditiveNoise, rate: float) -> WorstShift | None:
    """A known shift is what it is, for whichever neighbours are meant."""
    unit = step.sensitivity / step.noise.scale
    counts: dict[float, int] = {}
    for value, count in step.shift or ():
        if value != 0.0:
            counts[abs(value) * unit] = counts.get(abs(value) * unit, 0) + count
    sizes = tuple(sorted(counts.items()))
    if step.noise.beta == 2.0:
        return WorstShift(((math.sqrt(math.fsum(count * size**2 for size, count in sizes)), 1),), "rotation")
    if rate == 1.0 or sum(counts.values()) == 1:
        return WorstShift(sizes, "known shift")
    return None


def _checked(step: Step, adjacency: Adjacency) -> tuple[AdditiveNoise, float]:
    noise, rate = (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0)
    if not isinstance(noise, AdditiveNoise):
        raise ValueError(f"mechanism must be of type AdditiveNoise here, got {type(noise).__name__}")
    BETA.check(noise.noise.beta)
    RATE.check(rate)
    if noise.noise.beta > MOST_VECTOR_BETA and worst_shift(noise, rate, adjacency) is None:
        raise ValueError(
            f"beta must be at most {MOST_VECTOR_BETA:g} for a vector whose worst shift is not known, got "
            f"{noise.noise.beta:g}; release numbers, or take norm=1, or a smaller beta"
        )
    if noise.dimension == 1 and noise.shift is None:
        NOISE_MULTIPLIER.check(noise.noise.scale / (math.sqrt(2.0) * noise.sensitivity))
        return noise, rate
    if math.isinf(noise.dimension) and noise.p > 2.0:
        raise ValueError(
            f"dimension must be finite when norm is above 2, got norm={noise.norm} and dimension=inf: spread "
            "over ever more coordinates such a shift costs without bound; give the dimension, or a norm of "
            "at most 2"
        )
    if rate < 1.0 and adjacency is Adjacency.REPLACE and noise.shift is not None:
        raise ValueError(
            "adjacency must be add-remove, add or remove for a Poisson-sampled known shift, got replace: how "
            "far either record is from none is not known; give norm and dimension in place of shift"
        )
    _check_largest(noise)
    return noise, rate


def _check_largest(noise: AdditiveNoise) -> None:
    """Refuse noise that is too small for a vector's largest coordinate; small coordinates are welcome."""
    largest = max(abs(value) for value, _ in noise.shift) if noise.shift else 1.0
    multiplier = noise.noise.scale / (math.sqrt(2.0) * noise.sensitivity * largest)
    if multiplier < NOISE_MULTIPLIER.least:
        NOISE_MULTIPLIER.check(multiplier)
    if noise.shift is None:
        arguments.real(
            "noise_multiplier", multiplier, least=NOISE_MULTIPLIER.least, most=NOISE_MULTIPLIER.most
        )


def _pairs(step: AdditiveNoise, rate: float, direction: Adjacency) -> Parts:
    worst = worst_shift(step, rate, direction)
    if worst is None:
        raise NoDominatingPairError(
            f"no single shift is known to be the worst for norm={step.norm} and dimension={step.dimension}"
            f"{' under Poisson sampling' if rate < 1.0 else ''} with noise of beta={step.noise.beta:g}"
        )
    if direction is Adjacency.REPLACE and step.shift is None and (step.dimension == 1 or rate < 1.0):
        shift = worst.sizes[0][0]
        # without sampling only the distance of the two centres matters
        pair = (2.0 * shift, 0.0) if rate == 1.0 else (shift, -shift)
        return ((ShiftPair(step.noise.beta, *pair, rate), 1),)
    if direction is Adjacency.ADD and rate < 1.0:
        return tuple((ShiftPair(step.noise.beta, 0.0, -size, rate), count) for size, count in worst.sizes)
    return tuple((ShiftPair(step.noise.beta, size, 0.0, rate), count) for size, count in worst.sizes)
