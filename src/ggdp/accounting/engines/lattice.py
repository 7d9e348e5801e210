# SPDX-License-Identifier: Apache-2.0
"""The lattice engine: losses are moved to a uniform grid in the safe direction and composed by one FFT.

Here h is the spacing of the grid, and a *cell* is the interval between two neighbouring grid points.

Upper bound. A pair (P, Q) is determined by its curve delta(x) = E_Q[(P/Q - x)_+] with x = e^t, which is
convex and non-increasing. If one pair has the larger curve, so do its compositions (Blackwell; Zhu, Dong,
Wang 2022, Theorem 10). Losses on a grid have a curve that is linear in x between the grid points. The
smallest such curve above the true one joins its values at the grid points by chords (connect-the-dots,
Doroshenko et al. 2022). The P- and the Q-mass of every cell are then split between the two ends of the cell.

Lower bound. Couple every loss L with its grid version L~, which is one end of its cell or the other, such
that under Q the mean of e^L~ given L is e^L. Replace the losses by their grid versions, one release at a
time. Let d be the distance of L to the nearest end of its cell, over h. One replacement raises
E_Q(e^S - e^eps)_+ by at most d (e^h - 1) x, and only if the cell, moved by the sum of all other losses,
contains eps. L~ is the farther end with probability at most d e^h. Summed over the releases,

    delta~(eps) - delta(eps)  <=  (e^h - 1) e^h ( k Pr[|S~ - eps| <= (2k + 1) h] + times Pr[more than k] ),

where S~ is the sum of the grid losses, and k is a number that neither the sum of all d nor the number of
farther ends exceeds, but with negligible probability (Chernoff's inequality for independent variables in
[0, 1]). The two are never more than times/2 and times. The difference is O(h^2), and no smoothness is needed.
Losses that lie on the grid, such as those values that a Laplace loss takes with positive probability, cost
nothing.

Composition. Masses are tilted by e^{theta t}, so that the rounding errors of the transform are small relative
to the answer. The transform has n points, so that sums of losses are only known modulo the period W = n h.
Their wrapping adds the same alias terms as in (2) of `engines.contour`. These are bounded by Chernoff's
inequality for the lattice's own moment generating function, which is a finite sum. A transform of n
non-negative numbers that sum to one errs by at most 6 log2(n) units in every entry.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import LogDelta
from ggdp.accounting.engines.grid_law import GridLaw, discretize
from ggdp.accounting.engines.spacing import aligned
from ggdp.accounting.engines.tilt import Parts, Saddle, TiltPlan
from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.shift_pair import ShiftPair

_MOST_POINTS = 2**21
_MOST_CELLS = 400_000
_MOST_EXPONENT = 600.0  # exponent of the largest factor that is used
_MOST_BASE = 700.0  # largest |log| of the number that all masses are divided by
_TABLE_REACH = 2.0  # distance from the centre up to which sums are read off a table
_USELESS_SPACING = 300.0  # at which a bound would be off by a factor of e^300
_FIRST_SPACING = 0.01  # times the length over which delta falls by a factor e
_SLOWDOWN = 3.0  # how many times longer per point a finer grid may take than the one before
_FINEST = 0.25  # finest spacing that is used where time is left, over the finest one planned
_IGNORED_SHARE = 1e-30  # share of the mass beyond an epsilon that is bounded and not summed
_MOST_FACTORS = 8  # transforms multiplied before a logarithm is taken; each has at least 1e-17 of noise

Laws = Sequence[tuple[GridLaw, int]]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Lattice:
    """The curve of a composition whose losses lie on a grid, near the epsilon (`centre`) it was built for.

    All masses m, and all errors, are stored after division by e^base. With sums over the grid points beyond
    eps, delta of the grid losses is e^base times the sum of m (1 - e^(eps - loss)). Near the centre this is
    computed as e^base (e^(eps - centre) kernel - (e^(eps - centre) - 1) above), with above = sum of m and
    kernel = sum of m (1 - e^(centre - loss)). So nothing cancels when all losses are tiny.

    The errors of the masses are proportional to e^(-theta eps). `tail` and `alias` grow by no more than
    e^(growth (centre - eps)) if eps is less than the centre, and do not grow if it is larger.

    Attributes:
        loss: the grid points.
        mass: their masses.
        spacing: the distance of grid points.
        centre: the epsilon that the curve was built for.
        base: log of what masses and errors are divided by.
        above: for each grid point, the sum of the masses from there on.
        kernel: likewise, of the masses times 1 - e^(centre - loss).
        theta: the tilt.
        entry_error: bound on the error of every tilted mass.
        noise: bound on the error of delta at the centre that this makes.
        ulps: rounding of sums and exponents, in units of round-off.
        slip: rounding of the places of the grid points.
        tail: bound on what sums beyond the period add to delta.
        alias: bound on what wrapping has added to delta.
        infinite: bound on the probability of an infinite loss.
        lifted: bound on what raising all curves by a constant has added to delta.
        excess: bound on the factor, less 1, by which raising all curves in proportion has increased delta.
        moved: k of the module docstring, at most half the number of releases.
        reach: (2k + 1) h of the module docstring.
        unlikely: bound on what the coupling costs where k is exceeded.
        growth: see above.
    """

    loss: Array
    mass: Array
    spacing: float
    centre: float
    base: float
    above: Array
    kernel: Array
    theta: float
    entry_error: float
    noise: float
    ulps: float
    slip: float
    tail: float
    alias: float
    infinite: float
    lifted: float
    excess: float
    moved: float
    reach: float
    unlikely: float
    growth: float

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon."""
        index = int(np.searchsorted(self.loss, epsilon, side="right"))
        if not 0 < index < len(self.loss):
            raise CannotCertifyError("epsilon lies outside the lattice's window")
        moved = epsilon - self.centre
        if (self.growth + 1.0) * abs(moved) > _MOST_EXPONENT:
            raise CannotCertifyError("epsilon lies too far from the lattice's centre")
        if abs(moved) <= _TABLE_REACH:
            above, kernel = float(self.above[index]), float(self.kernel[index])
            value = math.exp(moved) * kernel - math.expm1(moved) * above
            size = math.exp(abs(moved)) * (abs(kernel) + 2.0 * abs(math.expm1(moved)) * above)
        else:
            above = float(self.above[index])
            last = int(np.searchsorted(-self.above, -_IGNORED_SHARE * above))
            value = float(self.mass[index:last] @ -np.expm1(epsilon - self.loss[index:last]))
            # `rounding` below then covers the terms that are not summed
            size = value + float(self.above[last]) / UNIT_ROUNDOFF
        slope = value - above
        widened = math.exp(max(-self.growth * moved, 0.0))
        noise = self.noise * math.exp(self.theta * (self.spacing - moved)) * (1.0 + 1e-6)
        # next to the largest loss delta is proportional to a difference of losses, whose places are rounded
        rounding = noise + (self.ulps + 8.0) * UNIT_ROUNDOFF * size + self.slip * above
        tail, alias, infinite = widened * self.tail, widened * self.alias, self.infinite
        inflation = self._inflation(epsilon) + self.excess * value + self.lifted
        high = value + rounding + tail + infinite
        low = value - rounding - alias - infinite - inflation
        if not value > 0.0:
            raise CannotCertifyError("delta is lost in the lattice's rounding")
        return LogDelta(
            lower=self.base + math.log(low) if low > 0.0 else -math.inf,
            estimate=self.base + math.log(value),
            upper=self.base + math.log(high),
            slope=slope / value,
            ledger=ErrorLedger(
                (tail + infinite) / value, alias / value, 0.0, rounding / value, inflation / value
            ),
        )

    def _inflation(self, epsilon: float) -> float:
        """Bound on what moving losses to the grid has added to delta at epsilon, over e^base."""
        low, high = np.searchsorted(self.loss, [epsilon - self.reach, epsilon + self.reach], side="left")
        distance = abs(epsilon - self.centre) + self.reach
        if low == 0 or self.theta * distance > _MOST_EXPONENT:
            return math.inf  # the coupling bounds nothing here
        near = float(self.above[low] - self.above[min(high + 1, len(self.above) - 1)])
        near += float(high - low + 2) * self.entry_error * math.exp(self.theta * distance)
        near += len(self.loss) * UNIT_ROUNDOFF * float(self.above[low])
        return math.expm1(self.spacing) * math.exp(self.spacing) * (self.moved * near + self.unlikely)


