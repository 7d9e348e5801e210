# SPDX-License-Identifier: Apache-2.0
"""The processes of a run under `torchrun`, or the one process there is.

A logical step is one release in total, however many processes share the work: each samples and clips its own
part of the data, the clipped sums are added up over all of them, and process 0 alone adds the noise, once,
to its own sum before they are. Every process then holds the same noisy sum and takes the same step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


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

    def sum_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Add each tensor up over all processes, in place, as one message."""
        if self.world_size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def share_model(self, model: nn.Module) -> None:
        """Give every process the parameters and buffers of process 0."""
        if self.world_size > 1:
            with torch.no_grad():
                for tensor in [*model.parameters(), *model.buffers()]:
                    dist.broadcast(tensor, src=0)

    def leaders(self, value: float, device: torch.device) -> float:
        """The number that process 0 has, so that all decide alike."""
        if self.world_size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, src=0)
        return float(shared.item())
