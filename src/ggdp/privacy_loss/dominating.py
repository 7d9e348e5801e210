# SPDX-License-Identifier: Apache-2.0
"""The pair of output laws that dominates one release of Generalized Gaussian noise, where one is known.

A pair dominates a release if no neighbouring datasets tell the adversary more, at any epsilon. The proofs are
in docs/adjacency.md for a number and in docs/vector-releases.md for a vector;
tests/privacy_loss/test_dominating.py tries them against brute force. For some vector releases no dominating
pair is known; `accounting.vectors` bounds their cost in other ways.
"""

import math
from dataclasses import dataclass

from ggdp import arguments
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.privacy_loss.shift_pair import ShiftPair

Parts = tuple[tuple[ShiftPair, int], ...]
"""Pairs and how often each is released."""
Sizes = tuple[tuple[float, int], ...]
"""Coordinates of a shift in units of the noise's scale, as pairs (size, count)."""

BETA = arguments.Range(
    "beta", least=1.0, most=32.0, typical=(1.0, 4.0), hint="larger ones are sampled, but not accounted for"
)
MOST_VECTOR_BETA = 8.0
"""Largest beta of a vector whose worst shift is not known: its bounds are computed up to this beta."""
NOISE_MULTIPLIER = arguments.Range(
    "noise_multiplier",
    least=0.02,
    most=1000.0,
    typical=(0.5, 20.0),
    hint="it is scale / (sqrt(2) * sensitivity)",
)
RATE = arguments.Range("rate", least=1e-7, most=1.0, typical=(1e-3, 1.0))
MOST_TIMES = 10_000_000


@dataclass(frozen=True)
class WorstShift:
    """A shift that dominates all shifts that a release allows, and the name of the proof."""

    sizes: Sizes
    reason: str


def worst_shift(noise: AdditiveNoise, rate: float) -> WorstShift | None:
    """The one shift that dominates every shift the release allows; None where there is no proof of one.

    Guarantees:
        For every x >= 0 the hockey-stick divergence of order x of any allowed shift, Poisson-sampled at
        `rate`, is at most that of `sizes`.
    """
    unit = noise.sensitivity / noise.noise.scale
    if noise.shift is not None:
        return _known(noise, rate)
    if noise.dimension == 1:
        return WorstShift(((unit, 1),), "one number")
    p, d = noise.p, float(noise.dimension)
    if noise.noise.beta == 2.0:
        # |mu|_2 <= d^(1/2 - 1/p) |mu|_p for p >= 2, with equality for equal coordinates
        return WorstShift(((unit * d ** max(0.5 - 1.0 / p, 0.0), 1),), "rotation")
    if p == 1.0:
        return WorstShift(((unit, 1),), "hybrid")
    if math.isinf(p) and rate == 1.0:
        return WorstShift(((unit, int(noise.dimension)),), "every coordinate")
    return None


def dominating_pairs(noise: AdditiveNoise, rate: float, direction: Adjacency) -> Parts | None:
    """The pairs whose composition dominates one release in one direction; None where none are known.

    Args:
        noise: what is released.
        rate: the probability with which each record takes part.
        direction: REMOVE, ADD, or, for a sampled record only, REPLACE.
    """
    worst = worst_shift(noise, rate)
    if worst is None:
        return None
    beta = noise.noise.beta
    # without sampling REMOVE and ADD cost the same, since the noise is symmetric
    if rate == 1.0 or direction is Adjacency.REMOVE:
        return tuple((ShiftPair(beta, size, 0.0, rate), count) for size, count in worst.sizes)
    if direction is Adjacency.ADD:
        return tuple((ShiftPair(beta, 0.0, -size, rate), count) for size, count in worst.sizes)
    ((size, _),) = worst.sizes
    return ((ShiftPair(beta, size, -size, rate), 1),)


def rotated(parts: Parts) -> Parts:
    """The same parts with all Gaussian releases without sampling joined into one.

    Their shifts form a vector. A rotation does not change the law of the noise, and turns this vector onto
    the first axis; its length is the root of the sum of squares.
    """
    gaussian = [(pair, times) for pair, times in parts if pair.beta == 2.0 and pair.rate == 1.0]
    if sum(times for _, times in gaussian) <= 1:
        return parts
    length = math.sqrt(math.fsum(times * (pair.up - pair.down) ** 2 for pair, times in gaussian))
    others = tuple(part for part in parts if part not in gaussian)
    return ((ShiftPair(2.0, length, 0.0, 1.0), 1), *others)


def _known(noise: AdditiveNoise, rate: float) -> WorstShift | None:
    """The worst shift if the shift is known: this shift itself, whatever the adjacency."""
    unit = noise.sensitivity / noise.noise.scale
    counts: dict[float, int] = {}
    for value, count in noise.shift or ():
        if value != 0.0:
            counts[abs(value) * unit] = counts.get(abs(value) * unit, 0) + count
    sizes = tuple(sorted(counts.items()))
    if noise.noise.beta == 2.0:
        return WorstShift(((math.sqrt(math.fsum(count * size**2 for size, count in sizes)), 1),), "rotation")
    if rate == 1.0 or sum(counts.values()) == 1:
        return WorstShift(sizes, "known shift")
    return None


def check_covered(noise: AdditiveNoise, rate: float, adjacency: Adjacency) -> None:
    """Check that the accountant covers a release.

    Raises:
        ValueError: it does not; the message names the argument, its value and the range.
    """
    BETA.check(noise.noise.beta)
    RATE.check(rate)
    if noise.noise.beta > MOST_VECTOR_BETA and worst_shift(noise, rate) is None:
        raise ValueError(
            f"beta must be at most {MOST_VECTOR_BETA:g} for a vector whose worst shift is not known, got "
            f"{noise.noise.beta:g}; release numbers, or take norm=1, or a smaller beta"
        )
    if noise.dimension == 1 and noise.shift is None:
        NOISE_MULTIPLIER.check(noise.noise.scale / (math.sqrt(2.0) * noise.sensitivity))
        return
    if math.isinf(noise.dimension) and noise.p > 2.0:
        raise ValueError(
            f"dimension must be finite when norm is above 2, got norm={noise.norm} and dimension=inf: "
            "spread over more and more coordinates, such a shift costs without bound; give the dimension, or "
            "a norm of at most 2"
        )
    if rate < 1.0 and adjacency is Adjacency.REPLACE and noise.shift is not None:
        raise ValueError(
            "adjacency must be add-remove, add or remove for a Poisson-sampled known shift, got replace: how "
            "far each of the two records moves the value is not known; give norm and dimension, not shift"
        )
    _check_largest(noise)


def _check_largest(noise: AdditiveNoise) -> None:
    """Check that the noise is large enough for a vector's largest coordinate; others may be of any size."""
    largest = max(abs(value) for value, _ in noise.shift) if noise.shift else 1.0
    multiplier = noise.noise.scale / (math.sqrt(2.0) * noise.sensitivity * largest)
    if multiplier < NOISE_MULTIPLIER.least:
        NOISE_MULTIPLIER.check(multiplier)
    if noise.shift is None:
        NOISE_MULTIPLIER.check(multiplier)
