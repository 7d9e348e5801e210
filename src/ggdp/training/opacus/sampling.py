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

All samplers tell the optimizer how much they draw, so that a step is one whole batch and nothing else.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import DataLoader

from ggdp.training.batch_draws import poisson_positions
from ggdp.training.randomness import Randomness

_CAUTIOUS = 1.0 - 2.0**-40  # more than the rounding of `poisson_positions`


class Listener(Protocol):
    """Who is told of batches."""

    def begin_pass(self) -> None:
        """A pass over the data begins; what is left of an earlier one will not be used."""

    def batch_drawn(self, size: int) -> None:
        """A logical batch of so many examples was drawn."""


class SeededSampler(UniformWithReplacementSampler):  # type: ignore[misc]
    """Opacus's sampler, with its draws."""

    def __init__(self, replaced: UniformWithReplacementSampler) -> None:
        super().__init__(
            num_samples=replaced.num_samples,
            sample_rate=replaced.sample_rate,
            generator=replaced.generator,
            steps=replaced.steps,
        )
        self.listener: Listener | None = None

    def __iter__(self) -> Iterator[list[int]]:
        return _announced(super().__iter__(), self.listener)


class SecureSampler(UniformWithReplacementSampler):  # type: ignore[misc]
    """Poisson batches that nobody can predict."""

    def __init__(self, replaced: UniformWithReplacementSampler) -> None:
        super().__init__(
            num_samples=replaced.num_samples, sample_rate=replaced.sample_rate, steps=replaced.steps
        )
        self.listener: Listener | None = None
        self._randomness = Randomness.of(None)

    def __iter__(self) -> Iterator[list[int]]:
        rate = self.sample_rate * _CAUTIOUS
        draws = (poisson_positions(self.num_samples, rate, self._randomness) for _ in range(self.steps))
        return _announced((chosen.tolist() for chosen in draws), self.listener)


class SharedSampler(DistributedUniformWithReplacementSampler):  # type: ignore[misc]
    """This process's part of a Poisson batch of the whole set; empty parts are handed out too."""

    def __init__(self, replaced: DistributedUniformWithReplacementSampler, randomness: Randomness) -> None:
        super().__init__(
            total_size=replaced.total_size,
            sample_rate=replaced.sample_rate,
            shuffle=replaced.shuffle,
            shuffle_seed=replaced.shuffle_seed,
            steps=replaced.num_batches,
        )
        self.listener: Listener | None = None
        self._randomness = randomness

    def __iter__(self) -> Iterator[list[int]]:
        own, rate = self._share(), self.sample_rate * _CAUTIOUS
        draws = (poisson_positions(len(own), rate, self._randomness) for _ in range(self.num_batches))
        return _announced((own[chosen].tolist() for chosen in draws), self.listener)

    def _share(self) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """The examples that this process samples from: public, and Opacus's choice."""
        order = torch.arange(self.total_size)
        if self.shuffle:
            generator = torch.Generator().manual_seed(self.shuffle_seed + self.epoch)
            order = torch.randperm(self.total_size, generator=generator)
        return order[self.rank :: self.num_replicas].numpy()


def _announced(draws: Iterable[list[int]], listener: Listener | None) -> Iterator[list[int]]:
    if listener is not None:
        listener.begin_pass()
    for chosen in draws:
        if listener is not None:
            listener.batch_drawn(len(chosen))
        yield chosen


class PoissonDataLoader(DPDataLoader):  # type: ignore[misc]
    """Opacus's loader with its sampler replaced."""

    def __init__(self, replaced: DPDataLoader, batch_sampler: Any) -> None:
        self.sample_rate, self.distributed = replaced.sample_rate, replaced.distributed
        DataLoader.__init__(
            self,
            dataset=replaced.dataset,
            batch_sampler=batch_sampler,
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


def private_loader(loader: DPDataLoader, *, secure: bool) -> PoissonDataLoader:
    """Opacus's loader with a sampler of ours, whose draws are Opacus's where those are sound."""
    if loader.distributed:
        seeded = torch.default_generator if loader.generator is None else loader.generator
        randomness = Randomness.of(None if secure else seeded, rank=torch.distributed.get_rank())
        return PoissonDataLoader(loader, SharedSampler(loader.batch_sampler, randomness))
    kind = SecureSampler if secure else SeededSampler
    return PoissonDataLoader(loader, kind(loader.batch_sampler))


def inclusion_probability(loader: DPDataLoader) -> float:
    """With which probability an example is in a batch, rounded up.

    >>> from torch.utils.data import TensorDataset
    >>> loader = DPDataLoader(TensorDataset(torch.zeros(100, 1)), sample_rate=1e-6)
    >>> inclusion_probability(loader), inclusion_probability(private_loader(loader, secure=True))
    (1.0132789611816406e-06, 1e-06)
    """
    rate = float(loader.sample_rate)
    ours = isinstance(loader.batch_sampler, (SecureSampler, SharedSampler))
    return rate if ours else probability_below(rate)


def probability_below(rate: float) -> float:
    """P(torch.rand(()) < rate), rounded up, whether the comparison is made in float32 or in float64."""
    threshold = max(rate, float(np.float32(rate)))
    return min(1.0, math.ceil(threshold * 2.0**24) / 2.0**24)
