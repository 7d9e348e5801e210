# SPDX-License-Identifier: Apache-2.0
"""What is released: plain frozen descriptions, and `release`, which acts on one."""

from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.adjacency import Adjacency
from ggdp.mechanisms.composed import Composed
from ggdp.mechanisms.poisson_sampled import PoissonSampled

Mechanism = AdditiveNoise | PoissonSampled | Composed

__all__ = ["AdditiveNoise", "Adjacency", "Composed", "Mechanism", "PoissonSampled"]
