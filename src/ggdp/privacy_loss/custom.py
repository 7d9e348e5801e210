# SPDX-License-Identifier: Apache-2.0
"""Mechanisms that users describe, by densities, by their loss, by probabilities or by a class of their own.

`cells_of(mechanism)` turns each into `Cells`, bounds on masses and losses, and everything downstream is the
same. For a class of your own, register a function with `cells_of`. It usually returns the cells of another
description:

    @cells_of.register
    def _(mechanism: Lottery) -> Cells:
        return cells_of(OutcomeProbabilities(mechanism.with_record, mechanism.without_record))

`LossCdf` is a privacy loss known by one distribution function, that with the record. Let L = log P/Q at
an outcome drawn from P. Q weighs a loss t by e^-t times what P does, so the distribution
function of L under P is enough: it gives delta(epsilon) = E[(1 - e^(epsilon - L))_+]. That is the mean of an
increasing function of the loss, of one release and of several composed. So moving probability to an infinite
loss raises delta, and taking probability away from the largest losses lowers it. Where the function is right
up to an error, moving and taking away that much gives an upper and a lower law.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms.custom import CustomMechanism, GaussianMixtureNoise, OutcomeProbabilities
from ggdp.mechanisms.grid_noise import GridNoise, GridReplacement
from ggdp.mechanisms.spherical_noise import SphericalNoise, SphericalReplacement
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss import spherical
from ggdp.privacy_loss.cells import Cells, replaced, vector_cells
from ggdp.privacy_loss.density import Density, Mixture
from ggdp.privacy_loss.enclosure import Enclosure, enclose, partition

__all__ = [
    "DensityNoise",
    "DensityPair",
    "GaussianMixtureNoise",
    "LossSurvival",
    "OutcomeProbabilities",
    "Replaceable",
    "cells_of",
    "check_full_distance_is_worst",
    "density_cells",
    "sketch_of",
    "survival_cells",
]

_CELLS = 1 << 17
_FINER = 2  # masses are bounded on cells this much finer, where the bounds are closer, and then added up
_TOLERANCE = 1e-9  # largest distance of a total probability from 1, for a rounded normalising constant


@runtime_checkable
class Replaceable(Protocol):
    """A custom mechanism that also knows what replacing a record costs."""

    def replaced(self, rate: float) -> CustomMechanism:
        """The two laws of a replacement, the record taking part with probability `rate`.

        They must cost the same in either order: only one order is composed.
        """
        ...


@dataclass(frozen=True)
class DensityPair(CustomMechanism):
    """A mechanism described by two densities of its output, with the record and without it.

    The pair must be the worst over all datasets and records: nothing here can check that.
    """

    with_record: Density | Mixture
    without_record: Density | Mixture

    def __post_init__(self) -> None:
        arguments.instance("with_record", self.with_record, (Density, Mixture))
        arguments.instance("without_record", self.without_record, (Density, Mixture))


@dataclass(frozen=True)
class DensityNoise(CustomMechanism):
    """A mechanism that releases a number plus noise of a given density.

    Args:
        noise: the density of the noise.
        sensitivity: the record moves the number by at most this, either way. Only for noise that is
            symmetric and log-concave, where the full distance is the worst: for other noise a smaller
            distance may cost more.
        shift: the record moves the number by exactly this; any noise.
    """

    noise: Density | Mixture
    sensitivity: float | None = None
    shift: float | None = None

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, (Density, Mixture))
        if (self.sensitivity is None) == (self.shift is None):
            raise ValueError(
                f"give sensitivity or shift, one of them, got {self.sensitivity!r} and {self.shift!r}"
            )
        if self.sensitivity is not None:
            object.__setattr__(
                self, "sensitivity", arguments.real("sensitivity", self.sensitivity, above=0.0)
            )
        else:
            shift = arguments.real("shift", self.shift or 0.0)
            if shift == 0.0:
                raise ValueError("shift must not be 0: a record that does not move the value costs nothing")
            object.__setattr__(self, "shift", shift)

    def replaced(self, rate: float) -> "DensityNoise | DensityPair":
        """What replacing a record costs that takes part with probability `rate`: docs/adjacency.md.

        Raises:
            ValueError: only a known shift was given, which says nothing about a replacement.
        """
        if self.sensitivity is None:
            raise ValueError(
                "adjacency must not be 'replace' for a known shift: name the shift of the replacement instead"
            )
        if rate == 1.0:
            return replace(self, sensitivity=2.0 * self.sensitivity)
        check_full_distance_is_worst(self.noise)
        return DensityPair(
            *(_sometimes(self.noise, rate, by) for by in (self.sensitivity, -self.sensitivity))
        )


@dataclass(frozen=True)
class LossSurvival(CustomMechanism):
    """A mechanism described by the survival functions of its privacy loss L = log P/Q.

    Args:
        with_record: t -> P(L > t), P the law with the record; infinite losses included.
        without_record: t -> Q(L > t), Q the law without it.
        span: the losses that are divided into cells. Losses below them count as the lower end, losses above
            as infinite.
        atoms: losses that have positive probability by themselves.
        cdf_with_record: t -> P(L <= t); and
        cdf_without_record: t -> Q(L <= t), both or none. Where survivals are close to one their differences
            lose digits, on which the adjacency 'add' depends; these give them back.
        accuracy: relative error of all functions.
    """

    with_record: Callable[[Array], Array]
    without_record: Callable[[Array], Array]
    span: tuple[float, float]
    atoms: tuple[float, ...] = ()
    cdf_with_record: Callable[[Array], Array] | None = None
    cdf_without_record: Callable[[Array], Array] | None = None
    accuracy: float = 1e-14

    def __post_init__(self) -> None:
        low, high = (arguments.real("span", end) for end in self.span)
        if not low < high:
            raise ValueError(f"span must be an interval (low, high), got {self.span!r}")
        if (self.cdf_with_record is None) != (self.cdf_without_record is None):
            raise ValueError("cdf_with_record and cdf_without_record must be given both, or none, got one")
        object.__setattr__(self, "span", (low, high))
        object.__setattr__(self, "atoms", tuple(sorted(arguments.real("atoms", atom) for atom in self.atoms)))
        object.__setattr__(
            self, "accuracy", arguments.real("accuracy", self.accuracy, least=2.0**-53, most=1e-3)
        )


def _sometimes(noise: Density | Mixture, rate: float, by: float) -> Mixture:
    """The density of noise that is shifted with probability `rate`, and not shifted otherwise."""
    parts = [(weight * (1.0 - rate), density) for weight, density in noise.components]
    parts += [(weight * rate, density.shifted(by)) for weight, density in noise.components]
    return Mixture(tuple(weight for weight, _ in parts), tuple(density for _, density in parts))


@functools.singledispatch
def cells_of(mechanism: object) -> Cells:
    """Bounds on the masses and losses of a mechanism with the record (P) against without it (Q).

    Register a function for a class of your own: `@cells_of.register`.
    """
    kind = type(mechanism).__name__
    raise ValueError(
        f"mechanism must be one whose output laws are known, got {kind}; "
        f"register a function that takes a {kind} with ggdp.privacy_loss.custom.cells_of"
    )


@cells_of.register
def _(mechanism: OutcomeProbabilities) -> Cells:
    with_record, without_record = np.array(mechanism.with_record), np.array(mechanism.without_record)
    missing = max(abs(math.fsum(vector) - 1.0) for vector in (with_record, without_record))
    return vector_cells(with_record, without_record, missing + 4.0 * UNIT_ROUNDOFF)


@cells_of.register
def _(mechanism: DensityPair) -> Cells:
    return density_cells(mechanism.with_record, mechanism.without_record, _CELLS)


@cells_of.register
def _(mechanism: DensityNoise) -> Cells:
    if mechanism.shift is not None:
        return density_cells(mechanism.noise.shifted(mechanism.shift), mechanism.noise, _CELLS)
    assert mechanism.sensitivity is not None
    check_full_distance_is_worst(mechanism.noise)
    return density_cells(mechanism.noise.shifted(mechanism.sensitivity), mechanism.noise, _CELLS)


@cells_of.register
def _(mechanism: GaussianMixtureNoise) -> Cells:
    densities = tuple(_gaussian(mean, std) for mean, std in zip(mechanism.means, mechanism.stds, strict=True))
    return cells_of(DensityNoise(Mixture(mechanism.weights, densities), shift=mechanism.shift))


@cells_of.register
def _(mechanism: GridNoise) -> Cells:
    from ggdp.privacy_loss import classical

    return classical.grid_cells(mechanism.noise, mechanism.steps)


@cells_of.register
def _(mechanism: GridReplacement) -> Cells:
    from ggdp.privacy_loss import classical

    return classical.grid_cells(mechanism.noise, mechanism.steps, replaced_at=mechanism.rate)


def _gaussian(mean: float, std: float) -> Density:
    offset = math.log(std) + 0.5 * math.log(2.0 * math.pi)
    return Density(lambda x: -0.5 * ((x - mean) / std) ** 2 - offset)


@cells_of.register
def _(mechanism: SphericalNoise) -> Cells:
    noise = mechanism.noise
    spherical.BETA.check(noise.beta)
    length = spherical.LENGTH.check(mechanism.sensitivity / noise.scale)
    if noise.dimension > 1:
        return spherical.spherical_cells(noise.beta, noise.dimension, length, -noise.power)
    law = GeneralizedGaussian(noise.beta, 1.0)
    line = Density(law.logpdf, breaks=(0.0,))
    cells = density_cells(line.shifted(length), line, _CELLS)
    return spherical.within(cells, length) if noise.beta == 1.0 else cells


@cells_of.register
def _(mechanism: SphericalReplacement) -> Cells:
    return replaced(cells_of(mechanism.release), mechanism.rate)


def sketch_of(mechanism: CustomMechanism) -> Cells:
    """Approximate cells of a mechanism, which may be much faster than `cells_of`. They prove nothing."""
    if isinstance(mechanism, SphericalReplacement):
        return replaced(sketch_of(mechanism.release), mechanism.rate)
    if isinstance(mechanism, SphericalNoise) and mechanism.noise.dimension > 1:
        noise = mechanism.noise
        return spherical.sketch(
            noise.beta, noise.dimension, mechanism.sensitivity / noise.scale, -noise.power
        )
    return cells_of(mechanism)


@cells_of.register
def _(mechanism: LossSurvival) -> Cells:
    return survival_cells(mechanism)


def density_cells(with_record: Density | Mixture, without_record: Density | Mixture, cells: int) -> Cells:
    """Cells of the line, with certified masses; the tails beyond the last edges are two cells more."""
    laws = (with_record, without_record)
    edges = partition([density for law in laws for _, density in law.components], cells * _FINER)
    p, q = (_normalized(enclose(law, edges)) for law in laws)
    with np.errstate(invalid="ignore"):
        at_left, at_right = p.left - q.left, p.right - q.right
        low = np.minimum(at_left, at_right) - p.under - q.over
        high = np.maximum(at_left, at_right) + p.over + q.under
    nothing, endless = np.isneginf(p.left) & np.isneginf(p.right), np.isneginf(q.left) & np.isneginf(q.right)
    known = ~(nothing | endless)
    sizes = np.abs(np.where(known, [p.left, p.right, q.left, q.right], 0.0)).sum(axis=0)
    rounding = 8.0 * UNIT_ROUNDOFF * sizes
    low = np.where(nothing, -math.inf, np.where(endless, math.inf, np.where(known, low, 0.0) - rounding))
    high = np.where(nothing, -math.inf, np.where(endless, math.inf, np.where(known, high, 0.0) + rounding))
    unknown = np.array([-math.inf, -math.inf]), np.array([math.inf, math.inf])
    starts = _groups(edges.at_break)
    return Cells(
        np.append(np.add.reduceat(p.mass_low, starts), [0.0, 0.0]),
        np.append(np.add.reduceat(p.mass_high, starts), [p.tail_low, p.tail_high]),
        np.append(np.add.reduceat(q.mass_low, starts), [0.0, 0.0]),
        np.append(np.add.reduceat(q.mass_high, starts), [q.tail_low, q.tail_high]),
        np.append(np.minimum.reduceat(low, starts), unknown[0]),
        np.append(np.maximum.reduceat(high, starts), unknown[1]),
    )


def _groups(
    at_break: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where groups of neighbouring cells begin; none reaches across a break point."""
    index = np.arange(len(at_break) - 1)
    start_of_piece = np.maximum.accumulate(np.where(at_break[:-1], index, 0))
    return np.nonzero((index - start_of_piece) % _FINER == 0)[0]