def build(parts: Parts, plan: TiltPlan, saddle: Saddle, tolerance: float) -> Lattice:
    """Put all parts on a grid and compose them, for questions about epsilons near the saddle's.

    The grid is made finer until the relative width of delta is at most `tolerance`, or until time or memory
    do not allow a finer one.

    Raises:
        CannotCertifyError: nothing can be certified on the first grid.
    """
    spans = [span_of(pair, plan, saddle, index) for index, (pair, _) in enumerate(parts)]
    window = window_of(plan, saddle)
    crowd = max(math.sqrt(len(parts)), len(parts) / 4.0)
    finest = crowd * max(1.5 * window / _MOST_POINTS, max(high - low for low, high in spans) / _MOST_CELLS)
    if finest > _USELESS_SPACING:
        raise CannotCertifyError("the losses lie too far apart for a grid")
    spacing = max(_FIRST_SPACING / (saddle.theta + 1.0), finest)
    best, narrowest = None, math.inf
    while True:
        start = CLOCK.left
        try:
            lattice = _on_grid(parts, spans, saddle, window, aligned(laplace_atoms(parts), spacing))
        except CannotCertifyError:
            if best is None:
                raise
            return best
        width = lattice.log_delta(saddle.epsilon).ledger.discretization
        if best is None or width < narrowest:
            best, narrowest = lattice, width
        # time is proportional to the number of points: where it is left, grids become finer than planned
        affordable, least = 0.0, finest
        if math.isfinite(start):
            affordable, least = _SLOWDOWN * (start - CLOCK.left) / max(CLOCK.left, 1e-9), _FINEST * finest
        least = max(least, spacing * affordable)
        if width <= tolerance or spacing <= least:
            return best
        finer = 0.8 * math.sqrt(tolerance / width) if math.isfinite(width) else 0.25
        spacing = max(least, spacing * min(finer, 0.25))


