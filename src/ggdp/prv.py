# SPDX-License-Identifier: Apache-2.0
"""For users of Microsoft's `prv_accountant`: its classes and functions, answered by this library's engines.

Replace `prv_accountant`, `prv_accountant.dpsgd`, `prv_accountant.privacy_random_variables` and
`prv_accountant.other_accountants` in an import by `ggdp.prv`; nothing else changes, and that package need not
be installed. What differs is the answer: (lower, estimate, upper) are certified, rounding included, and close
to each other whatever `eps_error` and `delta_error` say. No delta is too small, no `eps_max` is needed, and
nothing is computed before a question is asked.

>>> prv_a = PoissonSubsampledGaussianMechanism(noise_multiplier=0.8, sampling_probability=5e-3)
>>> prv_b, prv_c = GaussianMechanism(noise_multiplier=8.0), LaplaceMechanism(mu=0.1)
>>> accountant = PRVAccountant(
...     prvs=[prv_a, prv_b, prv_c], max_self_compositions=[1000, 1000, 1000], eps_error=0.1, delta_error=1e-10
... )
>>> lower, estimate, upper = accountant.compute_epsilon(delta=1e-6, num_self_compositions=[100, 200, 100])
>>> lower <= estimate <= upper <= lower + 1e-5
True
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import special

from ggdp import arguments
from ggdp.accounting import delta as delta_of
from ggdp.accounting import renyi_divergence
from ggdp.accounting.profile import account
from ggdp.calibration import calibrate_scale
from ggdp.distributions import Gaussian, Laplace
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled
from ggdp.mechanisms.composed import Step
from ggdp.privacy_loss.classical import PrivacyGuarantee
from ggdp.privacy_loss.custom import LossCdf

__all__ = [
    "RDP",
    "Accountant",
    "ApproximateDPMechanism",
    "Composition",
    "DPSGDAccountant",
    "GaussianMechanism",
    "LaplaceMechanism",
    "PRVAccountant",
    "PoissonSubsampledGaussianMechanism",
    "PrivacyRandomVariable",
    "PureDPMechanism",
    "find_noise_multiplier",
]

Triple = tuple[float, float, float]
Counts = Sequence[int] | int | None

_WHOLE_SHIFT = ((1.0, 1),)  # one coordinate moves by the whole sensitivity: the worst there is


class PrivacyRandomVariable(ABC):
    """The privacy loss log P/Q of a release at an outcome drawn from P, the law with the record.

    For a release of your own, derive a class that has `cdf`, as with `prv_accountant`. Only one direction is
    then known, and accounts that include it are about records that are removed.
    """

    @abstractmethod
    def cdf(self, t: Any) -> Any:
        """The probability that the loss is at most t, given that it is finite; to 1e-15, of an array too."""

    def probability(self, a: Any, b: Any) -> Any:
        """The probability of a loss in (a, b], given that it is finite."""
        return self.cdf(b) - self.cdf(a)

    def pdf(self, t: Any) -> Any:
        """The density of the loss at t, where a class knows it."""
        raise NotImplementedError(f"{type(self).__name__} has no density; use cdf")

    def mean(self) -> float:
        """The mean of the loss, where a class knows it; no answer here needs it."""
        raise NotImplementedError(f"{type(self).__name__} has no mean; no answer of PRVAccountant needs it")

    def rdp(self, alpha: float) -> float:
        """The Renyi divergence of order alpha, where a class knows it; only `RDP` asks for it."""
        raise NotImplementedError(f"{type(self).__name__} has no Renyi divergence; PRVAccountant needs none")

    @property
    def pm_inf(self) -> float:
        """The probability of an infinite loss."""
        return 0.0

    def _step(self, cells: int) -> Step | None:
        """What is released, for the engines; None for nothing."""
        return LossCdf(self.cdf, self.pm_inf, cells)


class PoissonSubsampledGaussianMechanism(PrivacyRandomVariable):
    """Gaussian noise of standard deviation `noise_multiplier` on a Poisson sample; sensitivity 1."""

    def __init__(self, sampling_probability: float, noise_multiplier: float) -> None:
        self.p = arguments.real("sampling_probability", sampling_probability, least=0.0, most=1.0)
        self.sigma = arguments.real("noise_multiplier", noise_multiplier, above=0.0)

    def cdf(self, t: Any) -> Any:
        """The probability of a loss of at most t."""
        x = self._outcome(t)
        kept, moved = special.ndtr(x / self.sigma), special.ndtr((x - 1.0) / self.sigma)
        return (1.0 - self.p) * kept + self.p * moved

    def pdf(self, t: Any) -> Any:
        """The density of the loss at t."""
        t = np.asarray(t, dtype=np.float64)
        x = self._outcome(t) / self.sigma
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = self.sigma * np.exp(t) / (self.p + np.expm1(t))
            density = (1.0 - self.p) * np.exp(-0.5 * x**2)
            density = density + self.p * np.exp(-0.5 * (x - 1.0 / self.sigma) ** 2)
        return np.where(np.isfinite(x), density * slope / math.sqrt(2.0 * math.pi), 0.0)

    def _outcome(self, t: Any) -> Any:
        """The outcome at which the loss is t: x with 1 - p + p e^((x - 1/2) / sigma^2) = e^t."""
        t = np.asarray(t, dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            ratio = np.log1p(np.expm1(t) / self.p) if self.p > 0.0 else np.where(t < 0.0, -math.inf, math.inf)
        return self.sigma**2 * np.where(np.isnan(ratio), -math.inf, ratio) + 0.5

    def rdp(self, alpha: float) -> float:
        """An upper bound of the Renyi divergence of order alpha > 1, tight at whole orders."""
        step = self._step(0)
        return 0.0 if step is None else renyi_divergence(step, alpha, adjacency=Adjacency.REMOVE).upper

    def _step(self, cells: int) -> Step | None:
        released = AdditiveNoise(Gaussian(std=self.sigma), shift=_WHOLE_SHIFT)
        if self.p == 0.0:
            return None
        return PoissonSampled(released, self.p) if self.p < 1.0 else released


class GaussianMechanism(PrivacyRandomVariable):
    """Gaussian noise of standard deviation `noise_multiplier` on a value of the given l2 sensitivity."""

    def __init__(self, noise_multiplier: float, l2_sensitivity: float = 1.0) -> None:
        self._std = arguments.real("noise_multiplier", noise_multiplier, above=0.0)
        self._sensitivity = arguments.real("l2_sensitivity", l2_sensitivity, above=0.0)

    @property
    def mu(self) -> float:
        """The sensitivity in standard deviations; it cannot be changed afterwards."""
        return self._sensitivity / self._std

    def cdf(self, t: Any) -> Any:
        """The probability of a loss of at most t."""
        return special.ndtr(np.asarray(t, dtype=np.float64) / self.mu - self.mu / 2.0)

    def rdp(self, alpha: float) -> float:
        """The Renyi divergence of order alpha."""
        return alpha * self.mu**2 / 2.0

    def _step(self, cells: int) -> Step:
        return AdditiveNoise(Gaussian(std=self._std), sensitivity=self._sensitivity, shift=_WHOLE_SHIFT)


class LaplaceMechanism(PrivacyRandomVariable):
    """Laplace noise of scale 1 on a value that one record moves by `mu`."""

    def __init__(self, mu: float) -> None:
        self.mu = arguments.real("mu", mu, above=0.0)

    def cdf(self, t: Any) -> Any:
        """The probability of a loss of at most t."""
        t = np.asarray(t, dtype=np.float64)
        between = 0.5 * np.exp(0.5 * (np.minimum(t, self.mu) - self.mu))
        return np.where(t >= self.mu, 1.0, np.where(t >= -self.mu, between, 0.0))

    def rdp(self, alpha: float) -> float:
        """The Renyi divergence of order alpha > 1 (Mironov 2017)."""
        up, down = math.log(alpha / (2 * alpha - 1)), math.log((alpha - 1) / (2 * alpha - 1))
        return float(np.logaddexp(up + (alpha - 1) * self.mu, down - alpha * self.mu)) / (alpha - 1)

    def _step(self, cells: int) -> Step:
        return AdditiveNoise(Laplace(scale=1.0), sensitivity=self.mu, shift=_WHOLE_SHIFT)


class PureDPMechanism(PrivacyRandomVariable):
    """A release of which nothing is known but that it is eps-private."""

    def __init__(self, eps: float) -> None:
        self.eps = PrivacyGuarantee(eps).epsilon

    def cdf(self, t: Any) -> Any:
        """The probability of a loss of at most t."""
        t = np.asarray(t, dtype=np.float64)
        return np.where(t < -self.eps, 0.0, np.where(t < self.eps, special.expit(-self.eps), 1.0))

    def rdp(self, alpha: float) -> float:
        """The Renyi divergence of order alpha > 1."""
        often, seldom = -np.logaddexp(0.0, -self.eps), -np.logaddexp(0.0, self.eps)
        up, down = often + (alpha - 1) * self.eps, seldom - (alpha - 1) * self.eps
        return float(np.logaddexp(up, down)) / (alpha - 1)

    def _step(self, cells: int) -> Step:
        return PrivacyGuarantee(self.eps)


class ApproximateDPMechanism(PrivacyRandomVariable):
    """A release of which nothing is known but that it is (epsilon, delta)-private."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.delta = PrivacyGuarantee(epsilon, delta).delta
        self.pure_dp = PureDPMechanism(epsilon)

    def cdf(self, t: Any) -> Any:
        """The probability of a loss of at most t, given that it is finite."""
        return self.pure_dp.cdf(t)

    def rdp(self, alpha: float) -> float:
        """The Renyi divergence of order alpha > 1, given that the loss is finite."""
        return self.pure_dp.rdp(alpha)

    @property
    def pm_inf(self) -> float:
        """The probability of an infinite loss."""
        return self.delta

    def _step(self, cells: int) -> Step:
        return PrivacyGuarantee(self.pure_dp.eps, self.delta)


