# SPDX-License-Identifier: Apache-2.0
"""Any pair (P, Q) as finitely many cells of its outcomes, and the two discrete pairs that enclose it.

A cell is a set of outcomes with bounds on its P-mass, its Q-mass and on the losses log P/Q that occur in
it. A pair is known by its curve D(x) = E_Q[(P/Q - x)_+], for finite measures as well as for probabilities,
and larger curves stay larger under composition. So it suffices to bound D cell by cell, x = e^t:

- above: with p the highest P-mass, q the lowest Q-mass and losses in [a, b], the cell's share of D lies
  below that of masses p (1 - w) at loss a and p w at loss b, where w = (1 - q e^a / p) / (1 - e^(a-b)), at
  most one (chord of a convex function);
- below: with p the lowest P-mass and q the highest Q-mass, above that of one outcome of mass p and loss
  log(p / q) (the cell merged: data processing).

Proofs in docs/custom-noise.md.
"""

import math
from dataclasses import dataclass

import numpy as np

from ggdp import arguments
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.shift_pair import log_mixed

_NO_WEIGHT = 1e-130  # far below the smallest delta that is asked for, 1e-100
_TINY, _LARGEST = 1e-280, 600.0  # smaller masses and larger losses lose digits to underflow and overflow


@dataclass(frozen=True)
class Atoms:
    """A discrete loss: P-masses at finite losses, in increasing order, and P-mass at infinite loss."""

    loss: Array
    mass: Array
    infinite: float

    @property
    def supremum(self) -> float:
        """The largest finite loss."""
        return float(self.loss[-1]) if len(self.loss) else -math.inf


@dataclass(frozen=True)
class Cells:
    """A pair of laws by bounds on the masses and losses of cells that cover every outcome.

    P is the law of the output with the record, Q that without.
    """

    p_low: Array
    p_high: Array
    q_low: Array
    q_high: Array
    loss_low: Array
    loss_high: Array

    def __post_init__(self) -> None:
        for low, high in (
            (self.p_low, self.p_high),
            (self.q_low, self.q_high),
            (self.loss_low, self.loss_high),
        ):
            if low.shape != self.p_low.shape or high.shape != low.shape or not np.all(low <= high):
                raise ValueError("each cell needs lower bounds that are at most the upper ones, one of each")

    @property
    def reversed(self) -> "Cells":
        """The pair (Q, P)."""
        return Cells(self.q_low, self.q_high, self.p_low, self.p_high, -self.loss_high, -self.loss_low)

    def sampled(self, rate: float) -> "Cells":
        """((1 - rate) Q + rate P, Q): the record takes part with probability `rate`."""
        if rate == 1.0:
            return self
        keep = 1.0 - rate
        low = mixed(self.loss_low, rate)
        high = mixed(self.loss_high, rate)
        slack = 8.0 * UNIT_ROUNDOFF
        cancelled = abs(math.log(rate))  # beyond _LARGEST the loss and log(rate) are added
        low_size = np.abs(low) + np.where(self.loss_low > _LARGEST, np.abs(self.loss_low) + cancelled, 0.0)
        high_size = np.abs(high) + np.where(
            self.loss_high > _LARGEST, np.abs(self.loss_high) + cancelled, 0.0
        )
        return Cells(
            (keep * self.q_low + rate * self.p_low) * (1.0 - slack),
            (keep * self.q_high + rate * self.p_high) * (1.0 + slack),
            self.q_low,
            self.q_high,
            low - slack * np.where(np.isfinite(low), low_size, 0.0),
            high + slack * np.where(np.isfinite(high), high_size, 0.0),
        )

    def above(self) -> Atoms:
        """A discrete pair that dominates this one."""
        kept = self.p_high > 0.0
        p, q, a, b = self.p_high[kept], self.q_low[kept], self.loss_low[kept], self.loss_high[kept]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_p, log_q = np.log(p), np.log(q)
            rise = log_p - log_q - a  # log of the mean ratio over e^a; only rounding can make it negative
            rise = np.maximum(rise, 0.0) + 8.0 * UNIT_ROUNDOFF * (
                1.0 + np.abs(log_p) + np.abs(log_q) + np.abs(a)
            )
            share = np.minimum(np.expm1(-rise) / np.expm1(a - b), 1.0)
        # a cell of one loss, without Q-mass or without a lowest loss goes to its upper end
        share = np.where((b > a) & (q > 0.0) & np.isfinite(a) & ~np.isnan(share), share, 1.0)
        up = np.concatenate([p * share, p * (1.0 - share)]) * (1.0 + 8.0 * UNIT_ROUNDOFF)
        return _pruned(_atoms(np.concatenate([b, a]), up))

    def below(self) -> Atoms:
        """A discrete pair that this one dominates."""
        kept = self.p_low > 0.0
        p, q = self.p_low[kept], self.q_high[kept]
        with np.errstate(divide="ignore"):
            log_p, log_q = np.log(p), np.log(q)
            loss = log_p - log_q
            slack = 8.0 * UNIT_ROUNDOFF * (1.0 + np.abs(log_p) + np.where(q > 0.0, np.abs(log_q), 0.0))
        # a merged loss is at most the cell's largest one, in spite of rounding
        return _atoms(np.minimum(loss - slack, self.loss_high[kept]), p * (1.0 - 8.0 * UNIT_ROUNDOFF))


