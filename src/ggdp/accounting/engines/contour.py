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

Where the integrand falls too slowly to be cut off, as with atoms or few releases, the line ends in a window.
With kappa(y) = e^(-theta y) (1 - e^-y)_+ and S the tilted sum, (1) is the mean of kappa(S - eps), times
e^(K(theta) - theta eps). The transform of kappa, k(w) = 1 / (s (1 + s)), is multiplied by J(w), which is 1
up to c Omega and falls in a straight line to 0 at Omega. What this changes, e(y), has the transform
k (J - 1), and |k| <= 1/w^2, |k'| <= 2/|w|^3, |k''| <= 6/w^4. So, integrating the transform as it is, and
twice by parts,

    |e(y)| <= 0.374 / Omega    and    |e(y)| <= 6.5 / (Omega^3 y^2)        for c = 0.72.

With f(v) = (sin(v) / v)^2, v = Omega y / 2 and w = 0.8125 both are at most

    G(y) = (2 w / Omega) (f(v) + f(v + pi/2) / 2 + f(v - pi/2) / 2):

for |v| > b = pi/2 since 1/(v+b)^2 + 1/(v-b)^2 >= 2/v^2, else since f(v) >= 4/pi^2. The transform of G,
(4 pi w / Omega^2) (1 - w/Omega) (1 + cos(pi w/Omega)), ends at Omega too. So the trapezoid sum of it, which
is the mean of the sum of G(S - eps + j W) over all j, bounds what the window changes in (2), and nothing need
be known of K beyond Omega.

K does not depend on eps: further questions reuse the line.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.characteristic import of_nodes
from ggdp.accounting.engines.curve import LogDelta
from ggdp.accounting.engines.cut_off import MANY, PLANNING_ERROR, cut_off, planned_end
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.panel_error import NODES_PER_PANEL
from ggdp.privacy_loss.quadrature import MOST_PANELS, Nodes, certified_nodes_of_all

_TRUNCATION = -29.0  # log of the truncation aimed at, relative to delta
_ALIASING = -32.0  # likewise
_FEWEST_PANELS = 20  # that a part has, as a rule
_FEW = 4  # parts that share the budget; more of them have more
_MOST_PRODUCTS = 6e7  # nodes times line points: about a sixth of a second
_FLAT = 0.72  # share of a line on which its window is one,
_WINDOW = 0.8125  # and w of the bound that this gives
_NARROW, _FAIR = 5e-7, 5e-6  # relative width of epsilon that a window may cost, as a rule and at most
_MOST_COST = 0.02  # of delta, that a window may be
_LEAST_STEEP = 0.02  # d log(delta) / d log(eps) for which that is asked
_MOST_TOGETHER = 300_000  # points of lines that end in a window, of all parts, before they are shortened
_FEWEST_POINTS, _MOST_POINTS = 64, 400_000  # of one
_MOST_WINDOWED = 60_000  # panels of all parts of one
_MOST_IN_ALL, _MOST_EACH = 8e8, 1.2e7  # for several parts, and for very many of them

TOO_LITTLE = 0.05
"""What a window may cost, over what it does cost, below which its line is drawn again."""