def _whole(name: str, count: Any) -> int:
    """A number of compositions, which may be a float such as 100.0, as a number of steps often is."""
    whole = int(count) if isinstance(count, float) and count.is_integer() else count
    return arguments.whole(name, whole, least=0)


def _step_of(prv: PrivacyRandomVariable, cells: int) -> Step | None:
    """What is released; of a class that derives from one of these and has its own `cdf`, what that says."""
    known = next(kind for kind in type(prv).__mro__ if "_step" in vars(kind))
    own = any(getattr(type(prv), name) is not getattr(known, name) for name in ("cdf", "pm_inf"))
    return LossCdf(prv.cdf, prv.pm_inf, cells) if own else prv._step(cells)


class Composition:
    """Releases composed; what `PRVAccountant.compute_composition` returns."""

    def __init__(self, steps: Iterable[tuple[Step, int]], adjacency: Adjacency) -> None:
        listed = [(step, times) for step, times in steps if times]
        self._mechanism = Composed(listed) if listed else None
        self._adjacency = adjacency

    def compute_epsilon(
        self, delta: float, delta_error: float | None = None, epsilon_error: float | None = None
    ) -> Triple:
        """(lower, estimate, upper) of epsilon at a delta in [0, 1]; the errors are not needed."""
        arguments.real("delta", delta, least=0.0, most=1.0)
        if self._mechanism is None:
            return 0.0, 0.0, 0.0
        found = account(self._mechanism, adjacency=self._adjacency).epsilon_or_infinity(delta=delta)
        return found.lower, found.estimate, found.upper

    def compute_delta(self, epsilon: float) -> Triple:
        """(lower, estimate, upper) of delta at an epsilon of at least 0."""
        arguments.real("epsilon", epsilon, least=0.0)
        if self._mechanism is None:
            return 0.0, 0.0, 0.0
        found = delta_of(self._mechanism, epsilon=epsilon, adjacency=self._adjacency)
        return found.lower, found.estimate, found.upper

    def compute_delta_estimate(self, epsilon: float) -> float:
        """The estimate of delta at an epsilon of at least 0."""
        return self.compute_delta(epsilon)[1]