def laplace_atoms(parts: Parts) -> list[tuple[float, float]]:
    """How far apart the two atoms of every Laplace loss are, and how often one occurs."""
    return [
        (pair.supremum - pair.infimum, times * pair.rate)
        for pair, times in parts
        if pair.beta == 1.0 and math.isinf(pair.cut)
    ]


def _on_grid(
    parts: Parts,
    spans: Sequence[tuple[float, float]],
    saddle: Saddle,
    window: float,
    spacing: float,
) -> Lattice:
    """The lattice at one spacing."""
    size = 1 << max(6, math.ceil(math.log2(1.5 * window / spacing)))
    negligible = 1e-11 * math.exp(saddle.log_delta)
    laws = [
        (discretize(pair, spacing, *span, negligible / times), times)
        for (pair, times), span in zip(parts, spans, strict=True)
    ]
    return compose(laws, saddle, size, spacing)


def _moved_at_most(laws: Laws, rare: float) -> tuple[float, float]:
    """k of the module docstring, and log of a bound on the probability that the sum exceeds it.

    `rare` is the log of a probability that is negligible.
    """
    mean = min(sum(times * law.moved for law, times in laws), 1e300)
    if mean == 0.0:
        return 0.0, -math.inf
    most = float(sum(times for _, times in laws))
    count = max(2.0 * mean, 1.0)
    while count < most and _log_tail(mean, count) > rare:
        count *= 1.1
    return (count, _log_tail(mean, count)) if count < most else (most, -math.inf)


def _log_tail(mean: float, count: float) -> float:
    """log of a bound on Pr[sum > count] for a sum of independent variables in [0, 1] with this mean.

    By Chernoff's inequality it is count - mean - count log(count / mean).
    """
    return count - mean - count * math.log(count / mean) if count > mean > 0.0 else 0.0


