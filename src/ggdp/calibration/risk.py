# SPDX-License-Identifier: Apache-2.0
"""How much noise keeps the risk of an attack below a target.

A target is one number that no attacker may exceed: a true positive rate at a false positive rate, an
advantage, a posterior at a prior and a false positive rate, or mu of Gaussian differential privacy.
`ggdp.accounting.risk` says what they are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds, Risk, account
from ggdp.calibration.calibrate import precisions, step_at
from ggdp.calibration.run import NoisyRun, run_of
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism
from ggdp.mechanisms.additive_noise import Shift
from ggdp.mechanisms.composed import Part
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER
from ggdp.search import border

_RESOLUTION = 1e-6  # relative spacing of the scales tried
_SLOPE = 3.0  # first guess of d log(risk) / d(-log scale); large, since little noise is slow to account for
_JUST_ABOVE = 5e-324


@dataclass(frozen=True)
class RiskTarget:
    """A risk that no attacker may exceed; give exactly one of the first four.

    Attributes:
        true_positive_rate: the most detections, at `false_positive_rate`; above it and below 1.
        advantage: the most by which detections may exceed false alarms, in (0, 1).
        posterior: the largest probability that an alarm is right, at `prior` and `false_positive_rate`; above
            the prior.
        mu: of Gaussian differential privacy down to `least_delta`.
        false_positive_rate: in (0, 1).
        prior: in (0, 1).
        least_delta: see `GaussianPrivacy`.
    """

    true_positive_rate: float | None = None
    advantage: float | None = None
    posterior: float | None = None
    mu: float | None = None
    false_positive_rate: float = 0.01
    prior: float = 0.5
    least_delta: float = 1e-10

    def __post_init__(self) -> None:
        given = [name for name in _LEAST if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(_LEAST)}, got {', '.join(given) or 'none'}")
        arguments.real("false_positive_rate", self.false_positive_rate, above=0.0, below=1.0)
        arguments.real("prior", self.prior, above=0.0, below=1.0)
        least = self.least
        hint = "that much is reached without looking at the output" if least else ""
        arguments.real(given[0], self.most, above=least, below=math.inf if self.mu else 1.0, hint=hint)

    @property
    def name(self) -> str:
        """Which risk is meant."""
        return next(name for name in _LEAST if getattr(self, name) is not None)

    @property
    def most(self) -> float:
        """The largest risk that is allowed."""
        return float(getattr(self, self.name))

    @property
    def least(self) -> float:
        """The risk from an attacker who does not look at the output; a target must be above it."""
        return _LEAST[self.name](self)

    def measured(self, mechanism: Mechanism, adjacency: Adjacency) -> Bounds:
        """Certified bounds of the risk of a mechanism."""
        risk = Risk(account(mechanism, adjacency=adjacency))
        if self.true_positive_rate is not None:
            return risk.true_positive_rate(false_positive_rate=self.false_positive_rate)
        if self.advantage is not None:
            return risk.advantage()
        if self.posterior is not None:
            return risk.posterior(prior=self.prior, false_positive_rate=self.false_positive_rate)
        return risk.gdp(least_delta=self.least_delta).mu

    def excess(self, measured: float) -> float:
        """log of how much of what is allowed is used up; at most 0 exactly if the target is met."""
        if measured <= self.least:
            return -math.inf
        ratio = math.log(measured - self.least) - math.log(self.most - self.least)
        return min(ratio, 0.0) if measured <= self.most else max(ratio, _JUST_ABOVE)

    def __str__(self) -> str:
        at = f" at false_positive_rate = {self.false_positive_rate:g}"
        beside = {"true_positive_rate": at, "posterior": f"{at} and prior = {self.prior:g}"}
        return f"{self.name} = {self.most:g}{beside.get(self.name, '')}"


_LEAST: dict[str, Callable[[RiskTarget], float]] = {
    "true_positive_rate": lambda target: target.false_positive_rate,
    "advantage": lambda target: 0.0,
    "posterior": lambda target: target.prior,
    "mu": lambda target: 0.0,
}


@dataclass(frozen=True)
class CalibratedToRisk(NoisyRun):
    """A run of `steps` noisy steps, each on a Poisson sample with `rate`, whose risk meets a target.

    Attributes:
        step: the noisy step, before sampling.
        rate: the probability of each record to take part in a step.
        steps: how many.
        target: the risk that is not exceeded.
        achieved: certified bounds of that risk; `achieved.upper` is at most the target.
        sharp: whether the next smaller scale certifiably misses the target.
        alongside: other releases on the same data that the target covers too.
    """

    step: AdditiveNoise
    rate: float
    steps: int
    target: RiskTarget
    achieved: Bounds
    sharp: bool
    alongside: tuple[Part, ...] = ()


def calibrate_scale_to_risk(
    target: RiskTarget,
    *,
    beta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
) -> CalibratedToRisk:
    """The smallest scale of Generalized Gaussian noise for which no attacker exceeds a risk.

    Args:
        target: the risk, for example RiskTarget(true_positive_rate=0.05, false_positive_rate=0.01).
        beta: exponent of the noise, in [1, 32].
        rate: Poisson sampling probability of each step; this and all further arguments as in
            `calibrate_scale`.
        steps: number of steps.
        sensitivity: the most that one record moves the value of a step.
        norm: p of the l_p norm in which the sensitivity of a vector is measured.
        dimension: how many numbers the value of a step has.
        shift: what one record does to the value, where that is known; see `AdditiveNoise`.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target.

    Guarantees:
        1. `achieved.upper`, the certified upper bound of the risk, is at most the target.
        2. A scale smaller by 1e-6 relative was tried, and no bound certifies that it meets the target; where
           `sharp` is true, a bound certifies that it does not.

    Raises:
        ValueError: an argument is out of range, or no noise multiplier that the accountant covers is the
            answer.

    >>> found = calibrate_scale_to_risk(RiskTarget(true_positive_rate=0.05), beta=2, rate=0.01, steps=1000)
    >>> round(found.noise_multiplier, 4), found.achieved.upper <= 0.05
    (0.7777, True)
    """
    arguments.instance("target", target, RiskTarget)
    rate = arguments.real("rate", rate, above=0.0, most=1.0)
    steps = arguments.whole("steps", steps)
    sensitivity = arguments.real("sensitivity", sensitivity, above=0.0)
    others = tuple(alongside)

    def at(precision: float) -> AdditiveNoise:
        return step_at(beta, precision, sensitivity, norm, dimension, shift)

    axis = precisions(_RESOLUTION)  # from more to less private
    seen: dict[int, Bounds] = {}

    def excess(place: int) -> float:
        seen[place] = target.measured(run_of(at(axis.value(place)), rate, steps, others), adjacency)
        return target.excess(seen[place].upper)

    found = border(axis, excess, start=axis.place(0.0), slope=_SLOPE)
    if found.private is None or found.lost is None:
        covered = f"the noise multipliers covered, [{NOISE_MULTIPLIER.least:g}, {NOISE_MULTIPLIER.most:g}]"
        if found.private is None:
            raise ValueError(
                f"{target} cannot be met by {covered}, not even by the largest; take fewer steps, a smaller "
                "rate, or a larger target"
            )
        raise ValueError(
            f"{target} is met by all of {covered}, so that the smallest scale is not known; ask for less risk"
        )
    sharp = target.excess(seen[found.lost].lower) > 0.0
    step = at(axis.value(found.private))
    return CalibratedToRisk(step, rate, steps, target, seen[found.private], sharp, others)
