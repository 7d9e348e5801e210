# SPDX-License-Identifier: Apache-2.0
"""Draws whose law is known exactly, although floats help to compute them: rejection with certified decisions.

Both laws are built on f(x) = exp(-(|x|/scale)^beta). `integers` draws whole numbers k with probability
proportional to f(k). `rounded` draws what rounding to a grid makes of a value plus a real number of density
proportional to f: the continuous mechanism's answer, after rounding.

The half line is cut into equal cells of 2^w whole numbers, and a tail. A cell is chosen with an integer
weight B >= G f(left end), by an alias table that compares integers only; a place in it is chosen by w random
bits; the place x is kept if V < G f(x) / B, where V is uniform on [0, 1) and has as many random bits as the
decision needs. So each x is kept with probability proportional to f(x), whatever B and G are: that they were
computed in floating point costs speed and nothing else. The sign is one more random bit.

V < G f(x) / B is decided, in this order, by an integer threshold that is a certified lower bound over the
whole cell; by float64, where the two sides differ by more than `_DOUBT`, far more than the error of NumPy's
functions; and otherwise in decimal arithmetic, whose logarithm and exponential are correctly rounded, with
more digits and more random bits until the enclosures are apart. docs/exact-release.md has the proof.
"""

import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

WordSource = Callable[[int], NDArray[np.int64]]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_CHUNK = 1 << 15
_COLUMNS = 1 << 10
_COIN_BITS = 54
_CELLS = _COLUMNS - 2  # two outcomes more: the tail, and "draw again"
_TAIL_EXPONENT = 30.0  # the tail begins where f has fallen to e^-30
_DOUBT = 2.0**-36  # relative; exponents up to 32 and beta up to 64 make float64 wrong by 2^-41 at most
_FINE_BITS = 42  # a continuous draw is found to 2^-42 of the scale at least, and further where that matters
_LEAST_FINE_BITS = 8  # and to this many bits below the grid, so that few draws lie at an edge of it
LEAST_STEPS, MOST_STEPS = 2.0**-10, 2.0**34
"""The scale of `rounded`, in steps of the grid, lies between these."""


@dataclass(frozen=True)
class _Table:
    """The cells of one law. `scale` is in units of the whole numbers that are drawn."""

    beta: float
    scale: float
    continuous: bool  # whether a draw is a real number in [k, k + 1), or k itself
    shift: int  # a cell holds 2^shift whole numbers
    cells: int
    weight: tuple[int, ...]  # B of each cell, then of the tail
    unit: int  # G
    threshold: NDArray[np.uint64]  # of each column: the outcome is the column if the coin is below,
    alias: Ints  # else this one
    surely: NDArray[np.uint64]  # V below this is kept wherever in the cell the place is
    share: Floats  # G / B of each cell


@lru_cache(maxsize=64)
def _table(beta: float, scale: float, continuous: bool, tail_exponent: float = _TAIL_EXPONENT) -> _Table:
    reach = scale * tail_exponent ** (1.0 / beta) * (1.0 + 1e-12)
    shift = max(0, math.ceil(math.log2(max(reach / _CELLS, 1.0))))
    cells = max(1, math.ceil(reach / 2.0**shift))
    left = np.ldexp(np.arange(cells + 1.0), shift)
    right = left[1:] if continuous else left[1:] - 1.0
    high, low = (np.exp(-((edge / scale) ** beta)) for edge in (left, right))
    high *= 1.0 + _DOUBT
    bounds = [*high[:-1].tolist(), 2.0 * cells * float(high[-1])]  # the tail's: see _tail_draw
    unit = int((2**64 - 4 * _COLUMNS) / (math.fsum(bounds) * (1.0 + 1e-9)))
    weight = tuple(max(math.ceil(Fraction(bound) * unit), 1) for bound in bounds)  # 1 where f underflows
    share = np.array([unit / whole for whole in weight])
    lowest = (low * share[:-1] * (1.0 - 2.0 * _DOUBT)).tolist()
    surely = np.array([int(chance * 2.0**64) for chance in lowest], dtype=np.uint64)
    threshold, alias = _alias([*weight, 2**64 - sum(weight)])
    return _Table(beta, scale, continuous, shift, cells, weight, unit, threshold, alias, surely, share)


def _alias(weights: list[int]) -> tuple[NDArray[np.uint64], Ints]:
    """Walker's table in whole numbers: outcome j has exactly weights[j] of the 2^64 words."""
    capacity = 1 << _COIN_BITS
    left = weights + [0] * (_COLUMNS - len(weights))
    threshold, alias = [capacity] * _COLUMNS, list(range(_COLUMNS))
    small = [j for j in range(_COLUMNS) if left[j] < capacity]
    large = [j for j in range(_COLUMNS) if left[j] >= capacity]
    while small and large:
        poor, rich = small.pop(), large.pop()
        threshold[poor], alias[poor] = left[poor], rich
        left[rich] -= capacity - left[poor]
        (small if left[rich] < capacity else large).append(rich)
    return np.array(threshold, dtype=np.uint64), np.array(alias, dtype=np.int64)


