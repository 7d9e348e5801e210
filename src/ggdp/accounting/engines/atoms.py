# SPDX-License-Identifier: Apache-2.0
"""Discrete losses: their curve, the sums of several, and how they are moved to a grid.

A value that a discrete loss takes, together with its probability under P, is called an *atom*.

Sums. If each of k equal releases has a loss with n values, their sum takes at most binomial(n + k - 1, k)
values, one for each way to say how often each value occurs, with multinomial probabilities. If these sums are
few, they are listed. Otherwise the losses are moved to a uniform grid of spacing h, in the direction that is
safe for the bound, and composed by `engines.lattice`.

Upper bound. An atom of mass p at a loss l between the grid points a and a + h is split between both: the
point a gets p (e^(a+h-l) - 1) / (e^h - 1), the point a + h the rest. That keeps the mass under P and the mass
under Q. It is the chord construction of `engines.grid_law`.

Lower bound, in one of two ways. The first is the same construction; the lattice then subtracts a bound on
what moving the losses has added. This is better for few releases. The second is post-processing: every
outcome is sent at random to one of the two grid points around its loss, to the nearer one with the larger
probability, and all outcomes at a point are merged into one. The merged pair is dominated by the first. Its
losses are close to the grid points, by symmetry. They are then lowered to the points of a grid that is moved
down by a common offset. This is better for many releases.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import LogDelta
from ggdp.accounting.engines.grid_law import GridLaw
from ggdp.accounting.engines.tilt import Ends, FarPeaks, Saddle, TiltPlan
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Atoms
from ggdp.privacy_loss.dominating import Parts

_MOST_SUMS = 50_000  # sums that are listed
_UNDERFLOW = 1e-300  # more than any mass that underflows
_MOST_PLANNED = 4000  # atoms of a plan
_FURTHEST_ORIGIN = 100.0  # largest |loss| that a grid has its origin at
_FEW_ATOMS = 16  # up to which all atoms of a release are looked at for a grid


@dataclass(frozen=True)
class Enclosed:
    """A release that is known only to lie between two discrete pairs of laws, and how often it happens.

    Attributes:
        above: the loss of a discrete pair that dominates the release.
        below: the loss of a discrete pair that the release dominates.
        times: how often the release happens.
    """

    above: Atoms
    below: Atoms
    times: int

    def agrees(self, other: "Enclosed") -> bool:
        """Whether both are the same to the last bit."""
        return self.times == other.times and all(
            mine.infinite == theirs.infinite
            and np.array_equal(mine.loss, theirs.loss)
            and np.array_equal(mine.mass, theirs.mass)
            for mine, theirs in ((self.above, other.above), (self.below, other.below))
        )


@dataclass(frozen=True)
class AtomCurve:
    """The curve of a discrete loss: delta(eps) is the sum of mass (1 - e^(eps - loss)) over losses above eps.

    Only finite losses count here; the caller adds the probability of an infinite loss.
    """

    atoms: Atoms

    @cached_property
    def _positive(self) -> tuple[Array, Array]:
        """Positive losses and their masses."""
        kept = self.atoms.loss > 0.0
        return self.atoms.loss[kept], self.atoms.mass[kept]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon; minus infinity if epsilon is at least the largest loss."""
        loss, mass = self._positive
        start = int(np.searchsorted(loss, epsilon, side="right"))
        if start == len(loss):
            return LogDelta(-math.inf, -math.inf, -math.inf, 0.0, ErrorLedger())
        # every term is positive, and none is the product of a very large and a very small number
        loss, mass = loss[start:], mass[start:]
        value = max(float(mass @ -np.expm1(epsilon - loss)), 5e-324)
        error = (len(loss) + 16.0) * UNIT_ROUNDOFF * value + len(loss) * 5e-324
        known = value > error
        slip = 4.0 * UNIT_ROUNDOFF * (1.0 + abs(math.log(value)))  # rounding of the logarithm itself
        far = float(mass @ np.exp(epsilon - loss))
        return LogDelta(
            lower=math.log(value - error) - slip if known else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error) + slip,
            slope=-far / value,
            ledger=ErrorLedger(roundoff=error / value),
        )


