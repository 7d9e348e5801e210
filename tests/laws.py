# SPDX-License-Identifier: Apache-2.0
"""Statistics that hold draws against the law, by SciPy's incomplete gamma function, for every backend alike.

False alarms: an accepting test runs at LEVEL on a fixed seed. A change of a sampler's stream fails a right
sampler with probability LEVEL per test, below 1 in 50 over all the tests that use this file.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ggdp import GeneralizedGaussian

LEVEL = 1e-4
BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0]

Draws = NDArray[np.float64]


def scaled(noise: GeneralizedGaussian, factor: float) -> GeneralizedGaussian:
    """The near miss: the same law with another scale."""
    return GeneralizedGaussian(noise.beta, factor * noise.scale)


def ks_pvalue(draws: Draws, noise: GeneralizedGaussian) -> float:
    """Kolmogorov-Smirnov against the whole law."""
    return float(stats.kstest(draws, lambda x: _cdf(noise, x)).pvalue)


def tail_ks_pvalue(draws: Draws, noise: GeneralizedGaussian, start: float) -> float:
    """Kolmogorov-Smirnov of draws known to have |x| > start: P(|X| > |x|) / P(|X| > start) is uniform."""
    return float(stats.kstest(_tail_weight(noise, draws) / _tail_weight(noise, start), "uniform").pvalue)


def count_pvalue(draws: Draws, noise: GeneralizedGaussian, beyond: float, start: float = 0.0) -> float:
    """Number of draws with |x| > beyond, out of draws known to have |x| > start."""
    prob = float(_tail_weight(noise, beyond) / _tail_weight(noise, start))
    return float(stats.binomtest(int(np.sum(np.abs(draws) > beyond)), draws.size, min(prob, 1.0)).pvalue)


def _tail_weight(noise: GeneralizedGaussian, x: Draws | float) -> Draws:
    """P(|X| > |x|) = Q(1/beta, (|x|/scale)^beta); for Laplace and Gaussian noise by what is faster."""
    ratio = np.abs(x) / noise.scale
    if noise.beta == 1.0:
        return np.exp(-ratio)
    if noise.beta == 2.0:
        return special.erfc(ratio)
    return special.gammaincc(1.0 / noise.beta, ratio**noise.beta)


def _cdf(noise: GeneralizedGaussian, x: Draws) -> Draws:
    one_side = _tail_weight(noise, x) / 2.0
    return np.where(x < 0.0, one_side, 1.0 - one_side)


def correlation_z(one: Draws, other: Draws) -> float:
    """Correlation in standard errors; about normal for independent draws."""
    return float(np.corrcoef(one, other)[0, 1] * np.sqrt(one.size))


def look_independent(one: Draws, other: Draws) -> bool:
    """Neither the draws nor their magnitudes are correlated, to 4.5 standard errors."""
    return abs(correlation_z(one, other)) < 4.5 and abs(correlation_z(np.abs(one), np.abs(other))) < 4.5
