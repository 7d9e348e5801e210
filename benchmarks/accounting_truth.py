# SPDX-License-Identifier: Apache-2.0
"""Answers by other means, at 60 digits, for judging accountants.

Nothing here is shared with the package: densities, thresholds and tails are written again in mpmath.
Functions of a `Setting` return log(delta(epsilon) / asked), whose sign says on which side of the truth an
epsilon lies.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import mpmath
import numpy as np

DIGITS = 60


class PartLike(Protocol):
    """What the oracles read of one kind of release."""

    @property
    def beta(self) -> float: ...
    @property
    def noise_multiplier(self) -> float: ...
    @property
    def rate(self) -> float: ...
    @property
    def times(self) -> int: ...


class SettingLike(Protocol):
    """What the oracles read of a setting."""

    @property
    def parts(self) -> Sequence[PartLike]: ...
    @property
    def adjacency(self) -> str: ...


def pure_epsilon(setting: SettingLike) -> float:
    """The largest loss of the composition; infinite unless noise is Laplace or nothing but ADD is asked."""
    with mpmath.workdps(DIGITS):
        kind = setting.adjacency if setting.adjacency != "add-remove" else "remove"
        total = mpmath.mpf(0)
        for part in setting.parts:
            up, down = _centres(part, kind)
            total += part.times * (_limit(part, up) - _limit(part, down))
        return float(total)


def _limit(part: PartLike, centre: mpmath.mpf) -> mpmath.mpf:
    """log of the mixture relative to the noise at 0, as z -> infinity."""
    rate = mpmath.mpf(part.rate)
    if centre == 0:
        return mpmath.mpf(0)
    if part.beta == 1.0:
        return mpmath.log(1 - rate + rate * mpmath.exp(centre))
    return mpmath.inf if centre > 0 else (mpmath.log(1 - rate) if rate < 1 else -mpmath.inf)


def gaussian_log_delta(setting: SettingLike, epsilon: float, asked: float) -> float:
    """Gaussian noise without sampling: mu = sqrt(times) / sigma (Balle and Wang 2018, Theorem 8)."""
    with mpmath.workdps(DIGITS):
        scales = [(p.times, mpmath.mpf(math.sqrt(2.0) * p.noise_multiplier)) for p in setting.parts]
        mu = mpmath.sqrt(mpmath.fsum(2 * times / scale**2 for times, scale in scales))
        if setting.adjacency == "replace":
            mu *= 2
        e = mpmath.mpf(epsilon)
        value = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        return _log_ratio(value, asked)


def one_release_log_delta(setting: SettingLike, epsilon: float, asked: float) -> float:
    """One release: P(z > x) - e^epsilon Q(z > x) at the x where log P/Q = epsilon, the worse direction."""
    kinds = ("remove", "add") if setting.adjacency == "add-remove" else (setting.adjacency,)
    with mpmath.workdps(DIGITS):
        (part,) = setting.parts
        return max(_log_ratio(_hockey_stick(part, kind, mpmath.mpf(epsilon)), asked) for kind in kinds)


def _centres(part: PartLike, kind: str) -> tuple[mpmath.mpf, mpmath.mpf]:
    shift = 1 / mpmath.mpf(math.sqrt(2.0) * part.noise_multiplier)
    return {"remove": (shift, mpmath.mpf(0)), "add": (mpmath.mpf(0), -shift), "replace": (shift, -shift)}[
        kind
    ]


def _hockey_stick(part: PartLike, kind: str, epsilon: mpmath.mpf) -> mpmath.mpf:
    beta, rate = mpmath.mpf(part.beta), mpmath.mpf(part.rate)
    up, down = _centres(part, kind)

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


def composed_gaussian_epsilon(
    noise_multiplier: float, rate: float, times: int, delta: float, *, digits: int = 30
) -> mpmath.mpf:
    """Epsilon of Poisson-sampled Gaussian noise, composed, ADD_REMOVE, to about `digits` - 8 digits.

    Written apart from the package: the loss in closed form, its moment generating function by the trapezoid
    rule in z (which converges geometrically here: everything is analytic in a strip), delta by the
    trapezoid rule along a vertical line, and epsilon by the secant method.
    """
    with mpmath.workdps(digits):
        return max(
            _contour_epsilon(_losses(noise_multiplier, rate, side), times, delta)
            for side in ("remove", "add")
        )


def _losses(noise_multiplier: float, rate: float, side: str) -> list[tuple[mpmath.mpf, mpmath.mpf]]:
    """(loss, probability) at the nodes of a trapezoid rule in z, from 15 standard deviations on the left."""
    sigma, q = mpmath.mpf(noise_multiplier), mpmath.mpf(rate)
    step = min(sigma / 12, sigma**2 / 4)
    nodes = []
    for k in range(int(mpmath.floor(-15 * sigma / step)), int(mpmath.ceil((15 * sigma + 40) / step))):
        z = k * step
        still = mpmath.npdf(z, 0, sigma)
        mixed = 1 - q + q * mpmath.exp((2 * z - 1) / (2 * sigma**2))
        loss = mpmath.log(mixed)
        if side == "remove":
            nodes.append((loss, step * still * mixed))
        else:
            nodes.append((-loss, step * still))
    return nodes


def _contour_epsilon(nodes: list[tuple[mpmath.mpf, mpmath.mpf]], times: int, delta: float) -> mpmath.mpf:
    def log_phi(s: mpmath.mpc) -> mpmath.mpc:
        return mpmath.log(mpmath.fsum(p * mpmath.exp(s * loss) for loss, p in nodes))

    theta, spread, epsilon = _saddle(nodes, times, delta)
    peak = log_phi(mpmath.mpc(theta)).real
    step = 2 * mpmath.pi / (40 * spread + 80 / theta)
    line = []
    while True:
        s = mpmath.mpc(theta, step * len(line))
        weight = mpmath.exp(times * (log_phi(s) - peak)) / (s * (1 + s))
        line.append((s, weight / 2 if not line else weight))
        if abs(weight) < mpmath.mpf(10) ** (-mpmath.mp.dps) * abs(line[0][1]):
            break

    def excess(eps: mpmath.mpf) -> mpmath.mpf:
        total = mpmath.fsum((weight * mpmath.exp(-(s - theta) * eps)).real for s, weight in line)
        return times * peak - theta * eps + mpmath.log(total * step / mpmath.pi) - mpmath.log(delta)

    return mpmath.findroot(
        excess, (epsilon, epsilon * mpmath.mpf("1.001")), tol=mpmath.mpf(10) ** (8 - mpmath.mp.dps)
    )


def _saddle(
    nodes: list[tuple[mpmath.mpf, mpmath.mpf]], times: int, delta: float
) -> tuple[float, float, mpmath.mpf]:
    """A tilt near which delta is decided, the composition's standard deviation there, and a first epsilon."""
    losses = np.array([float(loss) for loss, _ in nodes])
    log_prob = np.array([float(mpmath.log(p)) for _, p in nodes])
    best = (math.inf, 1.0, 1.0)
    for theta in np.geomspace(0.05, 300.0, 400):
        tilted = log_prob + theta * losses
        log_phi = np.logaddexp.reduce(tilted)
        weight = np.exp(tilted - log_phi)
        spread = math.sqrt(times * float(weight @ (losses - weight @ losses) ** 2))
        chernoff = theta * math.log(theta) - (1 + theta) * math.log1p(theta)
        bound = (times * float(log_phi) + chernoff - math.log(delta)) / theta
        best = min(best, (bound, float(theta), spread))
    return best[1], best[2], mpmath.mpf(best[0])
