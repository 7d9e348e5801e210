# SPDX-License-Identifier: Apache-2.0
"""The Generalized Gaussian law on the whole numbers, P(k) proportional to exp(-(|k|/scale)^beta)."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.distributions.exact_power import power_of_ratio
from ggdp.distributions.generalized_gaussian import BETA, GeneralizedGaussian, Rng

Floats = NDArray[np.float64]

DISCRETE_SCALE = arguments.Range("scale", least=2.0**-6, most=2.0**40, typical=(0.5, 2.0**20))

_MOST_SUMMED = 1 << 20  # terms that are added up one by one
_FIRST = 64  # beyond, and for large scales, Euler's and Maclaurin's formula takes the place of the sum
_NOTHING = 746.0  # exp(-746) is no positive double


@dataclass(frozen=True)
class DiscreteGeneralizedGaussian:
    """Noise of whole numbers k, with probability exp(-(|k|/scale)^beta) / Z, Z the sum over all of them.

    beta = 1 is the discrete Laplace law (two-sided geometric), beta = 2 the discrete Gaussian. Functions of k
    are vectorised; k need not be whole: `pmf` is zero in between, and `cdf` counts what lies at or below.

    Guarantees:
        1. `pmf`, `cdf`, `sf`, `tail_weight`, `variance` and `kurtosis` have relative error at most 1e-12
           wherever their value is a normal double.
        2. `sample` draws exactly this law: no rounding enters a draw. docs/exact-release.md has the proof.

    Args:
        beta: The exponent, in [1, 64].
        scale: The length at which the probability has fallen by a factor e, in [2^-6, 2^40].

    >>> noise = DiscreteGeneralizedGaussian(beta=2, scale=3.0)
    >>> round(float(noise.pmf(0)), 6), round(float(noise.sf(5)), 6)
    (0.188063, 0.004437)
    """

    beta: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", BETA.check(self.beta))
        object.__setattr__(self, "scale", DISCRETE_SCALE.check(self.scale))

    @classmethod
    def gaussian(cls, sigma: float) -> "DiscreteGeneralizedGaussian":
        """The discrete Gaussian law, P(k) proportional to exp(-k^2 / (2 sigma^2))."""
        return cls(2.0, math.sqrt(2.0) * arguments.real("sigma", sigma, above=0.0))

    def weight(self, k: ArrayLike) -> Floats:
        """exp(-(|k|/scale)^beta), which is Z times the probability."""
        with np.errstate(under="ignore"):
            return np.exp(-power_of_ratio(np.abs(arguments.array("k", k)), self.scale, self.beta))[()]

    def pmf(self, k: ArrayLike) -> Floats:
        """P(X = k)."""
        k = arguments.array("k", k)
        return np.where(k == np.floor(k), self.weight(k) / self.normaliser, 0.0)[()]

    def logpmf(self, k: ArrayLike) -> Floats:
        """log P(X = k); does not underflow."""
        k = arguments.array("k", k)
        power = power_of_ratio(np.abs(k), self.scale, self.beta)
        return np.where(k == np.floor(k), -power - math.log(self.normaliser), -math.inf)[()]

    def tail_weight(self, t: ArrayLike) -> Floats:
        """P(|X| > t), for t >= 0."""
        t = arguments.array("t", t, least=0.0)
        return (2.0 * self._sum_from(np.floor(t) + 1.0) / self.normaliser)[()]

    def sf(self, k: ArrayLike) -> Floats:
        """P(X > k)."""
        k = np.floor(arguments.array("k", k))
        above = self._sum_from(np.where(k < 0.0, -k, k + 1.0)) / self.normaliser
        return np.where(k < 0.0, 1.0 - above, above)[()]

    def cdf(self, k: ArrayLike) -> Floats:
        """P(X <= k)."""
        return self.sf(-np.floor(arguments.array("k", k)) - 1.0)

    @property
    def normaliser(self) -> float:
        """Z, the sum of all weights."""
        return _sums(self.beta, self.scale).normaliser

    @property
    def mean(self) -> float:
        """Zero: the law is symmetric."""
        return 0.0

    @property
    def variance(self) -> float:
        """E X^2."""
        return _sums(self.beta, self.scale).moment(2)

    @property
    def std(self) -> float:
        """The square root of `variance`."""
        return math.sqrt(self.variance)

    @property
    def kurtosis(self) -> float:
        """E X^4 / variance^2."""
        return _sums(self.beta, self.scale).moment(4) / self.variance**2

    def sample(self, shape: int | tuple[int, ...], *, rng: Rng) -> NDArray[np.int64]:
        """Independent draws of the given array shape, of exactly this law, from `rng`."""
        from ggdp.distributions import exact_sampler, numpy_sampler

        out = np.empty(shape, dtype=np.int64)
        words = numpy_sampler.word_source(rng)
        out.reshape(-1)[:] = exact_sampler.integers(self.beta, self.scale, out.size, words)
        return out

    def _sum_from(self, m: Floats) -> Floats:
        return _sums(self.beta, self.scale).beyond(m)


@lru_cache(maxsize=32)
def _sums(beta: float, scale: float) -> "_Sums":
    return _Sums(beta, scale)


@dataclass(frozen=True)
class _Sums:
    """Sums of the weights, term by term where these are few, else by Euler's and Maclaurin's formula."""

    beta: float
    scale: float

    def terms(self, k: Floats) -> Floats:
        with np.errstate(under="ignore"):
            return np.exp(-power_of_ratio(k, self.scale, self.beta))

    @cached_property
    def listed(self) -> int:
        """How many terms there are that are not zero; 0 if they are too many to be listed."""
        count = math.ceil(self.scale * _NOTHING ** (1.0 / self.beta)) + 1
        return count if count <= _MOST_SUMMED else 0

    @cached_property
    def normaliser(self) -> float:
        return 1.0 + 2.0 * float(self.beyond(np.array(1.0)))

    @cached_property
    def _from(self) -> NDArray[np.longdouble]:
        """Sums of the terms from k on, k = 0, 1, ...; the smallest are added first."""
        terms = self.terms(np.arange(self.listed + 1.0)).astype(np.longdouble)
        return np.cumsum(terms[::-1])[::-1]

    def beyond(self, m: Floats) -> Floats:
        """The sum of the terms at m, m + 1, ..., for whole m >= 1."""
        m = np.asarray(m, dtype=np.float64)
        if self.beta == 1.0:
            with np.errstate(under="ignore"):
                return np.asarray(self.terms(m) / -math.expm1(-1.0 / self.scale))
        if self.listed:
            place = np.minimum(m, self.listed).astype(np.int64)
            return np.asarray(np.where(m > self.listed, 0.0, self._from[place]), dtype=np.float64)
        first = self.terms(np.arange(float(_FIRST)))
        heads = np.append(np.cumsum(first[::-1])[::-1], 0.0)
        start = np.maximum(m, _FIRST)
        head = heads[np.minimum(m, _FIRST).astype(np.int64)]
        return np.asarray(head + self._euler_maclaurin(start))

    def _euler_maclaurin(self, m: Floats) -> Floats:
        """Integral from m, plus f/2 - f'/12 + f'''/720 - f'''''/30240; the next term is below 1e-15 of it.

        Each derivative brings a factor of at most beta / m or beta y / m, below 0.1 wherever this is used,
        and each further term a factor of (1 / 2 pi)^2 more.
        """
        noise = GeneralizedGaussian(self.beta, self.scale)
        integral = noise.sf(m) * math.exp(math.log(2.0 * self.scale) + math.lgamma(1.0 + 1.0 / self.beta))
        power, derivative = power_of_ratio(m, self.scale, self.beta), []
        for order in range(5):
            power = power * (self.beta - order) / m
            derivative.append(-power)
        a, b, c, d, e = derivative
        third = a**3 + 3.0 * a * b + c
        fifth = a**5 + 10.0 * a**3 * b + 10.0 * a**2 * c + 15.0 * a * b**2 + 5.0 * a * d + 10.0 * b * c + e
        return np.asarray(integral + self.terms(m) * (0.5 - a / 12.0 + third / 720.0 - fifth / 30240.0))

    def moment(self, order: int) -> float:
        """E |X|^order for an even order."""
        if self.beta == 1.0 or not self.listed:
            return self._moment_by_formula(order)
        k = np.arange(1.0, self.listed + 1.0)
        terms = (self.terms(k) * k**order).astype(np.longdouble)
        return float(2.0 * terms.sum() / self.normaliser)

    def _moment_by_formula(self, order: int) -> float:
        if self.beta == 1.0:
            # sums of k^2 q^k and k^4 q^k over the whole numbers, q = exp(-1/scale), c = 1 - q
            q, c = math.exp(-1.0 / self.scale), -math.expm1(-1.0 / self.scale)
            if order == 2:
                return 2.0 * q / c**2
            return 2.0 * q * (1.0 + q * (11.0 + q * (11.0 + q))) / (1.0 + q) / c**4
        # The sum misses the integral by scale^-beta, and the integral is scale^(order + 1), scale > 10^3.
        log = math.lgamma((order + 1.0) / self.beta) - math.log(self.beta)
        return 2.0 * math.exp(log + (order + 1.0) * math.log(self.scale)) / self.normaliser
