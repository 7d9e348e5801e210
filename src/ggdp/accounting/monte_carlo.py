# SPDX-License-Identifier: Apache-2.0
"""Monte Carlo: estimates of epsilon and delta of a composition whose loss can only be sampled. No guarantee.

The law of n sampled losses, rounded to a grid of spacing h and moved by the mean rounding error mu, is
composed `times` times, and delta(eps) = E[(1 - e^(eps - S))_+] is computed. Writing k for `times` and p for
the probability of a loss beyond the histogram's b bins, the composed truth Y and the composed estimate Y'
satisfy |Y - Y'| <= tau with probability 1 - eta under a coupling, so that delta'(eps + tau) - eta <=
delta(eps) <= delta'(eps - tau) + eta, where

    eta = k p + 2 e^(-2 s^2 / (k h^2)) + k (t / 2 + sqrt(b / n) / 2),        tau = s + k r.

This fails for samples of probability at most e^(-n t^2 / 2) + 2 e^(-2 n r^2 / h^2), and where the bound on p
fails. docs/monte-carlo.md has the proof, and what it changes in the algorithm as published. Because of the
term k sqrt(b / n), eta exceeds 1 for most numbers of samples that can be drawn; the standard error is the
useful number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from ggdp import arguments
from ggdp.accounting.bounds import Estimate
from ggdp.accounting.loss_histogram import LossHistogram, LossSampler, histogram, pilot_grid
from ggdp.numerics import Array
from ggdp.search import arithmetic, geometric, halve

FAILURE_PROB = 1e-6
_METHOD = "sampled losses"
_MOST_POINTS = 2**23
_WINDOW = 14.0  # half width of the window of a sum, in tilted standard deviations


@dataclass(frozen=True)
class ComposedLosses:
    """The law of a sum of losses on a grid, and its delta at any epsilon.

    Masses are in units of e^base.
    """

    loss: Array
    above: Array
    kernel: Array
    centre: float
    base: float

    def delta(self, epsilon: Array) -> Array:
        """sum of mass (1 - e^(eps - loss)) over the losses beyond eps."""
        index = np.searchsorted(self.loss, epsilon, side="right")
        away = np.clip(epsilon - self.centre, -600.0, 600.0)
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.exp(away) * self.kernel[index] - np.expm1(away) * self.above[index]
            return np.clip(np.nan_to_num(value * math.exp(max(self.base, -700.0))), 0.0, 1.0)

    def slope(self, epsilon: float) -> float:
        """-d delta / d eps = sum of mass e^(eps - loss)."""
        index = int(np.searchsorted(self.loss, epsilon, side="right"))
        beyond = float(self.above[index] - self.kernel[index])
        return beyond * math.exp(self.base + min(epsilon - self.centre, 600.0))


@dataclass(frozen=True)
class EmpiricalLaw:
    """The law of counted losses, each moved by the mean residual, and of sums of `times` of them.

    Losses beyond the histogram count as infinite.
    """

    counted: LossHistogram
    times: int

    @cached_property
    def loss(self) -> Array:
        """The losses of the bins."""
        bins = np.arange(-self.counted.radius, self.counted.radius + 1)
        return np.asarray(bins * self.counted.mesh + self.counted.mean_residual, dtype=np.float64)

    @cached_property
    def mass(self) -> Array:
        """Their shares of all samples; losses beyond the histogram are not among them."""
        return np.asarray(self.counted.counts / self.counted.num_samples, dtype=np.float64)

    @cached_property
    def largest(self) -> float:
        """The largest loss counted."""
        there = np.nonzero(self.counted.counts)[0]
        return float(self.loss[there[-1]]) if len(there) else -math.inf

    @property
    def beyond(self) -> float:
        """Share of the samples beyond the histogram."""
        return self.counted.above / self.counted.num_samples

    @property
    def infinite(self) -> float:
        """Probability that any of the losses is beyond the histogram."""
        return -math.expm1(self.times * math.log1p(-self.beyond)) if self.beyond < 1.0 else 1.0

    def delta(self, epsilon: float) -> float:
        """The estimate at one epsilon."""
        if epsilon >= self.times * self.largest:
            return self.infinite
        return min(
            float(self.composed(self.times, epsilon).delta(np.array([epsilon]))[0]) + self.infinite, 1.0
        )

    def epsilon(self, delta: float) -> float:
        """The estimate at one delta: found by halving on a curve, which is then composed anew around it."""
        target = delta - self.infinite
        low, high = 0.0, max(self.times * self.largest, 0.0)
        tilt = self._tilt_for_delta(math.log(target)) if self.times > 1 else 0.0
        point = min(max(self._epsilon_at(tilt), 0.0), high) if self.times > 1 else 0.0
        for _ in range(4):
            curve, low, high = self.composed(self.times, point), 0.0, max(self.times * self.largest, 0.0)
            high, _ = halve(partial(_is_below, curve, target), high, low, middle=arithmetic, halvings=60)
            if self.times == 1 or abs(high - point) <= 1e-7 * (1.0 + high):
                break
            point = high
        return high

    def sensitivity(self, epsilon: float) -> tuple[float, float]:
        """-d delta / d eps, and the standard error of delta.

        delta is a smooth function of the law sampled; a loss y contributes times * delta_(times-1)(eps -
        y), so the error is the deviation of that over the samples, divided by sqrt(n).
        """
        if epsilon >= self.times * self.largest:
            return 0.0, math.nan
        gap = epsilon - self.loss
        if self.times == 1:
            rest = np.where(gap < 0.0, -np.expm1(np.minimum(gap, 0.0)), 0.0)
        else:
            rest = self.composed(self.times - 1, epsilon).delta(gap)
        mean = float(self.mass @ rest) + self.beyond
        square = float(self.mass @ rest**2) + self.beyond
        error = self.times * math.sqrt(max(square - mean**2, 0.0) / self.counted.num_samples)
        return self.composed(self.times, epsilon).slope(epsilon), error

    def composed(self, times: int, epsilon: float) -> ComposedLosses:
        """The law of a sum of `times` losses, most accurate around an epsilon.

        Raises:
            ValueError: the mesh is too fine for the width of the sum.
        """
        if times == 1:
            return _summed(self.loss, self.mass, 0.0, 0.0)
        tilt = self._tilt_for_epsilon(epsilon, times)
        log_phi, mean, deviation = self._cumulants(tilt)
        mesh, spread = self.counted.mesh, math.sqrt(times) * deviation
        width = 2.0 * _WINDOW * spread + abs(epsilon - times * mean) + (self.loss[-1] - self.loss[0])
        size = 1 << max(6, math.ceil(math.log2(width / mesh)))
        if size > _MOST_POINTS:
            raise ValueError(
                f"mesh must be at least {width / _MOST_POINTS:.3g} for this composition, got {mesh:.3g}"
            )
        with np.errstate(divide="ignore"):
            tilted = np.exp(np.log(self.mass) + tilt * self.loss - log_phi)
        places = np.arange(len(tilted)) % size
        transform = np.fft.rfft(np.bincount(places, weights=tilted, minlength=size)) ** times
        entries = np.maximum(np.fft.irfft(transform, size), 0.0)
        # index 0 is the sum of all lowest losses, modulo the period; begin the window left of both mean and
        # epsilon
        lowest = times * float(self.loss[0])
        begin = min(epsilon, times * mean) - _WINDOW * spread
        start = math.floor((begin - lowest) / mesh)
        loss = lowest + (start + np.arange(size)) * mesh
        masses = np.roll(entries, -(start % size))
        with np.errstate(over="ignore", under="ignore"):
            masses = masses * np.exp(-np.clip(tilt * (loss - epsilon), -600.0, 700.0))
        return _summed(np.asarray(loss), masses, epsilon, times * log_phi - tilt * epsilon)

    def _cumulants(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt L)], and mean and deviation of the tilted loss."""
        there = self.mass > 0.0
        loss, exponent = self.loss[there], np.log(self.mass[there]) + tilt * self.loss[there]
        peak = float(exponent.max())
        term = np.exp(exponent - peak)
        total = float(term.sum())
        mean = float(term @ loss) / total
        return peak + math.log(total), mean, math.sqrt(float(term @ (loss - mean) ** 2) / total)

    def _tilt_for_epsilon(self, epsilon: float, times: int) -> float:
        """The tilt at which sums of this size are likely, by halving in its logarithm."""
        return _halved(
            lambda tilt: times * self._cumulants(tilt)[1] - 1.0 / tilt - 1.0 / (1.0 + tilt) > epsilon
        )

    def _tilt_for_delta(self, log_delta: float) -> float:
        """The tilt at which the saddle-point formula gives this delta."""

        def is_below(tilt: float) -> bool:
            log_phi, _, deviation = self._cumulants(tilt)
            bend = self.times * deviation**2 + tilt**-2 + (1.0 + tilt) ** -2
            exponent = (
                self.times * log_phi - tilt * self._epsilon_at(tilt) - math.log(tilt) - math.log1p(tilt)
            )
            return exponent - 0.5 * math.log(2.0 * math.pi * bend) < log_delta

        return _halved(is_below)

    def _epsilon_at(self, tilt: float) -> float:
        return self.times * self._cumulants(tilt)[1] - 1.0 / tilt - 1.0 / (1.0 + tilt)


