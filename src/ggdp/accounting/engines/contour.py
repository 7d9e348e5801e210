# SPDX-License-Identifier: Apache-2.0
"""The contour engine: delta of a composition as one integral over a vertical line, with a proved error.

With phi_i(s) = E_P[e^{s L_i}] and K(s) = sum of times_i log phi_i(s), for any theta > 0

    delta(eps) = 1/(2 pi) * integral of  e^{K(s) - s eps} / (s (1 + s))  d omega,       s = theta + i omega,
    (1)

because 1/(s(1+s)) is the two-sided Laplace transform of x -> (1 - e^{-x})_+. The trapezoid sum of step h is
exactly

    delta(eps) + sum over j != 0 of e^{j W theta} delta(eps + j W),       W = 2 pi / h  (Poisson summation),
    (2)

every term positive. What may be wrong, and its bound:

- truncation: `engines.cut_off`;
- aliasing: terms j < 0 by delta <= 1; terms j > 0 by Chernoff at a larger tilt; one-sided, so only the lower
  bound pays;
- quadrature of phi_i: `privacy_loss.quadrature`, raised to the power times_i;
- round-off: exponents and sums, likewise; a sum of n terms is charged n units whatever order BLAS adds them
  in.

K does not depend on eps: further questions reuse the line.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import CLOCK, LogDelta
from ggdp.accounting.engines.cut_off import (
    MANY,
    PLANNING_ERROR,
    characteristic,
    cut_off,
    planned_end,
    power_units,
)
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.panel_error import NODES_PER_PANEL
from ggdp.privacy_loss.quadrature import MOST_PANELS, Nodes, certified_nodes_of_all

_TRUNCATION = -29.0  # log of the truncation aimed at, relative to delta
_ALIASING = -32.0  # likewise
_FEWEST_PANELS = 20  # that a part has, as a rule
_FEW = 4  # parts that share the budget; more of them have more
_MOST_PRODUCTS = 6e7  # nodes times line points: about a sixth of a second
_MOST_IN_ALL, _MOST_EACH = 8e8, 1.2e7  # for several parts, and for very many of them


@dataclass(frozen=True)
class Line:
    """K along Re s = theta, ready to be asked for any epsilon near the one it was drawn for.

    Attributes:
        s: the points theta + i k h.
        exponent: K(s) - K(theta).
        excess: bound on |e^K(s) error| / e^K(theta) at each point, from quadrature and from round-off.
        log_phi: K(theta).
        log_truncation: log of what lies beyond the last point, relative to e^K(theta).
        chernoff: (theta_2, upper bound of K(theta_2)) for the aliases on the right.
    """

    theta: float
    step: float
    s: NDArray[np.complex128]
    exponent: NDArray[np.complex128]
    excess_quadrature: Array
    excess_roundoff: Array
    log_phi: float
    log_truncation: float
    chernoff: tuple[float, float]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        base = self.log_phi - self.theta * epsilon
        kernel = np.exp(-1j * self.s.imag * epsilon) / (self.s * (1.0 + self.s))
        wave = np.exp(self.exponent) * kernel
        wave[0] *= 0.5
        factor = self.step / math.pi
        total = factor * float(wave.real.sum())
        if not total > 0.0:
            raise CannotCertifyError("the contour is too far from its saddle")
        derivative = -factor * float((wave * self.s).real.sum())
        size = np.abs(kernel)
        # the phases i omega eps carry the rounding of omega * eps, and every term that of its own exponent
        own = np.abs(wave) * (16.0 + self.s.imag * abs(epsilon) + np.abs(self.exponent)) * 4.0 * UNIT_ROUNDOFF
        roundoff = factor * float((size * self.excess_roundoff + own).sum()) + len(
            size
        ) * UNIT_ROUNDOFF * factor * float(np.abs(wave).sum())
        quadrature = factor * float((size * self.excess_quadrature).sum())
        truncation = math.exp(min(self.log_truncation, 700.0))
        aliasing = float(self._aliasing(np.array(epsilon), np.array(base)))
        # base itself, K(theta) - theta eps, is a difference of possibly large numbers
        base_error = 4.0 * UNIT_ROUNDOFF * (abs(self.log_phi) + abs(self.theta * epsilon))
        both = roundoff + quadrature + truncation
        low, high = total - both - aliasing, total + both
        ledger = ErrorLedger(
            truncation / total, aliasing / total, quadrature / total, roundoff / total + base_error
        )
        return LogDelta(
            lower=base - base_error + math.log(low) if low > 0.0 else -math.inf,
            estimate=base + math.log(total),
            upper=base + base_error + math.log(high),
            slope=derivative / total,
            ledger=ledger,
        )

    def log_deltas(self, first: float, spacing: float, count: int) -> tuple[Array, Array]:
        """Certified log delta at epsilons first + k spacing, from below and from above; minus and plus
        infinity where nothing is known. As `log_delta`, all of them by one matrix product.
        """
        epsilons = np.asarray(first + spacing * np.arange(count), dtype=np.float64)
        farthest = float(np.abs(epsilons).max())
        kernel = 1.0 / (self.s * (1.0 + self.s))
        wave = np.exp(self.exponent) * kernel
        wave[0] *= 0.5
        factor = self.step / math.pi
        total = factor * characteristic(wave, -self.s.imag, first, spacing, count).real
        size = np.abs(kernel)
        own = np.abs(wave) * (16.0 + self.s.imag * farthest + np.abs(self.exponent)) * 4.0 * UNIT_ROUNDOFF
        units = len(size) + power_units(count)
        roundoff = factor * float((size * self.excess_roundoff + own).sum())
        roundoff += units * UNIT_ROUNDOFF * factor * float(np.abs(wave).sum())
        quadrature = factor * float((size * self.excess_quadrature).sum())
        both = roundoff + quadrature + math.exp(min(self.log_truncation, 700.0))
        base: Array = np.asarray(self.log_phi - self.theta * epsilons, dtype=np.float64)
        aliasing = self._aliasing(epsilons, base)
        base_error = 4.0 * UNIT_ROUNDOFF * (abs(self.log_phi) + self.theta * farthest)
        low, high = total - both - aliasing, total + both
        with np.errstate(divide="ignore", invalid="ignore"):
            lower = np.where(low > 0.0, base - base_error + np.log(np.maximum(low, 1e-300)), -np.inf)
            upper = np.where(high > 0.0, base + base_error + np.log(np.maximum(high, 1e-300)), np.inf)
        return lower, upper

    def _aliasing(self, epsilon: Array, base: Array) -> Array:
        """Sum of the terms j != 0 of (2), relative to e^base."""
        window = 2.0 * math.pi / self.step
        theta_2, log_phi_2 = self.chernoff
        left = -base - self.theta * window
        gap = theta_2 - self.theta
        right = log_phi_2 - theta_2 * epsilon + log_chernoff_constant(theta_2) - gap * window - base
        return _geometric(left, self.theta * window) + _geometric(right, gap * window)


def draw(parts: Parts, plan: TiltPlan, saddle: Saddle, effort: float = 1.0) -> Line:
    """Evaluate K along the line through the saddle, with at most `effort` sixths of a second of arithmetic.

    Raises:
        CannotCertifyError: phi falls too slowly here for the line to be cut off at a reasonable length.
    """
    CLOCK.check()
    theta = saddle.theta
    log_phis = plan.log_phis(theta)
    relative = saddle.log_delta - (float(plan.times @ log_phis) - theta * saddle.epsilon)
    window, theta_2 = _window(plan, saddle)
    step, log_phis_2 = 2.0 * math.pi / window, plan.log_phis(theta_2)
    products = effort * _MOST_PRODUCTS * max(len(parts) / _FEW, 1.0)
    if len(parts) > 1:
        products = min(products, max(_MOST_IN_ALL, _MOST_EACH * len(parts)))
    enough = _TRUNCATION + relative
    if len(parts) > MANY:  # the rest takes seconds, and is not begun where its end is known
        least = planned_end(plan, saddle, enough)[0] / 1.5 / step * len(parts) * _FEWEST_PANELS
        if least * NODES_PER_PANEL > products:
            raise CannotCertifyError("the line through so many parts is too long")
    for _ in range(2):
        omega, log_truncation = cut_off(parts, plan, saddle, step, enough, log_phis)
        count = math.ceil(omega / step) + 1
        left = int(products / (count * NODES_PER_PANEL))  # panels that all parts may share
        nodes = certified_nodes_of_all(
            [pair for pair, _ in parts],
            (theta, theta_2),
            omega,
            np.stack([log_phis, log_phis_2], axis=1),
            most_panels=round(effort * MOST_PANELS),
            most_in_all=left,
        )
        certified = np.array([part.log_phi[0] + part.quadrature[0] + part.roundoff[0] for part in nodes])
        if np.all(certified <= log_phis + PLANNING_ERROR):
            break
        # the plan was too rough for this tilt: the line's end is found again from what is certified
        log_phis, log_phis_2 = certified, np.array([part.log_phi[1] for part in nodes])
    else:
        raise CannotCertifyError("the plan was too rough for this tilt")
    return _assemble(parts, nodes, theta, theta_2, step, count, log_truncation)


def _assemble(
    parts: Parts,
    nodes: list[Nodes],
    theta: float,
    theta_2: float,
    step: float,
    count: int,
    log_truncation: float,
) -> Line:
    omega = step * np.arange(count)
    exponent = np.zeros(count, dtype=np.complex128)
    growth_quadrature, growth_roundoff = np.zeros(count), np.zeros(count)
    mean = log_phi = log_phi_2 = 0.0
    powers = 8.0 + power_units(count)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for (_, times), part in zip(parts, nodes, strict=True):
            ratio = characteristic(part.share, part.loss - part.mean, 0.0, step, count)
            exponent += times * np.log(ratio)
            size = np.abs(ratio)
            slip = part.roundoff[0] + UNIT_ROUNDOFF * (powers + 4.0 * omega * part.deviation)
            growth_quadrature += times * np.log1p(part.quadrature[0] / size)
            growth_roundoff += times * np.log1p(slip / size)
            mean += times * part.mean
            log_phi += times * part.log_phi[0]
            log_phi_2 += times * (part.log_phi[1] + part.quadrature[1] + part.roundoff[1])
        size = np.exp(exponent.real)
        excess_quadrature = _perturbed(exponent.real, growth_quadrature)
        excess_roundoff = _perturbed(exponent.real, growth_roundoff)
    exponent = np.where(size > 0.0, exponent, -745.0)
    return Line(
        theta=theta,
        step=step,
        s=np.asarray(theta + 1j * omega, dtype=np.complex128),
        exponent=exponent + 1j * omega * mean,
        excess_quadrature=excess_quadrature,
        excess_roundoff=excess_roundoff,
        log_phi=log_phi,
        log_truncation=log_truncation,
        chernoff=(theta_2, log_phi_2),
    )


def _perturbed(log_size: Array, growth: Array) -> Array:
    """prod (|phi| + e)^times - prod |phi|^times, from its log and sum of times * log1p(e/|phi|)."""
    small = np.exp(np.maximum(log_size, -745.0)) * np.expm1(np.minimum(growth, 1.0))
    large = np.exp(np.minimum(log_size + growth, 0.0))
    return np.where(growth < 1.0, small, np.where(np.isnan(large), 1.0, large))


def _window(plan: TiltPlan, saddle: Saddle) -> tuple[float, float]:
    """A period W that keeps the aliases of (2) negligible, and the larger tilt that shows it."""
    theta, allowed = saddle.theta, _ALIASING + saddle.log_delta
    best, best_tilt = math.inf, 2.0 * theta
    for growth in (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 8.0, 12.0, 20.0):
        theta_2 = theta + growth / saddle.deviation
        value = float(plan.times @ plan.log_phis(theta_2))
        exponent = value - theta_2 * saddle.epsilon + log_chernoff_constant(theta_2) - allowed
        window = exponent / (theta_2 - theta)
        if window < best:
            best, best_tilt = window, theta_2
    return max(best, -allowed / theta, 4.0 * saddle.deviation), best_tilt


def _geometric(log_first: Array, log_ratio: float) -> Array:
    """Sum of first * ratio^-j over j >= 0."""
    if log_ratio < 1e-3:
        return np.full_like(log_first, np.inf)
    return np.where(log_first > 0.0, np.inf, np.exp(np.minimum(log_first, 0.0)) / -math.expm1(-log_ratio))
