# SPDX-License-Identifier: Apache-2.0
"""The Generalized Gaussian distribution, density proportional to exp(-(|x|/scale)^beta)."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.special import gamma

from ggdp import arguments
from ggdp.distributions import gamma_tail
from ggdp.distributions.exact_power import power_of_ratio
from ggdp.distributions.secure import SecureGenerator

Rng = np.random.Generator | SecureGenerator
Floats = NDArray[np.float64]

BETA = arguments.Range(
    "beta", least=1.0, most=64.0, typical=(1.0, 4.0), hint="1 is Laplace noise, 2 is Gaussian noise"
)
SCALE = arguments.Range("scale", least=1e-100, most=1e100, typical=(0.1, 100.0))

_TINY = 1e-290
"""Below this y = (|x|/scale)^beta loses digits to underflow; there P(|X| <= |x|) is linear in |x|."""

_NEWTON_STEPS = 60
_LOG_WEIGHT_IS_POWER = 1e18  # beyond, -log Q(a, y) is y to the last bit


@dataclass(frozen=True)
class GeneralizedGaussian:
    """Generalized Gaussian noise: its density is exp(-(|x|/scale)^beta) / (2 scale Gamma(1 + 1/beta)).

    beta = 1 is Laplace noise, beta = 2 is Gaussian noise with standard deviation scale / sqrt(2). To release
    a number with this noise, put it into `AdditiveNoise`. All functions of x are vectorised: an array gives
    an array, a number gives a NumPy float.

    Guarantees:
        1. `pdf`, `cdf` and `sf` have relative error at most 1e-12 wherever their value is a normal double.
           The result is for the exact doubles x, scale and beta: the rounding of x / scale, which the
           exponent would amplify beta * (|x|/scale)^beta times, is carried along and undone.
        2. `logsf` and `logcdf` have relative error at most 1e-12, out to values of -1e5 and beyond.
        3. `isf` inverts `logsf` to the same accuracy, for any log-probability.

    Args:
        beta: The exponent, in [1, 64].
        scale: The size of the noise, in [1e-100, 1e100]. At x = scale the density is e times smaller than
            at 0.

    Raises:
        ValueError: beta or scale is out of range.

    >>> noise = GeneralizedGaussian(beta=1.5, scale=2.0)
    >>> round(noise.std, 4)
    1.7187
    >>> round(float(noise.sf(3.0)), 6)
    0.042432
    >>> round(float(noise.isf(log_prob=-2000.0)), 3)
    317.107
    """

    beta: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", BETA.check(self.beta))
        object.__setattr__(self, "scale", SCALE.check(self.scale))

    # Constructors: each names what it is built from.

    @classmethod
    def from_noise_multiplier(cls, beta: float, noise_multiplier: float, sensitivity: float = 1.0) -> Self:
        """Noise with scale = sqrt(2) * noise_multiplier * sensitivity.

        For beta = 2 its standard deviation is noise_multiplier * sensitivity, as in Opacus.
        """
        noise_multiplier = arguments.real("noise_multiplier", noise_multiplier, above=0.0)
        sensitivity = arguments.real("sensitivity", sensitivity, above=0.0)
        return cls(beta, math.sqrt(2.0) * noise_multiplier * sensitivity)

    @classmethod
    def from_std(cls, beta: float, std: float) -> Self:
        """Noise with this exponent and this standard deviation."""
        return cls(beta, arguments.real("std", std, above=0.0) / _std_over_scale(BETA.check(beta)))

    @classmethod
    def from_definition8_sigma(cls, beta: float, sigma: float) -> Self:
        """Scale = sigma^(1/beta): the density exp(-|x|^beta / sigma) of the paper's Definition 8."""
        return cls(beta, arguments.real("sigma", sigma, above=0.0) ** (1.0 / BETA.check(beta)))

    # The density.

    def pdf(self, x: ArrayLike) -> Floats:
        """The density at x."""
        with np.errstate(under="ignore"):
            density = np.exp(-self._exponent(x)) / self._normaliser
        return density[()]

    def logpdf(self, x: ArrayLike) -> Floats:
        """The logarithm of the density at x."""
        return (-self._exponent(x) - math.log(self._normaliser))[()]

    # Probabilities of the two sides. With a = 1/beta and y = (|x|/scale)^beta, P(|X| > |x|) = Q(a, y).

    def tail_weight(self, t: ArrayLike) -> Floats:
        """P(|X| > t), the chance of an outlier beyond t >= 0."""
        t = arguments.array("t", t, least=0.0)
        y = self._exponent(t)
        with np.errstate(under="ignore", over="ignore"):
            inside = np.minimum(np.abs(t) / self.scale / gamma(1.0 + 1.0 / self.beta), 1.0)
            return np.where(y < _TINY, 1.0 - inside, gamma_tail.upper(1.0 / self.beta, y))[()]

    def sf(self, x: ArrayLike) -> Floats:
        """P(X > x)."""
        x = arguments.array("x", x)
        one_side = 0.5 * self.tail_weight(np.abs(x))
        return np.where(x < 0.0, 1.0 - one_side, one_side)[()]

    def cdf(self, x: ArrayLike) -> Floats:
        """P(X <= x)."""
        return self.sf(np.negative(arguments.array("x", x)))

    def logsf(self, x: ArrayLike) -> Floats:
        """Log P(X > x); does not underflow."""
        x = arguments.array("x", x)
        log_one_side = self._log_tail_weight(np.abs(x)) - math.log(2.0)
        return np.where(x < 0.0, np.log1p(-np.exp(log_one_side)), log_one_side)[()]

    def logcdf(self, x: ArrayLike) -> Floats:
        """Log P(X <= x); does not underflow."""
        return self.logsf(np.negative(arguments.array("x", x)))

    # Quantiles.

    def isf(self, prob: ArrayLike | None = None, *, log_prob: ArrayLike | None = None) -> Floats:
        """The x with P(X > x) = prob, or with log P(X > x) = log_prob where prob itself would underflow."""
        if (prob is None) == (log_prob is None):
            raise ValueError(
                f"isf takes prob or log_prob, exactly one, got prob={prob!r}, log_prob={log_prob!r}"
            )
        if prob is not None:
            probs = arguments.array("prob", prob, least=0.0, most=1.0)
            smaller = np.minimum(probs, 1.0 - probs)  # exact above 1/2 (Sterbenz)
            with np.errstate(divide="ignore"):
                # log(2 prob), by log1p near prob = 1/2 where the logarithm nears zero.
                log_both_sides = np.where(
                    smaller > 0.25, np.log1p(2.0 * smaller - 1.0), np.log(2.0 * smaller)
                )
            side = np.where(probs > 0.5, -1.0, 1.0)
        else:
            log_probs = arguments.array("log_prob", log_prob, most=0.0)
            upper_half = log_probs > -math.log(2.0)
            with np.errstate(divide="ignore"):
                log_smaller = np.where(
                    upper_half, np.log(-np.expm1(np.where(upper_half, log_probs, -1.0))), log_probs
                )
            log_both_sides = np.minimum(log_smaller + math.log(2.0), 0.0)
            side = np.where(upper_half, -1.0, 1.0)
        with np.errstate(over="ignore"):  # beyond the largest double lies infinity
            return (side * self.scale * self._ratio_at_log_tail_weight(log_both_sides))[()]

    def ppf(self, prob: ArrayLike | None = None, *, log_prob: ArrayLike | None = None) -> Floats:
        """The x with P(X <= x) = prob, or with log P(X <= x) = log_prob: by symmetry, -isf."""
        return np.negative(self.isf(prob, log_prob=log_prob))

    # Facts.

    @property
    def mean(self) -> float:
        """Zero: the law is symmetric."""
        return 0.0

    @property
    def std(self) -> float:
        """Standard deviation, scale * sqrt(Gamma(3/beta) / Gamma(1/beta))."""
        return self.scale * _std_over_scale(self.beta)

    @property
    def variance(self) -> float:
        """The square of `std`."""
        return self.std**2

    @property
    def mean_absolute(self) -> float:
        """E|X| = scale Gamma(2/beta) / Gamma(1/beta)."""
        return float(self.scale * gamma(2.0 / self.beta) / gamma(1.0 / self.beta))

    @property
    def kurtosis(self) -> float:
        """E X^4 / variance^2 = Gamma(5/beta) Gamma(1/beta) / Gamma(3/beta)^2: Laplace 6, Gaussian 3."""
        return float(gamma(5.0 / self.beta) * gamma(1.0 / self.beta) / gamma(3.0 / self.beta) ** 2)

    @property
    def entropy(self) -> float:
        """Differential entropy in nats, 1/beta + log(2 scale Gamma(1 + 1/beta))."""
        return 1.0 / self.beta + math.log(self._normaliser)

    @property
    def fisher_information(self) -> float:
        """Of the location: (beta/scale)^2 Gamma(2 - 1/beta) / Gamma(1/beta), finite for every beta > 1/2.

        So it is finite over the whole family; for beta = 1 it is 1/scale^2 although the density has a kink.
        """
        return float((self.beta / self.scale) ** 2 * gamma(2.0 - 1.0 / self.beta) / gamma(1.0 / self.beta))

    # Samples.

    def sample(
        self, shape: int | tuple[int, ...], *, rng: Rng, dtype: DTypeLike = np.float64
    ) -> NDArray[np.floating]:
        """Independent draws of the given array shape, from `rng`, which is always explicit.

        `rng` is a `numpy.random.Generator`, or a `SecureGenerator` where nobody may guess the noise.
        """
        from ggdp.distributions import numpy_sampler

        return numpy_sampler.sample(self, shape, rng=rng, dtype=dtype)

    # The mathematics behind the above.

    @property
    def _normaliser(self) -> float:
        return float(2.0 * self.scale * gamma(1.0 + 1.0 / self.beta))

    def _exponent(self, x: ArrayLike) -> Floats:
        return power_of_ratio(np.abs(arguments.array("x", x)), self.scale, self.beta)

    def _log_tail_weight(self, distance: Floats) -> Floats:
        with np.errstate(over="ignore"):
            ratio = distance / self.scale
        return self._log_tail_weight_at_ratio(ratio, self._exponent(distance))

    def _log_tail_weight_at_ratio(self, ratio: Floats, y: Floats) -> Floats:
        a = 1.0 / self.beta
        linear = np.minimum(ratio / gamma(1.0 + a), 0.5)
        return np.where(y < _TINY, np.log1p(-linear), gamma_tail.log_upper(a, y))

    def _ratio_at_log_tail_weight(self, log_weight: Floats) -> Floats:
        """The u >= 0 with log Q(1/beta, u^beta) = log_weight, by Newton's method from the right.

        log Q is concave and decreasing in u (the density is log-concave), and Q(a, y) <= exp(-y) for a <= 1,
        so u = (-log_weight)^(1/beta) is never left of the root and every Newton step stays right of it.
        """
        a = 1.0 / self.beta
        beyond = log_weight < -_LOG_WEIGHT_IS_POWER
        target = np.where(beyond, -1.0, log_weight)
        u = (-target) ** a
        for _ in range(_NEWTON_STEPS):
            y = u**self.beta
            log_q = self._log_tail_weight_at_ratio(u, y)
            # d/du log Q = -exp(-y) / (Gamma(1 + a) Q)
            step = (log_q - target) * np.exp(np.minimum(y + log_q, 0.0)) * gamma(1.0 + a)
            u = np.maximum(u + step, 0.0)
            if np.all(np.abs(step) <= 1e-9 * u):  # the next step would be of relative size 1e-18 * beta
                break
        return np.where(beyond, np.where(beyond, -log_weight, 1.0) ** a, u)


def Laplace(scale: float) -> GeneralizedGaussian:
    """Laplace noise, the Generalized Gaussian of beta = 1: its density is exp(-|x|/scale) / (2 scale).

    Args:
        scale: the mean of |noise|; the standard deviation is sqrt(2) * scale.

    >>> round(Laplace(scale=2.0).std, 4)
    2.8284
    """
    return GeneralizedGaussian(beta=1.0, scale=scale)


def Gaussian(std: float) -> GeneralizedGaussian:
    """Gaussian noise, the Generalized Gaussian of beta = 2 and scale = sqrt(2) * std.

    Args:
        std: the standard deviation, > 0.

    >>> round(Gaussian(std=2.0).scale, 4)
    2.8284
    """
    return GeneralizedGaussian(beta=2.0, scale=math.sqrt(2.0) * arguments.real("std", std, above=0.0))


def _std_over_scale(beta: float) -> float:
    return math.sqrt(gamma(3.0 / beta) / gamma(1.0 / beta))