class PRVAccountant:
    """Composes releases, each a number of times, and bounds their epsilon and delta.

    Args:
        prvs: the releases, or one.
        eps_error: how finely the `cdf` of a class of your own is looked at; other answers are as narrow as
            they can be made.
        delta_error: kept for the interface.
        max_self_compositions: the most compositions of each that will be asked about; 1 if left out.
        eps_max: kept for the interface.

    Guarantees:
        lower <= truth <= upper, in the worse of both directions, a record added or removed. With a
        `PrivacyRandomVariable` of your own: for removed records, if its `cdf` is right to 1e-15.
    """

    def __init__(
        self,
        prvs: PrivacyRandomVariable | Sequence[PrivacyRandomVariable],
        eps_error: float,
        delta_error: float,
        max_self_compositions: Counts = None,
        eps_max: float | None = None,
    ) -> None:
        listed = [prvs] if isinstance(prvs, PrivacyRandomVariable) else list(prvs)
        for prv in listed:
            arguments.instance("prvs", prv, PrivacyRandomVariable, hint="import its class from ggdp.prv")
        self.prvs = listed
        self.eps_error = arguments.real("eps_error", eps_error, above=0.0)
        self.delta_error = arguments.real("delta_error", delta_error, above=0.0)
        self.max_self_compositions = self._counts("max_self_compositions", max_self_compositions)
        cells = 2.0 * sum(self.max_self_compositions) / self.eps_error  # for each unit of loss
        self._steps = [_step_of(prv, math.ceil(cells)) for prv in listed]
        known = not any(isinstance(step, LossCdf) for step in self._steps)
        self._adjacency = Adjacency.ADD_REMOVE if known else Adjacency.REMOVE

    def _counts(self, name: str, given: Counts) -> list[int]:
        counts = [1] * len(self.prvs) if given is None else np.atleast_1d(given).tolist()
        if len(counts) != len(self.prvs):
            raise ValueError(
                f"{name} must hold {len(self.prvs)} numbers, one for each prv, got {len(counts)}"
            )
        return [_whole(name, count) for count in counts]

    def compute_composition(self, num_self_compositions: Counts = None) -> Composition:
        """Each release composed so many times; once if left out."""
        counts = self._counts("num_self_compositions", num_self_compositions)
        for count, most in zip(counts, self.max_self_compositions, strict=True):
            if count > most:
                raise ValueError(
                    f"num_self_compositions must be at most max_self_compositions, got {count} and {most}"
                )
        pairs = zip(self._steps, counts, strict=True)
        return Composition([(step, times) for step, times in pairs if step is not None], self._adjacency)

    def compute_delta(self, epsilon: float, num_self_compositions: Counts = None) -> Triple:
        """(lower, estimate, upper) of delta at an epsilon of at least 0."""
        return self.compute_composition(num_self_compositions).compute_delta(epsilon)

    def compute_epsilon(self, delta: float, num_self_compositions: Counts = None) -> Triple:
        """(lower, estimate, upper) of epsilon at a delta in [0, 1]."""
        return self.compute_composition(num_self_compositions).compute_epsilon(delta)


