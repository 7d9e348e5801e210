# SPDX-License-Identifier: Apache-2.0
"""Shifts that a vector release allows, written out: what they cost bounds its cost from below.

A shift of one coordinate, and one spread equally over several. Without sampling a spread shift is a
composition of its coordinates. With sampling it is not; what is then kept of it is a sum of rounded
log-likelihood ratios (`privacy_loss.worst_split.equal_split`), which any noisy vector can be reduced to.
"""

from dataclasses import replace

from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.engines.cells import CellComposition
from ggdp.accounting.steps import NoiseStep, Steps
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.privacy_loss.dominating import Parts
from ggdp.privacy_loss.worst_split import equal_split

_MOST_SPLIT = 10**6
_SAMPLED_SPLIT = 400  # coordinates of an explicit split under sampling: as good as infinitely many
_FEWEST_SPLIT = 10  # coordinates of a sampled split
_SPLITS = (2, 10)  # equal splits that are tried beside the largest


def one_coordinate(steps: Steps) -> Steps:
    """All of every vector's shift in its largest coordinate: a lower bound of its cost, and a plan."""
    return steps.with_noise(_flat)


def worst_or_one_coordinate(steps: Steps) -> Steps:
    """One shift that is allowed: the worst where it is known, all in the largest coordinate where it is
    not."""
    return steps.with_noise(lambda step: step.noise if step.worst_shift is not None else _flat(step))


def _flat(step: NoiseStep) -> AdditiveNoise:
    """All of the shift in its largest coordinate."""
    noise = step.noise
    if noise.shift is not None:
        largest = max(abs(value) for value, _ in noise.shift)
        return AdditiveNoise(noise.noise, noise.sensitivity, noise.norm, shift=((largest, 1),))
    return replace(noise, dimension=1)


def quick_splits(steps: Steps) -> list[Parts]:
    """The shift of every unsampled step spread equally over all coordinates, or a few; sampled steps keep one
    coordinate."""
    most = max(step.noise.dimension for step in steps.noisy)
    counts = {int(min(most, count)) for count in (*_SPLITS, _MOST_SPLIT)} - {1}
    return list(dict.fromkeys(parts for count in sorted(counts) for parts in split(steps, count).pairs()))


def split(steps: Steps, count: int) -> Steps:
    """The shift of every unsampled step without a worst one spread equally over so many coordinates."""
    return steps.with_noise(lambda step: _spread(step, count))


def _spread(step: NoiseStep, count: int) -> AdditiveNoise:
    noise = step.noise
    if noise.dimension == 1 or step.worst_shift is not None:
        return noise
    if step.rate < 1.0 or noise.shift is not None:
        return _flat(step)
    parts = min(count, noise.dimension)
    each = float(parts) ** (-1.0 / noise.p) * (1.0 - 1e-15)
    return AdditiveNoise(noise.noise, noise.sensitivity, shift=((each, int(parts)),))


def sampled_split(steps: Steps) -> CellComposition | None:
    """Every step without a worst shift spread equally over many coordinates, the sampled ones as cells: where
    a record is removed, or added alone."""
    if Adjacency.REPLACE in steps.directions:
        return None
    direction = steps.directions[0]
    known: list[NoiseStep] = []
    custom: list[Enclosed] = []
    for step in steps.noisy:
        noise = step.noise
        count = min(noise.dimension, _SAMPLED_SPLIT)
        if step.worst_shift is not None:
            known.append(step)
        elif noise.shift is not None or step.rate == 1.0:
            known.append(replace(step, noise=_spread(step, int(count))))
        elif count >= _FEWEST_SPLIT:
            each = noise.sensitivity / noise.noise.scale * count ** (-1.0 / noise.p) * (1.0 - 1e-15)
            cells = equal_split(noise.noise.beta, each, int(count)).sampled(step.rate)
            atoms = (cells.reversed if direction is Adjacency.ADD else cells).below()
            custom.append(Enclosed(atoms, atoms, step.times))
    if not custom:
        return None
    return CellComposition(custom, replace(steps, noisy=tuple(known)).pairs_in(direction))
