# SPDX-License-Identifier: Apache-2.0
"""The curve of a record that takes part in one of t releases, chosen at random.

With (P, Q) the pair of one release and L = dP/dQ, the pair of all t releases is the mixture of "P at step i,
Q elsewhere" over i, against Q everywhere. Its likelihood ratio is the mean W of t independent ratios L_i,
drawn under Q, so that

    D(x) = E_Q[(W - x)_+],      F(x) = D(x) - (1 - x) = E_Q[(x - W)_+].

**Ratios on a grid.** L goes to multiples of a spacing h, by the discrete laws above and below its own curve
U(g) = E[(L - g)_+] (`privacy_loss.curves`), which is the hockey-stick divergence of one release. A law with
the larger U has the larger D: as a function of one L_i, E[(W - x)_+] is f(0) + f'(0) l + the integral of
f''(g) (l - g)_+ dg with f(0), f'(0), f'' >= 0, so that its mean grows with the total mass, with U(0) and with
every U(g). For F the same holds with -1/t <= f'(0) <= 0, so that F changes by at most the error of U(0) on
the wrong side. What lies beyond the last grid point G is cut off: D falls by at most U(G), and F at x <= G/t
does not change, as one ratio beyond t x makes W larger than x.

**Sums.** The law of the sum is the t-fold convolution, by a transform of masses that are tilted by
e^(theta l), so that rounding is relative to the answer. A transform of depth log2(n) of non-negative numbers
that sum to one errs by at most 6 log2(n) units in every entry, a t-th power by squaring by 5 t units,
relative. Sums beyond the window wrap; Chernoff bounds their mass.

**Several grids.** Points near x = 1 need a fine grid and a short window, points far out a coarse and long
one. Each group of points has a transform of its own.
"""

import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.curves import Curve
from ggdp.privacy_loss.hockey_stick import far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

_NEGLIGIBLE = 1e-19  # D and F below this are not followed
_EVERY = 3000  # grid points at which U is evaluated one by one; beyond, it is at fewer and fewer points
_RATIO = 1.0 / 600.0
_SIZE = 1 << 18  # points of a transform
_FINENESS = 0.004  # distance of the losses of the curve, over their distance from loss 0
_GROWTH = 4.0  # factor from one group of points to the next
_ALIAS = 1e-13
_UNDERFLOW = 1e-250  # more than any number that underflows

Known = Callable[[Array], Curve]
"""The curve of one release at given losses, increasing."""


def pair_curve(pair: ShiftPair) -> Known:
    """The curve of one release of noise."""

    def known(loss: Array) -> Curve:
        turn = int(np.searchsorted(loss, 0.0))
        left, right = far_side(pair, loss[:turn]), hockey_stick(pair, loss[turn:])
        value = np.concatenate([left.value, right.value])
        error = np.concatenate([left.error, right.error])
        return Curve(loss, np.maximum(value - error, 0.0), value + error)

    return known


def enclosed_curve(above: Atoms, below: Atoms) -> Known:
    """The curve of a release that lies between two discrete pairs."""

    def known(loss: Array) -> Curve:
        low, high = _atoms_curve(below, loss, -1.0), _atoms_curve(above, loss, 1.0)
        return Curve(loss, np.minimum(low, high), high)

    return known


def _atoms_curve(atoms: Atoms, loss: Array, side: float) -> Array:
    """D from loss 0 on and D - (1 - x) before it, raised or lowered by a bound on the rounding."""
    p, q = atoms.mass, atoms.mass * np.exp(-atoms.loss)
    place = np.searchsorted(atoms.loss, loss, side="right")
    p_beyond, q_beyond = (np.append(np.cumsum(m[::-1])[::-1], 0.0)[place] for m in (p, q))
    value = p_beyond - np.exp(loss) * q_beyond + atoms.infinite
    error = 4.0 * (len(p) + 8.0) * UNIT_ROUNDOFF * (p_beyond + np.exp(loss) * q_beyond)
    shift = np.where(loss < 0.0, np.expm1(loss) + side * 4.0 * UNIT_ROUNDOFF, 0.0)
    return np.asarray(np.maximum(value + side * error + shift, 0.0))


