# SPDX-License-Identifier: Apache-2.0
"""The lattice engine: losses moved to a uniform grid in the safe direction, composed by one tilted FFT.

Upper bound. A pair (P, Q) is known by its curve delta(x) = E_Q[(P/Q - x)_+], x = e^t, convex and
non-increasing, and a pair with the larger curve stays larger under composition (Blackwell; Zhu, Dong, Wang
2022, Theorem 10). Losses on a grid are curves that are linear in x between grid points; the smallest one
above joins the exact values by chords (connect-the-dots, Doroshenko et al. 2022). It splits the P- and the
Q-mass of every cell between the cell's two ends.

Lower bound. Couple every loss L with its grid version L~: it goes to one end of its cell
or the other, and under Q the mean of e^L~ given L is e^L. Exchange them one release at a time. With d the
distance of L to the nearest end, in spacings h, the exchange raises E_Q(. - e^eps)_+ by at most d (e^h - 1)
x, and only when the cell, moved by all the other losses, holds eps; and L~ is the farther end with
probability at most d e^h. Summed over the releases,

    delta~(eps) - delta(eps)  <=  (e^h - 1) e^h ( k Pr[|S~ - eps| <= (2k + 1) h] + times Pr[more than k] ),

S~ the composed grid loss, and k a bound on the sum of all d and on the number of farther ends that both
exceed with negligible probability (Chernoff for independent variables in [0, 1]); never more than times/2
and times. The difference is O(h^2) and asks for no smoothness. Losses that lie on the grid, such as the
atoms of a Laplace loss, or far closer to it than h, cost nothing.

Composition. Masses are tilted by e^{theta t}, so that the transform's rounding is relative to the answer,
and wrapped to a window W; what wraps is the same one-sided alias sum as (2) of `engines.contour`, bounded
by Chernoff for the lattice's own moment generating function, which is a finite sum. A transform of depth
log2(n) of non-negative numbers that sum to one errs by at most 6 log2(n) units in every entry.
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
_LARGE = 600.0  # exponent of the largest factor taken
_DEEPEST = 700.0
_NEAR = 2.0  # distance from the centre up to which sums are read off a table
_USELESS = 300.0  # spacing at which a bound is off by a factor of e^300
_COARSEST = 0.01  # first spacing tried, against the length over which delta falls by a factor e
_SPARE = 3.0  # times what a grid took that a finer one may take more, point by point
_FURTHER = 0.25  # of the finest spacing that is planned, where time is left
_LEFT_OUT = 1e-30  # share of the mass beyond an epsilon that is not looked at
_FACTORS = 8  # transforms multiplied before a logarithm is taken: each has some 1e-17 of noise at least

Laws = Sequence[tuple[GridLaw, int]]
Complex = NDArray[np.complex128]


@dataclass(frozen=True)
class Lattice:
    """delta of a composed grid law around a centre, relative to e^base.

    With m the untilted masses, and sums over the grid points beyond eps, delta~ = e^base sum m (1 - e^(eps -
    loss)). Near the centre that is e^base (e^(eps - centre) kernel - (e^(eps - centre) - 1) above), where
    above = sum m and kernel = sum m (1 - e^(centre - loss)): nothing cancels when all losses are tiny. The
    errors of the masses fall as e^(-theta eps); what is charged apart grows by no more than
    e^(growth (centre - eps)) where eps is less than the centre, and not beyond.
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
        if (self.growth + 1.0) * abs(moved) > _LARGE:
            raise CannotCertifyError("epsilon lies too far from the lattice's centre")
        if abs(moved) <= _NEAR:
            above, kernel = float(self.above[index]), float(self.kernel[index])
            value = math.exp(moved) * kernel - math.expm1(moved) * above
            size = math.exp(abs(moved)) * (abs(kernel) + 2.0 * abs(math.expm1(moved)) * above)
        else:
            above = float(self.above[index])
            last = int(np.searchsorted(-self.above, -_LEFT_OUT * above))
            value = float(self.mass[index:last] @ -np.expm1(epsilon - self.loss[index:last]))
            size = value + float(self.above[last]) / UNIT_ROUNDOFF  # which leaves out no more than this
        slope = value - above
        widened = math.exp(max(-self.growth * moved, 0.0))
        noise = self.noise * math.exp(self.theta * (self.spacing - moved)) * (1.0 + 1e-6)
        # next to the largest loss delta is a difference of losses, whose places are rounded
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
        """By how much moving losses to the grid can have raised delta at epsilon, relative to e^base."""
        low, high = np.searchsorted(self.loss, [epsilon - self.reach, epsilon + self.reach], side="left")
        distance = abs(epsilon - self.centre) + self.reach
        if low == 0 or self.theta * distance > _LARGE:
            return math.inf  # the coupling says nothing
        near = float(self.above[low] - self.above[min(high + 1, len(self.above) - 1)])
        near += float(high - low + 2) * self.entry_error * math.exp(self.theta * distance)
        near += len(self.loss) * UNIT_ROUNDOFF * float(self.above[low])
        return math.expm1(self.spacing) * math.exp(self.spacing) * (self.moved * near + self.unlikely)