def span_of(pair: ShiftPair, plan: TiltPlan, saddle: Saddle, index: int) -> tuple[float, float]:
    """The lowest and the highest loss of one part that matter.

    The tilted mass below, and the mass above, which is moved to infinite loss, are negligible.
    """
    loss, log_mass, times = plan.part(index)
    # losses below the grid will be raised to its first point
    from_left = np.logaddexp.accumulate(log_mass) + saddle.theta * loss
    from_left = from_left - (log_mass + saddle.theta * loss).max()
    from_right = np.logaddexp.accumulate(log_mass[::-1])[::-1]
    low = loss[max(int((from_left < -42.0 - math.log(times)).sum()) - 1, 0)]
    enough = saddle.log_delta - 34.0 - math.log(times)
    beyond = int((from_right > enough).sum())
    high = float(max(loss[min(beyond, len(loss) - 1)], low))
    is_last = beyond >= len(loss) - 1 or high >= pair.supremum - 1e-9 * abs(pair.supremum)
    return float(low), pair.supremum if is_last and math.isfinite(pair.supremum) else high


def window_of(plan: TiltPlan, saddle: Saddle) -> float:
    """A period of the transform that keeps the wrapped mass negligible."""
    allowed = saddle.log_delta - 34.0
    best = math.inf
    for growth in (0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 5.0, 8.0, 12.0):
        theta_2 = saddle.theta + growth / saddle.deviation
        value = float(plan.times @ plan.log_phis(theta_2))
        best = min(best, (value - theta_2 * saddle.epsilon - allowed) / (theta_2 - saddle.theta))
    return max(best, -allowed / saddle.theta, 4.0 * saddle.deviation)


def compose(laws: Laws, saddle: Saddle, size: int, spacing: float) -> Lattice:
    """The law of the sum of all losses, by one tilted transform of `size` points around the saddle."""
    return _unrolled(laws, saddle, spacing, *_tilted_sum(laws, saddle.theta, size))


def _tilted_sum(laws: Laws, theta: float, size: int) -> tuple[Array, float, float]:
    """Masses of the sum of all losses, tilted by theta, wrapped to `size` points and scaled to sum to one.

    The first mass belongs to the sum of the laws' first losses. Also returned are a bound on the error of
    every mass, and log of the factor by which they were divided, which is K(theta).
    """
    half = size // 2 + 1
    log_transform, slip = np.zeros(half, dtype=np.complex128), np.zeros(half)
    per_entry = 6.0 * math.log2(size) * UNIT_ROUNDOFF
    log_phi = 0.0
    product, factors = np.ones(half, dtype=np.complex128), 0  # laws that occur once share a logarithm
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        for law, times in laws:
            CLOCK.check()
            exponent = law.log_mass + theta * law.loss
            log_one = log_sum(exponent)
            places = np.arange(len(exponent)) % size
            transform = np.fft.rfft(np.bincount(places, weights=np.exp(exponent - log_one), minlength=size))
            if times == 1:
                product *= transform
                factors += 1
            else:
                log_transform += times * np.log(transform)
            slip += times * np.log1p((per_entry + 8.0 * UNIT_ROUNDOFF) / np.abs(transform))
            log_phi += times * log_one
            if factors == _MOST_FACTORS:
                slip[product == 0.0] = math.inf  # a product that underflows is not known
                log_transform += np.log(product)
                product[:], factors = 1.0, 0
        slip[product == 0.0] = math.inf
        log_transform += np.log(product)
    modulus = np.exp(log_transform.real)
    power = np.where(modulus > 0.0, np.exp(log_transform), 0.0)
    error = np.where(slip < 0.5, modulus * np.expm1(np.minimum(slip, 1.0)), np.exp(log_transform.real + slip))
    error = np.minimum(np.nan_to_num(error, nan=1.0, posinf=1.0), 1.0) + modulus * per_entry
    entries = np.maximum(np.fft.irfft(power, size), 0.0)
    # the error of every entry is at most the mean error of the inputs, which are two conjugate halves
    return entries, 2.0 * float(error.sum()) / size, log_phi