class DPSGDAccountant(PRVAccountant):
    """The accountant of DP-SGD: Poisson batches and Gaussian noise."""

    def __init__(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        max_steps: int,
        eps_error: float = 0.1,
        delta_error: float = 1e-9,
    ) -> None:
        step = PoissonSubsampledGaussianMechanism(sampling_probability, noise_multiplier)
        super().__init__(step, eps_error, delta_error, max_steps)

    def compute_epsilon(self, delta: float, num_steps: int) -> Triple:  # type: ignore[override]
        """(lower, estimate, upper) of epsilon after a number of steps."""
        return super().compute_epsilon(delta, num_steps)


class Accountant:
    """The older name of `DPSGDAccountant`, with delta given at the start; the only accountant of 0.1."""

    def __init__(
        self,
        noise_multiplier: float,
        sampling_probability: float,
        delta: float,
        max_compositions: int,
        eps_error: float | None = None,
        mesh_size: float | None = None,
        verbose: bool = False,
    ) -> None:
        warnings.warn("Accountant is deprecated; use DPSGDAccountant", DeprecationWarning, stacklevel=2)
        self.delta = arguments.real("delta", delta, least=0.0, most=1.0)
        self.noise_multiplier, self.sampling_probability = noise_multiplier, sampling_probability
        self.max_compositions, self.delta_error = max_compositions, self.delta / 1000.0
        self.eps_error = 0.1 if eps_error is None else eps_error
        self.accountant = DPSGDAccountant(
            noise_multiplier, sampling_probability, max_compositions, self.eps_error
        )

    def compute_epsilon(self, num_compositions: int) -> Triple:
        """(lower, estimate, upper) of epsilon after a number of steps."""
        return self.accountant.compute_epsilon(self.delta, num_compositions)

    def compute_compositions(self, num_compositions: int) -> Composition:
        """So many steps composed, for `compute_delta` and its two bounds."""
        return self.accountant.compute_composition(num_compositions)

    def compute_delta(self, f_n: Composition, epsilon: float) -> float:
        """The estimate of delta of composed steps at an epsilon of at least 0."""
        return f_n.compute_delta(epsilon)[1]

    def compute_delta_lower(self, f_n: Composition, epsilon: float) -> float:
        """The lower bound of delta of composed steps at an epsilon of at least 0."""
        return f_n.compute_delta(epsilon)[0]

    def compute_delta_upper(self, f_n: Composition, epsilon: float) -> float:
        """The upper bound of delta of composed steps at an epsilon of at least 0."""
        return f_n.compute_delta(epsilon)[2]