def build(parts: Parts, plan: TiltPlan, saddle: Saddle, tolerance: float) -> Lattice:
    """Compose the grid laws around the saddle, fine enough for a relative width of `tolerance` in delta if
    affordable.

    Raises:
        CannotCertifyError: the window misses the answer.
    """
    spans = [span_of(pair, plan, saddle, index) for index, (pair, _) in enumerate(parts)]
    window = window_of(plan, saddle)
    crowd = max(math.sqrt(len(parts)), len(parts) / 4.0)
    finest = crowd * max(1.5 * window / _MOST_POINTS, max(high - low for low, high in spans) / _MOST_CELLS)
    if finest > _USELESS:
        raise CannotCertifyError("the losses lie too far apart for a grid")
    spacing = max(_COARSEST / (saddle.theta + 1.0), finest)
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
        # a grid takes time as it has points: where time is left, grids are finer than planned
        affordable, least = 0.0, finest
        if math.isfinite(start):
            affordable, least = _SPARE * (start - CLOCK.left) / max(CLOCK.left, 1e-9), _FURTHER * finest
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
    """k for a sum of independent distances, and log of the probability that it is exceeded."""
    mean = min(sum(times * law.moved for law, times in laws), 1e300)
    if mean == 0.0:
        return 0.0, -math.inf
    most = float(sum(times for _, times in laws))
    count = max(2.0 * mean, 1.0)
    while count < most and _log_tail(mean, count) > rare:
        count *= 1.1
    return (count, _log_tail(mean, count)) if count < most else (most, -math.inf)


def _log_tail(mean: float, count: float) -> float:
    """Chernoff: log Pr[sum > count] <= count - mean - count log(count / mean), for independent terms in [0,
    1].
    """
    return count - mean - count * math.log(count / mean) if count > mean > 0.0 else 0.0


def span_of(pair: ShiftPair, plan: TiltPlan, saddle: Saddle, index: int) -> tuple[float, float]:
    """Losses of one part that can matter: tilted mass below, mass at infinity above, both negligible."""
    loss, log_mass, times = plan.part(index)
    # losses below the grid are raised to its first point, all of them
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
    """A period that keeps the wrapped mass negligible."""
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
    """Masses of the sum of all losses, tilted by theta, scaled to one and wrapped to `size` points.

    The first one belongs to the sum of the first losses. Also a bound on the error of every mass, and log of
    what they were scaled by.
    """
    half = size // 2 + 1
    log_transform, slip = np.zeros(half, dtype=np.complex128), np.zeros(half)
    per_entry = 6.0 * math.log2(size) * UNIT_ROUNDOFF
    log_phi = 0.0
    product, factors = np.ones(half, dtype=np.complex128), 0  # of laws that occur once: one logarithm for all
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
            if factors == _FACTORS:
                slip[product == 0.0] = math.inf  # nothing is known of what underflows
                log_transform += np.log(product)
                product[:], factors = 1.0, 0
        slip[product == 0.0] = math.inf
        log_transform += np.log(product)
    modulus = np.exp(log_transform.real)
    power = np.where(modulus > 0.0, np.exp(log_transform), 0.0)
    error = np.where(slip < 0.5, modulus * np.expm1(np.minimum(slip, 1.0)), np.exp(log_transform.real + slip))
    error = np.minimum(np.nan_to_num(error, nan=1.0, posinf=1.0), 1.0) + modulus * per_entry
    entries = np.maximum(np.fft.irfft(power, size), 0.0)
    # every entry of the inverse is off by no more than the mean of what its inputs, two conjugate halves,
    # are off by
    return entries, 2.0 * float(error.sum()) / size, log_phi


