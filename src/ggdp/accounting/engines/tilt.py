# SPDX-License-Identifier: Apache-2.0
"""Rough numbers by which engines choose where to compute: plans and saddle points.

K(theta) is the sum over the parts of times * log E_P[e^{theta L}], with L the loss of a part. The law with
density e^{theta L} / E_P[e^{theta L}] with respect to P is called *tilted*, theta its *tilt*. To compute
delta at an epsilon, an engine takes the tilt for which the sum of all losses has its mass around epsilon: the
*saddle point* of K(s) - s epsilon - log s - log(1+s).

Nothing here is certified. A poor plan makes an answer wide or slow; it cannot make it wrong.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting.engines.curve import ClosedForm
from ggdp.numerics import Array
from ggdp.privacy_loss.dominating import Parts
from ggdp.privacy_loss.shift_pair import ShiftPair

__all__ = [
    "Cumulants",
    "Parts",
    "Saddle",
    "TiltPlan",
    "planned_epsilon",
    "saddle_at",
    "saddle_for_epsilon",
    "saddle_for_log_delta",
]

_MOST_PANELS = 3000  # more would only be needed for losses far beyond what is computed
_UNIT_NODES, _UNIT_WEIGHTS = np.polynomial.legendre.leggauss(8)
_LOG_LEAST_PROB = 780.0  # log(1/p) of a probability p that is far below the smallest double
_FURTHEST_LOSS = 10_000.0
_MOST_TILT = 1e12
_RARELY = 0.1  # expected number of samples of a record
_FEW_KINDS = 4  # of release, up to which each is looked at alone
_FAR_BEYOND = 3.0


@dataclass(frozen=True)
class Cumulants:
    """K(theta), K'(theta) and K''(theta) at one tilt."""

    value: float
    slope: float
    curvature: float


@dataclass(frozen=True)
class FarPeaks:
    """The part of E_P[e^{theta L}] from noise beyond a plan's last node, at strong tilts.

    There N(up) is much larger than N(0), the loss at z is log rate + z^beta - (z - up)^beta, and the tilted
    density has a peak where z/(z - up) = ((1+theta)/theta)^(1/(beta-1)). Without this peak a tilt that is far
    too strong would look like a good one.

    Attributes:
        beta: of each part.
        up: the shift of each part.
        log_rate: log of the sampling rate of each part.
        furthest: the last node of each part; infinite if there is no noise beyond.
    """

    beta: Array
    up: Array
    log_rate: Array
    furthest: Array

    @cached_property
    def least_tilt(self) -> float:
        """A tilt below which no part has a peak beyond its last node."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = (1.0 - self.up / self.furthest) ** (self.beta - 1.0)
            tilts = np.where((self.beta == 1.0) | (self.up == 0.0), np.inf, ratio / (1.0 - ratio))
        return 0.999 * float(np.where(np.isnan(tilts), np.inf, tilts).min())

    def at(self, theta: float) -> tuple[Array, Array]:
        """log of each part's tilted mass beyond its last node, and the loss at the peak there.

        The first is minus infinity if the part has no peak beyond its last node.
        """
        if theta < self.least_tilt:
            return np.full_like(self.up, -np.inf), np.zeros_like(self.up)
        nowhere = (self.up == 0.0) | (self.beta == 1.0) | ~np.isfinite(self.furthest)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = (1.0 + 1.0 / theta) ** (1.0 / np.where(nowhere, 1.0, self.beta - 1.0))
            z = self.up * ratio / (ratio - 1.0)
            loss = self.log_rate - z**self.beta * np.expm1(self.beta * np.log1p(-self.up / z))
            log_mass = (1.0 + theta) * loss - z**self.beta
        absent = nowhere | ~(z > self.furthest) | np.isnan(log_mass)
        return np.where(absent, -np.inf, log_mass), np.where(absent, 0.0, loss)


@dataclass(frozen=True)
class Ends:
    """The largest losses of the parts that are cut off. A strong tilt puts all mass next to them, closer than
    any node of a plan lies.

    Attributes:
        loss: that of the last node of each part.
        log_mass: log of its mass; minus infinity where nothing is cut off.
        before: how far below the largest loss it lies.
        gap: the range of losses that it stands for.
    """

    loss: Array
    log_mass: Array
    before: Array
    gap: Array

    @staticmethod
    def none(parts: int) -> "Ends":
        """Those of so many parts of which none is cut off."""
        return Ends(np.zeros(parts), np.full(parts, -np.inf), np.zeros(parts), np.ones(parts))

    def at(self, theta: float) -> Array:
        """log of what each part's tilted mass next to its largest loss exceeds that of its last node by, as
        if the density there were constant; minus infinity where nodes show it all.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            more = theta * self.before - np.log(theta * self.gap)
            found = self.log_mass + theta * self.loss + more + np.log(-np.expm1(-more))
        return np.where((theta * self.gap > 1.0) & (more > 0.0), found, -np.inf)

    def only(self, chosen: NDArray[np.intp]) -> "Ends":
        """Those of some of the parts."""
        return Ends(self.loss[chosen], self.log_mass[chosen], self.before[chosen], self.gap[chosen])