class RDP:
    """The Renyi accountant, for comparison; `PRVAccountant` is tighter."""

    def __init__(self, prvs: Sequence[PrivacyRandomVariable], orders: Iterable[float] | None = None) -> None:
        default = [1.0 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))
        given = [] if orders is None else list(orders)
        self.orders = np.array(given or default, dtype=np.float64)
        self.rdps = [np.array([prv.rdp(float(order)) for order in self.orders]) for prv in prvs]
        self._infinite = [prv.pm_inf for prv in prvs]  # the divergences are of finite losses

    def compute_epsilon(self, delta: float, num_self_compositions: Sequence[int]) -> Triple:
        """(0, upper, upper) of epsilon at a delta (Canonne, Kamath, Steinke 2020, Proposition 12)."""
        delta = arguments.real("delta", delta, above=0.0, below=1.0)
        if len(num_self_compositions) != len(self.rdps):
            raise ValueError(
                f"num_self_compositions must hold {len(self.rdps)} numbers, got {len(num_self_compositions)}"
            )
        counts = [_whole("num_self_compositions", count) for count in num_self_compositions]
        log_finite = sum(
            math.log1p(-lost) * count for lost, count in zip(self._infinite, counts, strict=True)
        )
        infinite = -math.expm1(log_finite) * (1.0 + 1e-12)
        if delta <= infinite:
            return 0.0, math.inf, math.inf
        delta = (delta - infinite) / math.exp(log_finite)
        total = sum(rdp * count for rdp, count in zip(self.rdps, counts, strict=True))
        spent = np.log(delta * self.orders) / (self.orders - 1.0)
        upper = max(float(np.nanmin(total - spent + np.log1p(-1.0 / self.orders))), 0.0)
        return 0.0, upper, upper


def find_noise_multiplier(
    sampling_probability: float,
    num_steps: int,
    target_epsilon: float,
    target_delta: float,
    eps_error: float = 0.1,
    mu_max: float = 100.0,
) -> float:
    """The smallest noise multiplier for which DP-SGD is certified to be within the target.

    >>> noise_multiplier = find_noise_multiplier(2e-3, 10_000, target_epsilon=4.0, target_delta=1e-7)
    >>> upper = DPSGDAccountant(noise_multiplier, 2e-3, max_steps=10_000).compute_epsilon(1e-7, 10_000)[2]
    >>> 3.99999 < upper <= 4.0
    True
    """
    try:
        found = calibrate_scale(
            beta=2.0,
            epsilon=target_epsilon,
            delta=target_delta,
            rate=sampling_probability,
            steps=_whole("num_steps", num_steps),
        ).noise.std
    except ValueError as error:
        raise RuntimeError(f"no noise multiplier was found: {error}") from error
    if found > mu_max:
        raise RuntimeError(f"mu_max must be at least {found:g}, which the target needs, got {mu_max:g}")
    return found
