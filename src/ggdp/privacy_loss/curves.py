# SPDX-License-Identifier: Apache-2.0
"""The curve of a pair of laws by certified values, and the discrete pairs above and below it.

A pair (P, Q) is known by its curve D(x) = E_Q[(P/Q - x)_+], convex and non-increasing, with D(0) = 1 and
D(x) >= 1 - x. A pair with the larger curve stays larger under composition. Here D is known at losses
t_0 < ... < t_n, up to certified errors. With x = e^t, it is given as D itself from loss 0 on, and before that
as the *far side* F(x) = D(x) - (1 - x), which is the smaller number there.

Above. The chords of values that are too high form a curve that is too high, and so does their lower convex
hull: the true values lie below it and are convex. Left of t_0 it is the chord from x = 0, right of t_n it is
constant, which is P-mass at infinite loss. A corner at x_j at which the slope grows by q is an outcome of
Q-mass q and P-mass x_j q.

Below. Between two points D lies below its chord by at most a quarter of their distance times the growth of
its slope from the cell before to the cell behind. Values lowered by that much, and by their errors, have
chords below D, and so has their hull.

Rounding. Each curve is computed once more from the masses that are returned, by sums of positive terms alone.
Where it lies on the wrong side of the given values, the masses are scaled to correct this.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

_ROUNDS = 40

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """A curve D by bounds at increasing losses: on D from loss 0 on, and on D - (1 - e^loss) before it."""

    loss: Array
    low: Array
    high: Array

    @property
    def turn(self) -> int:
        """Where the loss is 0."""
        return int(np.searchsorted(self.loss, 0.0))

    @property
    def reversed(self) -> "Curve":
        """The curve of (Q, P): e^s F(e^-s) from loss 0 on, and e^s D(e^-s) before it."""
        weight = np.exp(-self.loss) * (1.0 + 4.0 * UNIT_ROUNDOFF)
        shrunk = np.exp(-self.loss) * (1.0 - 4.0 * UNIT_ROUNDOFF)
        return Curve(-self.loss[::-1], (self.low * shrunk)[::-1], (self.high * weight)[::-1])

    def above(self) -> Atoms:
        """A discrete pair whose curve lies above."""
        corner, mass = self._hull(self.high)
        infinite = float(self.high[-1])
        built, wanted = self._rebuilt(mass, infinite)[corner], self._whole(self.high)[corner]
        known = wanted > 0.0
        factor = max(float(np.max(wanted[known] / built[known])), 1.0 / self._start(mass, infinite), 1.0)
        factor *= 1.0 + self._slip
        return self._atoms(factor * mass, factor * infinite)

    def below(self) -> Atoms:
        """The loss of a pair whose curve lies below.

        Raises:
            CannotCertifyError: the values are too uncertain for a lower curve.
        """
        low = self._lowered()
        corner, mass = self._hull(low)
        wanted = self._whole(low)[corner]
        known = wanted > 0.0
        if not known[0]:
            raise CannotCertifyError("the curve is not known well enough for a law below it")
        mass[corner[int(np.argmin(known))] + 1 :] = 0.0  # the law ends where the curve first is 0
        built = self._rebuilt(mass, 0.0)[corner]
        factor = max(float(np.max(built[known] / wanted[known])), self._start(mass, 0.0), 1.0)
        factor *= 1.0 + self._slip
        return self._atoms(mass / factor, 0.0)

    def _atoms(self, mass: Array, infinite: float) -> Atoms:
        kept = mass > 0.0
        return Atoms(self.loss[kept], mass[kept] * np.exp(self.loss[kept]), infinite)

    @property
    def _slip(self) -> float:
        """A bound on the relative rounding error of sums with as many terms as there are points."""
        return 8.0 * len(self.loss) * float(np.finfo(np.longdouble).eps) + 64.0 * UNIT_ROUNDOFF

    @property
    def _place(self) -> Array:
        return np.asarray(np.exp(self.loss))

    def _steps(self) -> Array:
        """Distances e^t_(j+1) - e^t_j, without cancellation."""
        return np.asarray(np.exp(self.loss[:-1]) * np.expm1(np.diff(self.loss)))

    def _whole(self, values: Array) -> Array:
        """D itself everywhere."""
        return values + np.where(self.loss < 0.0, -np.expm1(self.loss), 0.0)

    def _hull(self, values: Array) -> tuple[Indices, Array]:
        """The corners of the lower convex hull of the points, and the Q-masses of all points."""
        kept: Indices = np.arange(len(values))
        for _ in range(_ROUNDS):  # a point above the chord of its neighbours is not a corner of the hull
            mass = self._growth(values, kept)
            if not np.any(mass < 0.0):
                break
            kept = kept[mass >= 0.0]
        else:
            kept = self._wrapped(values, kept)
            mass = np.maximum(self._growth(values, kept), 0.0)
        found = np.zeros(len(values))
        found[kept] = mass
        return kept, found

    def _growth(self, values: Array, kept: Indices) -> Array:
        """By how much the slope of the curve through some of the points grows at each."""
        turn, at = self.turn, self._place[kept]
        width = at[:-1] * np.expm1(np.diff(self.loss[kept]))
        slope = np.concatenate([values[kept[:1]] / at[:1], np.diff(values[kept]) / width, [0.0]])
        if kept[0] >= turn:  # nothing on the far side: the chord from x = 0 is one of D - (1 - x)
            slope[0] = (values[kept[0]] + np.expm1(self.loss[kept[0]])) / at[0]
        mass = np.diff(slope)
        middle = int(np.searchsorted(kept, turn))  # where the two forms meet, which differ in slope by one
        if middle == 0 or (kept[middle] == turn and self.loss[turn] == 0.0):
            mass[middle] += 1.0
        else:  # loss 0 is no corner: the chord across it joins two forms
            across = values[kept[middle]] + np.expm1(self.loss[kept[middle]]) - values[kept[middle - 1]]
            joined = across / width[middle - 1]
            mass[middle - 1] += joined - slope[middle]
            mass[middle] += slope[middle] - (joined - 1.0)
        return np.asarray(mass)

    def _wrapped(self, values: Array, kept: Indices) -> Indices:
        """The corners, found one by one, if dropping points would take too many rounds."""
        loss, place, far = self.loss.tolist(), self._place.tolist(), (self.loss < 0.0).tolist()
        moved = np.expm1(self.loss).tolist()
        listed = values.tolist()

        def slope(i: int, j: int) -> float:
            width = place[i] * math.expm1(loss[j] - loss[i])
            if far[i] and not far[j]:
                return float((listed[j] + moved[j] - listed[i]) / width) - 1.0
            return float((listed[j] - listed[i]) / width) - (1.0 if far[i] else 0.0)

        corners: list[int] = []
        for point in kept.tolist():
            while len(corners) > 1 and slope(corners[-2], corners[-1]) >= slope(corners[-1], point):
                corners.pop()
            corners.append(point)
        return np.array(corners)

    def _rebuilt(self, mass: Array, infinite: float) -> Array:
        """The curve of given Q-masses, at the points, by sums of positive terms."""
        beyond = np.cumsum(mass[::-1].astype(np.longdouble))[::-1]  # at a point and beyond it
        rise = np.append(self._steps() * beyond[1:], infinite)
        return np.asarray(np.cumsum(rise[::-1])[::-1], dtype=float)

    def _start(self, mass: Array, infinite: float) -> float:
        """The curve of given Q-masses at x = 0."""
        return math.fsum(mass * self._place) + infinite

    def _lowered(self) -> Array:
        width = self._steps()
        least, most = np.empty(len(width) + 2), np.empty(len(width) + 2)  # slopes, one more cell at each end
        tilt = np.where(self.loss[:-1] < 0.0, 1.0, 0.0)
        # both ends of the cell across loss 0 in the form of the far side
        across = np.where((self.loss[:-1] < 0.0) & (self.loss[1:] > 0.0), np.expm1(self.loss[1:]), 0.0)
        least[1:-1] = (self.low[1:] + across - self.high[:-1]) / width - tilt
        most[1:-1] = (self.high[1:] + across - self.low[:-1]) / width - tilt
        least[0], most[0] = -1.0, 0.0
        least[-1], most[-1] = 0.0, 0.0
        growth = np.maximum(np.minimum(most[2:], 0.0) - np.maximum(least[:-2], -1.0), 0.0)
        gap = 0.25 * width * (growth + 16.0 * UNIT_ROUNDOFF)
        first = 0.25 * float(self._place[0]) * (min(float(most[1]), 0.0) + 1.0 + 16.0 * UNIT_ROUNDOFF)
        around = np.maximum(np.append(gap, 0.0), np.insert(gap, 0, first))
        low = np.maximum(self.low - around * (1.0 + 1e-12), 0.0)
        low[-1] = 0.0  # the law below ends here
        return np.asarray(low)


def curve_of(pair: ShiftPair, loss: Array) -> Curve:
    """The exact curve of one release from loss 0 on; the losses must begin there."""
    found = hockey_stick(pair, loss)
    return Curve(loss, np.maximum(found.value - found.error, 0.0), found.value + found.error)


def either_way(above: Atoms) -> Atoms:
    """The smallest pair that dominates both (P, Q) and (Q, P), from the loss of a pair that dominates (P, Q).

    Its curve is that of (P, Q) from loss 0 on and that of (Q, P) before it: the positive losses, their
    negatives with the two masses exchanged, and the rest at loss 0.
    """
    kept = above.loss > 0.0
    loss, mass = above.loss[kept], above.mass[kept]
    back = mass * np.exp(-loss)
    rest = max(1.0 - math.fsum(mass) - math.fsum(back), 0.0) + 8.0 * (len(loss) + 8.0) * UNIT_ROUNDOFF
    return Atoms(
        np.concatenate([-loss[::-1], [0.0], loss]),
        np.concatenate([back[::-1] * (1.0 + 8.0 * UNIT_ROUNDOFF), [rest], mass]),
        above.infinite,
    )
