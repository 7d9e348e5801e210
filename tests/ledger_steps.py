# SPDX-License-Identifier: Apache-2.0
"""What the tests of ledgers record: two kinds of sampled steps, and a count."""

from ggdp import AdditiveNoise, Gaussian, Laplace, PoissonSampled

STEP = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), rate=0.01)
OTHER = PoissonSampled(AdditiveNoise(Gaussian(std=2.0)), rate=0.02)
COUNT = AdditiveNoise(Laplace(scale=4.0))