def _is_below(curve: ComposedLosses, target: float, epsilon: float) -> bool:
    return float(curve.delta(np.array([epsilon]))[0]) <= target


def _halved(is_high: Callable[[float], bool]) -> float:
    return halve(is_high, math.exp(14.0), math.exp(-14.0), middle=geometric, halvings=20)[0]


def _summed(loss: Array, mass: Array, centre: float, base: float) -> ComposedLosses:
    with np.errstate(over="ignore"):
        share = -np.expm1(-np.clip(loss - centre, -600.0, None))
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    kernel = np.append(np.cumsum((mass * share)[::-1])[::-1], 0.0)
    return ComposedLosses(loss, above, kernel, centre, base)


@dataclass(frozen=True)
class MonteCarloEstimate(Estimate):
    """An epsilon or a delta from sampled losses.

    Attributes:
        eta: the error of delta, by the theorem of the module docstring.
        tau: the error of epsilon, by the same theorem.
        failure_prob: the probability of drawing samples for which the theorem fails.
        printed_eta: a lower bound of eta as published; its two tail probabilities are taken as zero.
        printed_tau: tau as published.
        num_samples: how many losses were drawn.
        mesh: spacing of the histogram.
        half_width: losses beyond this count as infinite.
    """

    eta: float = math.nan
    tau: float = math.nan
    failure_prob: float = math.nan
    printed_eta: float = math.nan
    printed_tau: float = math.nan
    num_samples: int = 0
    mesh: float = math.nan
    half_width: float = math.nan


