# SPDX-License-Identifier: Apache-2.0
"""Classical releases, each with the pair of output laws (P, Q) that is the worst it can produce.

P is the law with the record and Q the law without it. A pair *dominates* a release if its curve
D(x) = sup over sets S of P(S) - x Q(S) is, for every x > 0, at least that of every pair of neighbouring
datasets; the accountant composes dominating pairs in place of the release (docs/custom-noise.md).

| release | the pair | why it dominates |
|---|---|---|
| `PrivacyGuarantee` | two outcomes of losses +-epsilon, one of infinite loss | Kairouz, Oh, Viswanath 2015 |
| `BoundedRange` | losses spread over [-epsilon, epsilon] | below |
| `RandomizedResponse` | the answer itself | its law is known for every record |
| `DiscreteLaplaceNoise`, `DiscreteGaussianNoise`, `GridNoise` | integers at the largest distance | below |
| `GaussianMixtureShift` | as described | it is part of the description |

*Bounded range* (the exponential mechanism). On neighbouring datasets the loss log P/Q lies in an interval
[t, t + epsilon] whose place t is not known (Durfee, Rogers 2019). Put c = e^-epsilon and u = e^(t + epsilon).
A law of ratios in [cu, u] with mean 1 has, by the chord of a convex function, a curve of at most
(1 - cu)(1 - x/u) / (1 - c) for x in [cu, u]. The largest over u is taken at u = sqrt(x/c) and is
D(x) = (1 - sqrt(cx))^2 / (1 - c) on [c, 1/c]. That is the curve of the pair with
P(L > t) = (1 - s) / (1 - c) and Q(L > t) = (e^-t s - c) / (1 - c), where s = e^((t - epsilon) / 2).
Swapping P and Q gives the same curve.

*Discrete noise.* For a symmetric log-concave law on the integers, the ratio of its shifts by u < v is
non-decreasing, so that the best test of any size is a threshold, randomised at one point, for all u < v at
once. The proofs of docs/adjacency.md and of norm 1 in docs/vector-releases.md need nothing else: the shift by
the whole sensitivity dominates every smaller one and every split of it over coordinates in the l_1 norm.

All masses carry bounds for the rounding of the formulas they were computed by.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ggdp import arguments
from ggdp.distributions import DiscreteGeneralizedGaussian
from ggdp.distributions.exact_power import power_of_ratio
from ggdp.mechanisms.custom import CustomMechanism
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.cells import Cells, mixed
from ggdp.privacy_loss.custom import cells_of, density_cells
from ggdp.privacy_loss.density import Density, Mixture

_NEGLIGIBLE = 1e-290  # smaller masses are only bounded: they may have lost digits to underflow
_MOST_OUTCOMES = 1 << 24
_MOST_CELLS = 1 << 17
_RANGE_CELLS = 1 << 15
_TAIL_STDS = 26.0  # e^(-26^2 / 2) is below 1e-146
_TAIL_MASS = 1e-140
_TAIL_EXPONENT = 340.0  # e^-340 is below 1e-147
_MOST_LISTED = 1 << 22

M = TypeVar("M", bound=CustomMechanism)

EPSILON = arguments.Range("epsilon", least=0.0, most=2000.0, typical=(0.01, 10.0))


@dataclass(frozen=True)
class PrivacyGuarantee(CustomMechanism):
    """A release about which only one thing is known: it is (epsilon, delta)-private.

    The guarantee holds for whichever neighbours are asked about.

    >>> cells_of(PrivacyGuarantee(epsilon=1.0)).loss_high
    array([ 1., -1.])
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", EPSILON.check(self.epsilon))
        object.__setattr__(
            self,
            "delta",
            arguments.real("delta", self.delta, least=0.0, below=1.0, hint="delta = 1 promises nothing"),
        )

    def replaced(self, rate: float) -> "PrivacyGuarantee":
        """What replacing a record costs: the same, if it always takes part."""
        return _unsampled(self, rate)


