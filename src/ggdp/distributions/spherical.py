# SPDX-License-Identifier: Apache-2.0
"""Spherical noise on R^d, density proportional to |x|_2^power exp(-(|x|_2/scale)^beta)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincc, gammainccinv, gammaln

from ggdp import arguments
from ggdp.distributions.exact_power import power_of_ratio
from ggdp.distributions.generalized_gaussian import BETA, SCALE, Floats, GeneralizedGaussian, Rng

Draws = Callable[[int], NDArray[np.floating[Any]]]
"""So many independent draws of a law."""

MOST_DIMENSION = 10**6
_TRIES = 1.2  # proposals per draw of a Gamma law: more than 95 in 100 are taken


@dataclass(frozen=True)
class SphericalGeneralizedGaussian:
    """Noise on R^dimension whose density depends on the Euclidean length |x| alone.

    The density is (|x|/scale)^power exp(-(|x|/scale)^beta) / Z. The length and the direction are independent:
    (|x|/scale)^beta has a Gamma law of shape (dimension + power)/beta, and the direction is uniform on the
    sphere. With power = 0, beta = 2 is the Gaussian with standard deviation scale/sqrt(2) on every
    coordinate; for any other beta the coordinates are uncorrelated, not independent. In dimension 1 and with
    power = 0 it is `GeneralizedGaussian`. The privacy of a positive power is not known
    (docs/spherical-noise.md).

    Args:
        beta: The exponent, in [1, 64].
        scale: The length at which the density has fallen by a factor e, in [1e-100, 1e100].
        dimension: In [1, 10^6].
        power: Of the length, in (-dimension, 10^6].

    >>> noise = SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=3)
    >>> noise.mean_square  # scale^2 d (d + 1) for beta = 1
    48.0
    >>> noise.sample((5,), rng=np.random.default_rng(1)).shape
    (5, 3)
    """

    beta: float
    scale: float
    dimension: int
    power: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", BETA.check(self.beta))
        object.__setattr__(self, "scale", SCALE.check(self.scale))
        dimension = arguments.whole("dimension", self.dimension, most=MOST_DIMENSION)
        object.__setattr__(self, "dimension", dimension)
        power = arguments.real("power", self.power, above=-float(dimension), most=float(MOST_DIMENSION))
        object.__setattr__(self, "power", power)

    @classmethod
    def from_std(cls, beta: float, std: float, dimension: int, power: float = 0.0) -> Self:
        """The member of the family with this standard deviation on every coordinate."""
        unit = cls(beta, 1.0, dimension, power)
        return cls(beta, arguments.real("std", std, above=0.0) / unit.std, dimension, power)

    def logpdf(self, x: ArrayLike) -> Floats:
        """The logarithm of the density at points x, whose last axis has length `dimension`."""
        points = arguments.array("x", x)
        if points.ndim == 0 or points.shape[-1] != self.dimension:
            raise ValueError(
                f"x must have a last axis of length {self.dimension}, the dimension, got shape {points.shape}"
            )
        size = np.max(np.abs(points), axis=-1, keepdims=True)
        unit = np.where(size > 0.0, size, 1.0)
        length = unit[..., 0] * np.sqrt(np.sum((points / unit) ** 2, axis=-1))
        log_density = -power_of_ratio(length, self.scale, self.beta) - self._log_normaliser
        if self.power != 0.0:
            with np.errstate(divide="ignore"):
                log_density = log_density + self.power * (np.log(length) - math.log(self.scale))
        return log_density[()]

    def radius_sf(self, t: ArrayLike) -> Floats:
        """P(|X| > t) for t >= 0, to the accuracy of SciPy's incomplete gamma function."""
        t = arguments.array("t", t, least=0.0)
        return np.asarray(gammaincc(self._shape, power_of_ratio(t, self.scale, self.beta)))[()]

    def radius_isf(self, prob: ArrayLike) -> Floats:
        """The t with P(|X| > t) = prob."""
        probs = arguments.array("prob", prob, least=0.0, most=1.0)
        return np.asarray(self.scale * gammainccinv(self._shape, probs) ** (1.0 / self.beta))[()]

    def radius_moment(self, order: float) -> float:
        """E |X|^order = scale^order Gamma((d + order)/beta) / Gamma(d/beta) for order > -d, where d is the
        dimension plus the power.
        """
        order = arguments.real("order", order, above=-self._degree)
        return float(self.scale**order * math.exp(_log_gamma_ratio(self._shape, order / self.beta)))

    @property
    def mean_square(self) -> float:
        """E |X|^2, the mean square error of a release: beta = 1 and power = 0 give scale^2 d (d + 1)."""
        if self.beta in (1.0, 2.0):
            d = self._degree
            return self.scale**2 * (d * (d + 1.0) if self.beta == 1.0 else d / 2.0)
        return self.radius_moment(2.0)

    @property
    def std(self) -> float:
        """Standard deviation of every coordinate."""
        return math.sqrt(self.mean_square / self.dimension)

    @property
    def mean_absolute(self) -> float:
        """E|X_1|, of every coordinate: the mean length times the mean of |u_1| for a uniform direction u."""
        d = self.dimension
        share = gammaln(0.5 * d) - gammaln(0.5 * (d + 1)) if d < 1000 else -_log_gamma_ratio(0.5 * d, 0.5)
        return self.radius_moment(1.0) * math.exp(share) / math.sqrt(math.pi)

    def sample(self, shape: int | tuple[int, ...], *, rng: Rng) -> NDArray[np.float64]:
        """Independent vectors, an array of the given shape with one axis more, of length `dimension`.

        `rng` is a `numpy.random.Generator`, or a `SecureGenerator` where nobody may guess the noise. A draw
        is the direction of a Gaussian vector times the beta-th root of a Gamma draw, in doubles; both laws
        are exact up to rounding.
        """
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(dims, dtype=np.int64))
        from ggdp.distributions.numpy_sampler import uniforms

        vector = GeneralizedGaussian(2.0, 1.0).sample((count, self.dimension), rng=rng)
        vector /= np.sqrt(np.sum(vector**2, axis=1, keepdims=True))
        normal = GeneralizedGaussian(2.0, math.sqrt(2.0))
        radii = self.radii(
            count, lambda many: normal.sample(many, rng=rng), lambda many: np.log(uniforms(rng, many))
        )
        return np.asarray(vector * radii[:, None], dtype=np.float64).reshape(*dims, self.dimension)

    def sample_as(self, shape: tuple[int, ...], *, rng: Rng) -> NDArray[np.float64]:
        """One vector, laid out in an array of a shape that holds `dimension` numbers."""
        if math.prod(shape) != self.dimension:
            raise ValueError(
                f"value must hold as many numbers as the noise has dimensions, {self.dimension}, got "
                f"{math.prod(shape)}; calibrate noise with dimension={math.prod(shape)}"
            )
        return self.sample((), rng=rng).reshape(shape)

    def radii(self, count: int, normals: Draws, log_uniforms: Draws) -> NDArray[np.float64]:
        """Lengths: the beta-th root of Gamma draws of shape (dimension + power)/beta, times the scale.

        A Gamma law of shape a is that of shape a + 1 times U^(1/a), which avoids shapes below 1. `normals`
        and `log_uniforms` give so many standard normal numbers and logarithms of uniform ones.
        """
        boosted = self._shape < 1.0
        drawn = _gamma_draws(self._shape + boosted, count, normals, log_uniforms)
        length = self.scale * drawn ** (1.0 / self.beta)
        return length * np.exp(log_uniforms(count) / self._degree) if boosted else length

    @property
    def _degree(self) -> float:
        """The radius has a density proportional to r^(this - 1) exp(-(r/scale)^beta)."""
        return self.dimension + self.power

    @property
    def _shape(self) -> float:
        return self._degree / self.beta

    @property
    def _log_normaliser(self) -> float:
        """log of 2 pi^(d/2) / Gamma(d/2) * scale^d Gamma((d + power)/beta) / beta."""
        d = self.dimension
        sphere = math.log(2.0) + 0.5 * d * math.log(math.pi) - float(gammaln(0.5 * d))
        return sphere + d * math.log(self.scale) + float(gammaln(self._shape)) - math.log(self.beta)