def _normalized(law: Enclosure) -> Enclosure:
    """Raise an error if the integral is certainly not 1; the normalising constant may be rounded."""
    low, high = law.total
    off = max(low - 1.0, 1.0 - high, 0.0)
    if off > _TOLERANCE:
        raise ValueError(
            f"log_density_fn must integrate to 1, and its integral lies in [{low:.9g}, {high:.9g}]; "
            "subtract the logarithm of the normalising constant"
        )
    widen = 2.0 * off
    return replace(law, mass_low=law.mass_low * (1.0 - widen), mass_high=law.mass_high * (1.0 + widen))


def check_full_distance_is_worst(noise: Density | Mixture) -> None:
    """Check from values that noise is symmetric and log-concave, where a longer shift always costs more."""
    edges = partition([density for _, density in noise.components], 4096)
    points = edges.points
    inner = 0.5 * (points[1:] + points[:-1])
    value, mirrored = noise.log_density(inner), noise.log_density(-inner)
    both = np.isfinite(value) & np.isfinite(mirrored)
    size = 1e-6 * (1.0 + np.abs(np.where(both, value, 0.0)))
    symmetric = np.all(np.isfinite(value) == np.isfinite(mirrored)) and np.all(
        np.abs(np.where(both, value - mirrored, 0.0)) <= size
    )
    there = np.isfinite(value)
    slope = np.diff(value[there]) / np.diff(inner[there])
    noise_of_slope = 1e-13 * (1.0 + np.abs(value[there]))[1:] / np.diff(inner[there])
    in_one_piece = bool(np.all(np.diff(np.nonzero(there)[0]) == 1))
    concave = in_one_piece and np.all(np.diff(slope) <= noise_of_slope[1:] + noise_of_slope[:-1])
    if not (symmetric and concave):
        raise ValueError(
            "sensitivity must come with noise that is symmetric and log-concave, got noise that is "
            f"{'not symmetric about 0' if concave else 'not log-concave'}: a smaller distance, or the other "
            "sign, may cost more; give the exact distance as shift instead"
        )


