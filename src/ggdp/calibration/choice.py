# SPDX-License-Identifier: Apache-2.0
"""Which noise has the smallest error among those that keep a privacy promise.

Every exponent beta has a least noise that meets a privacy target. These noises differ in what they do to an
answer: in their standard deviation, say, or in how often they are far out. `best_noise` finds the exponent
whose least noise has the smallest such loss, and puts those of Laplace (beta = 1) and Gaussian noise (beta =
2) beside it. `NoiseSearch` answers for single exponents too, and for several losses of the same noises.

The privacy of a noise returned is certified; that no other exponent has a smaller loss is the result of a
search, and no proof.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ggdp import arguments
from ggdp.calibration.calibrate import NoiseProblem, calibrated
from ggdp.calibration.run import AnyCalibrated, run_of
from ggdp.calibration.target import Start, Target, estimated_start
from ggdp.distributions import GeneralizedGaussian, SphericalGeneralizedGaussian
from ggdp.distributions.spherical import MOST_DIMENSION
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency
from ggdp.mechanisms.additive_noise import MATCHED, Shift
from ggdp.mechanisms.composed import Part
from ggdp.privacy_loss.dominating import BETA
from ggdp.search import lowest_between

LossName = Literal["std", "mean-absolute", "outside", "interval"]
Noise = GeneralizedGaussian | SphericalGeneralizedGaussian
Loss = LossName | Callable[[Any], float]
LOSSES: tuple[LossName, ...] = ("std", "mean-absolute", "outside", "interval")

LAPLACE, GAUSSIAN = 1.0, 2.0
# losses that can be computed for spherical noise
_SPHERICAL_LOSSES: tuple[LossName, ...] = (
    "std",
    "mean-absolute",
)
_NUM_PLANNED = 19  # number of exponents in the first scan
_BELOW_ONE = 0.15  # exponents are spaced evenly in log(beta - 1 + this): close together near 1
_STRIDE = 0.3  # distance of the first three exponents of a bracket, in that coordinate
_FARTHEST = 0.45  # distance from these up to which a fitted parabola is trusted
_MARGIN = 5e-6  # relative distance of the first certified scale from the estimated smallest one
_MOST_FELT = 2e-4  # largest increase of log loss by that margin
_CLOSE = 1e-4  # decrease of log loss that is too small for another question
_NOT_SEEN = 2e-5  # difference of log loss within the error of estimates
_TIE = 1e-4  # in log loss: Laplace or Gaussian noise this close to the best is the answer
_STEEP = 0.05  # difference of log loss of neighbours above which a parabola is not trusted
_MOST_ASKED, _MOST_VALLEYS = 14, 3  # most exponents tried in one valley (local minimum), and most valleys
_DOUBT = 0.03  # likely relative error of a planned scale
_MOST_CERTIFIED = 4  # questions about scales a little above the smallest, before a full search


@dataclass(frozen=True)
class WeighedNoise:
    """The smallest noise of one exponent that meets a target, with its run (`calibrated`) and log loss."""

    calibrated: AnyCalibrated
    log_loss: float

    @property
    def beta(self) -> float:
        """Exponent of the noise."""
        return self.calibrated.beta

    @property
    def scale(self) -> float:
        """Scale of the noise."""
        return self.calibrated.scale

    @property
    def noise(self) -> Noise:
        """The noise itself."""
        return self.calibrated.noise

    @property
    def loss(self) -> float:
        """The loss; 0 where no double is so small."""
        return math.exp(self.log_loss)


@dataclass(frozen=True)
class BestNoise(WeighedNoise):
    """The noise with the smallest loss that a search found, and the losses of Laplace and Gaussian noise.

    The noise itself is certified. The two losses beside it are those of the least Laplace and Gaussian noise
    for the same target, estimated to about 1e-5 of their scales, as logarithms; infinite where none meets the
    target, as no Gaussian does for delta = 0. `calibrate_scale` certifies such a noise.
    """

    log_laplace_loss: float
    log_gaussian_loss: float

    @property
    def laplace_loss(self) -> float:
        """The loss of Laplace noise."""
        return math.exp(self.log_laplace_loss)

    @property
    def gaussian_loss(self) -> float:
        """The loss of Gaussian noise."""
        return math.exp(self.log_gaussian_loss)

    @property
    def less_than_laplace(self) -> float:
        """By which share the loss is smaller than that of Laplace noise; 1 if none meets the target."""
        return _saved(self.log_loss, self.log_laplace_loss)

    @property
    def less_than_gaussian(self) -> float:
        """By which share the loss is smaller than that of Gaussian noise; 1 if none meets the target."""
        return _saved(self.log_loss, self.log_gaussian_loss)


def best_noise(
    *,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    loss: Loss = "std",
    threshold: float | None = None,
    level: float | None = None,
    betas: tuple[float, float] = (1.0, 8.0),
    spherical: bool | None = None,
) -> BestNoise:
    """Find the noise with the smallest error among all exponents beta that keep an epsilon and a delta.

    Args:
        epsilon: the target of all steps together; it and all up to alongside are as in `calibrate_scale`.
        delta: the target delta; for 0, pure privacy, only beta = 1 is possible.
        rate: the probability of each record to take part in a step.
        steps: how many releases share the target.
        sensitivity: the most that one record moves the value of a step.
        norm: p of the l_p norm in which the sensitivity of a vector is measured; a number, for a vector.
        dimension: how many numbers the value of a step has.
        shift: what one record does to the value, where that is known; see `AdditiveNoise`.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target.
        loss: what is to be small. "std", the standard deviation of the noise; "mean-absolute", the mean of
            |noise|; "outside", P(|noise| > threshold); "interval", the width of the interval around 0 that
            holds the noise with probability `level`; or a function of the noise that returns a number >= 0,
            such as `ggdp.selection.wrong_winner(histograms)`.
        threshold: for "outside", > 0, in the unit of the sensitivity.
        level: for "interval", in (0, 1); 0.95 if left out.
        betas: the exponents to choose from, from the first to the second, inside [1, 32].
        spherical: choose among noises that depend on a vector's Euclidean length alone (True), or among
            those that are independent on every number (False). Left out, it is True for a vector in norm 2
            unless the loss is "outside", "interval" or a function (docs/map.md says why). "Laplace" then is
            the spherical noise of beta = 1; beta = 2 is the Gaussian in both families.

    Guarantees:
        1. The noise is certified: `calibrated.achieved.upper` is at most `epsilon`.

    In random settings the loss was never more than 0.1% above the least of 200 exponents
    (benchmarks/best_noise.py). Laplace or Gaussian noise within 0.01% of the best is the answer.

    Raises:
        ValueError: an argument is out of range, or no noise covered meets the target.

    >>> best = best_noise(steps=10, epsilon=1.0, delta=1e-6)
    >>> round(best.beta, 1), round(best.loss, 2)
    (1.5, 12.61)
    >>> round(best.laplace_loss, 2), round(best.gaussian_loss, 2)
    (14.13, 13.36)
    """
    target, others = Target(epsilon, delta, adjacency), tuple(alongside)
    problem = NoiseProblem(target, rate, steps, sensitivity, norm, dimension, shift, others)
    problem = replace(problem, spherical=suits_spherical(problem, loss) if spherical is None else spherical)
    return NoiseSearch(problem, loss, threshold=threshold, level=level).best(betas)


def _check_comparable(problem: NoiseProblem) -> None:
    """Raise an error for a norm that depends on beta: the sensitivity would differ between exponents."""
    if problem.norm == MATCHED or (problem.norm is None and problem.shift is None and problem.dimension > 1):
        raise ValueError(
            "norm must be given to compare exponents on a vector, as a number in [1, inf], got "
            f"{problem.norm!r}: it would be another norm for every beta; give the one in which the "
            "sensitivity is known, such as 2"
        )


def suits_spherical(problem: NoiseProblem, loss: Loss) -> bool:
    """Whether spherical noise is searched if the caller does not say."""
    vector = problem.shift is None and 1 < problem.dimension <= MOST_DIMENSION
    return vector and problem.norm == 2 and loss in _SPHERICAL_LOSSES


def _saved(log_loss: float, other: float) -> float:
    close = log_loss == other or abs(log_loss - other) < _NOT_SEEN
    return 0.0 if close else -math.expm1(log_loss - other)


def _log_loss(loss: Loss, threshold: float | None, level: float | None) -> Callable[[Any], float]:
    """The logarithm of a loss as a function of the noise; its arguments are checked here."""
    if not callable(loss):
        arguments.one_of("loss", loss, LOSSES, hint="or give a function of the noise")
    for name, value, owner in (("threshold", threshold, "outside"), ("level", level, "interval")):
        if value is not None and loss != owner:
            raise ValueError(f'{name} must be left out except with loss="{owner}", got {value!r}')
    if callable(loss):
        return lambda noise: _log(arguments.real("loss(noise)", loss(noise), least=0.0))
    if loss == "outside":
        if threshold is None:
            raise ValueError('threshold must be given with loss="outside": the largest harmless noise')
        far = arguments.real("threshold", threshold, above=0.0)
        return lambda noise: float(noise.logsf(far)) + math.log(2.0)
    if loss == "interval":
        prob = arguments.real("level", 0.95 if level is None else level, above=0.0, below=1.0)
        return lambda noise: _log(2.0 * float(noise.isf(0.5 * (1.0 - prob))))
    return lambda noise: math.log(noise.std if loss == "std" else noise.mean_absolute)


def _log(number: float) -> float:
    return math.log(number) if number > 0.0 else -math.inf


class NoiseSearch:
    """A search for the exponent whose noise has the least loss, in few questions to the accountant.

    An exponent's noise is first looked for near the planned precision, with estimates that are good to about
    1e-5 of the scale and prove nothing. Only noises that are returned are certified.

    Args:
        problem: the privacy that every noise compared has, and the run it is for.
        loss: what is to be small, and with it threshold and level; as for `best_noise`.
    """

    def __init__(
        self,
        problem: NoiseProblem,
        loss: Loss = "std",
        *,
        threshold: float | None = None,
        level: float | None = None,
    ) -> None:
        self.problem = problem
        self._log_loss = _log_loss(loss, threshold, level)
        _check_comparable(problem)
        if problem.spherical and not callable(loss):
            hint = "or give a function of the noise, or take independent noise"
            arguments.one_of("loss", loss, _SPHERICAL_LOSSES, hint=hint)
        problem.target.check(problem.mechanism(GAUSSIAN, 1.0))
        self._gaussian = replace(problem, spherical=False)
        self._planned: dict[float, Start | None] = {}
        self._found: dict[float, Start | None] = {}
        self._calibrated: dict[float, AnyCalibrated] = {}
        self._uncovered: set[float] = set()  # exponents that are planned to need more noise than is covered

    def with_loss(
        self, loss: Loss, *, threshold: float | None = None, level: float | None = None
    ) -> "NoiseSearch":
        """A search of the same noises by another loss, which reuses what this one has computed."""
        other = NoiseSearch(self.problem, loss, threshold=threshold, level=level)
        other._planned, other._found, other._calibrated = self._planned, self._found, self._calibrated
        other._uncovered = self._uncovered
        return other

    def _problem(self, beta: float) -> NoiseProblem:
        """The problem, with independent noise if that is the same law: its bounds are narrower."""
        return self._gaussian if beta == GAUSSIAN else self.problem

    def best(self, betas: tuple[float, float]) -> BestNoise:
        """The best exponent in an interval, with the losses of Laplace and Gaussian noise."""
        low, high = self._ends(betas)
        classics = [classic for classic in (LAPLACE, GAUSSIAN) if low <= classic <= high]
        asked = set(classics)
        for valley in self._valleys(low, high):
            if (plan := self._plan(valley)) and plan.log_value >= math.log(self._problem(valley).axis.high):
                # raises an error if all noise that is covered meets the target
                self._problem(valley).least_noise(valley)
            asked |= self._descend(valley, low, high)
        beta = min(sorted(asked), key=self._value)
        for classic in classics:
            if self._value(classic) <= self._value(beta) + _TIE:
                beta = classic
        self._check_inside(beta)
        best = self.weighed(beta)
        # a certified scale may be larger than estimated
        for other in sorted(asked, key=self._value)[:_MOST_VALLEYS]:
            if self._value(other) + 2.0 * _TIE < best.log_loss:
                best = min(best, self.weighed(other), key=lambda one: one.log_loss)
        return BestNoise(best.calibrated, best.log_loss, self._value(LAPLACE), self._value(GAUSSIAN))

    def _check_inside(self, beta: float) -> None:
        """Raise an error if the best exponent is best only because others need more noise than is covered."""
        start, low = self._found.get(beta), math.log(self._problem(beta).axis.low)
        if (uncovered := self._uncovered) and start is not None and start.log_value < low + _DOUBT:
            raise ValueError(
                f"steps must be fewer for the best exponent to be known at {self.problem.target}: some, such "
                f"as beta={min(uncovered, key=lambda one: abs(one - GAUSSIAN)):.3g}, need more noise than is "
                "covered; or take a smaller rate, or a larger epsilon or delta"
            )

    def weighed(self, beta: float) -> WeighedNoise:
        """Noise of one exponent, certified, with a scale within about 1e-5 of the least, and its loss.

        Raises:
            ValueError: no noise of this exponent that the accountant covers meets the target.
        """
        if beta not in self._calibrated:
            self._value(beta)
        if beta not in self._calibrated:
            close = self._certified_above(beta)
            self._calibrated[beta] = close or self._problem(beta).least_noise(beta, self._found[beta])
        found = self._calibrated[beta]
        return WeighedNoise(found, self._log_loss(found.noise))

    def _ends(self, betas: tuple[float, float]) -> tuple[float, float]:
        low, high = (arguments.real("betas", end, least=BETA.least, most=BETA.most) for end in betas)
        if low > high:
            raise ValueError(f"betas must be (low, high) with low <= high, got {betas!r}")
        if self.problem.target.delta == 0.0:
            if low > LAPLACE:
                raise ValueError(
                    f"betas must include 1 when delta is 0, got {betas!r}: no other noise is purely private"
                )
            high = LAPLACE
        return low, high

    def _value(self, beta: float) -> float:
        """Log loss of the smallest noise of an exponent, from one or two questions; infinity if unknown."""
        if beta not in self._found:
            self._found[beta] = self._border(beta)
        return self._loss_at(beta, self._found[beta])

    def _loss_at(self, beta: float, start: Start | None, stretch: float = 1.0) -> float:
        if start is None:
            return math.inf
        noise = self._problem(beta).step(beta, math.exp(start.log_value)).noise
        return self._log_loss(replace(noise, scale=stretch * noise.scale))

    def _felt(self, beta: float, start: Start) -> float:
        """By how much the margin of a scale raises the log loss."""
        least = self._loss_at(beta, start)
        return self._loss_at(beta, start, 1.0 + _MARGIN) - least if math.isfinite(least) else 0.0

    # The first scan, by plan alone.

    def _valleys(self, low: float, high: float) -> list[float]:
        """The local minima of the planned log loss, without those that are clearly too high."""
        inner = np.linspace(_place(low), _place(high), _NUM_PLANNED)[1:-1]
        scan = [low, *(_beta(float(x)) for x in inner), high] if low < high else [low]
        plans = [self._plan(beta) for beta in scan]
        values = [self._loss_at(beta, plan) for beta, plan in zip(scan, plans, strict=True)]
        least = min(values)
        if not math.isfinite(least):
            tried = GAUSSIAN if low <= GAUSSIAN <= high else low
            if self._has_plan:  # more noise is planned than is covered: one question shows it
                self._calibrated[tried] = self._problem(tried).least_noise(tried)
            return [tried]
        around = [math.inf, *values, math.inf]
        valleys = []
        for number, (beta, value) in enumerate(zip(scan, values, strict=True)):
            doubt = value - self._loss_at(beta, plans[number], 1.0 - _DOUBT) if value < math.inf else 0.0
            if value <= min(around[number], around[number + 2]) and value - doubt <= least:
                valleys.append((value, beta))
        return [beta for _, beta in sorted(valleys)[:_MOST_VALLEYS]]

    def _plan(self, beta: float) -> Start | None:
        if beta not in self._planned:
            self._planned[beta] = self._plan_inside(beta) if self._has_plan else None
        return self._planned[beta]

    def _plan_inside(self, beta: float) -> Start | None:
        """The planned precision; None if the plan fails or clearly needs more noise than is covered."""
        try:
            found = self._problem(beta).planned(beta)
        except (ValueError, ArithmeticError):
            return None
        axis = self._problem(beta).axis
        if found.log_value < math.log(axis.low) - _DOUBT:
            self._uncovered.add(beta)
            return None
        return Start(min(found.log_value, math.log(axis.high)), found.slope)

    @cached_property
    def _has_plan(self) -> bool:
        return self.problem.target.delta > 0.0

    def _border(self, beta: float) -> Start | None:
        """The precision at which the target is just met, from a few questions near the planned one."""
        start = self._plan(beta)
        if start is None:
            return None if beta in self._uncovered else self._calibrated_border(beta)
        problem = self._problem(beta)
        moved = Start(start.log_value + self._offset(beta), start.slope)
        excess = problem.target.estimated_excess
        found = estimated_start(problem.axis, lambda value: problem.mechanism(beta, value), excess, moved)
        # a certified precision is a little smaller
        if found is not None and found.log_value >= math.log(problem.axis.low) + 2.0 * _MARGIN:
            return found
        return self._calibrated_border(beta)

    def _offset(self, beta: float) -> float:
        """The error of the plan at the nearest exponent for which an estimate was computed."""
        known = [
            (abs(_place(one) - _place(beta)), found.log_value - plan.log_value)
            for one, found in self._found.items()
            if found is not None and (plan := self._planned.get(one)) is not None
        ]
        return min(known)[1] if known else 0.0

    def _calibrated_border(self, beta: float) -> Start | None:
        try:
            found = self._calibrated[beta] = self._problem(beta).least_noise(beta)
        except (ValueError, CannotCertifyError):
            return None
        unit = self._problem(beta).step(beta, 1.0).noise.scale
        return Start(math.log(unit / found.scale), 1.0)

    def _certified_above(self, beta: float) -> AnyCalibrated | None:
        """Noise with a scale a little above the smallest, certified by one or a few questions.

        None if that fails, or if the larger scale changes the loss noticeably, as it does P(|noise| > t) at
        large t.
        """
        start, problem = self._found.get(beta), self._problem(beta)
        if start is None or self._felt(beta, start) > _MOST_FELT:
            return None
        at = start.log_value - _MARGIN
        wide = problem.spherical or problem.target.epsilon == 0.0  # wide bounds: the margin may be too small
        for _ in range(_MOST_CERTIFIED if wide else 1):
            step = problem.step(beta, math.exp(at))
            mechanism = run_of(step, problem.rate, problem.steps, problem.alongside)
            verdict = problem.target.judge(mechanism)
            if verdict.at_most <= 0.0:
                run = step, problem.rate, problem.steps, problem.target.delta
                achieved = problem.target.achieved(mechanism, verdict)
                return calibrated(*run, achieved, False, problem.alongside)
            at -= min(1.1 * verdict.at_most / start.slope, _DOUBT) + _MARGIN
        return None

    # The bottom of a valley.

    def _descend(self, beta: float, low: float, high: float) -> set[float]:
        """The exponents tried in one valley: three around its planned bottom, then minima of parabolas.

        A parabola goes through the lowest point found and its neighbours. The search ends when its minimum is
        no longer lower.
        """
        ends = (_place(low), _place(high))
        middle = min(max(_place(beta), ends[0] + 0.5 * _STRIDE), max(ends[1] - 0.5 * _STRIDE, ends[0]))
        seen: dict[float, float] = {}
        for x in (middle - _STRIDE, middle, middle + _STRIDE):
            self._look(min(max(x, ends[0]), ends[1]), seen)
        while 3 <= len(seen) < _MOST_ASKED:
            best = min(seen, key=lambda x: seen[x])
            if math.isinf(seen[best]):
                break
            aim, gain = lowest_between(seen, best, ends, _FARTHEST)
            places = sorted(seen)
            number = places.index(best)
            steep = [x for x in places[max(number - 1, 0) : number + 2] if seen[x] > seen[best] + _STEEP]
            if gain < _CLOSE and steep:  # no parabola is fitted: half-way to the farther of these neighbours
                aim, gain = 0.5 * (best + max(steep, key=lambda x: abs(x - best))), math.inf
            if gain < _CLOSE or not self._look(aim, seen):
                break
        return {_rounded(x) for x in seen}

    def _look(self, x: float, seen: dict[float, float]) -> bool:
        """Compute the loss at a place; returns whether it was not known before."""
        beta = _rounded(x)
        place = _place(beta)
        if place in seen:
            return False
        seen[place] = self._value(beta)
        return True


def _place(beta: float) -> float:
    return math.log(beta - LAPLACE + _BELOW_ONE)


def _beta(place: float) -> float:
    return max(math.exp(place) + LAPLACE - _BELOW_ONE, LAPLACE)


def _rounded(place: float) -> float:
    return round(_beta(place), 3)