@dataclass(frozen=True)
class Window:
    """What ends a line at Omega where the integrand has not become negligible, at each of its points.

    Attributes:
        weight: factors J of the integrand.
        bound: G, of which the trapezoid sum bounds what these factors change.
    """

    weight: Array
    bound: Array

    @staticmethod
    def ending(omega: Array) -> "Window":
        """The window that ends at the last point."""
        end = float(omega[-1])
        weight = np.clip((1.0 - omega / end) / (1.0 - _FLAT), 0.0, 1.0)
        bound = 4.0 * math.pi * _WINDOW / end**2 * (1.0 - omega / end) * (1.0 + np.cos(math.pi * omega / end))
        return Window(weight, bound)


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
        window: what the line ends with where it has not become negligible.
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
    window: Window | None = None

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        found = self.delta(epsilon)
        total, low, high = found.value, found.low, found.high
        if not total > 0.0:
            raise CannotCertifyError("the contour is too far from its saddle")
        # base itself, K(theta) - theta eps, is a difference of possibly large numbers
        base_error = 4.0 * UNIT_ROUNDOFF * (abs(self.log_phi) + abs(self.theta * epsilon))
        ledger = ErrorLedger(
            found.truncation / total,
            found.aliasing / total,
            found.quadrature / total,
            found.roundoff / total + base_error,
        )
        return LogDelta(
            lower=found.base - base_error + math.log(low) if low > 0.0 else -math.inf,
            estimate=found.base + math.log(total),
            upper=found.base + base_error + math.log(high),
            slope=found.slope / total,
            ledger=ledger,
        )

    def delta(self, epsilon: float) -> "OnLine":
        """delta at epsilon relative to e^base, with everything that it may be off by."""
        base = self.log_phi - self.theta * epsilon
        chi = np.exp(self.exponent - 1j * self.s.imag * epsilon)
        chi[0] *= 0.5
        kernel = 1.0 / (self.s * (1.0 + self.s))
        factor = self.step / math.pi
        truncation, size = math.exp(min(self.log_truncation, 700.0)), np.abs(kernel)
        if self.window is not None:
            kernel, size = kernel * self.window.weight, size + self.window.bound
            truncation += factor * float((chi.real * self.window.bound).sum())
        wave = chi * kernel
        # the phases i omega eps carry the rounding of omega * eps, and every term that of its own exponent
        ulps = 16.0 + self.s.imag * abs(epsilon) + np.abs(self.exponent)
        own = np.abs(chi) * size * (4.0 * ulps + len(size)) * UNIT_ROUNDOFF
        return OnLine(
            base=base,
            value=factor * float(wave.real.sum()),
            slope=-factor * float((wave * self.s).real.sum()),
            truncation=truncation,
            aliasing=float(self._aliasing(np.array(epsilon), np.array(base))),
            quadrature=factor * float((size * self.excess_quadrature).sum()),
            roundoff=factor * float((size * self.excess_roundoff + own).sum()),
        )

    def _aliasing(self, epsilon: Array, base: Array) -> Array:
        """Sum of the terms j != 0 of (2), relative to e^base."""
        window = 2.0 * math.pi / self.step
        theta_2, log_phi_2 = self.chernoff
        left = -base - self.theta * window
        gap = theta_2 - self.theta
        right = log_phi_2 - theta_2 * epsilon + log_chernoff_constant(theta_2) - gap * window - base
        return _geometric(left, self.theta * window) + _geometric(right, gap * window)


@dataclass(frozen=True)
class OnLine:
    """delta at one epsilon relative to e^base, its slope, and bounds on its errors."""

    base: float
    value: float
    slope: float
    truncation: float
    aliasing: float
    quadrature: float
    roundoff: float

    @property
    def log_value(self) -> float:
        """log delta, of which nothing is certified; far below e^base it is only said to be."""
        return self.base + math.log(max(self.value, 1e-300))

    @property
    def high(self) -> float:
        """No less than delta."""
        return self.value + self.roundoff + self.quadrature + self.truncation

    @property
    def low(self) -> float:
        """No more than delta."""
        return self.value - self.roundoff - self.quadrature - self.truncation - self.aliasing


def draw(parts: Parts, plan: TiltPlan, saddle: Saddle, effort: float = 1.0) -> Line:
    """Evaluate K along the line through the saddle, with at most `effort` sixths of a second of arithmetic.

    Raises:
        CannotCertifyError: phi falls too slowly here for the line to be cut off at a reasonable length.
    """
    CLOCK.check()
    theta = saddle.theta
    log_phis = plan.log_phis(theta)
    relative = saddle.log_delta - (float(plan.times @ log_phis) - theta * saddle.epsilon)
    window, theta_2 = period(plan.cumulant, saddle)
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


def draw_windowed(parts: Parts, plan: TiltPlan, saddle: Saddle, least_steep: float = 0.0) -> Line:
    """Evaluate K along the line through the saddle up to where a window changes next to nothing.

    Args:
        parts: the composition.
        plan: its rough cumulants.
        saddle: where the line crosses the real axis.
        least_steep: -d log(delta) / d log(eps) that is taken for a smaller one, where a width of delta is
            asked for and none of epsilon.

    Raises:
        CannotCertifyError: the line would be too long, or the loss oscillates too fast along it.
    """
    theta = saddle.theta
    window, theta_2 = period(plan.cumulant, saddle)
    step, steepness = 2.0 * math.pi / window, max(theta * saddle.epsilon, least_steep)
    log_phis = np.stack([plan.log_phis(theta), plan.log_phis(theta_2)], axis=1)

    def line(spare: float) -> Line:
        CLOCK.check()
        count = windowed_points(theta, step, steepness, len(parts), spare)
        nodes = certified_nodes_of_all(
            [pair for pair, _ in parts],
            (theta, theta_2),
            step * count,
            log_phis,
            most_panels=_MOST_WINDOWED,
            most_in_all=_MOST_WINDOWED,
        )
        found = _assemble(parts, nodes, theta, theta_2, step, count, -math.inf)
        return replace(found, window=Window.ending(found.s.imag))

    found = line(1.0)
    spare = sparing(found.delta(saddle.epsilon), steepness)
    if spare < TOO_LITTLE:
        with suppress(CannotCertifyError):
            return line(spare)
    return found


