# SPDX-License-Identifier: Apache-2.0
"""Poisson batches: every example is in a batch with probability `rate`, on its own, empty batches included.

Amplification by sampling is proved for this law, not for shuffled batches of equal size. A logical batch
comes in physical parts of bounded size; the `StepClock` tells the optimizer which part ends a logical step.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from ggdp import arguments
from ggdp.training.plan import Plan
from ggdp.training.randomness import Randomness, uniforms

# The sampler's own rate is smaller than the accountant's by more than all its rounding (about 2^-50).
_CAUTIOUS = 1.0 - 2.0**-40


@dataclass(frozen=True)
class Part:
    """A physical part of a logical batch.

    Attributes:
        batch: which logical batch, counted over the life of the loader.
        index: which part of it.
        size: its examples.
        is_last: whether it ends the logical step.
    """

    batch: int
    index: int
    size: int
    is_last: bool

    @property
    def is_first(self) -> bool:
        """Whether a logical step begins with it."""
        return self.index == 0


class NotPoissonError(RuntimeError):
    """A step was asked for on examples that did not come from the plan's own loader."""


class StepClock:
    """What the loader has handed out and the optimizer has not yet taken: at most one part."""

    def __init__(self) -> None:
        self.open: Part | None = None

    def take(self) -> Part:
        """The part that the step now running belongs to."""
        if self.open is None:
            raise NotPoissonError(
                "optimizer.step() needs a batch from the private data loader, once per batch: the accountant "
                "counts Poisson samples, and a batch from elsewhere, or a second step on the same one, is "
                "none; loop over the data_loader that make_private returned"
            )
        part, self.open = self.open, None
        return part


class PoissonBatches:
    """A data loader of Poisson batches; one pass has `plan.steps_per_epoch` logical batches.

    Args:
        dataset: with a length and random access.
        plan: which rate.
        randomness: where the choice comes from.
        clock: shared with the optimizer.
        physical_batch_size: the largest part handed out at a time; None hands out whole batches.
        collate_fn: as `DataLoader`'s.
        num_workers: processes that load examples.
        rank: this process, of
        world_size: so many; process r samples examples r, r + world_size, ..., so that the union over the
            processes is one Poisson batch of the whole set.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        plan: Plan,
        randomness: Randomness,
        clock: StepClock,
        *,
        physical_batch_size: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if physical_batch_size is not None:
            arguments.whole("physical_batch_size", physical_batch_size)
        self.dataset = dataset
        self.batch_size = physical_batch_size
        self.clock = clock
        self._plan, self._randomness = plan, randomness
        self._collate = collate_fn or default_collate
        self._num_workers = num_workers
        self._rank, self._world_size = rank, world_size
        self._num_batches = 0

    def __len__(self) -> int:
        """Logical batches in one pass."""
        return self._plan.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        self.clock.open = None
        parts: deque[Part] = deque()  # in the order in which a loader draws indices ahead of the examples
        for batch in self._batches(self._chosen(parts)):
            self.clock.open = parts.popleft()
            yield batch

    def _chosen(self, parts: "deque[Part]") -> Iterator[NDArray[np.int64]]:
        num_local = len(range(self._rank, len(self.dataset), self._world_size))  # type: ignore[arg-type]
        for _ in range(len(self)):
            chosen = poisson_positions(num_local, self._plan.rate * _CAUTIOUS, self._randomness)
            chosen = self._rank + self._world_size * chosen
            self._num_batches += 1
            size = self.batch_size or max(len(chosen), 1)
            pieces = [chosen[start : start + size] for start in range(0, len(chosen), size)] or [chosen]
            for index, piece in enumerate(pieces):
                parts.append(Part(self._num_batches, index, len(piece), index == len(pieces) - 1))
                yield piece

    def _batches(self, chosen: Iterator[NDArray[np.int64]]) -> Iterator[Any]:
        if type(self.dataset) is TensorDataset and self._collate is default_collate and not self._num_workers:
            tensors = self.dataset.tensors
            for indices in chosen:  # one gather per tensor instead of one example at a time
                where = torch.from_numpy(indices)
                yield [tensor.index_select(0, where.to(tensor.device)) for tensor in tensors]
            return
        yield from DataLoader(
            self.dataset,
            batch_sampler=_Indices(chosen),
            collate_fn=_Collate(self._collate, self.dataset[0]),
            num_workers=self._num_workers,
        )


def poisson_positions(count: int, rate: float, randomness: Randomness) -> NDArray[np.int64]:
    """Each of 0 ... count - 1 with probability `rate`, independently, in order.

    The gaps between chosen positions are geometric: P(gap > k) = (1 - rate)^k, so that
    gap = 1 + floor(log U / log(1 - rate)). That takes about rate * count uniforms instead of count.
    """
    if rate >= 1.0:
        return np.arange(count)
    log_left_out = math.log1p(-rate)
    found, last = [np.empty(0, np.int64)], -1
    while last < count:
        expected = (count - last) * rate
        draws = int(expected + 6.0 * math.sqrt(expected)) + 8
        gaps = np.log1p(-uniforms(randomness.batches, draws)) / log_left_out  # 1 - U lies in (0, 1]
        positions = last + np.cumsum(1 + np.minimum(gaps, count).astype(np.int64))
        found.append(positions)
        last = int(positions[-1])
    chosen = np.concatenate(found)
    return chosen[chosen < count]


def check_loader(data_loader: DataLoader[Any]) -> None:
    """Refuse a loader whose own way of choosing examples would be replaced without its user noticing."""
    arguments.instance("data_loader", data_loader, DataLoader)
    if isinstance(data_loader.dataset, IterableDataset):
        raise ValueError(
            "data_loader must have a dataset with a length and random access, got an IterableDataset: a "
            "Poisson batch chooses among all examples"
        )
    plain = isinstance(data_loader.sampler, (RandomSampler, SequentialSampler))
    if not plain or (isinstance(data_loader.sampler, RandomSampler) and data_loader.sampler.replacement):
        raise ValueError(
            f"data_loader must be a plain one, got {type(data_loader.sampler).__name__}: examples are "
            "chosen by Poisson sampling, which the accountant counts on; leave the sampler out (processes "
            "share the data by themselves)"
        )
    if len(data_loader.dataset) == 0:  # type: ignore[arg-type]
        raise ValueError("data_loader must hold at least one example, got an empty dataset")


class _Indices:
    """A batch sampler over indices already chosen."""

    def __init__(self, chosen: Iterator[NDArray[np.int64]]) -> None:
        self._chosen = chosen

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in self._chosen)


class _Collate:
    """Collate that also knows what no examples look like: the tensors of one example, cut to length 0."""

    def __init__(self, collate: Callable[[list[Any]], Any], example: Any) -> None:
        self._collate, self._example = collate, example

    def __call__(self, examples: list[Any]) -> Any:
        if examples:
            return self._collate(examples)
        return pytree.tree_map(lambda leaf: leaf[:0], self._collate([self._example]))