def allocated(known: Known, steps: int, supremum: float, infimum: float) -> Curve:
    """The curve of one of `steps` releases, chosen at random, at losses of its own choice.

    Args:
        known: the curve of one release.
        steps: how many releases there are.
        supremum: the largest loss of one release, perhaps infinite.
        infimum: the smallest.
    """
    tail = _Tail.of(known, supremum)
    deviation = tail.deviation / math.sqrt(steps)
    loss = _losses(tail, deviation, supremum, infimum)
    low, high = np.zeros(len(loss)), known(loss).high  # a mean of ratios varies less than one of them
    last = max(math.log1p(tail.reaching(_NEGLIGIBLE) / steps), min(12.0 * deviation, 12.0))
    for chosen in _groups(loss, deviation, last):
        bound = _far if loss[chosen[0]] < 0.0 else _near
        x = np.exp(loss[chosen])
        high[chosen] = np.minimum(high[chosen], bound(known, tail, steps, x, True))
        with contextlib.suppress(CannotCertifyError):  # no lower law if the grid is too coarse
            low[chosen] = bound(known, tail, steps, x, False)
    if loss[-1] >= supremum:
        low[-1] = high[-1] = 0.0  # no mean of ratios exceeds the largest
    left = loss < 0.0
    # D falls, and F(x) / x grows, as F is convex and F(0) = 0
    high[~left] = np.minimum.accumulate(high[~left])
    x = np.exp(loss[left])
    high[left] = np.minimum.accumulate((high[left] / x)[::-1])[::-1] * x * (1.0 + 8.0 * UNIT_ROUNDOFF)
    return Curve(loss, np.minimum(low, high), high)


@dataclass(frozen=True)
class _Tail:
    """U at places far apart, for planning."""

    place: Array
    value: Array
    deviation: float
    least: float

    @staticmethod
    def of(known: Known, supremum: float) -> "_Tail":
        loss = np.concatenate(
            [np.linspace(-300.0, -20.0, 500)[:-1], np.linspace(-20.0, min(supremum, 600.0), 6000)]
        )
        found = known(loss)
        place = np.exp(loss)
        value = found.high + np.where(loss < 0.0, -np.expm1(loss), 0.0)
        # the variance is twice the integral of U over x, less of (1 - x)_+; what matters lies below 1e6
        excess = np.where(loss < 0.0, found.high, value)
        area = float(np.sum(0.5 * (excess[1:] + excess[:-1]) * np.diff(place)))
        rare = (found.high < _NEGLIGIBLE * place) & (loss < 0.0)
        least = float(loss[rare][-1]) if rare.any() else -300.0
        return _Tail(place, value, math.sqrt(max(2.0 * area, 1e-30)), least)

    def reaching(self, value: float) -> float:
        """The first place where U is at most this value; the last place if there is none."""
        return float(self.place[min(int(np.searchsorted(-self.value, -value)), len(self.place) - 1)])

    def at(self, place: Array) -> Array:
        """A rough U, not below the true one."""
        index = np.clip(np.searchsorted(self.place, place) - 1, 0, len(self.place) - 1)
        return np.asarray(self.value[index])


def _losses(tail: _Tail, deviation: float, supremum: float, infimum: float) -> Array:
    """Losses at which the curve is computed: denser near 0, up to those that one release hardly ever has."""
    scale = min(deviation, 0.5)
    most = min(math.log(tail.reaching(_NEGLIGIBLE)), supremum)
    least = max(tail.least, infimum)
    count = math.ceil(math.asinh(max(most, -least) / scale) / _FINENESS)
    half = scale * np.sinh(np.arange(1, count) * _FINENESS)
    right, left = half[half < most], -half[half < -least][::-1]
    return np.concatenate([[least], left, [0.0], right, [most]])


def _groups(loss: Array, deviation: float, last: float) -> list[NDArray[np.int64]]:
    """Points that share a transform, by their indices."""
    ends, far = [0.0], 4.0 * min(deviation, 0.5)
    while far < last:
        ends.append(far)
        far *= _GROWTH if far < 1.0 else 1.0 + 1.4 / far
    pieces = [*itertools.pairwise([*ends, max(last, ends[-1]) * (1.0 + 1e-12)])]
    low, high, least = -2.0 * min(deviation, 0.5), 0.0, -10.0 * max(deviation, 0.1)
    while max(loss[0], least) < high:
        pieces.append((max(low, loss[0]), high))
        low, high = 2.0 * low, low
    found = [np.flatnonzero((loss >= low) & (loss < high)) for low, high in pieces]
    return [chosen for chosen in found if len(chosen)]


