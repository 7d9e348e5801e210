# SPDX-License-Identifier: Apache-2.0
"""What is released: plain frozen descriptions, and `release`, which acts on one."""

from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.batches import (
    Batched,
    FixedSizeSampled,
    PoissonSampled,
    RandomAllocation,
    RandomlyTruncatedPoisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from ggdp.mechanisms.composed import Adjacency, Composed
from ggdp.mechanisms.custom import CustomMechanism
from ggdp.mechanisms.grid_noise import GridNoise
from ggdp.mechanisms.release import release
from ggdp.mechanisms.serialization import from_dict, to_dict
from ggdp.mechanisms.spherical_noise import SphericalNoise

Mechanism = AdditiveNoise | PoissonSampled | Batched | Composed | CustomMechanism

__all__ = [
    "AdditiveNoise",
    "Adjacency",
    "Batched",
    "Composed",
    "CustomMechanism",
    "FixedSizeSampled",
    "GridNoise",
    "Mechanism",
    "PoissonSampled",
    "RandomAllocation",
    "RandomlyTruncatedPoisson",
    "Sampling",
    "Shuffled",
    "SphericalNoise",
    "TruncatedPoisson",
    "from_dict",
    "release",
    "to_dict",
]