@dataclass
class _Fraction:
    """The part after the point of a continuous draw, bits / 2^count and further bits not yet drawn."""

    bits: int = 0
    count: int = 0

    def extend(self, words: WordSource) -> None:
        self.bits, self.count = (self.bits << 64) | int(words(1).view(np.uint64)[0]), self.count + 64

    def ends(self, whole: int) -> tuple[Fraction, Fraction]:
        """The interval in which whole + this lies."""
        return whole + Fraction(self.bits, 1 << self.count), whole + Fraction(self.bits + 1, 1 << self.count)


Known = dict[int, _Fraction]  # of those few draws whose fraction was looked at, by position


def integers(beta: float, scale: float, count: int, words: WordSource) -> Ints:
    """`count` whole numbers k, independent, each with probability proportional to exp(-(|k|/scale)^beta)."""
    out = np.empty(count, dtype=np.int64)
    table = _table(beta, scale, False)
    for start in range(0, count, _CHUNK):
        _fill(out[start : start + _CHUNK], table, words)
    return out


def rounded(
    beta: float, scale: float, grid_exponent: int, values: Floats, words: WordSource
) -> NDArray[np.int64]:
    """The multiples n of g = 2^grid_exponent that are nearest to value + Z.

    Z has a density proportional to exp(-(|z|/scale)^beta). The law of n is exactly that of
    floor((value + Z) / g + 1/2), Z being a real number and `value` the exact double. Every |value| / g must
    be below 2^52, and scale / g lie between `LEAST_STEPS` and `MOST_STEPS`.
    """
    quotient = np.ldexp(values, -grid_exponent)
    quotient = np.where((quotient == 0.0) & (values != 0.0), np.copysign(5e-324, values), quotient)
    whole = np.rint(quotient)
    rest = (
        quotient - whole
    )  # in [-1/2, 1/2], and exact but for quotients that underflow, which keep their sign
    _, exponent = math.frexp(scale)
    fine = max(_FINE_BITS - (exponent - grid_exponent), _LEAST_FINE_BITS)  # bits below the grid
    table = _table(beta, math.ldexp(scale, fine - grid_exponent), True)
    out = np.empty(len(values), dtype=np.int64)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        cell = np.empty(len(values[part]), dtype=np.int64)
        known = _fill(cell, table, words)
        # value + Z is (cell + fraction + offset) / 2^fine steps from the multiple `whole`
        offset = np.ldexp(rest[part], fine)
        below = np.floor(offset)
        after = offset - below
        total = cell + below.astype(np.int64) + (1 << (fine - 1))
        steps = total >> fine
        at_edge = (after > 0.0) & (((total + 1) & ((1 << fine) - 1)) == 0)
        for at in np.flatnonzero(at_edge).tolist():
            fraction = known.get(at, _Fraction())
            place = Fraction(float(values[start + at])) / Fraction(2) ** grid_exponent - int(
                whole[start + at]
            )
            edge = 1 - (place * 2**fine - int(below[at]))
            while fraction.ends(0)[0] < edge < fraction.ends(0)[1]:
                fraction.extend(words)
            steps[at] += fraction.ends(0)[0] >= edge
        out[part] = whole[part].astype(np.int64) + steps
    return out


def _fill(out: Ints, table: _Table, words: WordSource) -> Known:
    """Fill `out` with draws: k, or for a continuous law the whole number below the draw."""
    where, known = np.arange(len(out)), Known()
    while len(where):
        again = _throw(out, where, table, words, known)
        where = where[again]
    return known


def _throw(out: Ints, where: Ints, table: _Table, words: WordSource, known: Known) -> NDArray[np.bool_]:
    """Draw once for each place; say which places need another draw."""
    choice, place, v = words(3 * len(where)).view(np.uint64).reshape(3, -1)
    column = (choice & np.uint64(_COLUMNS - 1)).astype(np.int64)
    coin = choice >> np.uint64(64 - _COIN_BITS)
    cell = np.where(coin < table.threshold.take(column), column, table.alias.take(column))
    negative = (place >> np.uint64(63)).astype(np.bool_)
    size = (place & np.uint64((1 << table.shift) - 1)).astype(np.int64) + (cell << table.shift)
    inside = cell < table.cells
    kept = inside & (v < table.surely.take(np.where(inside, cell, 0)))
    for at in np.flatnonzero(cell == table.cells).tolist():
        size[at], fraction = _tail_draw(table, words, int(v[at]))
        kept[at] = size[at] >= 0
        if fraction.count and kept[at]:
            known[int(where[at])] = fraction
    rim = np.flatnonzero(inside & ~kept)
    if len(rim):
        _settle(rim, kept, cell, size, v, where, table, words, known)
    if table.continuous:
        signed = np.where(negative, ~size, size)  # -(k + u) = (-k - 1) + (1 - u)
        for at in known:
            position = int(np.searchsorted(where, at))
            if position < len(where) and where[position] == at and negative[position] and kept[position]:
                known[at].bits = (1 << known[at].count) - 1 - known[at].bits
    else:
        kept &= ~(negative & (size == 0))  # zero has one sign
        signed = np.where(negative, -size, size)
    out[where[kept]] = signed[kept]
    return ~kept