def survival_cells(loss: LossSurvival) -> Cells:
    """Cells between the points of a grid of losses, and the two half lines beyond."""
    low, high = loss.span
    atoms = np.array([atom for atom in loss.atoms if low <= atom <= high])
    grid = np.concatenate([np.linspace(low, high, _CELLS // 4 + 1), atoms, np.nextafter(atoms, -math.inf)])
    edges = np.unique(grid)
    ends = np.concatenate([[-math.inf], edges, [math.inf]])
    p_low, p_high = _masses("with_record", loss.with_record, loss.cdf_with_record, edges, loss.accuracy)
    q_low, q_high = _masses(
        "without_record", loss.without_record, loss.cdf_without_record, edges, loss.accuracy
    )
    with np.errstate(over="ignore"):
        smallest, largest = p_low * np.exp(-ends[1:]), p_high * np.exp(-ends[:-1])
    if np.any(smallest > q_high * (1.0 + 1e-6) + 1e-12) or np.any(q_low * (1.0 - 1e-6) > largest + 1e-12):
        raise ValueError(
            "with_record and without_record must be laws of one loss L = log P/Q, so that Q weighs every "
            "loss t by e^-t times what P does; got survival functions for which it does not"
        )
    return Cells(p_low, p_high, q_low, q_high, ends[:-1], ends[1:])


def _masses(
    name: str,
    survival: Callable[[Array], Array],
    cdf: Callable[[Array], Array] | None,
    edges: Array,
    slack: float,
) -> tuple[Array, Array]:
    """Bounds on the masses of the cells between the edges, and of those beyond the first and the last."""
    low, high = _differences(_probabilities(name, survival, edges), slack)
    if cdf is None:
        return low, high
    rising = _probabilities(f"cdf_{name}", lambda t: cdf(-t), -edges[::-1])
    low_too, high_too = (side[::-1] for side in _differences(rising, slack))
    low, high = np.maximum(low, low_too), np.minimum(high, high_too)
    if np.any(low > high):
        raise ValueError(f"{name} and cdf_{name} must add up to 1, and at some loss they do not")
    return low, high


def _probabilities(name: str, function: Callable[[Array], Array], points: Array) -> Array:
    with np.errstate(all="ignore"):
        value = np.asarray(function(points), dtype=np.float64)
    if value.shape != points.shape or not np.all((value >= 0.0) & (value <= 1.0)):
        raise ValueError(f"{name} must return a probability for each loss, got {value!r}")
    if np.any(np.diff(value) > 1e-9 * value[:-1]):
        raise ValueError(
            f"{name} must be monotone: a survival function must not increase, nor a cdf decrease"
        )
    return value


def _differences(falling: Array, slack: float) -> tuple[Array, Array]:
    """Masses between the points at which a falling probability is known, from one down to zero."""
    above = np.concatenate([[1.0], falling])
    beyond = np.append(falling, 0.0)
    low = np.maximum(above * (1.0 - slack) - beyond * (1.0 + slack), 0.0)
    return low, np.maximum(above * (1.0 + slack) - beyond * (1.0 - slack), 0.0)


_ERROR = 2.0**-50  # absolute error that the distribution function is assumed to have
_GROUP = 16  # fine cells that are put together; fine cells make the mass without the record more accurate
_FEWEST, _MOST = 1 << 16, 1 << 21


@dataclass(frozen=True)
class LossCdf(CustomMechanism):
    """A release described by the distribution function of its loss.

    Only REMOVE can be asked about, without sampling.

    Args:
        cdf: t -> probability of a loss of at most t, given that it is finite, for arrays; right to 8e-16.
        infinite: probability of an infinite loss.
        cells: into how many cells a unit of loss is cut, at most 2^21 in all.
    """

    cdf: Callable[[Any], Any]
    infinite: float
    cells: int

    def __post_init__(self) -> None:
        infinite = arguments.real("infinite", self.infinite, least=0.0, below=1.0)
        object.__setattr__(self, "infinite", infinite)
        object.__setattr__(self, "cells", arguments.whole("cells", self.cells))


@cells_of.register
def _(mechanism: LossCdf) -> Cells:
    finite = 1.0 - mechanism.infinite
    low, high = _span(mechanism)
    fine = min(max(math.ceil((high - low) * mechanism.cells), _FEWEST), _MOST)
    right = np.linspace(low, high, -(-fine // _GROUP) * _GROUP + 1)
    left = np.append(-math.inf, right[:-1])  # the first cell holds all smaller losses
    cdf = np.maximum.accumulate(_values(mechanism, right))
    before = np.append(0.0, cdf[:-1])
    p = (cdf - before) * finite
    p_low = np.where(1.0 - cdf >= _ERROR, p, np.maximum(1.0 - before - _ERROR, 0.0) * finite)
    with np.errstate(over="ignore", invalid="ignore"):
        q_low, q_high = p * np.exp(-right), np.where(p > 0.0, np.minimum(p * np.exp(-left), 1.0), 0.0)
    if float(q_low.sum()) > 1.0 + 1e-6:
        raise ValueError(
            "cdf must be that of a privacy loss log P/Q under P, for which e^-loss has a mean of at most 1, "
            f"got one with a mean of at least {float(q_low.sum()):.6g}"
        )
    starts = np.append(0, np.arange(1, len(p), _GROUP))
    last = np.append(starts[1:], len(p)) - 1
    beyond = (1.0 - float(cdf[-1]) + _ERROR) * finite + mechanism.infinite

    def sums(values: Array, at_infinity: float, rounding: float) -> Array:
        return np.append(np.add.reduceat(values, starts), at_infinity) * (1.0 + rounding)

    return Cells(
        sums(p_low, mechanism.infinite, -1e-14),
        sums(p, beyond, 1e-14),
        sums(q_low, 0.0, -1e-12),
        sums(q_high, 0.0, 1e-12),
        np.append(left[starts], math.inf),
        np.append(right[last], math.inf),
    )


def _values(mechanism: LossCdf, points: Array) -> Array:
    with np.errstate(all="ignore"):
        value = np.asarray(mechanism.cdf(points), dtype=np.float64)
    if value.shape != points.shape or not np.all((value >= -_ERROR) & (value <= 1.0 + _ERROR)):
        raise ValueError(f"cdf must return a probability for each loss, got {value!r}")
    return np.clip(value, 0.0, 1.0)


def _span(mechanism: LossCdf) -> tuple[float, float]:
    """Two losses between which nearly all probability lies."""
    sizes = 2.0 ** (np.arange(-40.0, 45.0) / 4.0)
    above = np.nonzero(1.0 - _values(mechanism, sizes) <= _ERROR)[0]
    below = np.nonzero(_values(mechanism, -sizes) <= _ERROR)[0]
    return -float(sizes[below[0] if len(below) else -1]), float(sizes[above[0] if len(above) else -1])