def monte_carlo_epsilon(
    sampler: LossSampler,
    times: int,
    delta: float,
    num_samples: int,
    *,
    rng: np.random.Generator,
    mesh: float | None = None,
    half_width: float | None = None,
    progress: bool | None = None,
    workers: int = 2,
) -> MonteCarloEstimate:
    """Estimate the epsilon of `times` releases at a delta, from samples of one release's privacy loss.

    Args:
        sampler: (count, rng) -> losses log P/Q at outcomes drawn from P.
        times: how often it is released.
        delta: in [1e-100, 0.5].
        num_samples: losses to draw; they are streamed.
        rng: a NumPy generator; equal generators give equal answers, whatever the number of workers.
        mesh: spacing of the histogram; by default 1/256 of the loss's standard deviation, from a pilot
            sample.
        half_width: losses beyond count as infinite (or, negative ones, as this low); by default twice the
            largest of the pilot.
        progress: show a bar; by default when standard error is a terminal and the samples are many.
        workers: threads that draw.

    Returns:
        An estimate with its standard error and the theorem's eta and tau. An interrupt from the keyboard ends
        the drawing; the answer is then that of the samples drawn.

    Raises:
        ValueError: an argument is out of range, or delta is below the sampled probability of infinite loss.

    >>> from ggdp import AdditiveNoise, Gaussian, loss_sampler
    >>> sampler = loss_sampler(AdditiveNoise(Gaussian(std=5.0)))
    >>> found = monte_carlo_epsilon(sampler, 10, 1e-5, 100_000, rng=np.random.default_rng(1))
    >>> abs(found.value - 2.585) < 4 * found.standard_error
    True
    """
    delta = arguments.real("delta", delta, least=1e-100, most=0.5)
    law = _empirical(sampler, times, num_samples, rng, mesh, half_width, progress, workers)
    infinite = law.infinite
    if infinite >= delta:
        raise ValueError(
            f"delta must exceed the sampled probability {infinite:g} of an infinite loss, got {delta:g}"
        )
    value = law.epsilon(delta)
    slope, error = law.sensitivity(value)
    return _answer(law, value, error / slope if slope > 0.0 else math.nan, delta)


