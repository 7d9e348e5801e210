# SPDX-License-Identifier: Apache-2.0
"""The empirical law of sampled losses, composed by a tilted Fourier transform; nothing is certified."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.accounting.loss_histogram import LossHistogram
from ggdp.numerics import Array

_MOST_POINTS = 2**23
_WINDOW = 14.0  # in tilted standard deviations, to either side


@dataclass(frozen=True)
class ComposedLosses:
    """Masses at the losses start + i * spacing of a sum, in units of e^base, summed up from the right."""

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
    """Losses as counted, each moved by the mean residual, composed `times` times.

    Losses beyond the histogram are infinite ones: never sampled again by a lucky draw, always charged.
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
        """Their share of all samples; what lies beyond is missing."""
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
        """Chance that any of the losses is beyond the histogram."""
        return -math.expm1(self.times * math.log1p(-self.beyond)) if self.beyond < 1.0 else 1.0

    def delta(self, epsilon: float) -> float:
        """The estimate at one epsilon."""
        if epsilon >= self.times * self.largest:
            return self.infinite
        return min(
            float(self.composed(self.times, epsilon).delta(np.array([epsilon]))[0]) + self.infinite, 1.0
        )

    def epsilon(self, delta: float) -> float:
        """The estimate at one delta: halving on a curve, composed anew around what it finds."""
        target = delta - self.infinite
        low, high = 0.0, max(self.times * self.largest, 0.0)
        tilt = self._tilt_for_delta(math.log(target)) if self.times > 1 else 0.0
        point = min(max(self._epsilon_at(tilt), 0.0), high) if self.times > 1 else 0.0
        for _ in range(4):
            curve, low, high = self.composed(self.times, point), 0.0, max(self.times * self.largest, 0.0)
            for _ in range(60):
                middle = 0.5 * (low + high)
                is_above = float(curve.delta(np.array([middle]))[0]) > target
                low, high = (middle, high) if is_above else (low, middle)
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


def _halved(is_high: Callable[[float], bool]) -> float:
    low, high = -14.0, 14.0
    for _ in range(20):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_high(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _summed(loss: Array, mass: Array, centre: float, base: float) -> ComposedLosses:
    with np.errstate(over="ignore"):
        share = -np.expm1(-np.clip(loss - centre, -600.0, None))
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    kernel = np.append(np.cumsum((mass * share)[::-1])[::-1], 0.0)
    return ComposedLosses(loss, above, kernel, centre, base)
