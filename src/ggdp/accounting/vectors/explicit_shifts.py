# SPDX-License-Identifier: Apache-2.0
"""Shifts that a vector release allows, written out: what they cost bounds its cost from below.

A shift of one coordinate, and one spread equally over several. Without sampling a spread shift is a
composition of its coordinates. With sampling it is not. Then the noisy vector is reduced to one number, a sum
of rounded log-likelihood ratios (`privacy_loss.worst_split.equal_split`), which can only cost less.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from ggdp.accounting.bounds import Bounds
from ggdp.accounting.engines import contour
from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.engines.cells import CellComposition
from ggdp.accounting.engines.curve import crossing
from ggdp.accounting.engines.pairs import PairComposition
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.accounting.steps import NoiseStep, Steps
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError, EpsilonTooLargeError
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.privacy_loss.dominating import Parts
from ggdp.privacy_loss.worst_split import equal_split

_MOST_SPLIT = 10**6
_SAMPLED_SPLIT = 400  # coordinates of an explicit split under sampling; more would hardly cost more
_FEWEST_SPLIT = 10  # fewest coordinates of a split under sampling
_SECOND_SPLIT = 10  # coordinates of a second equal split; 2 if there are fewer
_FEW_RELEASES = 10  # releases of numbers up to which other engines are tried too
_SPLIT_SECONDS = 1.0
_MOST_LOSS = 500.0
_LEAST_LOG_DELTA = -600.0


@dataclass(frozen=True)
class SplitCost:
    """The cost of an explicit shift, computed only if a plan shows that it exceeds a known lower bound."""

    parts: Parts

    @cached_property
    def _plan(self) -> TiltPlan:
        return TiltPlan.of(self.parts)

    def epsilon(self, log_delta: float, known: float) -> float:
        """A certified lower bound of epsilon; `known`, another one, if that is planned to be larger."""
        saddle = saddle_for_log_delta(self._plan, log_delta)
        planned = saddle.epsilon + (saddle.log_delta - log_delta) / saddle.theta
        if not known < planned < _MOST_LOSS:
            return known
        try:
            curve = contour.draw(self.parts, self._plan, saddle)
            return crossing(curve, log_delta, saddle.epsilon, 2.0 * saddle.deviation).lower
        except CannotCertifyError:
            return max(known, self._other(lambda engines: engines.epsilon(log_delta)))

    def delta(self, epsilon: float, known: float) -> float:
        """A certified lower bound of delta; `known`, another one, if that is planned to be larger."""
        saddle = saddle_for_epsilon(self._plan, epsilon)
        least = max(_LEAST_LOG_DELTA, math.log(known + 5e-324))
        if not (saddle.deviation > 0.0 and saddle.log_delta > least):
            return known
        try:
            return math.exp(contour.draw(self.parts, self._plan, saddle).log_delta(epsilon).lower)
        except CannotCertifyError:
            return max(known, self._other(lambda engines: engines.delta(epsilon)))

    @cached_property
    def _engines(self) -> PairComposition:
        return PairComposition(self.parts)

    def _other(self, ask: Callable[[PairComposition], Bounds]) -> float:
        """A lower bound by the other engines, if there are few releases; 0 otherwise."""
        if sum(times for _, times in self.parts) > _FEW_RELEASES:
            return 0.0
        with CLOCK.running(_SPLIT_SECONDS):
            try:
                return ask(self._engines).lower
            except (CannotCertifyError, EpsilonTooLargeError):
                return 0.0


def one_coordinate(steps: Steps) -> Steps:
    """The steps with the whole shift of every vector in one coordinate; they cost no more."""
    return steps.with_noise(_flat)


def worst_or_one_coordinate(steps: Steps) -> Steps:
    """One shift that is allowed: the worst where it is known, all in the largest coordinate where it is
    not."""
    return steps.with_noise(lambda step: step.noise if step.worst_shift is not None else _flat(step))


def _flat(step: NoiseStep) -> AdditiveNoise:
    """The release with the whole shift in one coordinate, the largest one of a known shift."""
    noise = step.noise
    if noise.shift is not None:
        largest = max(abs(value) for value, _ in noise.shift)
        return AdditiveNoise(noise.noise, noise.sensitivity, noise.norm, shift=((largest, 1),))
    return replace(noise, dimension=1)


def quick_splits(steps: Steps) -> list[SplitCost]:
    """The shift of every unsampled step spread equally over all coordinates, or a few; sampled steps keep one
    coordinate."""
    most = max(step.noise.dimension for step in steps.noisy)
    if most == 1:
        return []
    counts = {_SECOND_SPLIT if most >= _SECOND_SPLIT else 2, int(min(most, _MOST_SPLIT))}
    found = dict.fromkeys(parts for count in sorted(counts) for parts in split(steps, count).pairs())
    return [SplitCost(parts) for parts in found]


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