@dataclass(frozen=True)
class BoundedRange(CustomMechanism):
    """A release whose losses on any two neighbouring datasets lie in an interval of length `epsilon`.

    The exponential mechanism with exp(epsilon * utility / (2 * sensitivity)) is one, for whichever neighbours
    the sensitivity is about.
    """

    epsilon: float

    def __post_init__(self) -> None:
        epsilon = arguments.real("epsilon", self.epsilon, above=0.0, most=EPSILON.most)
        object.__setattr__(self, "epsilon", epsilon)

    def replaced(self, rate: float) -> "BoundedRange":
        """What replacing a record costs: the same, if it always takes part."""
        return _unsampled(self, rate)


@dataclass(frozen=True)
class RandomizedResponse(CustomMechanism):
    """The record's own value with probability 1 - `noise`, else one of `buckets` values at random.

    For an absent record one of the values is drawn at random.
    """

    noise: float
    buckets: int

    def __post_init__(self) -> None:
        noise = arguments.real("noise", self.noise, above=0.0, most=1.0)
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "buckets", arguments.whole("buckets", self.buckets, least=2))

    def replaced(self, rate: float) -> "_AnotherAnswer":
        """One value against another; sampling multiplies the share of the record's own value by `rate`."""
        keep = rate * (1.0 - self.noise)
        return _AnotherAnswer(keep, self.noise + (1.0 - rate) * (1.0 - self.noise), self.buckets)


@dataclass(frozen=True)
class _AnotherAnswer(CustomMechanism):
    """The answer of one record against that of another; keep + noise = 1, both to all their digits."""

    keep: float
    noise: float
    buckets: int


@dataclass(frozen=True)
class DiscreteLaplaceNoise(CustomMechanism):
    """An integer plus noise of mass tanh(a/2) exp(-a |k|) at k, a = `decay`; or a vector of such integers.

    One record moves the vector by at most `sensitivity`, a whole number, in the l_1 norm.
    """

    decay: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", arguments.real("decay", self.decay, above=0.0))
        most = _MOST_OUTCOMES // 2
        object.__setattr__(
            self, "sensitivity", arguments.whole("sensitivity", self.sensitivity, least=1, most=most)
        )
        EPSILON.check(self.decay * self.sensitivity)

    def replaced(self, rate: float) -> "DiscreteLaplaceNoise":
        """What replacing a record costs: twice the distance, if it always takes part."""
        return DiscreteLaplaceNoise(_unsampled(self, rate).decay, 2 * self.sensitivity)


@dataclass(frozen=True)
class DiscreteGaussianNoise(CustomMechanism):
    """An integer plus noise of mass proportional to exp(-k^2 / (2 sigma^2)) at k.

    One record moves the integer by at most `sensitivity`, a whole number.
    """

    sigma: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", arguments.real("sigma", self.sigma, least=0.02, most=2e5))
        object.__setattr__(
            self, "sensitivity", arguments.whole("sensitivity", self.sensitivity, least=1, most=10**6)
        )

    def replaced(self, rate: float) -> "DiscreteGaussianNoise":
        """What replacing a record costs: twice the distance, if it always takes part."""
        return DiscreteGaussianNoise(_unsampled(self, rate).sigma, 2 * self.sensitivity)


@dataclass(frozen=True)
class GaussianMixtureShift(CustomMechanism):
    """A number with Gaussian noise, which the record moves by shifts[i] with probability weights[i].

    Args:
        std: standard deviation of the noise.
        shifts: how far the record may move the number.
        weights: how likely each shift is; positive, summing to one.
    """

    std: float
    shifts: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", arguments.real("std", self.std, above=0.0))
        weights = tuple(arguments.real("weights", weight, above=0.0, most=1.0) for weight in self.weights)
        shifts = tuple(arguments.real("shifts", shift) for shift in self.shifts)
        if not len(weights) == len(shifts) > 0:
            raise ValueError(
                f"shifts and weights must be of one length, at least 1, got {len(shifts)} and {len(weights)}"
            )
        if abs(math.fsum(weights) - 1.0) > 1e-12:
            raise ValueError(f"weights must sum to 1, got {math.fsum(weights)!r}")
        object.__setattr__(self, "shifts", shifts)
        object.__setattr__(self, "weights", weights)


def _unsampled(mechanism: M, rate: float) -> M:
    if rate != 1.0:
        raise ValueError(
            f"rate must be 1 when a record of a {type(mechanism).__name__} is replaced, got {rate:g}: what "
            "the release is when neither record is sampled is not known; ask for adding and removing records"
        )
    return mechanism


