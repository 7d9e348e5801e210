# SPDX-License-Identifier: Apache-2.0
"""Poisson batches for Opacus's data loader, and the probability with which they really take an example.

Opacus keeps an example if a float32 uniform on the multiples of 2^-24 falls below the rate. That happens
with probability ceil(rate * 2^24) / 2^24, above the rate by up to 6% at a rate of 1e-6; the accountant is
told that number. In one process and without secure mode the batches are Opacus's own, so that a seed gives
the same ones.

Two samplers replace Opacus's where its own would not do:

* In secure mode, batches are drawn from an unpredictable stream, without the package `torchcsprng`.
* Between processes, Opacus leaves out a process's empty batches, after which the processes wait for each
  other, and equal seeds (a common habit) make the processes choose in step: an example is then sampled
  together with others, and amplification by sampling is lost. Here every process draws every batch, from a
  stream of its own.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import DataLoader

from ggdp.training.poisson_batches import poisson_positions
from ggdp.training.randomness import Randomness

_CAUTIOUS = 1.0 - 2.0**-40  # more than the rounding of `poisson_positions`


class PoissonSampler(UniformWithReplacementSampler):  # type: ignore[misc]
    """Opacus's sampler, from a stream of ours."""

    def __init__(self, replaced: UniformWithReplacementSampler, randomness: Randomness) -> None:
        super().__init__(
            num_samples=replaced.num_samples, sample_rate=replaced.sample_rate, steps=replaced.steps
        )
        self._randomness = randomness

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(self.steps):
            yield poisson_positions(self.num_samples, self.sample_rate * _CAUTIOUS, self._randomness).tolist()


class DistributedPoissonSampler(DistributedUniformWithReplacementSampler):  # type: ignore[misc]
    """This process's part of a Poisson batch of the whole set; empty parts are handed out too."""

    def __init__(self, replaced: DistributedUniformWithReplacementSampler, randomness: Randomness) -> None:
        super().__init__(
            total_size=replaced.total_size,
            sample_rate=replaced.sample_rate,
            shuffle=replaced.shuffle,
            shuffle_seed=replaced.shuffle_seed,
            steps=replaced.num_batches,
        )
        self._randomness = randomness

    def __iter__(self) -> Iterator[list[int]]:
        own = self._share()
        for _ in range(self.num_batches):
            chosen = poisson_positions(self.num_samples, self.sample_rate * _CAUTIOUS, self._randomness)
            yield own[chosen].tolist()

    def _share(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The examples that this process samples from: public, and Opacus's choice."""
        order = torch.arange(self.total_size)
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.shuffle_seed + self.epoch)
            order = torch.randperm(self.total_size, generator=generator)
        return order[self.rank :: self.num_replicas].numpy()


class PoissonDataLoader(DPDataLoader):  # type: ignore[misc]
    """Opacus's loader with its sampler replaced."""

    def __init__(self, replaced: DPDataLoader, randomness: Randomness) -> None:
        self.sample_rate, self.distributed = replaced.sample_rate, replaced.distributed
        kind = DistributedPoissonSampler if replaced.distributed else PoissonSampler
        DataLoader.__init__(
            self,
            dataset=replaced.dataset,
            batch_sampler=kind(replaced.batch_sampler, randomness),
            num_workers=replaced.num_workers,
            collate_fn=replaced.collate_fn,
            pin_memory=replaced.pin_memory,
            timeout=replaced.timeout,
            worker_init_fn=replaced.worker_init_fn,
            multiprocessing_context=replaced.multiprocessing_context,
            generator=replaced.generator,
            prefetch_factor=replaced.prefetch_factor,
            persistent_workers=replaced.persistent_workers,
        )


def private_loader(
    loader: DPDataLoader, generator: torch.Generator | None, *, secure: bool, rank: int = 0
) -> DPDataLoader:
    """Opacus's loader as it is where it is sound, else with a sampler of ours."""
    if secure:
        return PoissonDataLoader(loader, Randomness.of(None))
    if loader.distributed:
        seeded = torch.default_generator if generator is None else generator
        return PoissonDataLoader(loader, Randomness.of(seeded, rank=rank))
    return loader


def inclusion_probability(loader: DPDataLoader) -> float:
    """With which probability an example is in a batch, rounded up.

    >>> from torch.utils.data import TensorDataset
    >>> loader = DPDataLoader(TensorDataset(torch.zeros(100, 1)), sample_rate=1e-6)
    >>> inclusion_probability(loader)
    1.0132789611816406e-06
    """
    rate = float(loader.sample_rate)
    return rate if isinstance(loader, PoissonDataLoader) else probability_below(rate)


def probability_below(rate: float) -> float:
    """P(torch.rand(()) < rate), rounded up, whether the comparison is made in float32 or in float64."""
    threshold = max(rate, float(np.float32(rate)))
    return min(1.0, math.ceil(threshold * 2.0**24) / 2.0**24)