@dataclass(frozen=True)
class _Ratios:
    """One law of L on the grid: places in spacings, Q-masses, and a bound on the error of its mean."""

    place: Array
    mass: Array
    off: float
    cut: float

    @staticmethod
    def of(known: Known, spacing: float, last: int, raised: bool) -> "_Ratios":
        """The law above, or below, on multiples of the spacing up to the last."""
        last = min(last, 2**52)  # larger ratios become infinite
        every = np.arange(1, min(_EVERY, last) + 1)
        if last > _EVERY:
            count = math.ceil(math.log(last / _EVERY) / _RATIO) + 1
            more = np.floor(np.geomspace(_EVERY, last, count)[1:]).astype(int)
            every = np.unique(np.concatenate([every, more, [last]]))
        curve = known(np.log(every * spacing))
        atoms = curve.above() if raised else curve.below()
        every = np.rint(np.exp(atoms.loss) / spacing).astype(int)
        mass = atoms.mass * np.exp(-atoms.loss)
        slip = 64.0 * UNIT_ROUNDOFF
        rest = 1.0 - math.fsum(mass)
        if not raised and rest < slip:
            mass, rest = mass / (math.fsum(mass) * (1.0 + slip)), 0.0
        zero = max(rest, 0.0) + slip if raised else max(rest - slip, 0.0)
        doubt = float(curve.high[-1] - curve.low[-1])
        off = abs(1.0 - math.fsum(atoms.mass) - atoms.infinite) + doubt + slip
        place, mass = np.append(0, every), np.append(zero, mass)
        kept = mass > (0.0 if raised else 1e-290)
        return _Ratios(place[kept], mass[kept], off, atoms.infinite)

    def up_to(self, last: int) -> "_Ratios":
        """The same with larger ratios moved to the last place."""
        inside = self.place < last
        if inside.all():
            return self
        mass = np.append(self.mass[inside], math.fsum(self.mass[~inside]))
        return _Ratios(np.append(self.place[inside], last), mass, self.off, self.cut)

    def log_mean(self, theta: float) -> float:
        """log of the sum of masses e^(theta place)."""
        exponent = theta * self.place
        top = float(exponent.max())
        return top + math.log(float(self.mass @ np.exp(exponent - top)))

    def mean(self, theta: float) -> float:
        """The mean place after tilting."""
        exponent = theta * self.place
        weight = self.mass * np.exp(exponent - exponent.max())
        return float(weight @ self.place / weight.sum())


@dataclass(frozen=True)
class _Sum:
    """The law of a sum of tilted ratios.

    Attributes:
        mass: its masses at 0, ..., n - 1, sums beyond wrapped.
        log_weight: log of the total before tilting.
        error: of every mass.
        alias: a bound on all that wrapped.
        slip: relative error of tilting and of undoing it.
    """

    mass: Array
    log_weight: float
    error: float
    alias: float
    slip: float


def _summed(ratios: _Ratios, steps: int, theta: float) -> _Sum:
    log_mean = ratios.log_mean(theta)
    spread = np.zeros(_SIZE)
    spread[ratios.place.astype(int)] = ratios.mass * np.exp(theta * ratios.place - log_mean)
    transformed = np.fft.rfft(spread)
    power = _power(transformed, steps)
    with np.errstate(under="ignore"):
        size = float(np.mean(np.abs(power))) + 1.0 / _SIZE
        before = float(np.mean(np.minimum(np.abs(transformed), 1.0) ** (steps - 1))) + 1.0 / _SIZE
    depth = 6.0 * math.log2(_SIZE) + 5.0
    error = 2.0 * UNIT_ROUNDOFF * depth * (steps * before + size)
    exponents = steps * (abs(theta) * float(ratios.place[-1]) + abs(log_mean) + 8.0) + abs(theta) * _SIZE
    slip = 8.0 * UNIT_ROUNDOFF * exponents + 1e-12
    summed = np.fft.irfft(power, _SIZE)
    return _Sum(summed, steps * log_mean, error, _alias(ratios, steps, theta), slip)