@cells_of.register
def _(mechanism: PrivacyGuarantee) -> Cells:
    epsilon, delta = mechanism.epsilon, mechanism.delta
    often, seldom = 1.0 / (1.0 + math.exp(-epsilon)), math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    p = np.array([delta, (1.0 - delta) * often, (1.0 - delta) * seldom, 0.0])
    loss = np.array([math.inf, epsilon, -epsilon, -math.inf])
    kept = slice(None) if delta > 0.0 else slice(1, 3)  # with delta = 0 no loss is infinite
    return _outcomes(p[kept], p[::-1][kept], loss[kept], _loose(epsilon), loss_error=0.0)


@cells_of.register
def _(mechanism: BoundedRange) -> Cells:
    epsilon = mechanism.epsilon
    edges = np.linspace(-epsilon, epsilon, _RANGE_CELLS + 1)
    left, width = edges[:-1], np.diff(edges)
    p = np.exp(0.5 * (left - epsilon)) * np.expm1(0.5 * width) / -math.expm1(-epsilon)
    q = np.exp(-0.5 * (left + epsilon)) * -np.expm1(-0.5 * width) / -math.expm1(-epsilon)
    return _outcomes(p, q, left, _loose(epsilon), loss_high=edges[1:], loss_error=0.0)


@cells_of.register
def _(mechanism: RandomizedResponse) -> Cells:
    keep, per_bucket = 1.0 - mechanism.noise, mechanism.noise / mechanism.buckets
    others = mechanism.buckets - 1.0
    p = np.array([keep + per_bucket, others * per_bucket])
    q = np.array([1.0, others]) / mechanism.buckets
    loss = np.array([math.log1p(keep * others), math.log(mechanism.noise)])
    return _outcomes(p, q, loss, _loose(1.0))


@cells_of.register
def _(mechanism: _AnotherAnswer) -> Cells:
    per_bucket = mechanism.noise / mechanism.buckets
    p = np.array([mechanism.keep + per_bucket, per_bucket, (mechanism.buckets - 2.0) * per_bucket])
    largest = math.log1p(mechanism.keep / per_bucket)
    return _outcomes(p, p[[1, 0, 2]], np.array([largest, -largest, 0.0]), _loose(1.0))


@cells_of.register
def _(mechanism: DiscreteLaplaceNoise) -> Cells:
    decay, distance = mechanism.decay, mechanism.sensitivity
    steps = np.arange(distance + 1.0)
    q = math.tanh(0.5 * decay) * np.exp(-decay * steps)
    end = 1.0 / (1.0 + math.exp(-decay))  # P(noise >= 0)
    q[0], q[-1] = end, end * math.exp(-decay * distance)
    return _blocks(q, decay * (2.0 * steps - distance), _loose(decay * steps))


@cells_of.register
def _(mechanism: DiscreteGaussianNoise) -> Cells:
    sigma, distance = mechanism.sigma, mechanism.sensitivity
    reach = math.ceil(_TAIL_STDS * sigma) + 1
    noise = np.arange(-reach, reach + distance + 1.0)
    exponent = 0.5 * (noise / sigma) ** 2
    weight = np.exp(-exponent)
    q = weight / float(weight.sum())
    loss = (noise - 0.5 * distance) * distance / sigma**2
    return _with_tails(_blocks(q, loss, _loose(exponent)))


