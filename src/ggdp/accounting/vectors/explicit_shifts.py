# SPDX-License-Identifier: Apache-2.0
"""Shifts that a vector release allows, written out: what they cost bounds its cost from below.

A shift of one coordinate, and one spread equally over several. Without sampling a spread shift is a
composition of its coordinates. With sampling it is not; what is then kept of it is a sum of rounded
log-likelihood ratios (`privacy_loss.worst_split.equal_split`), which any noisy vector can be reduced to.
"""

from collections.abc import Callable
from dataclasses import replace

from ggdp.accounting.steps import Direction, Part
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism, PoissonSampled
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.dominating import Parts, directions, worst_shift
from ggdp.privacy_loss.worst_split import equal_split

_MOST_SPLIT = 10**6
_SAMPLED_SPLIT = 400  # coordinates of an explicit split under sampling: as good as infinitely many
_FEWEST_SPLIT = 10  # with fewer coordinates the contour is slow to certify itself


def leaves(mechanism: Mechanism) -> list[tuple[AdditiveNoise, float]]:
    """Noise and rate of every step; none if a step is not additive noise, which is then not for this file."""
    parts = mechanism.parts if isinstance(mechanism, Composed) else ((mechanism, 1),)
    steps = [
        (step.mechanism, step.rate) if isinstance(step, PoissonSampled) else (step, 1.0) for step, _ in parts
    ]
    noisy = [(step, rate) for step, rate in steps if isinstance(step, AdditiveNoise)]
    return noisy if len(noisy) == len(steps) else []


def mapped(mechanism: Mechanism, change: Callable[[AdditiveNoise, float], AdditiveNoise]) -> Mechanism:
    """The mechanism with every step's noise changed."""
    if isinstance(mechanism, Composed):
        return Composed([(changed(step, change), times) for step, times in mechanism.parts])
    return changed(mechanism, change)


def changed(step: Step, change: Callable[[AdditiveNoise, float], AdditiveNoise]) -> Step:
    """The step with its noise changed."""
    match step:
        case AdditiveNoise():
            return change(step, 1.0)
        case PoissonSampled(mechanism=AdditiveNoise() as noise, rate=rate):
            return PoissonSampled(change(noise, rate), rate)
        case _:
            return step


def flat(step: AdditiveNoise, rate: float) -> AdditiveNoise:
    """All of the shift in its largest coordinate."""
    if step.shift is not None:
        largest = max(abs(value) for value, _ in step.shift)
        return AdditiveNoise(step.noise, step.sensitivity, step.norm, shift=((largest, 1),))
    return replace(step, dimension=1)


def quick_splits(mechanism: Mechanism, adjacency: Adjacency) -> list[Parts]:
    """The shift of every unsampled step spread equally over all coordinates; sampled steps keep one
    coordinate."""
    most = max(step.dimension for step, _ in leaves(mechanism))
    if most < _FEWEST_SPLIT:
        return []
    found = []
    for count in sorted({_FEWEST_SPLIT, int(min(most, _MOST_SPLIT))}):
        found += directions(split(mechanism, adjacency, count), adjacency)
    return found


def split(mechanism: Mechanism, adjacency: Adjacency, count: int) -> Mechanism:
    """The shift of every unsampled step without a worst one spread equally over so many coordinates."""
    double = 2.0 if adjacency is Adjacency.REPLACE else 1.0

    def spread(step: AdditiveNoise, rate: float) -> AdditiveNoise:
        if step.dimension == 1 or worst_shift(step, rate, adjacency) is not None:
            return step
        if rate < 1.0 or step.shift is not None:
            return flat(step, rate)
        parts = min(count, step.dimension)
        each = double * float(parts) ** (-1.0 / step.p) * (1.0 - 1e-15)
        return AdditiveNoise(step.noise, step.sensitivity, shift=((each, int(parts)),))

    return mapped(mechanism, spread)


def sampled_splits(mechanism: Mechanism, adjacency: Adjacency) -> list[Direction]:
    """Every step without a worst shift spread equally over many coordinates, the sampled ones as cells: where
    a record is removed, or added alone."""
    parts = mechanism.parts if isinstance(mechanism, Composed) else ((mechanism, 1),)
    known: list[tuple[Step, int]] = []
    described: list[Part] = []
    for (step, times), (noise, rate) in zip(parts, leaves(mechanism), strict=True):
        count = min(noise.dimension, _SAMPLED_SPLIT)
        if worst_shift(noise, rate, adjacency) is not None or noise.shift is not None:
            known.append((changed(step, flat) if noise.shift is not None else step, times))
        elif rate == 1.0:
            known += [(part, times) for part, _ in Composed(split(step, adjacency, int(count))).parts]
        elif count >= _FEWEST_SPLIT:
            each = noise.sensitivity / noise.noise.scale * count ** (-1.0 / noise.p) * (1.0 - 1e-15)
            cells = equal_split(noise.noise.beta, each, int(count)).sampled(rate)
            atoms = (cells.reversed if adjacency is Adjacency.ADD else cells).below()
            described.append(Part(atoms, atoms, times))
    if not described or adjacency is Adjacency.REPLACE:
        return []
    one_way = Adjacency.ADD if adjacency is Adjacency.ADD else Adjacency.REMOVE
    return [Direction(tuple(described), directions(Composed(known), one_way)[0] if known else ())]
