# SPDX-License-Identifier: Apache-2.0
"""How much noise, how many steps or how large a sampling rate a privacy target allows.

A run is `steps` noisy steps, each on a Poisson sample of the records with probability `rate`.
`calibrate_scale`, `calibrate_rate` and `calibrate_steps` take the same arguments under the same names, each
without the one that it finds, and return a `Calibrated`. `calibration.family` searches the parameter of any
mechanism; `calibration.estimate` calibrates to an estimate, which guarantees nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, overload

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.calibration.run import AnyCalibrated, Calibrated, CalibratedSpherical, Step, check_sampling, run_of
from ggdp.calibration.target import Start, Target, planned_start, solve
from ggdp.distributions import GeneralizedGaussian, SphericalGeneralizedGaussian
from ggdp.distributions.spherical import MOST_DIMENSION
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism, Sampling, SphericalNoise
from ggdp.mechanisms.additive_noise import Shift, compressed
from ggdp.mechanisms.composed import Part
from ggdp.privacy_loss.dominating import MOST_TIMES, NOISE_MULTIPLIER, RATE
from ggdp.privacy_loss.spherical import LENGTH
from ggdp.search import Axis, CountAxis, LogAxis

_RESOLUTION = 4e-7  # relative spacing of the scales or rates tried
_SPHERICAL_RESOLUTION = 1e-5  # for spherical noise, whose bounds are about 5e-5 wide
_SINGLE_RESOLUTION = 1e-9  # for one release, which has a closed form
_COARSEST = 0.1  # the largest tolerance that a caller may ask for
INSIDE = 1e-9  # relative distance kept from the ends of the range of noise multipliers, because of rounding
_COVERED = f"the noise multipliers covered, [{NOISE_MULTIPLIER.least:g}, {NOISE_MULTIPLIER.most:g}]"


@overload
def calibrate_scale(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    tolerance: float | None = None,
    spherical: Literal[False] = False,
    power: float = 0.0,
    sampling: Sampling | None = None,
) -> Calibrated: ...


@overload
def calibrate_scale(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    tolerance: float | None = None,
    spherical: bool,
    power: float = 0.0,
    sampling: Sampling | None = None,
) -> AnyCalibrated: ...


def calibrate_scale(
    *,
    beta: float,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    tolerance: float | None = None,
    spherical: bool = False,
    power: float = 0.0,
    sampling: Sampling | None = None,
) -> AnyCalibrated:
    """The smallest scale of Generalized Gaussian noise for which a run is (epsilon, delta)-private.

    Args:
        beta: exponent of the noise, in [1, 32].
        epsilon: the target epsilon of all steps together, in [0, 2000].
        delta: the target delta, in [1e-100, 1), or 0 for pure privacy, which Laplace noise has.
        rate: the probability of each record to take part in a step (Poisson sampling), in [1e-7, 1].
        steps: how many steps or releases there are, at most 10^7.
        sensitivity: the most that one record moves the value of a step.
        norm: p of the l_p norm in which the sensitivity of a vector is measured; beta if left out.
        dimension: how many numbers the value of a step has, up to 10^9 or infinity.
        shift: what one record does to the value, where that is known; see `AdditiveNoise`.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target, as pairs (mechanism, times), for
            example a normalisation before training. Their noise stays as given.
        tolerance: how far above the smallest scale the answer may lie, relative to it, in [1e-9, 0.1]. If
            left out, 1e-9 for one step, 4e-7 for several, 1e-5 for spherical noise. A larger one is faster.
        spherical: noise on the whole vector that depends on its Euclidean length alone, instead of
            independent noise on its numbers; for a sensitivity in norm 2. See docs/spherical-noise.md.
        power: of the length in its density, in [1 - dimension, 0].
        sampling: how batches are drawn, in place of a Poisson sample with `rate`.

    Returns:
        The calibrated run: its `noise`, `scale` and `noise_multiplier`, and the epsilon `achieved`.

    Guarantees:
        1. The certified upper bound of epsilon at `delta`, `achieved.upper`, is at most `epsilon`.
        2. No bound found in the seconds that a search may take certifies that a scale smaller by `tolerance`
           meets the target; where `sharp` is true, a bound certifies that it does not.

    Raises:
        ValueError: an argument is out of range, or no noise multiplier that the accountant covers is the
            answer.

    >>> found = calibrate_scale(beta=1.5, epsilon=2.0, delta=1e-6, rate=0.01, steps=5000)
    >>> round(found.scale, 5), found.achieved.upper <= 2.0, found.sharp
    (2.01607, True, True)
    """
    target, others = Target(epsilon, delta, adjacency), tuple(alongside)
    shared = NoiseProblem(
        target,
        rate,
        steps,
        sensitivity,
        norm,
        dimension,
        shift,
        others,
        tolerance,
        spherical,
        sampling,
        power,
    )
    return shared.least_noise(beta)


@dataclass(frozen=True)
class NoiseProblem:
    """A target, a run and what one record does to it: all that decides the least noise for an exponent.

    The arguments are those of `calibrate_scale`. Noise is searched along its precision, sqrt(2) *
    sensitivity / scale times the largest entry of a known shift, because privacy falls along it.
    """

    target: Target
    rate: float = 1.0
    steps: int = 1
    sensitivity: float = 1.0
    norm: float | str | None = None
    dimension: int | float = 1
    shift: Shift | None = None
    alongside: tuple[Part, ...] = ()
    tolerance: float | None = None
    spherical: bool = False
    sampling: Sampling | None = None
    power: float = 0.0

    def __post_init__(self) -> None:
        _resolution(1, self.tolerance)
        check_sampling(self.sampling)
        if self.spherical:
            _check_spherical(self.norm, self.dimension, self.shift)
        elif self.power != 0.0:
            raise ValueError(f"power must be left out but for spherical=True, got {self.power!r}")
        object.__setattr__(self, "rate", _checked_rate(self.rate))
        object.__setattr__(self, "steps", arguments.whole("steps", self.steps))
        sensitivity = arguments.real("sensitivity", self.sensitivity, above=0.0)
        object.__setattr__(self, "sensitivity", sensitivity)

    @property
    def axis(self) -> LogAxis:
        """The precisions searched, 1 / noise_multiplier for a unit shift."""
        if self.spherical:
            low, high = (math.sqrt(2.0) * end for end in (LENGTH.least, LENGTH.most))
            resolution = max(_SPHERICAL_RESOLUTION, self.tolerance or 0.0)
            return LogAxis(low * (1.0 + INSIDE), high * (1.0 - INSIDE), resolution)
        return precisions(_resolution(self.steps, self.tolerance))

    def step(self, beta: float, precision: float) -> Step:
        """One noisy step."""
        if self.spherical:
            scale = math.sqrt(2.0) * self.sensitivity / precision
            noise = SphericalGeneralizedGaussian(beta, scale, int(self.dimension), self.power)
            return SphericalNoise(noise, self.sensitivity)
        return step_at(beta, precision, self.sensitivity, self.norm, self.dimension, self.shift)

    def mechanism(self, beta: float, precision: float) -> Mechanism:
        """Everything released that the target is about, as one mechanism."""
        return run_of(self.step(beta, precision), self.rate, self.steps, self.alongside, self.sampling)

    def planned(self, beta: float) -> Start:
        """A rough precision of the least noise for an exponent; it proves nothing."""
        return planned_start(self.axis, lambda value: self.mechanism(beta, value), self.target)

    def least_noise(self, beta: float, start: Start | None = None) -> AnyCalibrated:
        """The answer of `calibrate_scale`, found sooner from a good start."""

        def at(precision: float) -> _Run:
            return self.step(beta, precision), self.rate, self.steps, self.sampling

        ends = _SPHERICAL if self.spherical else _SCALE
        return _least_private(self.axis, at, self.target, self.alongside, ends, start)


def precisions(resolution: float) -> LogAxis:
    """All precisions sqrt(2) * sensitivity / scale that the accountant covers, for a unit shift."""
    low, high = (1.0 + INSIDE) / NOISE_MULTIPLIER.most, (1.0 - INSIDE) / NOISE_MULTIPLIER.least
    return LogAxis(low, high, resolution)


def step_at(
    beta: float,
    precision: float,
    sensitivity: float,
    norm: float | str | None,
    dimension: int | float,
    shift: Shift | None,
) -> AdditiveNoise:
    """The noisy step with a given precision; for a known shift that of its largest entry."""
    largest = 1.0 if shift is None else max(abs(value) for value, _ in compressed(shift))
    scale = math.sqrt(2.0) * sensitivity * largest / precision
    return step_of(beta, scale, sensitivity, norm, dimension, shift)


def calibrate_rate(
    *,
    beta: float,
    scale: float,
    epsilon: float,
    delta: float,
    steps: int = 1,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    tolerance: float | None = None,
    sampling: Sampling | None = None,
) -> Calibrated:
    """The largest Poisson sampling rate, or batch size, for which a run is (epsilon, delta)-private.

    Args:
        beta: exponent of the noise, in [1, 32].
        scale: the scale of the noise.
        epsilon: the target; this and all further arguments as in `calibrate_scale`.
        delta: the target delta.
        steps: number of steps.
        sensitivity: the most that one record moves the value of a step.
        norm: p of the l_p norm in which the sensitivity of a vector is measured.
        dimension: how many numbers the value of a step has.
        shift: what one record does to the value, where that is known; see `AdditiveNoise`.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target.
        tolerance: how far below the largest rate the answer may lie, as a part of it.
        sampling: in place of Poisson samples, batches whose rate or size is to be found: of a fixed size,
            with replacement, or truncated. The first number of the `Sampling` does not matter; the answer's
            `sampling` has the largest that fits in its place.

    Guarantees:
        1. `achieved.upper`, the certified upper bound of epsilon at `rate`, is at most `epsilon`.
        2. The rate is 1, or no bound found in the seconds that a search may take certifies that one larger by
           `tolerance` meets the target; where `sharp` is true, a bound certifies that it does not.

    Raises:
        ValueError: an argument is out of range, or the rate would have to be below 1e-7.

    >>> found = calibrate_rate(beta=2, scale=2.0, steps=1000, epsilon=1.0, delta=1e-6)
    >>> round(found.rate, 6), found.sharp
    (0.008747, True)
    """
    target = Target(epsilon, delta, adjacency)
    check_sampling(sampling)
    step = step_of(beta, scale, sensitivity, norm, dimension, shift)
    steps = arguments.whole("steps", steps)
    axis: Axis = LogAxis(RATE.least, RATE.most, _resolution(steps, tolerance))
    ends, whole = _RATE, False
    if sampling is not None and sampling.kind != "poisson":
        if sampling.steps_per_draw > 1 or sampling.kind in ("allocation", "shuffled"):
            raise ValueError(
                f"sampling must be one with a rate or a batch size to find, got {sampling}, which is about "
                "the steps of an epoch; take calibrate_scale or calibrate_steps"
            )
        sampling.of(step)  # checks the numbers of the `Sampling`
        if whole := sampling.kind != "truncated-poisson":
            filled = sampling.kind == "fixed-size" and target.adjacency is not Adjacency.REPLACE
            # the neighbour with one record less must fill the batch too
            axis, ends = (
                CountAxis(int(sampling.numbers[-1]) - filled),
                _SIZE,
            )

    def at(value: float) -> _Run:
        if sampling is None or sampling.kind == "poisson":
            return step, value, steps, None
        first = round(value) if whole else value
        return step, 1.0, steps, Sampling(sampling.kind, (first, *sampling.numbers[1:]))

    return cast(Calibrated, _least_private(axis, at, target, alongside, ends))


def calibrate_steps(
    *,
    beta: float,
    scale: float,
    epsilon: float,
    delta: float,
    rate: float = 1.0,
    sensitivity: float = 1.0,
    norm: float | str | None = None,
    dimension: int | float = 1,
    shift: Shift | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    alongside: Sequence[Part] = (),
    sampling: Sampling | None = None,
) -> Calibrated:
    """The largest number of steps for which a run is (epsilon, delta)-private.

    Args:
        beta: exponent of the noise, in [1, 32].
        scale: the scale of the noise.
        epsilon: the target epsilon; this and all further arguments as in `calibrate_scale`.
        delta: the target delta.
        rate: the probability of each record to take part in a step.
        sensitivity: the most that one record moves the value of a step.
        norm: p of the l_p norm in which the sensitivity of a vector is measured.
        dimension: how many numbers the value of a step has.
        shift: what one record does to the value, where that is known; see `AdditiveNoise`.
        adjacency: which datasets are neighbours.
        alongside: other releases on the same data that share the target.
        sampling: how batches are drawn, in place of a Poisson sample with `rate`. Where a record's place is
            drawn once for an epoch, the answer is a number of whole epochs, counted in steps.

    Guarantees:
        1. `achieved.upper`, the certified upper bound of epsilon after `steps` steps, is at most `epsilon`.
        2. Where `sharp` is true, one step more certifiably exceeds the target, so that `steps` is the exact
           answer. Where it is false the accountant's bounds straddle the target there, or the seconds that a
           search may take were spent, and `steps` is the smaller candidate.

    Raises:
        ValueError: an argument is out of range, one step exceeds the target, or more than 10^7 fit.

    >>> calibrate_steps(beta=2, scale=1.4142135623730951, rate=0.01, epsilon=6.9, delta=1e-6).steps
    9980
    """
    target = Target(epsilon, delta, adjacency)
    check_sampling(sampling)
    step, rate = step_of(beta, scale, sensitivity, norm, dimension, shift), _checked_rate(rate)
    others = sum(times for _, times in Composed(alongside).parts) if alongside else 0
    epoch = 1 if sampling is None else sampling.steps_per_draw
    axis = CountAxis((MOST_TIMES - others) // epoch)

    def at(count: float) -> _Run:
        return step, rate, round(count) * epoch, sampling

    return cast(Calibrated, _least_private(axis, at, target, alongside, _STEPS if epoch == 1 else _EPOCHS))


_Run = tuple[Step, float, int, Sampling | None]
"""A step, its sampling rate, how many of them, and how batches are drawn that are not Poisson samples."""


@dataclass(frozen=True)
class _Ends:
    """Messages for a target that the most private place of an axis misses, or the least private one meets.

    {target} stands for the target, {epsilon} for what is known of epsilon at that end, {value} for the value
    there. If the second text is empty, the least private end is the answer.
    """

    too_strict: str
    too_loose: str = ""


_SCALE = _Ends(
    f"{{target}} cannot be met by {_COVERED}, not even by the largest{{epsilon}}; "
    "take fewer steps, a smaller rate, or a larger epsilon or delta",
    f"{{target}} is met by all of {_COVERED}, so that the smallest scale is not known; ask for a smaller "
    f"epsilon or delta, or take the noise multiplier {NOISE_MULTIPLIER.least:g}, whose epsilon is "
    "{epsilon}",
)
_SPHERICAL = _Ends(
    f"{{target}} cannot be met by spherical noise of sensitivity / scale in [{LENGTH.least:g}, "
    f"{LENGTH.most:g}], not even by the largest scale{{epsilon}}; take fewer steps, a smaller rate, or a "
    "larger epsilon or delta",
    f"{{target}} is met by all spherical noise of sensitivity / scale in [{LENGTH.least:g}, "
    f"{LENGTH.most:g}], so that the smallest scale is not known; ask for a smaller epsilon or delta",
)
_RATE = _Ends(
    f"{{target}} is exceeded even at rate {RATE.least:g}, the smallest that the accountant covers; "
    "take more noise, fewer steps, or a larger epsilon or delta"
)
_SIZE = _Ends("{target} is exceeded even by batches of one record; take more noise, fewer steps, or a "
              "larger epsilon or delta")  # fmt: skip
_EPOCHS = _Ends(
    "{target} is exceeded by one epoch already; take more noise, or a larger epsilon or delta",
    "{target} is met by {value:.0f} epochs, the most the accountant covers (epsilon at most {epsilon}), "
    "so that the largest number is not known; ask for a smaller epsilon or delta",
)
_STEPS = _Ends(
    "{target} is exceeded by one step already; take more noise, a smaller rate, or a larger epsilon or delta",
    "{target} is met by {value:.0f} steps, the most the accountant covers (epsilon at most {epsilon}), "
    "so that the largest number is not known; ask for a smaller epsilon or delta",
)


def _least_private(
    axis: Axis,
    at: Callable[[float], _Run],
    target: Target,
    alongside: Sequence[Part],
    ends: _Ends,
    start: Start | None = None,
) -> AnyCalibrated:
    """The least private run on the axis that meets the target, together with what is released alongside."""
    others = tuple(alongside)

    def mechanism(value: float) -> Mechanism:
        step, rate, steps, sampling = at(value)
        return run_of(step, rate, steps, others, sampling)

    target.check(mechanism(1.0))
    found = solve(axis, mechanism, target, start)
    if found.value is None or found.achieved is None:
        there = f" (epsilon there is {found.achieved.estimate:g})" if found.achieved else ""
        raise ValueError(ends.too_strict.format(target=target, epsilon=there))
    if found.is_last and ends.too_loose:
        there = f"{found.achieved.upper:g}"
        raise ValueError(ends.too_loose.format(target=target, epsilon=there, value=found.value))
    step, rate, steps, sampling = at(found.value)
    return calibrated(step, rate, steps, target.delta, found.achieved, found.sharp, others, sampling)


def calibrated(
    step: Step,
    rate: float,
    steps: int,
    delta: float,
    achieved: Bounds,
    sharp: bool,
    alongside: tuple[Part, ...],
    sampling: Sampling | None = None,
) -> AnyCalibrated:
    """The result of a calibration, for independent or spherical noise."""
    if isinstance(step, SphericalNoise):
        return CalibratedSpherical(step, rate, steps, delta, achieved, sharp, alongside, sampling)
    return Calibrated(step, rate, steps, delta, achieved, sharp, alongside, sampling)


def _check_spherical(norm: float | str | None, dimension: int | float, shift: Shift | None) -> None:
    """Raise an error for a norm or shift that does not fit spherical noise."""
    if norm != 2:
        raise ValueError(
            f"norm must be 2 for spherical noise, got {norm!r}: it depends on the Euclidean length alone; "
            "bound the l_2 norm of what a record does, or take independent noise"
        )
    if shift is not None:
        raise ValueError("shift must be left out for spherical noise: its length matters; give sensitivity")
    more = "independent noise is covered in more"
    arguments.whole("dimension", cast(int, dimension), most=MOST_DIMENSION, hint=more)


def step_of(
    beta: float,
    scale: float,
    sensitivity: float,
    norm: float | str | None,
    dimension: int | float,
    shift: Shift | None = None,
) -> AdditiveNoise:
    """A step with independent noise."""
    return AdditiveNoise(GeneralizedGaussian(beta, scale), sensitivity, norm, dimension, shift)


def _checked_rate(rate: float) -> float:
    return arguments.real("rate", rate, above=0.0, most=1.0)


def _resolution(steps: int, tolerance: float | None) -> float:
    """Relative spacing of the grid of scales or rates, and so the precision of the answer."""
    if tolerance is not None:
        return arguments.real("tolerance", tolerance, least=_SINGLE_RESOLUTION, most=_COARSEST)
    return _SINGLE_RESOLUTION if steps == 1 else _RESOLUTION