def _settle(
    rim: Ints,
    kept: NDArray[np.bool_],
    cell: Ints,
    size: Ints,
    v: NDArray[np.uint64],
    where: Ints,
    table: _Table,
    words: WordSource,
    known: Known,
) -> None:
    """Decide the draws that the thresholds leave open: by float64 where it can, else in decimals."""
    left = size[rim].astype(np.float64)
    share = table.share[cell[rim]]
    high = np.exp(-((left / table.scale) ** table.beta)) * share
    low = np.exp(-(((left + 1.0) / table.scale) ** table.beta)) * share if table.continuous else high
    chance = v[rim].astype(np.float64) * 2.0**-64
    yes = chance * (1.0 + _DOUBT) + 2.0**-63 < low * (1.0 - _DOUBT)
    no = chance * (1.0 - _DOUBT) > high * (1.0 + _DOUBT)
    kept[rim] = yes
    for at in rim[~(yes | no)].tolist():
        ratio = Fraction(table.unit, table.weight[int(cell[at])])
        kept[at], fraction = _decide(table, int(size[at]), ratio, int(v[at]), words)
        if fraction.count and kept[at]:
            known[int(where[at])] = fraction


def _tail_draw(table: _Table, words: WordSource, v: int) -> tuple[int, _Fraction]:
    """A draw beyond the last cell, or -1 for one that is refused.

    The tail begins at K. Block i holds [K 2^i, K 2^(i+1)) and is chosen with probability 2^-(i+1), then a
    place in it; so the chance of a place is 1 / (2 K 4^i). It is kept with probability
    G f(x) 2 cells 4^i / B, at most 1 as f(K 2^i) 4^i <= f(K): the exponent grows by more than i log 4.
    """
    block = 0
    while (bits := int(words(1).view(np.uint64)[0])) == 0:
        block += 64
    block += (bits & -bits).bit_length() - 1
    start = (table.cells << table.shift) << block
    wanted = start.bit_length()
    while True:  # uniform below `start`, without bias
        number = 0
        for _ in range(-(-wanted // 64)):
            number = (number << 64) | int(words(1).view(np.uint64)[0])
        number &= (1 << wanted) - 1
        if number < start:
            break
    ratio = Fraction(table.unit * 2 * table.cells << (2 * block), table.weight[-1])
    kept, fraction = _decide(table, start + number, ratio, v, words)
    return (start + number if kept else -1), fraction


def _decide(table: _Table, size: int, ratio: Fraction, v: int, words: WordSource) -> tuple[bool, _Fraction]:
    """Whether V < ratio f(x), V beginning with the 64 bits of v, in as many digits and bits as it takes."""
    chance, fraction, digits = _Fraction(v, 64), _Fraction(), 30
    while True:
        near, far = fraction.ends(size) if table.continuous else (Fraction(size), Fraction(size))
        low = enclosure(table.beta, table.scale, far, digits)[0] * ratio
        high = enclosure(table.beta, table.scale, near, digits)[1] * ratio
        least, most = chance.ends(0)
        if most <= low:
            return True, fraction
        if least >= high:
            return False, fraction
        chance.extend(words)
        if table.continuous:
            fraction.extend(words)
        digits *= 2


def enclosure(beta: float, scale: float, x: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Certified bounds of exp(-(x/scale)^beta) for the exact x >= 0, scale and beta, good to about `digits`.

    Decimal's quotients, products, logarithms and exponentials are correctly rounded, each to a relative
    10^(1-digits). Two quotients and one logarithm, times beta, are off by beta (4 + 2 |log|) such units,
    which become a relative error of the exponent y; that, times y, is the relative error of exp(-y). Twice
    all this covers the products of errors.
    """
    if x == 0:
        return Fraction(1), Fraction(1)
    context = decimal.Context(
        prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[decimal.InvalidOperation]
    )
    with decimal.localcontext(context):
        number = decimal.Decimal
        unit = number(10) ** (1 - digits)
        log = (number(x.numerator) / number(x.denominator) / number(scale)).ln()
        y = (number(beta) * log).exp()
        error = 2 * unit * (2 + y * (2 + number(beta) * (4 + 2 * abs(log))))
        floor = number(10) ** (-40 * digits)  # nothing smaller need be told apart yet
        if not y < 100 * digits:
            return Fraction(0), Fraction(floor)
        f = (-y).exp()
        return Fraction(max(f * (1 - error) * (1 - unit), number(0))), Fraction(
            max(f * (1 + error) * (1 + unit), floor)
        )