def composed_atoms(parts: Sequence[tuple[Atoms, int]], side: float) -> Atoms | None:
    """The sums of the finite losses of several releases; None if there are too many to list.

    To allow for rounding, losses and masses are raised if `side` is 1, and lowered if it is -1.
    """
    values = [len(atoms.loss) for atoms, _ in parts]
    sums = math.prod(_sums_of(n, times) for n, (_, times) in zip(values, parts, strict=True))
    if not 0 < sums <= _MOST_SUMS:
        return None
    loss, log_mass, size = np.zeros(1), np.zeros(1), 0.0
    for atoms, times in parts:
        more_loss, more_log_mass = _repeated(atoms, times)
        loss = np.add.outer(loss, more_loss).ravel()
        log_mass = np.add.outer(log_mass, more_log_mass).ravel()
        weight = float(np.abs(np.log(atoms.mass)).max() + np.abs(atoms.loss).max())
        size += times * (weight + math.log(times) + 1.0)  # size of all terms that are added up
    slip = 8.0 * UNIT_ROUNDOFF * (len(parts) + max(values)) * (1.0 + size)
    order = np.argsort(loss, kind="stable")
    mass = np.exp(log_mass[order]) * (1.0 + side * slip)
    return Atoms(loss[order] + side * slip, mass + _UNDERFLOW if side > 0.0 else mass, 0.0)


def _sums_of(values: int, times: int) -> float:
    """binomial(values + times - 1, times); infinite if that is certainly too many."""
    return (
        math.comb(values + times - 1, times) if min(values - 1, times) <= 12 and times < 10**5 else math.inf
    )


def _repeated(atoms: Atoms, times: int) -> tuple[Array, Array]:
    """The sums of the losses of `times` equal releases, and the logs of their multinomial masses."""
    loss, log_mass = np.zeros(1), np.full(1, math.lgamma(times + 1.0))
    left = np.full(1, times)
    log_factorial = np.array([math.lgamma(c + 1.0) for c in range(times + 1)])
    for value, log_one in zip(atoms.loss[:-1], np.log(atoms.mass[:-1]), strict=True):
        options = left + 1
        count = np.concatenate([np.arange(n) for n in options])
        left = np.repeat(left, options) - count
        loss = np.repeat(loss, options) + count * value
        log_mass = np.repeat(log_mass, options) + count * log_one - log_factorial[count]
    loss = loss + left * atoms.loss[-1]
    return loss, log_mass + left * math.log(atoms.mass[-1]) - log_factorial[left]


# --- onto a grid


