# SPDX-License-Identifier: Apache-2.0
"""Bounds by the l_1 norm of a shift: a shift of one coordinate, and the largest loss of Laplace noise."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ggdp.accounting.steps import NoiseStep, Steps
from ggdp.mechanisms import AdditiveNoise, Adjacency

_MOST_STRETCH = 1.12  # factor above which the bound by Renyi divergences is better
_MOST_LOSS = 500.0


def stretched(steps: Steps) -> Steps | None:
    """The steps with one coordinate in place of each vector, moved by the largest l_1 norm of a shift.

    It dominates the vector by the hybrid argument (docs/vector-releases.md). None if that makes some shift
    longer by more than the factor `_MOST_STRETCH`.
    """
    longest = 1.0

    def stretch(step: NoiseStep) -> AdditiveNoise:
        nonlocal longest
        noise = step.noise
        if noise.dimension == 1 or noise.noise.beta == 2.0:
            return noise
        if noise.shift is not None:
            largest = max(abs(value) for value, _ in noise.shift)
            factor = math.fsum(abs(value) * count for value, count in noise.shift) / largest
            longest = max(longest, factor)
            return AdditiveNoise(noise.noise, noise.sensitivity, noise.norm, shift=((largest * factor, 1),))
        factor = float(noise.dimension) ** (1.0 - 1.0 / noise.p)
        longest = max(longest, factor)
        if factor > _MOST_STRETCH:
            return noise
        return replace(noise, sensitivity=noise.sensitivity * factor * (1.0 + 1e-15), dimension=1)

    stretched = steps.with_noise(stretch)
    return stretched if longest <= _MOST_STRETCH else None


def largest_l1_loss(steps: Steps) -> float:
    """The largest loss of Laplace releases, from the l_1 norm of the shift; infinite for other noise."""
    total = 0.0
    for step in steps.noisy:
        if step.noise.noise.beta != 1.0:
            return math.inf
        total += step.times * _largest_laplace_loss(step, steps.directions)
    return total * (1.0 + 1e-12)


def reaches_largest_loss(steps: Steps) -> bool:
    """Whether some shift of every Laplace release has the loss of `largest_l1_loss`, to within 1e-12.

    Equal splits have the largest l_1 norm. Where no number of the output lies between the two centres all
    losses are largest, which has a positive probability. With sampling, replacing by a shift that is known
    may cost less.
    """
    for step in steps.noisy:
        noise = step.noise
        if noise.noise.beta != 1.0 or step.seen is not None:
            return False
        if step.rate < 1.0 and (
            (Adjacency.REPLACE in steps.directions and noise.shift is not None) or _length(noise) > _MOST_LOSS
        ):
            return False
    return True


def _length(noise: AdditiveNoise) -> float:
    """The l_1 norm of the longest shift, over the scale."""
    unit = noise.sensitivity / noise.noise.scale
    if noise.shift is not None:
        return unit * math.fsum(abs(value) * count for value, count in noise.shift)
    return float(unit * float(noise.dimension) ** (1.0 - 1.0 / noise.p))


def _largest_laplace_loss(step: NoiseStep, directions: Sequence[Adjacency]) -> float:
    """Of one release whose density ratios to that without the record are within e^+-length."""
    rate, length = step.rate, _length(step.noise)
    if rate == 1.0:
        return length
    replaced = Adjacency.REPLACE in directions
    if length > _MOST_LOSS:
        return 2.0 * length if replaced else length
    removed, change = math.log1p(rate * math.expm1(length)), rate * math.expm1(-length)
    # of a rate next to 1 the change is next to -1 and has lost the digits that 1 - rate has
    added = -math.log1p(change) if change > -0.5 else -math.log((1.0 - rate) + rate * math.exp(-length))
    if replaced:
        return removed + added
    return added if step.seen is None and Adjacency.REMOVE not in directions else removed
