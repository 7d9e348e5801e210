# SPDX-License-Identifier: Apache-2.0
"""Contours, one for each number of large losses.

Cut the noise of every release where its loss exceeds a number c. Below lies the bulk B, beyond it the jump J:
the same two laws, restricted to either side. Multiplied out, delta of a composition is a sum over the number
of jumps,

    delta(eps) = D_0 + D_1 + D_2 + ...,

exactly, with no term negative. A tilt that suits one of the terms does not suit the next: the law of the sum,
tilted to eps, has a hump for every number of jumps, and where eps lies in a valley between two of them, a
contour of the whole loses as many digits as the valley is deep. D_k alone has one hump. With phi_B and phi_J
the moment generating functions of the bulks and of the jumps, that of D_k is the coefficient of z^k in

    product over the kinds of release of (phi_B(s) + z phi_J(s))^times,

a polynomial at every point of the line. It is drawn at a tilt of its own and ends in a window
(`engines.contour`). It errs by no more than the difference of the polynomial with |phi| + error in place of
phi and that with |phi|.

More than k jumps add, for every theta > 0 and z >= 1, at most

    z^-(k+1) * product of (phi_B(theta) + z phi_J(theta))^times * e^(-theta eps) * sup (1 - e^-x) e^(-theta x)

over x > 0: Chernoff's inequality, and z^j >= z^(k+1) for every j > k.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.characteristic import of_nodes
from ggdp.accounting.engines.contour import (
    TOO_LITTLE,
    Line,
    Window,
    period,
    sparable,
    sparing,
    windowed_points,
)
from ggdp.accounting.engines.curve import LogDelta
from ggdp.accounting.engines.jump_plan import MARGIN, Split, chernoff, planned_split
from ggdp.accounting.engines.moments import log_chernoff_constant
from ggdp.accounting.engines.polynomial import Polynomial
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.quadrature import Nodes, certified_nodes_of_all

_MOST_PANELS = 60_000  # of all kinds
_LARGE = 700.0  # exponent of the largest factor taken


@dataclass(frozen=True)
class Jumps:
    """delta of a composition, from a line for each number of jumps.

    Attributes:
        lines: that of no jump, or of one, and so on.
        begins: an epsilon from which those of fewer jumps are zero.
        bounds: for each a, b and c, what is left out is at most e^(a - b eps), and about e^(c - b eps).
    """

    lines: Sequence[Line]
    begins: float
    bounds: Sequence[tuple[float, float, float]]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        if epsilon < self.begins:
            raise CannotCertifyError("epsilon lies below what fewer jumps add up to")
        terms = [line.delta(epsilon) for line in self.lines]
        base = max(term.log_value for term in terms)
        # each base, K(theta) - theta eps, is a difference of possibly large numbers
        doubt = max(abs(line.log_phi) + line.theta * abs(epsilon) + abs(base) + 4.0 for line in self.lines)
        doubt *= 8.0 * UNIT_ROUNDOFF
        scales = [math.exp(min(term.base - base, _LARGE)) for term in terms]

        def total(each: Sequence[float]) -> float:
            return math.fsum(scale * one for scale, one in zip(scales, each, strict=True))

        exponents = [a - b * epsilon - base for a, b, _ in self.bounds]
        if max(exponents) > _LARGE:
            raise CannotCertifyError("epsilon is far from where the lines were drawn")
        more = math.fsum(math.exp(one) for one in exponents) * (1.0 + 1e-9)
        rest = [(math.exp(min(c - b * epsilon - base, _LARGE)), b) for _, b, c in self.bounds]
        about = math.fsum(one for one, _ in rest)
        value = total([term.value for term in terms]) + about
        low = total([max(term.low, 0.0) for term in terms])
        high = total([max(term.high, 0.0) for term in terms]) + more
        if not value > 0.0:
            raise CannotCertifyError("the contours are too far from their saddles")
        return LogDelta(
            lower=base + math.log(low) - doubt if low > 0.0 else -math.inf,
            estimate=base + math.log(min(value, high)),
            upper=base + math.log(high) + doubt,
            slope=(total([term.slope for term in terms]) - math.fsum(one * b for one, b in rest)) / value,
            ledger=ErrorLedger(
                truncation=(more + total([term.truncation for term in terms])) / value,
                aliasing=total([term.aliasing for term in terms]) / value,
                quadrature=0.0,
                roundoff=total([term.roundoff for term in terms]) / value + doubt,
            ),
        )


def draw(parts: Parts, plan: TiltPlan, epsilon: float, spare: float = 1.0, least_steep: float = 0.0) -> Jumps:
    """Draw a line for every number of jumps that matters at epsilon.

    Args:
        parts: the composition.
        plan: its rough nodes.
        epsilon: where questions will be asked.
        spare: how many times wider than usual the answer may be.
        least_steep: -d log(delta) / d log(eps) that is taken for a smaller one, where a width of delta is
            asked for and none of epsilon.

    Raises:
        CannotCertifyError: no loss is large enough, too many jumps matter, or a line cannot be drawn.
    """
    found = planned_split(parts, plan, epsilon)
    steepness = max(found.steepness, least_steep)
    spare = min(spare, sparable(steepness))
    split, saddles = found.split, dict(enumerate(found.saddles, found.fewest))
    bounds = [(_certified_many(split, *found.more), found.more[1], -math.inf)]
    rarity = {}  # of the terms that get a line
    for turn, one in saddles.items():
        if chernoff(one) <= found.log_delta + min(found.log_allowed + math.log(spare), 0.0) - MARGIN:
            log_one = _certified_one(split, turn, one.theta)
            bounds.append((log_one, one.theta, one.log_delta + one.theta * epsilon))
        else:
            rarity[turn] = spare * math.exp(min(found.log_delta - one.log_delta, _LARGE))
    lines = {turn: _line(split, turn, saddles[turn], steepness, rare) for turn, rare in rarity.items()}
    found_there = {turn: line.delta(epsilon) for turn, line in lines.items()}
    whole = float(np.logaddexp.reduce([one.log_value for one in found_there.values()]))
    for turn, one_there in found_there.items():  # a plan may be wrong by a factor of thousands
        share = math.exp(min(one_there.log_value - whole, 0.0))
        left = sparing(one_there, steepness, share, spare)
        if left < TOO_LITTLE:
            rare = min(rarity[turn], sparable(steepness)) * left
            with suppress(CannotCertifyError):
                lines[turn] = _line(split, turn, saddles[turn], steepness, rare)
    return Jumps(list(lines.values()), split.largest_bulk if found.fewest else 0.0, bounds)


def _nodes(
    split: Split, tilts: tuple[float, ...], omega: float, jumps: bool
) -> tuple[list[Nodes], list[Nodes]]:
    """Quadrature of all bulks and, if they are asked for, of all jumps."""
    found: list[list[Nodes]] = []
    for parts, plan in ((split.bulks, split.plan), (split.jumps, split.jump_plan)):
        if found and not jumps:
            found.append([])
            continue
        found.append(
            certified_nodes_of_all(
                [pair for pair, _ in parts],
                tilts,
                omega,
                np.stack([plan.log_phis(tilt) for tilt in tilts], axis=1),
                most_panels=_MOST_PANELS,
                most_in_all=_MOST_PANELS,
            )
        )
    return found[0], found[1]


def _certified_many(split: Split, count: int, tilt: float, factor: float) -> float:
    """No less than log of the bound on more jumps at epsilon zero."""
    if count >= split.releases:
        return -math.inf
    bulks, jumps = _nodes(split, (tilt,), 0.0, jumps=True)
    log_jumps = dict(zip(split.which, (_raised(one, 0) for one in jumps), strict=True))
    total = log_chernoff_constant(tilt) - (count + 1) * factor
    size = 0.0
    for index, (bulk, (_, times)) in enumerate(zip(bulks, split.bulks, strict=True)):
        log_jump = log_jumps.get(index, -math.inf) + factor
        one = times * float(np.logaddexp(_raised(bulk, 0), log_jump))
        total, size = total + one, size + abs(one)
    return total + 1e-9 + 1e-12 * (size + (count + 1) * factor)


def _certified_one(split: Split, count: int, tilt: float) -> float:
    """No less than log of Chernoff's bound on the term of so many jumps at epsilon zero."""
    upper = [np.array([_raised(one, 0) for one in some]) for some in _nodes(split, (tilt,), 0.0, count > 0)]
    return _above(split, upper[0], upper[1], count) + log_chernoff_constant(tilt)


