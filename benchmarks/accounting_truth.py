# SPDX-License-Identifier: Apache-2.0
"""Answers by other means, at 60 digits, for judging accountants.

Nothing here is shared with the package: densities, thresholds and tails are written again in mpmath.
Functions of a `Setting` return log(delta(epsilon) / asked), whose sign says on which side of the truth an
epsilon lies.
"""

import math
from typing import Protocol

import mpmath

DIGITS = 60


class SettingLike(Protocol):
    """What the oracles read of a setting."""

    beta: float
    noise_multiplier: float
    rate: float
    times: int
    adjacency: str


def pure_epsilon(setting: SettingLike) -> float:
    """The largest loss of the composition; infinite unless noise is Laplace or nothing but ADD is asked."""
    with mpmath.workdps(DIGITS):
        up, down = _centres(setting, setting.adjacency if setting.adjacency != "add-remove" else "remove")
        one = _limit(setting, up) - _limit(setting, down)
        return float(setting.times * one)


def _limit(setting: SettingLike, centre: mpmath.mpf) -> mpmath.mpf:
    """log of the mixture relative to the noise at 0, as z -> infinity."""
    rate = mpmath.mpf(setting.rate)
    if centre == 0:
        return mpmath.mpf(0)
    if setting.beta == 1.0:
        return mpmath.log(1 - rate + rate * mpmath.exp(centre))
    return mpmath.inf if centre > 0 else (mpmath.log(1 - rate) if rate < 1 else -mpmath.inf)


def gaussian_log_delta(setting: SettingLike, epsilon: float, asked: float) -> float:
    """Gaussian noise without sampling: mu = sqrt(times) / sigma (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(DIGITS):
        scale = mpmath.mpf(math.sqrt(2.0) * setting.noise_multiplier)
        mu = mpmath.sqrt(setting.times) * mpmath.sqrt(2) / scale
        if setting.adjacency == "replace":
            mu *= 2
        e = mpmath.mpf(epsilon)
        value = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        return _log_ratio(value, asked)


def one_release_log_delta(setting: SettingLike, epsilon: float, asked: float) -> float:
    """One release: P(z > x) - e^epsilon Q(z > x) at the x where log P/Q = epsilon, the worse direction."""
    kinds = ("remove", "add") if setting.adjacency == "add-remove" else (setting.adjacency,)
    with mpmath.workdps(DIGITS):
        return max(_log_ratio(_hockey_stick(setting, kind, mpmath.mpf(epsilon)), asked) for kind in kinds)


def _centres(setting: SettingLike, kind: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    shift = 1 / mpmath.mpf(math.sqrt(2.0) * setting.noise_multiplier)
    return {"remove": (shift, mpmath.mpf(0)), "add": (mpmath.mpf(0), -shift), "replace": (shift, -shift)}[
        kind
    ]


def _hockey_stick(setting: SettingLike, kind: str, epsilon: mpmath.mpf) -> mpmath.mpf:
    beta, rate = mpmath.mpf(setting.beta), mpmath.mpf(setting.rate)
    up, down = _centres(setting, kind)

    def density(z: mpmath.mpf, centre: mpmath.mpf) -> mpmath.mpf:
        mixed = rate * mpmath.exp(abs(z) ** beta - abs(z - centre) ** beta)
        return 1 - rate + mixed

    def excess(z: mpmath.mpf) -> mpmath.mpf:
        return mpmath.log(density(z, up)) - mpmath.log(density(z, down)) - epsilon

    def survival(x: mpmath.mpf) -> mpmath.mpf:
        tail = mpmath.gammainc(1 / beta, abs(x) ** beta, mpmath.inf, regularized=True) / 2
        return tail if x > 0 else 1 - tail

    low, high = -mpmath.mpf(4), mpmath.mpf(4)
    while excess(high) <= 0 and high < 1e6:
        high *= 2
    while excess(low) >= 0 and low > -1e6:
        low *= 2
    if excess(high) <= 0:
        return mpmath.mpf(0)
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    p = (1 - rate) * survival(high) + rate * survival(high - up)
    q = (1 - rate) * survival(high) + rate * survival(high - down)
    return p - mpmath.exp(epsilon) * q


def _log_ratio(value: mpmath.mpf, asked: float) -> float:
    return float(mpmath.log(value / mpmath.mpf(asked))) if value > 0 else -math.inf