def grid_above(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """A dominating law: losses below `low` are raised to it, those above `high` become infinite."""
    loss = np.maximum(_moved(atoms.loss, origin, 1.0), low)
    beyond = loss > high
    infinite = float(atoms.mass[beyond].sum()) * (1.0 + 64.0 * UNIT_ROUNDOFF)
    return _on_grid(loss[~beyond], atoms.mass[~beyond], infinite, spacing, origin)


def grid_below(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """The law of the first lower bound: losses below `low` are dropped, those above `high` lowered to it.

    The lattice subtracts a bound on what moving the other losses to the grid has added.
    """
    loss = np.minimum(_moved(atoms.loss, origin, -1.0), high)
    kept = loss >= low - spacing
    return _on_grid(loss[kept], atoms.mass[kept], 0.0, spacing, origin)


def grid_merged(atoms: Atoms, spacing: float, low: float, high: float, origin: float) -> GridLaw:
    """The law of the second lower bound: outcomes are merged, on a grid that is moved by an offset.

    Losses below `low` and above `high` are treated as in `grid_below`.
    """
    loss = np.minimum(_moved(atoms.loss, origin, -1.0), high)
    kept = loss >= low - spacing
    if not kept.any():
        return _nothing(spacing, origin, 0.0)
    points, place, mass = _merged(loss[kept], atoms.mass[kept], spacing, origin)
    offset = _offset(place, mass)
    # no loss may lie below its grid point; rounding moves it by less than 1e-12 of a spacing
    points = np.where(
        place + offset >= 1e-12, points, points - np.ceil(1e-12 - place - offset).astype(np.int64)
    )
    first = int(points.min())
    total = np.bincount(points - first, weights=mass)
    # all losses lie on the grid, so the lattice has nothing to subtract; the mean distance is 1e-300 and not
    # 0, since its logarithm is taken
    lowered = origin - offset * spacing
    return _law(total * (1.0 - 32.0 * UNIT_ROUNDOFF), first, 0.0, spacing, lowered, 1e-300, 0.0)


def _merged(
    loss: Array, mass: Array, spacing: float, origin: float
) -> tuple[NDArray[np.int64], Array, Array]:
    """The grid points that outcomes were sent to, and for each the merged atom.

    Returned are the numbers of the points, how far each merged atom's loss lies above its point, in spacings,
    and its mass.
    """
    place = (loss - origin) / spacing
    below = np.floor(place)
    up = place - below
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    p, excess = np.zeros(size), np.zeros(size)  # excess: Q-mass times e^(grid point), less P-mass
    for step, weight, distance in ((0, 1.0 - up, -up), (1, up, 1.0 - up)):
        p += np.bincount(index + step, weights=mass * weight, minlength=size)
        excess += np.bincount(
            index + step, weights=mass * weight * np.expm1(distance * spacing), minlength=size
        )
    there = p > 0.0
    points = first + np.nonzero(there)[0]
    slack = 64.0 * UNIT_ROUNDOFF * (1.0 + np.abs(origin) + np.abs(points) * spacing)
    with np.errstate(divide="ignore"):  # on a coarse grid the loss of a merged atom may overflow
        return points, (-np.log1p(excess[there] / p[there]) - slack) / spacing, p[there]


def _offset(distance: Array, mass: Array) -> float:
    """How far to move the grid down, in spacings, so that lowering losses to it costs least on average."""
    candidates = np.concatenate([[1e-9], np.geomspace(1e-7, 0.5, 60)])
    order = np.argsort(distance)
    sorted_distance, mass_up_to = distance[order], np.cumsum(mass[order])
    # losses still below their point are lowered by a whole spacing
    fall = np.searchsorted(sorted_distance, -candidates)
    costs = candidates * mass_up_to[-1] + np.where(fall > 0, mass_up_to[fall - 1], 0.0)
    return float(candidates[int(np.argmin(costs))])


def _moved(loss: Array, origin: float, side: float) -> Array:
    """The losses, raised (side 1) or lowered (side -1) by more than their place on the grid is rounded."""
    return np.asarray(loss + side * 4.0 * UNIT_ROUNDOFF * (np.abs(loss) + abs(origin)))


def _on_grid(loss: Array, mass: Array, infinite: float, spacing: float, origin: float) -> GridLaw:
    """The law in which every atom is split between the two grid points around it."""
    if not len(loss):
        return _nothing(spacing, origin, infinite)
    place = (loss - origin) / spacing
    below = np.floor(place)
    down = mass * np.expm1((below + 1.0 - place) * spacing) / math.expm1(spacing)
    down = np.clip(down, 0.0, mass)
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    total = np.bincount(index, weights=down, minlength=size)
    total += np.bincount(index + 1, weights=mass - down, minlength=size)
    distance = np.minimum(place - below, below + 1.0 - place) + 4.0 * UNIT_ROUNDOFF * (1.0 + np.abs(place))
    moved = math.exp(spacing) * float(mass @ distance) + 1e-300
    return _law(
        total * (1.0 + 32.0 * UNIT_ROUNDOFF),
        first,
        infinite,
        spacing,
        origin,
        min(moved * (1.0 + 1e-9), 0.5),
        float(distance.max()),
    )


def _nothing(spacing: float, origin: float, infinite: float) -> GridLaw:
    """A law with next to no mass at finite losses."""
    return _law(np.full(1, 1e-320), 0, infinite, spacing, origin, 0.5, 0.5)


def _law(
    mass: NDArray[np.floating[Any]],
    first: int,
    infinite: float,
    spacing: float,
    origin: float,
    moved: float,
    furthest: float,
) -> GridLaw:
    return GridLaw(
        origin=origin,
        first=first,
        spacing=spacing,
        mass=np.asarray(mass, dtype=np.float64),
        infinite=infinite,
        raised=0.0,
        moved=moved,
        furthest=furthest,
        excess_mass=0.0,
        excess_factor=64.0 * UNIT_ROUNDOFF,
    )


# --- plans: rough numbers that choose where engines compute; nothing here is certified


def plan_of(custom: Sequence[Enclosed], known: Parts) -> TiltPlan:
    """The plan of a composition: custom releases, with atoms merged if there are many, then known ones."""
    pieces = []
    for part in custom:
        loss, log_mass = _thinned(part)
        nowhere = FarPeaks(*(np.array([value]) for value in (1.0, 0.0, 0.0, math.inf)))
        one = TiltPlan(
            z=np.zeros_like(loss),
            loss=loss,
            log_mass=log_mass,
            starts=np.zeros(1, dtype=np.intp),
            times=np.array([float(part.times)]),
            far=nowhere,
            ends=Ends.none(1),
        )
        pieces.append(one)
    pieces.extend(TiltPlan.of((part,)) for part in known)
    lengths = [len(piece.loss) for piece in pieces]
    return TiltPlan(
        z=np.concatenate([piece.z for piece in pieces]),
        loss=np.concatenate([piece.loss for piece in pieces]),
        log_mass=np.concatenate([piece.log_mass for piece in pieces]),
        starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
        times=np.concatenate([piece.times for piece in pieces]),
        far=FarPeaks(
            beta=np.concatenate([piece.far.beta for piece in pieces]),
            up=np.concatenate([piece.far.up for piece in pieces]),
            log_rate=np.concatenate([piece.far.log_rate for piece in pieces]),
            furthest=np.concatenate([piece.far.furthest for piece in pieces]),
        ),
        ends=Ends(
            loss=np.concatenate([piece.ends.loss for piece in pieces]),
            log_mass=np.concatenate([piece.ends.log_mass for piece in pieces]),
            before=np.concatenate([piece.ends.before for piece in pieces]),
            gap=np.concatenate([piece.ends.gap for piece in pieces]),
        ),
    )


def _thinned(part: Enclosed) -> tuple[Array, Array]:
    """Losses of a custom release and logs of their masses; neighbours are merged if there are many."""
    loss, mass = part.above.loss, np.maximum(part.above.mass, 1e-300)
    if len(loss) > _MOST_PLANNED:
        starts = np.arange(0, len(loss), -(-len(loss) // _MOST_PLANNED))
        total = np.add.reduceat(mass, starts)
        loss, mass = np.add.reduceat(mass * loss, starts) / total, total
    return loss, np.log(mass)


def span_of(part: Enclosed, saddle: Saddle) -> tuple[float, float]:
    """The lowest and the highest loss that matter: tilted mass below and mass above are negligible."""
    loss, mass = part.above.loss, np.maximum(part.above.mass, 1e-320)
    tilted = np.log(mass) + saddle.theta * loss
    from_left = np.logaddexp.accumulate(tilted - tilted.max())
    low = float(loss[max(int((from_left < -42.0 - math.log(part.times)).sum()) - 1, 0)])
    above = np.cumsum(mass[::-1])[::-1]
    enough = math.exp(saddle.log_delta - 34.0 - math.log(part.times))
    high = float(loss[min(int((above > enough).sum()), len(loss) - 1)])
    slack = 1e-12 * (1.0 + abs(low) + abs(high))
    return low - slack, high + slack


def atoms_apart(custom: Sequence[Enclosed]) -> list[tuple[float, float]]:
    """How far the atoms of every release lie from its largest loss, and how often each occurs.

    Of a release with many atoms these are cells of something smooth: only its two extreme losses count.
    """
    apart: list[tuple[float, float]] = []
    for part in custom:
        loss, mass = part.above.loss, part.above.mass
        chosen = slice(0, -1) if len(loss) <= _FEW_ATOMS else slice(0, 1)
        apart += zip((loss[-1:] - loss[chosen]).tolist(), (part.times * mass[chosen]).tolist(), strict=True)
    return apart


def origin_of(part: Enclosed) -> float:
    """A point of the grid: the largest loss, which often has much mass, or 0 if that loss is very large."""
    return part.above.supremum if abs(part.above.supremum) < _FURTHEST_ORIGIN else 0.0
