# SPDX-License-Identifier: Apache-2.0
"""The noise and the delta that the tests of vector releases share."""

from ggdp import GeneralizedGaussian

DELTA = 1e-6


def noise(beta, noise_multiplier=1.5):
    return GeneralizedGaussian.from_noise_multiplier(beta, noise_multiplier)