def _gamma_draws(shape: float, count: int, normals: Draws, log_uniforms: Draws) -> NDArray[np.float64]:
    """Gamma draws of a shape of at least 1, by rejection from a cubed Gaussian (Marsaglia and Tsang 2000)."""
    third = shape - 1.0 / 3.0
    slope = 1.0 / math.sqrt(9.0 * third)
    found = np.empty(0)
    while found.size < count:
        tries = math.ceil(_TRIES * (count - found.size)) + 4
        x = normals(tries)
        cube = (1.0 + slope * x) ** 3
        positive = cube > 0.0
        log_cube = np.log(np.where(positive, cube, 1.0))
        bound = 0.5 * x**2 + third * (1.0 - cube + log_cube)
        taken = positive & (log_uniforms(tries) < bound)
        found = np.concatenate([found, third * cube[taken]])
    return found[:count]


def _log_gamma_ratio(shape: float, more: float) -> float:
    """log Gamma(shape + more) / Gamma(shape), also where both are large and close."""
    if shape < 1e3:
        return float(gammaln(shape + more) - gammaln(shape))
    # Stirling's series at both ends, with the large parts taken together
    end = shape + more
    series = sum(c * (end**-n - shape**-n) for n, c in ((1, 1 / 12), (3, -1 / 360), (5, 1 / 1260)))
    return (shape - 0.5) * math.log1p(more / shape) + more * math.log(end) - more + series