def _unrolled(
    laws: Laws, saddle: Saddle, spacing: float, entries: Array, entry_error: float, log_phi: float
) -> Lattice:
    """Untilt the entries over one period around the centre and sum them up from the right."""
    theta, centre, size = saddle.theta, saddle.epsilon, len(entries)
    period = size * spacing
    origin = sum(times * law.origin for law, times in laws)
    first = sum(times * law.first for law, times in laws)
    start = math.floor((centre - 0.2 * period - origin) / spacing)
    loss = np.asarray(origin + (start + np.arange(size)) * spacing, dtype=float)
    with np.errstate(over="ignore", under="ignore"):
        untilt = np.exp(-np.maximum(theta * (loss - centre), -_LARGE))  # further left no epsilon is asked for
        share = -np.expm1(-np.maximum(loss - centre, -_LARGE))
        mass = np.roll(entries, -((start - first) % size)) * untilt
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        kernel = np.append(np.cumsum((mass * share)[::-1])[::-1], 0.0)
    base = log_phi - theta * centre
    beyond = loss > centre
    noise = entry_error * float((untilt[beyond] * share[beyond]).sum())
    # sums of `size` terms, the exponent of e^base, and the places of the grid points, multiplied `times` over
    places = sum(
        times * (abs(law.origin) + (abs(law.first) + len(law.mass)) * spacing) for law, times in laws
    )
    ulps = size + 64.0 + 8.0 * (abs(log_phi) + theta * (abs(centre) + places))
    tail, alias = _wrapped(laws, saddle, 0.6 * period, period, base)
    alias += _raised(laws, theta)
    if not abs(base) < _DEEPEST:
        raise CannotCertifyError("what is charged apart cannot be told from none beside a delta so small")
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
        excess=math.expm1(min(sum(times * law.excess_factor for law, times in laws), _LARGE)),
        moved=min(count, sum(times * law.furthest for law, times in laws)),
        reach=(min(2.0 * count, total) + 1.0) * spacing * (1.0 + 1e-9),
        unlikely=unit * 2.0 * total * math.exp(log_unlikely),
        growth=theta + 12.0 / saddle.deviation,
    )


def _wrapped(laws: Laws, saddle: Saddle, reach: float, period: float, base: float) -> tuple[float, float]:
    """Mass beyond the window, and the alias sum, relative to e^base; Chernoff for the laws themselves."""
    best = math.inf
    for growth in (0.1, 0.4, 1.5, 3.0, 5.0, 8.0, 12.0):
        theta_2 = saddle.theta + growth / saddle.deviation
        value = sum(times * log_sum(law.log_mass + theta_2 * law.loss) for law, times in laws)
        best = min(best, value - theta_2 * saddle.epsilon - (theta_2 - saddle.theta) * reach - base)
    right = math.exp(min(best, 700.0))
    left = math.exp(min(-base - saddle.theta * period, 700.0))
    return right, 2.0 * (left + right)


def _raised(laws: Laws, theta: float) -> float:
    """What losses raised to the first grid point can add to delta, relative to e^base, by Chernoff."""
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
