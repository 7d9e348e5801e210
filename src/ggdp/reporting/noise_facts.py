# SPDX-License-Identifier: Apache-2.0
"""What there is to know about one noise distribution, as a flat record."""

import math

from ggdp.distributions import GeneralizedGaussian


def noise_facts(noise: GeneralizedGaussian, sensitivity: float = 1.0) -> dict[str, float]:
    """Name every fact once; `exceeded_with_prob_p` is the t with P(|X| > t) = p.

    >>> noise_facts(GeneralizedGaussian(beta=1.0, scale=2.0))["std"]
    2.8284271247461903
    """
    return {
        "beta": noise.beta,
        "scale": noise.scale,
        "noise_multiplier": noise.scale / (math.sqrt(2.0) * sensitivity),
        "mean": noise.mean,
        "std": noise.std,
        "variance": noise.variance,
        "kurtosis": noise.kurtosis,
        "entropy": noise.entropy,
        "fisher_information": noise.fisher_information,
        "exceeded_with_prob_0.5": float(noise.isf(0.25)),
        "exceeded_with_prob_0.05": float(noise.isf(0.025)),
        "exceeded_with_prob_0.001": float(noise.isf(0.0005)),
        "exceeded_with_prob_1e-9": float(noise.isf(0.5e-9)),
    }
