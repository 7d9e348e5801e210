# SPDX-License-Identifier: Apache-2.0
"""The private data loader: batches that are drawn as the plan says and as the accountant counts.

By default they are Poisson samples: every example is in a batch with probability `rate`, on its own, empty
batches included. `batch_draws` has the other laws. A logical batch comes in physical parts of bounded size;
the `StepClock` tells the optimizer which part ends a logical step. A batch without examples is not handed
out: the optimizer takes its step, of noise alone, before the next one.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
)

from ggdp import arguments
from ggdp.errors import NotPoissonError
from ggdp.training import batch_draws
from ggdp.training.plan import Plan
from ggdp.training.randomness import Randomness

_END = object()


@dataclass(frozen=True)
class Part:
    """A physical part of a logical batch.

    Attributes:
        batch: which logical batch, counted over the life of the loader.
        index: which part of it.
        size: its examples.
        is_last: whether it ends the logical step.
        least: the fewest examples that a process has in it; known where processes have equally many parts.
        filler: whether an example is handed out though the part has none, because all processes must run
            the model; what is computed from it is dropped.
        draw: which draw of the sampler it belongs to, from 1: a batch is one, or an epoch is. 0 is one of its
            own.
        left: how many batches of that draw come after this one.
    """

    batch: int
    index: int
    size: int
    is_last: bool
    least: int = 0
    filler: bool = False
    draw: int = 0
    left: int = 0

    @property
    def is_first(self) -> bool:
        """Whether a logical step begins with it."""
        return self.index == 0


class Stepper(Protocol):
    """Who takes the steps: the optimizer."""

    def step_without_examples(self) -> None:
        """Take the step of the empty batch that the clock holds."""

    def tell_others(self, error: Exception) -> None:
        """Tell the other processes of the run that this one cannot go on."""


class StepClock:
    """What the loader has handed out and the optimizer has not yet taken: at most one part."""

    def __init__(self) -> None:
        self.open: Part | None = None
        self.stepper: Stepper | None = None

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

    def pass_empty(self, part: Part) -> None:
        """Have the step of an empty batch taken."""
        self.open = part
        if self.stepper is not None:
            self.stepper.step_without_examples()

    def tell_others(self, error: Exception) -> None:
        """Tell the other processes that no batch comes from this one."""
        if self.stepper is not None:
            self.stepper.tell_others(error)


class PoissonBatches:
    """A data loader of batches as the plan draws them; one pass has `plan.steps_per_epoch` logical steps.

    A loop over it sees fewer batches than that where some are empty, and more where `physical_batch_size`
    splits them. Each pass draws anew.

    Args:
        data_loader: gives the dataset, the collate function and everything about worker processes; see
            `check_loader` for what it may not have.
        plan: which rate.
        randomness: where the choice comes from.
        clock: shared with the optimizer.
        physical_batch_size: the largest part handed out at a time; None hands out whole batches.
        rank: this process, of
        world_size: so many. All draw the same batch of the whole set, which every process must hold, and
            process r takes the examples r, r + world_size, ... of it.
        equal_parts: whether every process is handed out equally many parts, as a sharded model needs.
    """

    def __init__(
        self,
        data_loader: DataLoader[Any],
        plan: Plan,
        randomness: Randomness,
        clock: StepClock,
        *,
        physical_batch_size: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        equal_parts: bool = False,
    ) -> None:
        if physical_batch_size is not None:
            arguments.whole("physical_batch_size", physical_batch_size)
        self.dataset = data_loader.dataset
        self.batch_size = physical_batch_size
        self.clock = clock
        self._plan, self._randomness = plan, randomness
        self._given = data_loader
        self._loader: DataLoader[Any] | None = None
        self._chosen = _Chosen()
        self._rank, self._world_size, self._equal_parts = rank, world_size, equal_parts
        self._num_batches = self._num_draws = 0

    def __len__(self) -> int:
        """Logical steps in one pass."""
        return self._plan.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        return self.batches(len(self))

    def batches(self, steps: int) -> Iterator[Any]:
        """The parts of `steps` logical batches; steps without examples are taken on the way.

        Raises:
            BudgetExceededError: the budget does not allow the step of an empty batch.
        """
        self.clock.open = None
        parts: deque[Part] = deque()  # in the order in which a loader draws indices ahead of the examples
        loaded = self._loaded(self._drawn(parts, steps))
        while True:
            try:
                batch = next(loaded, _END)
            except Exception as error:
                self.clock.tell_others(error)
                raise
            while parts and parts[0].size == 0 and not parts[0].filler:
                self.clock.pass_empty(parts.popleft())
            if batch is _END:
                return
            self.clock.open = parts.popleft()
            yield batch

    def _drawn(self, parts: "deque[Part]", steps: int) -> Iterator[NDArray[np.int64]]:
        """The examples of every part that has any; `parts` gets all of them."""
        num_examples, sampling = len(self.dataset), self._plan.batches  # type: ignore[arg-type]
        drawn: Iterator[NDArray[np.int64]] = iter(())
        left = 0  # batches of the present draw
        for _ in range(steps):
            if not left:
                drawn = batch_draws.draw(sampling, num_examples, self._randomness)
                left = sampling.steps_per_draw
                self._num_draws += 1
            chosen, left = next(drawn), left - 1
            self._num_batches += 1
            own = chosen[self._rank :: self._world_size]
            most = -(-len(chosen) // self._world_size) if self._equal_parts else len(own)
            size = self.batch_size or max(most, 1)
            count = max(1, -(-most // size))
            for index in range(count):
                piece = own[index * size : (index + 1) * size]
                least = min(max(len(chosen) // self._world_size - index * size, 0), size)
                filler = len(piece) == 0 < most
                is_last = index == count - 1
                part = Part(self._num_batches, index, len(piece), is_last, least, filler)
                parts.append(replace(part, draw=self._num_draws, left=left))
                if len(piece) or filler:
                    yield piece if len(piece) else chosen[:1]

    def _loaded(self, chosen: Iterator[NDArray[np.int64]]) -> Iterator[Any]:
        given, dataset = self._given, self.dataset
        plain = given.collate_fn is default_collate and not given.num_workers and not given.pin_memory
        if plain and isinstance(dataset, TensorDataset) and type(dataset) is TensorDataset:
            tensors = dataset.tensors
            for indices in chosen:  # one gather per tensor instead of one example at a time
                where = _on_devices(indices, {tensor.device for tensor in tensors})
                yield [tensor.index_select(0, where[tensor.device]) for tensor in tensors]
            return
        if self._loader is None:
            self._loader = self._with_given_settings()
        self._chosen.now = chosen
        yield from self._loader

    def _with_given_settings(self) -> DataLoader[Any]:
        """A loader of chosen examples that does everything else as the one given."""
        given = self._given
        generator = given.generator
        if generator is None or self._world_size > 1:
            generator = self._randomness.for_workers(generator, self._rank)
        return DataLoader(
            self.dataset,
            batch_sampler=self._chosen,
            num_workers=given.num_workers,
            collate_fn=given.collate_fn,
            pin_memory=given.pin_memory,
            timeout=given.timeout,
            worker_init_fn=given.worker_init_fn,
            multiprocessing_context=given.multiprocessing_context,
            generator=generator,
            prefetch_factor=given.prefetch_factor,
            persistent_workers=given.persistent_workers,
            pin_memory_device=given.pin_memory_device,
        )


def _on_devices(indices: NDArray[np.int64], devices: set[torch.device]) -> dict[torch.device, torch.Tensor]:
    """The indices on every device, sent to a GPU without waiting for what it is doing."""
    here = torch.from_numpy(indices)
    sent = here.pin_memory() if any(device.type == "cuda" for device in devices) else here
    return {device: sent.to(device, non_blocking=True) for device in devices}


def check_loader(data_loader: DataLoader[Any]) -> None:
    """Refuse a loader some of whose settings would be left out without its user noticing.

    Kept are the dataset, `collate_fn`, `num_workers`, `worker_init_fn`, `pin_memory`, `persistent_workers`,
    `timeout`, `prefetch_factor`, `multiprocessing_context` and the `generator` that seeds workers.
    """
    arguments.instance("data_loader", data_loader, DataLoader)
    kind = type(data_loader)
    if kind.__iter__ is not DataLoader.__iter__:
        raise ValueError(
            f"data_loader must be a plain DataLoader, got {kind.__name__}, which hands out batches in a way "
            "of its own that would be lost; give the loader that it was made from (with accelerate, call "
            "make_private before prepare)"
        )
    if isinstance(data_loader.dataset, IterableDataset):
        raise ValueError(
            "data_loader must have a dataset with a length and random access, got an IterableDataset: a "
            "Poisson batch chooses among all examples"
        )
    size = len(data_loader.dataset)  # type: ignore[arg-type]
    if size == 0:
        raise ValueError("data_loader must hold at least one example, got an empty dataset")
    if data_loader.batch_size is None:
        other = data_loader.batch_sampler
        name = "batch_size=None" if other is None else f"the batch_sampler {type(other).__name__}"
        raise ValueError(
            f"data_loader must leave the choice of batches to Poisson sampling, got {name}; give the "
            "DataLoader a batch_size, and make_private a rate or batch_size if that should not be it"
        )
    sampler = data_loader.sampler
    plain = isinstance(sampler, (RandomSampler, SequentialSampler)) and len(sampler) == size
    plain = plain and not (isinstance(sampler, RandomSampler) and sampler.replacement)
    if not plain or type(data_loader.batch_sampler) is not BatchSampler:
        name = type(sampler if not plain else data_loader.batch_sampler).__name__
        raise ValueError(
            f"data_loader must be a plain one, got {name}: examples are chosen among all of them by Poisson "
            "sampling, which the accountant counts on; leave the sampler out (processes share the data by "
            "themselves), or give a torch.utils.data.Subset as dataset"
        )
    if data_loader.drop_last:
        raise ValueError(
            "drop_last must be left out of data_loader, got True: Poisson batches differ in size, none of "
            "them is a rest"
        )
    if not getattr(data_loader, "in_order", True):
        raise ValueError(
            "in_order must be left out of data_loader, got False: parts of a batch are counted in order"
        )


class _Chosen:
    """A batch sampler over indices already chosen; `now` is set before every pass."""

    def __init__(self) -> None:
        self.now: Iterator[NDArray[np.int64]] = iter(())

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in self.now)