def monte_carlo_delta(
    sampler: LossSampler,
    times: int,
    epsilon: float,
    num_samples: int,
    *,
    rng: np.random.Generator,
    mesh: float | None = None,
    half_width: float | None = None,
    progress: bool | None = None,
    workers: int = 2,
) -> MonteCarloEstimate:
    """Estimate the delta of `times` releases at an epsilon; arguments as for `monte_carlo_epsilon`."""
    epsilon = arguments.real("epsilon", epsilon, least=0.0, most=2000.0)
    law = _empirical(sampler, times, num_samples, rng, mesh, half_width, progress, workers)
    value = law.delta(epsilon)
    return _answer(law, value, law.sensitivity(epsilon)[1], value)


def _empirical(
    sampler: LossSampler,
    times: int,
    num_samples: int,
    rng: np.random.Generator,
    mesh: float | None,
    half_width: float | None,
    progress: bool | None,
    workers: int,
) -> EmpiricalLaw:
    times = arguments.whole("times", times, most=10_000_000)
    num_samples = arguments.whole("num_samples", num_samples, least=1000)
    arguments.instance("rng", rng, np.random.Generator, hint="numpy.random.default_rng(seed)")
    workers = arguments.whole("workers", workers, most=256)
    planned_mesh, planned_width = (
        pilot_grid(sampler, rng) if mesh is None or half_width is None else (0.0, 0.0)
    )
    mesh = arguments.real("mesh", planned_mesh if mesh is None else mesh, above=0.0)
    half_width = arguments.real("half_width", planned_width if half_width is None else half_width, above=mesh)
    counted = histogram(sampler, num_samples, mesh, half_width, rng, progress=progress, workers=workers)
    return EmpiricalLaw(counted, times)


def _answer(law: EmpiricalLaw, value: float, standard_error: float, delta: float) -> MonteCarloEstimate:
    counted = law.counted
    eta, tau = theorem(counted, law.times, delta)
    printed_eta, printed_tau = printed_theorem(counted, law.times, delta)
    if eta >= delta:
        says = f"the error theorem is vacuous here: its eta, {eta:.3g}, is not below delta, {delta:.3g}"
    else:
        sure = f"with probability {1.0 - FAILURE_PROB:g} over the samples"
        says = f"{sure} delta is off by at most {eta:.3g} and epsilon by {tau:.3g}"
    return MonteCarloEstimate(
        value=value,
        method=_METHOD,
        caveat=f"estimated from {counted.num_samples} samples of the loss, not a bound; {says}",
        standard_error=standard_error,
        eta=eta,
        tau=tau,
        failure_prob=FAILURE_PROB,
        printed_eta=printed_eta,
        printed_tau=printed_tau,
        num_samples=counted.num_samples,
        mesh=counted.mesh,
        half_width=counted.half_width,
    )


def theorem(counted: LossHistogram, times: int, delta: float) -> tuple[float, float]:
    """The errors of an estimate: eta of delta and tau of epsilon, except with probability `FAILURE_PROB`.

    A hundredth of delta is allowed for rounding losses to bins.
    """
    n, h, k = counted.num_samples, counted.mesh, float(times)
    log_failure = math.log(6.0 / FAILURE_PROB)
    outside = float(counted.above + counted.below)
    # Chernoff: n p <= c + l + sqrt(l^2 + 2 c l) unless c is unlikely small
    beyond = (outside + log_failure + math.sqrt(log_failure**2 + 2.0 * outside * log_failure)) / n
    rounding = 0.01 * max(delta, 1e-300)
    s = h * math.sqrt(0.5 * k * math.log(2.0 / rounding))
    t = math.sqrt(2.0 * log_failure / n)
    r = h * math.sqrt(0.5 * log_failure / n)
    bins = len(counted.counts) + 1
    return k * beyond + rounding + k * (0.5 * t + 0.5 * math.sqrt(bins / n)), s + k * r


def printed_theorem(counted: LossHistogram, times: int, delta: float) -> tuple[float, float]:
    """(eta, tau) as published, with n half of the samples, its tail probabilities taken as zero."""
    n, h, k = 0.5 * counted.num_samples, counted.mesh, float(times)
    half_width = counted.half_width
    rounding = 0.01 * max(delta, 1e-300)
    s = h * math.sqrt(0.5 * k * math.log(4.0 / rounding))
    t = max(half_width, 1.0) * math.sqrt(2.0 * math.log(12.0 * k / FAILURE_PROB) / n)
    learnt = math.sqrt(half_width / (n * h))
    eta = rounding + FAILURE_PROB + 2.0 * k * (t + learnt)
    tau = s + k * (t + 2.0 * half_width * (0.5 * t + learnt)) + 2.0 * k * (0.5 * t + learnt)
    return eta, tau