def grid_cells(
    noise: DiscreteGeneralizedGaussian, distance: int, *, replaced_at: float | None = None
) -> Cells:
    """The noise moved by `distance` steps against the noise; or a record replaced that is sampled so often.

    Raises:
        ValueError: the noise reaches too many integers to be listed.
    """
    if noise.beta == 1.0 and replaced_at is None:
        return cells_of(DiscreteLaplaceNoise(1.0 / noise.scale, distance))
    reach = math.ceil(noise.scale * _TAIL_EXPONENT ** (1.0 / noise.beta)) + 1
    if 2 * reach + 2 * distance > _MOST_LISTED:
        raise ValueError(
            f"scale must be so small that the noise lies within {_MOST_LISTED} steps, to be accounted, got "
            f"{noise.scale:g} steps, of which it takes {2 * reach + 2 * distance}; take a coarser grid"
        )
    low = -reach if replaced_at is None else -reach - distance
    outcome = np.arange(low, reach + distance + 1.0)
    here, moved, back = (
        power_of_ratio(np.abs(outcome - by), noise.scale, noise.beta) for by in (0.0, distance, -distance)
    )
    with np.errstate(under="ignore"):
        weight = np.exp(-here)
        q, loss, doubt = weight / float(weight.sum()), here - moved, here + moved
        if replaced_at is not None:
            q = (1.0 - replaced_at) * q + replaced_at * np.exp(-back) / float(weight.sum())
            loss = mixed(here - moved, replaced_at) - mixed(here - back, replaced_at)
            doubt, here = here + np.maximum(moved, back) + 2.0, np.maximum(here, back)
    return _with_tails(_blocks(q, loss, _loose(here), 16.0 * UNIT_ROUNDOFF * doubt))


def _with_tails(body: Cells) -> Cells:
    """The cells with one more for both tails, which has hardly any mass and may have any loss."""
    sides = (
        (body.p_low, body.p_high, 0.0, _TAIL_MASS),
        (body.q_low, body.q_high, 0.0, _TAIL_MASS),
        (body.loss_low, body.loss_high, -math.inf, math.inf),
    )
    return Cells(
        *(
            np.append(side, end)
            for low, high, *ends in sides
            for side, end in zip((low, high), ends, strict=True)
        )
    )


@cells_of.register
def _(mechanism: GaussianMixtureShift) -> Cells:
    moved = tuple(_gaussian(shift, mechanism.std) for shift in mechanism.shifts)
    return density_cells(Mixture(mechanism.weights, moved), _gaussian(0.0, mechanism.std), _MOST_CELLS)


def _gaussian(mean: float, std: float) -> Density:
    offset = math.log(std) + 0.5 * math.log(2.0 * math.pi)
    return Density(lambda x: -0.5 * ((x - mean) / std) ** 2 - offset)


def _loose(exponent: Array | float) -> Array | float:
    """Relative error of a mass computed by a few operations and the exponential of minus this."""
    return 32.0 * UNIT_ROUNDOFF * (1.0 + exponent)


def _outcomes(
    p: Array,
    q: Array,
    loss: Array,
    error: Array | float,
    *,
    p_error: Array | float | None = None,
    loss_high: Array | None = None,
    loss_error: float = 16.0 * UNIT_ROUNDOFF,
) -> Cells:
    """Cells of given masses and losses, right to relative errors; an infinite loss has a mass of zero."""
    high = loss if loss_high is None else loss_high
    low_slack, high_slack = (
        loss_error * np.where(np.isfinite(end), np.abs(end), 0.0) for end in (loss, high)
    )
    p_low, p_high = _bounded(p, error if p_error is None else p_error)
    q_low, q_high = _bounded(q, error)
    p_high, q_high = np.where(loss == -math.inf, 0.0, p_high), np.where(loss == math.inf, 0.0, q_high)
    return Cells(p_low, p_high, q_low, q_high, loss - low_slack, high + high_slack)


def _bounded(mass: Array, error: Array | float) -> tuple[Array, Array]:
    small = mass < _NEGLIGIBLE
    return np.where(small, 0.0, mass * (1.0 - error)), np.where(small, _NEGLIGIBLE, mass * (1.0 + error))


def _blocks(q: Array, loss: Array, error: Array | float, loss_slack: Array | float = 0.0) -> Cells:
    """Integers by increasing loss, P being Q backwards; neighbours are put together to make few cells."""
    starts = np.arange(0, len(loss), -(-len(loss) // _MOST_CELLS))
    p, p_error = q[::-1], np.asarray(error)[::-1]
    return _outcomes(
        np.add.reduceat(p, starts),
        np.add.reduceat(q, starts),
        (loss - loss_slack)[starts],
        np.maximum.reduceat(np.asarray(error), starts),
        p_error=np.maximum.reduceat(p_error, starts),
        loss_high=(loss + loss_slack)[np.append(starts[1:], len(loss)) - 1],
    )