def _above(split: Split, log_bulks: Array, log_jumps: Array, count: int) -> float:
    """No less than log of a coefficient, from no less than the logarithms of what it is made of."""
    whole = split.plan.times @ log_bulks
    if count:
        whole = split.log_coefficients(log_bulks, log_jumps, count)[count]
    return float(whole) + 1e-9 + 1e-12 * float(split.plan.times @ np.abs(log_bulks))


def _line(split: Split, count: int, saddle: Saddle, steepness: float, rarity: float) -> Line:
    """The line of so many jumps; of a term that is less than the whole, by the `rarity`, fewer digits."""
    CLOCK.check()
    theta = saddle.theta
    window, theta_2 = period(lambda tilt: float(split.planned(tilt, count)[count]), saddle)
    step = 2.0 * math.pi / window
    kinds = len(split.bulks) + (len(split.jumps) if count else 0)
    points = windowed_points(theta, step, steepness, kinds, rarity)
    bulks, jumps = _nodes(split, (theta, theta_2), step * points, jumps=count > 0)
    omega = np.asarray(step * np.arange(points), dtype=np.float64)
    beside = dict(zip(split.which, jumps, strict=False))
    expected = [
        math.log(split.bulks[index][1]) + jump.log_phi[0] - bulks[index].log_phi[0]
        for index, jump in beside.items()
    ]
    unit = float(np.logaddexp.reduce(expected)) if expected else 0.0  # log of the expected number of jumps
    found = Polynomial.one(points, count)
    log_phi = mean = 0.0
    for index, (bulk, (_, times)) in enumerate(zip(bulks, split.bulks, strict=True)):
        CLOCK.check()
        value, error = of_nodes(bulk, step, points)
        error += bulk.quadrature[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            # of the power, whose exponent is times log(value)
            error += 4.0 * UNIT_ROUNDOFF * np.nan_to_num(np.abs(value * np.log(value)))
        error += 4.0 * UNIT_ROUNDOFF * omega * abs(bulk.mean)
        log_phi += times * bulk.log_phi[0]
        mean += times * bulk.mean
        if index not in beside:
            found = found.times(value, error, None, None, times)
            continue
        jump = beside[index]
        one, slip = of_nodes(jump, step, points)
        size = math.exp(jump.log_phi[0] - bulk.log_phi[0] - unit)
        one = size * one * np.exp(1j * omega * (jump.mean - bulk.mean))
        slip = size * (
            slip + jump.quadrature[0] + 4.0 * UNIT_ROUNDOFF * omega * (abs(jump.mean) + abs(bulk.mean))
        )
        found = found.times(value, error, one, slip, times)
    real = float(found.size[count, 0])
    if not real > 0.0:
        raise CannotCertifyError("so many jumps are lost in rounding")
    size, larger = found.size[count] / real, found.larger[count] / real
    with np.errstate(divide="ignore"):
        exponent = np.where(found.value[count] != 0.0, np.log(found.value[count] / real), -745.0)
    upper = [np.array([_raised(one, 1) for one in some]) for some in (bulks, jumps)]
    return Line(
        theta=theta,
        step=step,
        s=np.asarray(theta + 1j * omega, dtype=np.complex128),
        exponent=exponent + 1j * omega * mean,
        excess_quadrature=np.zeros(points),
        excess_roundoff=np.maximum(larger - size, 0.0) + _units(kinds, count) * UNIT_ROUNDOFF * larger,
        log_phi=log_phi + count * unit + math.log(real),
        log_truncation=-math.inf,
        chernoff=(theta_2, _above(split, upper[0], upper[1], count)),
        window=Window.ending(omega),
    )


def _units(kinds: int, most: int) -> float:
    """Rounding of products of so many polynomials, in units of that of their moduli."""
    return 64.0 + kinds * (most + 32.0)


def _raised(part: Nodes, tilt: int) -> float:
    """No less than log phi at a tilt of the nodes."""
    return part.log_phi[tilt] + part.quadrature[tilt] + part.roundoff[tilt]