@dataclass(frozen=True)
class TiltPlan:
    """Rough quadrature nodes of all parts, one part after the other, from which K is computed.

    Attributes:
        z: the noise at each node.
        loss: the loss there.
        log_mass: log of the node's mass under P.
        starts: the place of each part's first node.
        times: how often each part is released.
        far: the noise beyond the last nodes.
    """

    z: Array
    loss: Array
    log_mass: Array
    starts: np.ndarray[tuple[int], np.dtype[np.intp]]
    times: Array
    far: FarPeaks
    ends: Ends

    @staticmethod
    def of(parts: Parts) -> "TiltPlan":
        """The plan of a composition. Noise is covered as far as its probability is a positive double."""
        pieces = [_rough_nodes(pair) for pair, _ in parts]
        lengths = [len(z) for z, _, _ in pieces]
        ends = [
            math.inf if z[-1] > 0.9 * pair.cut else float(z[-1])
            for (pair, _), (z, _, _) in zip(parts, pieces, strict=True)
        ]
        return TiltPlan(
            z=np.concatenate([z for z, _, _ in pieces]),
            loss=np.concatenate([loss for _, loss, _ in pieces]),
            log_mass=np.concatenate([mass for _, _, mass in pieces]),
            starts=np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp),
            times=np.array([float(times) for _, times in parts]),
            far=FarPeaks(
                beta=np.array([pair.beta for pair, _ in parts]),
                up=np.array([pair.up for pair, _ in parts]),
                log_rate=np.log([pair.rate for pair, _ in parts]),
                furthest=np.array(ends),
            ),
            ends=Ends(
                *np.array([_end(pair, *piece) for (pair, _), piece in zip(parts, pieces, strict=True)]).T
            ),
        )

    def log_phis(self, theta: float) -> Array:
        """log E_P[e^{theta L}] of each part; infinite or NaN where it exceeds the range of doubles."""
        with np.errstate(over="ignore", invalid="ignore"):
            exponent = self.log_mass + theta * self.loss
            peak = np.maximum.reduceat(exponent, self.starts)
            term = np.exp(exponent - np.repeat(peak, self._lengths()))
            inside = np.logaddexp(peak + np.log(np.add.reduceat(term, self.starts)), self.ends.at(theta))
            return np.asarray(np.logaddexp(inside, self.far.at(theta)[0]))

    def cumulant(self, theta: float) -> float:
        """K(theta) of the whole composition."""
        return float(self.times @ self.log_phis(theta))

    def log_moduli(self, theta: float, omega: float) -> Array:
        """log of |phi(theta + i omega)| / phi(theta) of each part, with phi(s) = E_P[e^{s L}]."""
        with np.errstate(over="ignore"):
            exponent = self.log_mass + theta * self.loss
        peak = np.maximum.reduceat(exponent, self.starts)
        term = np.exp(exponent - np.repeat(peak, self._lengths()))
        wave = np.add.reduceat(term * np.exp(1j * omega * self.loss), self.starts)
        with np.errstate(divide="ignore"):
            moduli = np.log(np.abs(wave) / np.add.reduceat(term, self.starts))
        return np.asarray(np.clip(moduli, -_LOG_LEAST_PROB, 0.0))

    def cumulants(self, theta: float) -> Cumulants:
        """K(theta), K'(theta), K''(theta) of the whole composition."""
        lengths = self._lengths()
        with np.errstate(over="ignore", invalid="ignore"):  # of a tilt beyond what doubles hold
            exponent = self.log_mass + theta * self.loss
            log_far, far_loss = self.far.at(theta)
            peak = np.maximum(np.maximum.reduceat(exponent, self.starts), log_far)
            term = np.exp(exponent - np.repeat(peak, lengths))
            far = np.exp(log_far - peak)
            total = np.add.reduceat(term, self.starts) + far
            mean = (np.add.reduceat(term * self.loss, self.starts) + far * far_loss) / total
            spread = np.add.reduceat(term * (self.loss - np.repeat(mean, lengths)) ** 2, self.starts)
            spread = (spread + far * (far_loss - mean) ** 2) / total
        return Cumulants(
            float(self.times @ (peak + np.log(total))), float(self.times @ mean), float(self.times @ spread)
        )

    @property
    def log_times(self) -> Array:
        """For each node, log of how often its part is released."""
        return np.repeat(np.log(self.times), self._lengths())

    def below(self, ceiling: float) -> "TiltPlan":
        """The plan of the laws restricted to losses up to a ceiling."""
        far = (
            self.far
            if math.isinf(ceiling)
            else replace(self.far, furthest=np.full_like(self.far.furthest, np.inf))
        )
        ends = replace(self.ends, log_mass=np.where(self.ends.loss <= ceiling, self.ends.log_mass, -np.inf))
        kept = np.where(self.loss <= ceiling, self.log_mass, -np.inf)
        return replace(self, log_mass=kept, far=far, ends=ends)

    def split(self, loss: float) -> tuple["TiltPlan", "TiltPlan", list[int]]:
        """The plans of all laws restricted to losses up to the one given, and to the losses beyond it.

        The second plan has only those parts that have losses beyond; their places are returned too.
        """
        beyond = self.loss > loss
        counts = np.add.reduceat(beyond, self.starts, dtype=np.intp)
        which = [int(index) for index in np.flatnonzero(counts)]
        kept = self._lengths() - counts
        bulk = self._where(~beyond, kept, list(range(len(counts)))).below(loss)
        last = self.starts + kept - 1
        around = self.loss[np.minimum(last + 1, len(self.loss) - 1)] - self.loss[np.maximum(last - 1, 0)]
        cut = (counts > 0) & (kept > 1)
        ends = Ends(
            np.where(cut, self.loss[last], self.ends.loss),
            np.where(cut, self.log_mass[last], self.ends.log_mass),
            np.where(cut, loss - self.loss[last], self.ends.before),
            np.where(cut, 0.5 * around, self.ends.gap),
        )
        return replace(bulk, ends=ends), self._where(beyond, counts, which), which

    def _where(self, nodes: NDArray[np.bool_], counts: NDArray[np.intp], parts: Sequence[int]) -> "TiltPlan":
        """The plan of the chosen nodes and parts; `counts` says how many nodes of each part are chosen."""
        far, counts, chosen = self.far, counts[parts], np.asarray(parts, dtype=np.intp)
        return TiltPlan(
            self.z[nodes],
            self.loss[nodes],
            self.log_mass[nodes],
            np.concatenate([[0], np.cumsum(counts)])[: len(counts)].astype(np.intp),
            self.times[chosen],
            FarPeaks(far.beta[chosen], far.up[chosen], far.log_rate[chosen], far.furthest[chosen]),
            self.ends.only(chosen),
        )

    def only(self, chosen: Sequence[int]) -> "TiltPlan":
        """The plan of some of the parts."""
        lengths = self._lengths()
        nodes = np.repeat(np.isin(np.arange(len(lengths)), chosen), lengths)
        return self._where(nodes, lengths, chosen)

    def part(self, index: int) -> tuple[Array, Array, float]:
        """Losses, log masses and count of one part."""
        begin = int(self.starts[index])
        end = begin + int(self._lengths()[index])
        return self.loss[begin:end], self.log_mass[begin:end], float(self.times[index])

    def log_single_deltas(self, epsilons: Array) -> Array:
        """A rough log delta of one release of each part, each part at an epsilon of its own."""
        excess = self.loss - np.repeat(epsilons, self._lengths())
        share = -np.expm1(-np.maximum(excess, 0.0))
        return np.asarray(np.log(np.add.reduceat(np.exp(self.log_mass) * share, self.starts)))

    def quantiles(self, theta: float, prob: float) -> list[tuple[float, float]]:
        """For each part, the noise below which and above which its tilted law has about the mass `prob`."""
        points = []
        for begin, length in zip(self.starts, self._lengths(), strict=True):
            part = slice(begin, begin + length)
            exponent = self.log_mass[part] + theta * self.loss[part]
            mass = np.exp(exponent - exponent.max())
            below, above = (np.cumsum(side) / mass.sum() for side in (mass, mass[::-1]))
            z = self.z[part]
            first, last = int((below <= prob).sum()), len(z) - 1 - int((above <= prob).sum())
            points.append((float(z[min(first, len(z) - 1)]), float(z[max(last, 0)])))
        return points

    def _lengths(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return np.diff(np.append(self.starts, len(self.loss)))


@dataclass(frozen=True)
class Saddle:
    """A saddle point: a tilt and the epsilon for which it is the right one.

    Attributes:
        theta: the tilt.
        epsilon: the epsilon.
        log_delta: a rough log delta at this epsilon, by the saddle-point method.
        deviation: about the standard deviation of the tilted sum of losses.
    """

    theta: float
    epsilon: float
    log_delta: float
    deviation: float


def saddle_at(plan: TiltPlan, theta: float) -> Saddle:
    """The saddle point with a given tilt: theta is where K(s) - s eps - log s - log(1+s) is stationary."""
    k = plan.cumulants(theta)
    epsilon = k.slope - 1.0 / theta - 1.0 / (1.0 + theta)
    bend = k.curvature + theta**-2 + (1.0 + theta) ** -2
    exponent = k.value - theta * epsilon - math.log(theta) - math.log1p(theta)
    return Saddle(
        theta, epsilon, exponent - 0.5 * math.log(2.0 * math.pi * bend), math.sqrt(k.curvature + theta**-2)
    )


def saddle_for_epsilon(plan: TiltPlan, epsilon: float) -> Saddle:
    """The saddle point with a given epsilon."""
    return saddle_at(plan, _root(lambda theta: saddle_at(plan, theta).epsilon - epsilon))


def saddle_for_log_delta(plan: TiltPlan, log_delta: float) -> Saddle:
    """The saddle point with a given log delta."""
    return saddle_at(plan, _root(lambda theta: log_delta - saddle_at(plan, theta).log_delta))


def planned_epsilon(parts: Parts, log_delta: float) -> float:
    """A rough epsilon at a delta by the saddle-point method: cheap, and wrong by some percent.

    Where a record is hardly ever sampled, one release may decide by itself: it has an epsilon far beyond
    the standard deviation of all losses together, larger ones counted as that epsilon. Then the saddle lies
    far away, and the epsilon of this release is taken.
    """
    plan = TiltPlan.of(parts)
    if len(parts) <= _FEW_KINDS and sum(times * pair.rate for pair, times in parts) <= _RARELY:
        alone = max(ClosedForm(pair).start(log_delta - math.log(times)) for pair, times in parts)
        others = np.exp(plan.log_mass + plan.log_times) @ np.minimum(np.abs(plan.loss), alone) ** 2
        if alone > _FAR_BEYOND * math.sqrt(others):
            return alone
    saddle = saddle_for_log_delta(plan, log_delta)
    return saddle.epsilon + (saddle.log_delta - log_delta) / saddle.theta


def _root(rising: Callable[[float], float]) -> float:
    """The theta with rising(theta) = 0, to three digits; an end of the range if there is none."""
    low, high, step = 0.0, 0.0, 1.0
    value = rising(1.0)
    while value < 0.0 and high < math.log(_MOST_TILT):
        low, high, step = high, high + step, step * 1.5
        value = rising(math.exp(high))
    while value > 0.0 and low > -math.log(_MOST_TILT) and high <= 0.0:
        high, low, step = low, low - step, step * 1.5
        value = rising(math.exp(low))
    for _ in range(40):
        if high - low < 1e-3:
            break
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rising(math.exp(middle)) < 0.0 else (low, middle)
    return math.exp(0.5 * (low + high))


def _end(pair: ShiftPair, z: Array, loss: Array, log_mass: Array) -> tuple[float, float, float, float]:
    """What `Ends` knows of one release."""
    if not z[-1] < pair.cut < z[-1] + 2.0 * (z[-1] - z[-2]):
        return 0.0, -math.inf, 0.0, 1.0
    before = max(pair.supremum - float(loss[-1]), 0.0)
    return float(loss[-1]), float(log_mass[-1]), before, before + 0.5 * float(loss[-1] - loss[-2])


@lru_cache(maxsize=256)
def _rough_nodes(pair: ShiftPair) -> tuple[Array, Array, Array]:
    """Noise, losses and log P-masses at Gauss nodes, on panels as wide as tilted densities are narrow."""
    reach = _LOG_LEAST_PROB ** (1.0 / pair.beta)
    low, high = pair.down - min(reach, 90.0 ** (1.0 / pair.beta)), min(pair.up + reach, pair.cut)
    low = max(low, pair.floor)
    kinks = pair.kinks
    # closer together near the kinks, so that a shift much smaller than the noise is seen too
    scan = np.unique(
        np.concatenate(
            [np.linspace(low, high, 1500)]
            + [k + s * np.geomspace(1e-7, reach, 200) for k in kinks for s in (-1, 1)]
        )
    )
    scan = scan[(scan >= low) & (scan <= high)]
    far = np.max([np.abs(scan - k) for k in kinks], axis=0)
    near = np.min([np.abs(scan - k) for k in kinks], axis=0)
    density = np.full_like(far, 1.0)
    if pair.beta > 2.0:  # noise further out has a loss beyond all that is asked for, or no probability
        tell = np.clip(far, 1e-9, (_FURTHEST_LOSS + _LOG_LEAST_PROB) ** (1.0 / pair.beta))
        density = np.sqrt(0.3 + pair.beta**2 * tell ** (pair.beta - 2.0)) * (2.5 if pair.beta > 8.0 else 1.0)
    density = 0.8 * density / np.maximum(1.0, far ** (1.0 - 0.5 * pair.beta)) + 0.35 / (near + 1e-3)
    count = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(scan))])
    edges = np.interp(
        np.linspace(0.0, count[-1], max(24, math.ceil(min(count[-1], _MOST_PANELS)))), count, scan
    )
    edges = np.unique(np.concatenate([edges, [kink for kink in kinks if low < kink < high]]))
    half, centre = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    unit, weight = _UNIT_NODES, _UNIT_WEIGHTS
    z = (centre[:, None] + half[:, None] * unit).ravel()
    up = pair.log_mixture(z, pair.up)
    loss = up - pair.log_mixture(z, pair.down)
    log_mass = (
        up - np.abs(z) ** pair.beta - pair.log_normalizer + (np.log(half)[:, None] + np.log(weight)).ravel()
    )
    return z, loss, log_mass
