# SPDX-License-Identifier: Apache-2.0
"""A density given by a function, and what must be true of it for its integrals to be bounded.

The integral of an unknown function cannot be bounded from finitely many values. With one assumption it can,
and then every bound is a theorem (docs/custom-noise.md):

    between consecutive break points the log density is concave, or convex, or minus infinity throughout.

That holds for Laplace, Gaussian, generalized Gaussian, logistic, uniform, triangular and staircase noise and
for truncations of them; a Student density has break points where it bends the other way. Sums of such
densities are a `Mixture` of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ggdp import arguments
from ggdp.numerics import Array

LogDensity = Callable[[Array], Array]


@dataclass(frozen=True)
class Density:
    """A probability density on the line, by its logarithm.

    Args:
        log_density_fn: takes a float64 array, returns the log density at each entry; minus infinity where
            there is none. Trusted to `relative_error` of its own value (and of one, where that is small).
        breaks: every point at which it jumps, has a kink, or changes between concave and convex.
        support: outside, the density is zero; finite ends are break points too.
        outside_mass: probability that the density given may leave out: a bound on what lies outside the
            support.
        relative_error: of the values of `log_density_fn`.

    Raises:
        ValueError: break points are not sorted inside the support.

    >>> laplace = Density(lambda x: -np.abs(x) - math.log(2.0), breaks=(0.0,))
    """

    log_density_fn: LogDensity
    breaks: tuple[float, ...] = ()
    support: tuple[float, float] = (-math.inf, math.inf)
    outside_mass: float = 0.0
    relative_error: float = 1e-15

    def __post_init__(self) -> None:
        if not callable(self.log_density_fn):
            raise ValueError(f"log_density_fn must be a function of an array, got {self.log_density_fn!r}")
        low, high = (float(end) for end in self.support)
        if not low < high:
            raise ValueError(f"support must be an interval (low, high), got {self.support!r}")
        breaks = tuple(float(point) for point in self.breaks)
        if list(breaks) != sorted(set(breaks)) or any(not low <= point <= high for point in breaks):
            raise ValueError(
                f"breaks must be increasing points of the support {(low, high)}, got {self.breaks!r}"
            )
        if not all(map(math.isfinite, breaks)):
            raise ValueError(f"breaks must be finite, got {self.breaks!r}; name unbounded ends in support")
        object.__setattr__(self, "breaks", breaks)
        object.__setattr__(self, "support", (low, high))
        object.__setattr__(
            self, "outside_mass", arguments.real("outside_mass", self.outside_mass, least=0.0, below=1.0)
        )
        relative_error = arguments.real("relative_error", self.relative_error, least=2.0**-53, most=1e-6)
        object.__setattr__(self, "relative_error", relative_error)

    @property
    def components(self) -> "tuple[tuple[float, Density], ...]":
        """Weights and densities whose sum this is."""
        return ((1.0, self),)

    @property
    def all_breaks(self) -> tuple[float, ...]:
        """Break points, finite ends of the support included."""
        return tuple(sorted({*self.breaks, *(end for end in self.support if math.isfinite(end))}))

    def shifted(self, by: float) -> "Density":
        """The density of X + by."""
        inner = self.log_density_fn
        low, high = self.support
        return Density(
            lambda x: inner(x - by),
            tuple(point + by for point in self.breaks),
            (low + by, high + by),
            self.outside_mass,
            self.relative_error,
        )

    def log_density(self, x: Array) -> Array:
        """Checked values, minus infinity outside the support.

        Raises:
            ValueError: the function returned NaN, plus infinity, or another shape.
        """
        with np.errstate(all="ignore"):
            value = np.asarray(self.log_density_fn(x), dtype=np.float64)
        if value.shape != x.shape:
            raise ValueError(
                f"log_density_fn must keep the shape {x.shape} of its argument, got {value.shape}"
            )
        low, high = self.support
        value = np.where((x < low) | (x > high), -math.inf, value)
        bad = np.isnan(value) | (value == math.inf)
        if bad.any():
            raise ValueError(
                f"log_density_fn must be finite or minus infinity, got {value[bad][0]} at {x[bad][0]:.17g}; "
                "the integral of an unbounded density cannot be bounded from values"
            )
        return value


@dataclass(frozen=True)
class Mixture:
    """A sum of weighted densities, each of them simple where the sum need not be.

    >>> def bump(centre):
    ...     return Density(lambda x: -0.5 * (x - centre) ** 2 - 0.5 * math.log(2.0 * math.pi))
    >>> Mixture((0.5, 0.5), (bump(-2.0), bump(2.0))).all_breaks
    ()
    """

    weights: tuple[float, ...]
    densities: tuple[Density, ...]

    def __post_init__(self) -> None:
        weights = tuple(arguments.real("weights", weight, above=0.0, most=1.0) for weight in self.weights)
        for density in self.densities:
            arguments.instance("densities", density, Density)
        if len(weights) != len(self.densities) or not weights:
            raise ValueError(
                f"weights and densities must match, got {len(weights)} and {len(self.densities)}"
            )
        if abs(math.fsum(weights) - 1.0) > 1e-12:
            raise ValueError(f"weights must sum to 1, got {math.fsum(weights)!r}")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "densities", tuple(self.densities))

    @property
    def components(self) -> tuple[tuple[float, Density], ...]:
        """Weights and densities whose sum this is."""
        return tuple(zip(self.weights, self.densities, strict=True))

    @property
    def all_breaks(self) -> tuple[float, ...]:
        """Break points of all components."""
        return tuple(sorted({point for density in self.densities for point in density.all_breaks}))

    def shifted(self, by: float) -> "Mixture":
        """The density of X + by."""
        return Mixture(self.weights, tuple(density.shifted(by) for density in self.densities))

    def log_density(self, x: Array) -> Array:
        """log of the weighted sum."""
        rows = [math.log(weight) + density.log_density(x) for weight, density in self.components]
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.reduce(rows, axis=0))