@dataclass(frozen=True)
class _Replaced(Cells):
    """Cells of a sampled record that is replaced, for noise of which a longer shift is worse and whose shifts
    are mirror images, such as spherical noise. Those of the record's removal bound the cost from below.

    From above: let t(c) be the largest mass of a set under P = N(v) if its mass under Q = N(0) is c, at the
    longest v. Then for all v and w that are no longer, and every set S with Q(S) = c, N(v)(S) <= t(c) and
    N(w)(S) >= s(c), where s is the inverse of t, because P and Q are each other's mirror images. So (M(v),
    M(w)) is dominated by the pair of densities on [0, 1]

        1 - q + q t'(c)  and  1 - q + q s'(c),

    whose ratio falls with c, so that the sets [0, c] are the best. Here t is that of the upper atoms.
    """

    whole: Cells
    rate: float

    @property
    def reversed(self) -> Cells:
        """The same: the pair dominates (M(w), M(v)) as well."""
        return self

    def above(self) -> Atoms:
        """The atoms of that pair, with a piece for every two slopes t'(c) and s'(c).

        Rounded so that t' is too large and s' too small at every c: t falls in slope and s rises, so that
        the ends of both kinds of pieces are moved to the right.
        """
        upper, q = self.whole.above(), self.rate
        slack = 64.0 * UNIT_ROUNDOFF * (len(upper.loss) + 64.0)
        rise, loss = upper.mass[::-1], np.maximum(upper.loss[::-1], -_LARGEST)
        with np.errstate(under="ignore"):
            run = rise * np.exp(-loss)
        kept = run > _TINY  # the mass of the others counts as infinite loss; otherwise it would underflow
        infinite = float(upper.infinite + rise[~kept].sum()) * (1.0 + slack)
        rise, run, loss = rise[kept], run[kept], loss[kept]
        slope, inverse = np.append(np.exp(loss), 0.0), np.concatenate([[0.0], np.exp(-loss), [0.0]])
        ends = np.minimum(np.cumsum(run) * (1.0 + slack), 1.0)
        heights = np.minimum(np.cumsum(np.append(infinite, rise)) * (1.0 + slack), 1.0)
        edges = np.unique(np.concatenate([[0.0], ends, heights, [1.0]]))
        first = slope[np.searchsorted(ends, edges[:-1], side="right")]
        second = inverse[np.searchsorted(heights, edges[:-1], side="right")]
        p, other = ((1.0 - q) + q * one for one in (first * (1.0 + slack), second * (1.0 - slack)))
        ratio = np.log(p / other) + slack
        mass = p * np.diff(edges) * (1.0 + slack)
        order = np.argsort(ratio, kind="stable")
        return Atoms(ratio[order], mass[order], q * infinite * (1.0 + slack))


def replaced(whole: Cells, rate: float) -> Cells:
    """Cells of a sampled record that is replaced, from those unsampled; `_Replaced` says for which noise."""
    alone = whole.sampled(rate)
    return _Replaced(
        alone.p_low, alone.p_high, alone.q_low, alone.q_high, alone.loss_low, alone.loss_high, whole, rate
    )


def vector_cells(with_record: Array, without_record: Array, doubt: float) -> Cells:
    """One cell for each outcome of a finite set, masses known up to a relative `doubt`."""
    low, high = 1.0 - doubt, 1.0 + doubt
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q = np.log(with_record), np.log(without_record)
        loss = np.where(with_record > 0.0, log_p - log_q, -math.inf)
        size = np.where(np.isfinite(log_p), np.abs(log_p), 0.0) + np.where(
            np.isfinite(log_q), np.abs(log_q), 0.0
        )
    slack = np.where(np.isfinite(loss), 4.0 * doubt + 4.0 * UNIT_ROUNDOFF * size, 0.0)
    return Cells(
        with_record * low,
        with_record * high,
        without_record * low,
        without_record * high,
        loss - slack,
        loss + slack,
    )


def _atoms(loss: Array, mass: Array) -> Atoms:
    endless = loss == math.inf
    infinite = float(mass[endless].sum())
    kept = ~endless & (mass > 0.0) & (loss > -math.inf)
    order = np.argsort(loss[kept], kind="stable")
    return Atoms(loss[kept][order], mass[kept][order], infinite)


def _pruned(atoms: Atoms) -> Atoms:
    """The atoms with the largest losses made infinite, if their mass is negligible, as tails leave them."""
    kept = int((np.cumsum(atoms.mass[::-1])[::-1] > _NO_WEIGHT).sum())
    beyond = float(atoms.mass[kept:].sum())
    return Atoms(atoms.loss[:kept], atoms.mass[:kept], atoms.infinite + beyond)


def mixed(loss: Array, rate: float) -> Array:
    """log(1 - rate + rate e^loss), also at infinite losses."""
    arguments.real("rate", rate, above=0.0, most=1.0)
    with np.errstate(under="ignore"):
        small = log_mixed(np.minimum(loss, _LARGEST), rate)
    high = np.maximum(loss, _LARGEST)
    with np.errstate(under="ignore"):
        large = high + np.log(rate + (1.0 - rate) * np.exp(-high))
    return np.where(loss > _LARGEST, np.maximum(large, small), small)