def _unrolled(
    laws: Laws, saddle: Saddle, spacing: float, entries: Array, entry_error: float, log_phi: float
) -> Lattice:
    """Undo the tilt of the masses over one period around the centre, and sum them up from the right."""
    theta, centre, size = saddle.theta, saddle.epsilon, len(entries)
    period = size * spacing
    origin = sum(times * law.origin for law, times in laws)
    first = sum(times * law.first for law, times in laws)
    start = math.floor((centre - 0.2 * period - origin) / spacing)
    loss = np.asarray(origin + (start + np.arange(size)) * spacing, dtype=float)
    with np.errstate(over="ignore", under="ignore"):
        # no epsilon is asked for further left
        untilt = np.exp(-np.maximum(theta * (loss - centre), -_MOST_EXPONENT))
        share = -np.expm1(-np.maximum(loss - centre, -_MOST_EXPONENT))
        mass = np.roll(entries, -((start - first) % size)) * untilt
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        kernel = np.append(np.cumsum((mass * share)[::-1])[::-1], 0.0)
    base = log_phi - theta * centre
    beyond = loss > centre
    noise = entry_error * float((untilt[beyond] * share[beyond]).sum())
    # rounding of sums of `size` terms, of the exponent base, and of the places of the grid points
    places = sum(
        times * (abs(law.origin) + (abs(law.first) + len(law.mass)) * spacing) for law, times in laws
    )
    ulps = size + 64.0 + 8.0 * (abs(log_phi) + theta * (abs(centre) + places))
    tail, alias = _wrapped(laws, saddle, 0.6 * period, period, base)
    alias += _raised(laws, theta)
    if not abs(base) < _MOST_BASE:
        raise CannotCertifyError("delta is so small that the errors, divided by it, overflow")
    unit = math.exp(-base)
    total = float(sum(times for _, times in laws))
    count, log_unlikely = _moved_at_most(laws, saddle.log_delta - 30.0 - math.log(total))
    return Lattice(
        loss=loss,
        mass=mass,
        spacing=spacing,
        centre=centre,
        base=base,
        above=above,
        kernel=kernel,
        theta=theta,
        entry_error=entry_error,
        noise=noise,
        ulps=ulps,
        slip=16.0 * UNIT_ROUNDOFF * (abs(centre) + places),
        tail=tail,
        alias=alias,
        infinite=unit * sum(times * law.infinite for law, times in laws),
        lifted=unit * sum(times * law.excess_mass for law, times in laws),
        excess=math.expm1(min(sum(times * law.excess_factor for law, times in laws), _MOST_EXPONENT)),
        moved=min(count, sum(times * law.furthest for law, times in laws)),
        reach=(min(2.0 * count, total) + 1.0) * spacing * (1.0 + 1e-9),
        unlikely=unit * 2.0 * total * math.exp(log_unlikely),
        growth=theta + 12.0 / saddle.deviation,
    )


def _wrapped(laws: Laws, saddle: Saddle, reach: float, period: float, base: float) -> tuple[float, float]:
    """Bounds on the mass beyond the period and on the alias terms, over e^base, by Chernoff's inequality."""
    best = math.inf
    for growth in (0.1, 0.4, 1.5, 3.0, 5.0, 8.0, 12.0):
        theta_2 = saddle.theta + growth / saddle.deviation
        value = sum(times * log_sum(law.log_mass + theta_2 * law.loss) for law, times in laws)
        best = min(best, value - theta_2 * saddle.epsilon - (theta_2 - saddle.theta) * reach - base)
    right = math.exp(min(best, 700.0))
    left = math.exp(min(-base - saddle.theta * period, 700.0))
    return right, 2.0 * (left + right)


def _raised(laws: Laws, theta: float) -> float:
    """Bound on what losses raised to the first grid point add to delta, over e^base, by Chernoff."""
    total = 0.0
    for law, times in laws:
        if law.raised > 0.0:
            log_one = log_sum(law.log_mass + theta * law.loss)
            total += times * math.exp(min(math.log(law.raised) + theta * float(law.loss[0]) - log_one, 0.0))
    return total


def log_sum(exponent: Array) -> float:
    """log of the sum of exponentials."""
    peak = float(exponent.max())
    return peak + math.log(float(np.exp(exponent - peak).sum()))