def sparing(found: "OnLine", steepness: float, share: float = 1.0, spare: float = 1.0) -> float:
    """What a window may cost, over what it does cost; infinite where something else costs more.

    Args:
        found: delta where it was asked for, which is so large a `share` of the whole.
        steepness: -d log(delta) / d log(eps).
        share: of the whole.
        spare: how many times as large an error as usual may be.
    """
    if found.truncation < found.aliasing + found.quadrature + found.roundoff:
        return math.inf  # a longer line would be no better
    cost = share * found.truncation
    return _NARROW * max(steepness, _LEAST_STEEP) * spare * max(found.value, 0.0) / max(cost, 1e-300)


def sparable(steepness: float) -> float:
    """How many times as large an error as usual is still a small share of delta."""
    return _MOST_COST / (_NARROW * max(steepness, _LEAST_STEEP))


def windowed_points(theta: float, step: float, steepness: float, parts: int, spare: float = 1.0) -> int:
    """How many points a line has that ends in a window and costs little of epsilon's width.

    Args:
        theta: where it crosses the real axis.
        step: distance of its points.
        steepness: -d log(delta) / d log(eps).
        parts: how many characteristic functions make it.
        spare: how many times as large an error as usual may be.
    """
    allowed = _NARROW * max(steepness, _LEAST_STEEP) * min(spare, sparable(steepness))
    length = math.sqrt(16.0 * math.pi * _WINDOW * theta * (1.0 + theta) / max(allowed, 1e-300)) / step
    # a long line may be shortened, which costs width
    shortest = math.sqrt(_NARROW / _FAIR * min(max(steepness, _LEAST_STEEP), 1.0))
    length *= min(max(shortest, _MOST_TOGETHER / parts / length), 1.0)
    if not length < _MOST_POINTS:
        raise CannotCertifyError("the line is too long")
    return max(math.ceil(length) + 1, _FEWEST_POINTS)


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
    growth_quadrature, growth_all = np.zeros(count), np.zeros(count)
    mean = log_phi = log_phi_2 = 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for (_, times), part in zip(parts, nodes, strict=True):
            CLOCK.check()
            ratio, slip = of_nodes(part, step, count)
            log_ratio, size = np.log(ratio), np.abs(ratio)
            exponent += times * log_ratio
            growth_quadrature += times * np.log1p(part.quadrature[0] / size)
            # the two exponents may cancel in their sum, and their rounding does not
            turned = 4.0 * UNIT_ROUNDOFF * (np.abs(log_ratio) + omega * abs(part.mean))
            growth_all += times * (np.log1p((part.quadrature[0] + slip) / size) + turned)
            mean += times * part.mean
            log_phi += times * part.log_phi[0]
            log_phi_2 += times * (part.log_phi[1] + part.quadrature[1] + part.roundoff[1])
        size = np.exp(exponent.real)
        excess_quadrature = _perturbed(exponent.real, growth_quadrature)
        excess_roundoff = np.maximum(_perturbed(exponent.real, growth_all) - excess_quadrature, 0.0)
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
    """prod (|phi| + e)^times - prod |phi|^times, from its log and sum of times * log1p(e/|phi|).

    Where phi is computed as 0, a bound on prod |phi|^times: it is largest on the real axis, the first point.
    """
    small = np.exp(np.maximum(log_size, -745.0)) * np.expm1(np.minimum(growth, 1.0))
    log_large = log_size + growth
    log_large = np.minimum(np.where(np.isnan(log_large), log_large[0], log_large), 700.0)
    return np.where(growth < 1.0, small, np.exp(log_large))


def period(cumulant: Callable[[float], float], saddle: Saddle) -> tuple[float, float]:
    """A period W that keeps the aliases of (2) negligible, and the larger tilt that shows it."""
    theta, allowed = saddle.theta, _ALIASING + saddle.log_delta
    best, best_tilt = math.inf, 2.0 * theta
    for growth in (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 8.0, 12.0, 20.0):
        theta_2 = theta + growth / saddle.deviation
        exponent = cumulant(theta_2) - theta_2 * saddle.epsilon + log_chernoff_constant(theta_2) - allowed
        window = exponent / (theta_2 - theta)
        if window < best:
            best, best_tilt = window, theta_2
    return max(best, -allowed / theta, 4.0 * saddle.deviation), best_tilt


def _geometric(log_first: Array, log_ratio: float) -> Array:
    """Sum of first * ratio^-j over j >= 0."""
    if log_ratio < 1e-3:
        return np.full_like(log_first, np.inf)
    return np.where(log_first > 0.0, np.inf, np.exp(np.minimum(log_first, 0.0)) / -math.expm1(-log_ratio))
