# SPDX-License-Identifier: Apache-2.0
"""Discrete losses, of one release or few: delta is a sum over their atoms.

The sum of k losses that take n values each takes no more values than there are ways to say how often each
value occurs: binomial(n + k - 1, k), with multinomial probabilities. While these are few they are listed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ggdp.accounting.bounds import ErrorLedger
from ggdp.accounting.engines.curve import LogDelta
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Atoms

_MOST_SUMS = 50_000  # listed one by one
_LOST = 1e-300  # more than a mass that underflows


@dataclass(frozen=True)
class AtomCurve:
    """delta(eps) = sum of mass (1 - e^(eps - loss)) over finite losses above eps; others are added later."""

    atoms: Atoms

    @cached_property
    def _positive(self) -> tuple[Array, Array]:
        """Positive losses and their masses."""
        kept = self.atoms.loss > 0.0
        return self.atoms.loss[kept], self.atoms.mass[kept]

    def log_delta(self, epsilon: float) -> LogDelta:
        """Certified log delta at epsilon, minus infinity from the largest loss on."""
        loss, mass = self._positive
        start = int(np.searchsorted(loss, epsilon, side="right"))
        if start == len(loss):
            return LogDelta(-math.inf, -math.inf, -math.inf, 0.0, ErrorLedger())
        # every term is positive, and no large number meets a small one
        loss, mass = loss[start:], mass[start:]
        value = max(float(mass @ -np.expm1(epsilon - loss)), 5e-324)
        error = (len(loss) + 16.0) * UNIT_ROUNDOFF * value + len(loss) * 5e-324
        known = value > error
        slip = 4.0 * UNIT_ROUNDOFF * (1.0 + abs(math.log(value)))  # of the logarithm itself
        far = float(mass @ np.exp(epsilon - loss))
        return LogDelta(
            lower=math.log(value - error) - slip if known else -math.inf,
            estimate=math.log(value),
            upper=math.log(value + error) + slip,
            slope=-far / value,
            ledger=ErrorLedger(roundoff=error / value),
        )


def composed_atoms(parts: Sequence[tuple[Atoms, int]], side: float) -> Atoms | None:
    """The finite losses of several releases added up; None where there are too many sums to list.

    Rounding is charged: losses and masses are raised (side 1) or lowered (side -1).
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
        size += times * (weight + math.log(times) + 1.0)  # of all that is added up
    slip = 8.0 * UNIT_ROUNDOFF * (len(parts) + max(values)) * (1.0 + size)
    order = np.argsort(loss, kind="stable")
    mass = np.exp(log_mass[order]) * (1.0 + side * slip)
    return Atoms(loss[order] + side * slip, mass + _LOST if side > 0.0 else mass, 0.0)


def _sums_of(values: int, times: int) -> float:
    """binomial(values + times - 1, times), infinite where that is far too many."""
    return (
        math.comb(values + times - 1, times) if min(values - 1, times) <= 12 and times < 10**5 else math.inf
    )


def _repeated(atoms: Atoms, times: int) -> tuple[Array, Array]:
    """Losses of `times` equal releases and logs of their masses: k!/(c_1! ... c_n!) times a product."""
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