def _power(base: NDArray[np.complex128], exponent: int) -> NDArray[np.complex128]:
    """A power by squaring."""
    found, square = np.ones_like(base), base
    with np.errstate(under="ignore"):
        while exponent:
            if exponent & 1:
                found = found * square
            exponent >>= 1
            if exponent:
                square = square * square
    return found


def _alias(ratios: _Ratios, steps: int, theta: float) -> float:
    """Chernoff's bound of the tilted mass beyond the window; 0 if no sum reaches that far."""
    if steps * int(ratios.place[-1]) < _SIZE:
        return 0.0
    here = ratios.log_mean(theta)
    tries = np.geomspace(1e-2, 3e3, 40) / _SIZE
    logs = [steps * (ratios.log_mean(theta + more) - here) - more * _SIZE for more in tries]
    return math.exp(min(*logs, 0.0)) * (1.0 + 1e-9)


def _tilt(ratios: _Ratios, steps: int, wanted: float, side: float) -> float:
    """The tilt that brings the mean of the sum near a place, if little mass then lies beyond the window."""
    high = 1.0 / _SIZE
    while side * (steps * ratios.mean(side * high) - wanted) < 0.0 and high < 30.0:
        high *= 2.0
    low = 0.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (
            (middle, high) if side * (steps * ratios.mean(side * middle) - wanted) < 0.0 else (low, middle)
        )
    while high > 1e-3 / _SIZE and _alias(ratios, steps, side * high) > _ALIAS:
        high *= 0.8
    return side * high


def _near(known: Known, tail: _Tail, steps: int, x: Array, raised: bool) -> Array:
    """D at points from 1 on."""
    top = float(x[-1])
    bulk = (
        tail.deviation
        / math.sqrt(steps)
        * math.exp(-0.5 * ((top - 1.0) * math.sqrt(steps) / tail.deviation) ** 2)
    )
    least = max(float(tail.at(np.array([steps * (top - 1.0) + 1.0]))[0]) / steps, 0.01 * bulk, _NEGLIGIBLE)
    reach = max(tail.reaching(1e-7 * least), steps * (top - 1.0) + 1.0)
    reach = min(reach, float(tail.place[-1]))
    window = 1.3 * reach + steps * top
    spacing = window / _SIZE
    ratios = _Ratios.of(known, spacing, math.ceil(reach / spacing), raised)
    wanted = steps * (1.0 + 0.6 * (top - 1.0)) / spacing
    place = steps * x / spacing
    most = 600.0 / (place[-1] - place[0] + 1.0)
    theta = max(min(_tilt(ratios, steps, wanted, 1.0), most), 1e-9 / _SIZE)
    found = _summed(ratios, steps, theta)
    centre = float(place[0])
    start = int(centre)
    k = np.arange(start, _SIZE, dtype=float)
    mass = found.mass[start:] * np.exp(-theta * (k - centre))
    beyond = np.cumsum(mass[::-1])[::-1]  # at a point and beyond it
    curve = np.append(np.cumsum(beyond[:0:-1])[::-1], 0.0)  # sum of (j - k) mass over j > k
    index = np.minimum(place.astype(int) - start, len(k) - 2)
    share = place - start - index
    value = curve[index] * (1.0 - share) + curve[index + 1] * share
    decay = -math.expm1(-theta)
    weight = np.minimum(np.exp(-theta * (place - centre)) / decay**2, float(_SIZE) ** 2)
    rounding = weight * found.error + 8.0 * _SIZE * UNIT_ROUNDOFF * np.abs(value)
    unit = spacing / steps
    factor = math.exp(found.log_weight - theta * centre) * unit
    if raised:
        farthest = np.maximum(_SIZE, place + 1.0 / theta)  # where (k - place) e^(-theta k) is largest
        outside = found.alias * np.exp(-theta * (farthest - centre)) * (farthest - place)
        direct = (value + rounding + outside) * factor * (1.0 + found.slip)
        best = np.minimum(direct, _complement(ratios, found, steps, theta, place, 1.0) * unit)
        return np.asarray(best + ratios.cut + _UNDERFLOW)
    heaviest = np.exp(-theta * (place - centre)) / (math.e * theta)
    heaviest = np.minimum(heaviest, float(_SIZE) * np.exp(-theta * (place - centre)))
    direct = (value - rounding - found.alias * heaviest) * factor * (1.0 - found.slip)
    best = np.maximum(direct, _complement(ratios, found, steps, theta, place, -1.0) * unit)
    return np.asarray(np.maximum(best, 0.0))


