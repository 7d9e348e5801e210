# SPDX-License-Identifier: Apache-2.0
"""The processes of a run under `torchrun`, or the one process there is.

A logical step is one release in total, however many processes share the work: each clips the gradients of its
own part of the batch, the clipped sums are added up over all of them, and process 0 alone adds the noise,
once, to its own sum before they are. Every process then holds the same noisy sum and takes the same step.
Where the model is sharded, each process holds some rows of the sum and adds the noise of those.

Before anything is recorded or released the processes tell each other whether they can go on. If one cannot,
none does: that process raises its own error and the others raise `OtherProcessError` with its message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from ggdp.errors import OtherProcessError
from ggdp.training.sharding import is_sharded

Value = TypeVar("Value")


@dataclass(frozen=True)
class ProcessGroup:
    """This process and how many there are."""

    rank: int = 0
    world_size: int = 1

    @classmethod
    def present(cls) -> "ProcessGroup":
        """The initialised default group of `torch.distributed`, or a single process."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def is_leader(self) -> bool:
        """Whether this process adds the noise and writes files."""
        return self.rank == 0

    def agree(self, facts: Mapping[str, Any] | Exception, hints: Mapping[str, str]) -> None:
        """Go on only if every process knows the same facts.

        Args:
            facts: plain data by name; or the error that kept this process from finding them.
            hints: by name, what to do where that fact differs.

        Raises:
            ValueError: they differ; or this process's own error.
            OtherProcessError: another process has an error.
        """
        if self.world_size == 1:
            if isinstance(facts, Exception):
                raise facts
            return
        told = self._gather(_shown(facts) if isinstance(facts, Exception) else dict(facts))
        if isinstance(facts, Exception):
            raise facts
        _raise_first([each if isinstance(each, str) else None for each in told])
        for name in facts:
            values = [each.get(name) for each in told]
            other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
            if other is not None:
                raise ValueError(
                    f"the processes must agree on {name}, got {values[0]!r} in process 0 and "
                    f"{values[other]!r} in process {other}; {hints.get(name, 'give every process the same')}"
                )

    def together(
        self, error: Exception | None, counts: Sequence[int], device: torch.device
    ) -> tuple[int, ...]:
        """Add small counts up over all processes, or raise in all of them if one has an error.

        Raises:
            Exception: `error`, if there is one.
            OtherProcessError: another process has one.
        """
        if self.world_size > 1:
            shared = torch.tensor([int(error is not None), *counts], dtype=torch.int64, device=device)
            dist.all_reduce(shared)
            failed, *counts = shared.tolist()
            if failed:
                told = self._gather(None if error is None else _shown(error))
                if error is None:
                    _raise_first(told)
        if error is not None:
            raise error
        return tuple(counts)

    def sum_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Add each tensor up over all processes, in place, as one message per dtype and device."""
        if self.world_size == 1:
            return
        alike: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for tensor in tensors:
            alike.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for some in alike.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            dist.all_reduce(flat)
            parts = torch.split(flat, [tensor.numel() for tensor in some])
            for tensor, part in zip(some, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def share_model(self, model: nn.Module) -> None:
        """Give every process the parameters and buffers of process 0; what is sharded is held once anyway."""
        if self.world_size > 1:
            with torch.no_grad():
                for tensor in [*model.parameters(), *model.buffers()]:
                    if not is_sharded(tensor):
                        dist.broadcast(tensor, src=0)

    def leaders(self, value: float, device: torch.device) -> float:
        """The number that process 0 has, so that all decide alike."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, src=0)
        return float(shared.item())

    def from_leader(self, make: Callable[[], Value]) -> Value:
        """What `make` returns in process 0, in every process; what it raises there is raised in all."""
        if self.world_size == 1:
            return make()
        told: list[Any] = [None]
        if self.is_leader:
            try:
                told[0] = (True, make())
            except Exception as error:
                told[0] = (False, error)
        dist.broadcast_object_list(told, src=0)
        made, value = told[0]
        if not made:
            raise value
        shared: Value = value
        return shared

    def _gather(self, mine: Any) -> list[Any]:
        told: list[Any] = [None] * self.world_size
        dist.all_gather_object(told, mine)
        return told


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _raise_first(messages: Sequence[str | None]) -> None:
    for rank, message in enumerate(messages):
        if message is not None:
            raise OtherProcessError(f"process {rank} could not go on, so no process does: {message}")