def _complement(ratios: _Ratios, found: _Sum, steps: int, theta: float, place: Array, side: float) -> Array:
    """E[(S - X)_+] = E[S] - X + E[(X - S)_+], raised or lowered: better than the sum beyond X where that is
    long, as the errors of all its masses add up."""
    total, first = math.fsum(ratios.mass), math.fsum(ratios.mass * ratios.place)
    whole, mean = total**steps, steps * first * total ** (steps - 1)
    stop = min(int(place[-1]) + 2, _SIZE)
    k = np.arange(stop, dtype=float)
    mass = found.mass[:stop] * np.exp(-theta * k)
    curve = np.insert(np.cumsum(np.cumsum(mass)[:-1]), 0, 0.0)
    index = np.minimum(place.astype(int), stop - 2)
    share = place - index
    value = curve[index] * (1.0 - share) + curve[index + 1] * share
    weight = np.minimum(0.5 * (place + 2.0) ** 2, (place + 2.0) / -math.expm1(-theta))
    rounding = weight * found.error + 8.0 * stop * UNIT_ROUNDOFF * np.abs(value)
    wrapped = found.alias * place if side < 0.0 else 0.0
    scale = math.exp(min(found.log_weight, 700.0))
    doubt = 128.0 * steps * UNIT_ROUNDOFF * (mean + place)
    return np.asarray(
        mean
        - whole * place
        + scale * (1.0 + side * found.slip) * (value + side * rounding - wrapped)
        + side * doubt
    )


def _far(known: Known, tail: _Tail, steps: int, x: Array, raised: bool) -> Array:
    """D - (1 - x) at points up to 1."""
    reach = steps * float(x[-1]) * (1.0 + 1e-9)
    window = 1.0 * steps + 12.0 * tail.deviation * math.sqrt(steps) + reach
    spacing = window / _SIZE
    whole = min(max(reach, tail.reaching(1e-2 * _NEGLIGIBLE)), float(tail.place[-1]))
    ratios = _Ratios.of(known, spacing, math.ceil(whole / spacing), raised).up_to(math.ceil(reach / spacing))
    wanted = steps * (0.5 * float(x[0] + x[-1])) / spacing
    place = steps * x / spacing
    most = 600.0 / (place[-1] - place[0] + 1.0)
    theta = min(max(_tilt(ratios, steps, wanted, -1.0), -most), -1e-9 / _SIZE)
    found = _summed(ratios, steps, theta)
    centre = float(place[-1])
    stop = min(int(place[-1]) + 2, _SIZE)
    k = np.arange(stop, dtype=float)
    mass = found.mass[:stop] * np.exp(-theta * (k - centre))
    before = np.cumsum(mass)  # at a point and before it
    curve = np.insert(np.cumsum(before[:-1]), 0, 0.0)  # sum of (k - j) mass over j < k
    index = np.minimum(place.astype(int), stop - 2)
    share = place - index
    value = curve[index] * (1.0 - share) + curve[index + 1] * share
    decay = -math.expm1(theta)
    heavy = np.exp(-theta * (place - centre))
    weight = np.minimum(heavy / decay**2 * math.exp(-theta), (place + 2.0) ** 2 * heavy)
    rounding = weight * found.error + 8.0 * _SIZE * UNIT_ROUNDOFF * np.abs(value)
    factor = math.exp(found.log_weight - theta * centre) * spacing / steps
    if raised:
        return np.asarray((value + rounding) * factor * (1.0 + found.slip) + 2.0 * ratios.off + _UNDERFLOW)
    heaviest = np.minimum(heavy / (math.e * -theta), (place + 1.0) * heavy)
    low = (value - rounding - found.alias * heaviest) * factor * (1.0 - found.slip) - 2.0 * ratios.off
    return np.asarray(np.maximum(low, 0.0))
