# SPDX-License-Identifier: Apache-2.0
"""One call of a layer, remembered: its per-example gradients as a function of activations and cotangents.

With a_i what example i fed to the layer and g_i the derivative of the loss by what came out, every parameter's
per-example gradient is known, and need not be written down to be measured or summed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from ggdp.training.clipping.norms import row_norms

# Gradients are written down for so many bytes' worth of examples at a time: on a CPU as many as stay in the
# second-level cache while they are measured.
_CHUNK_BYTES: Final = {"cpu": 1 << 20, "cuda": 1 << 28}


class AbstractCall(ABC):
    """One call of a layer by a batch of examples.

    Attributes:
        slots: The numbers of the layer's trainable parameters, in the order in which gradients are given.
        num_examples: Rows of the batch.
    """

    slots: tuple[int, ...]
    num_examples: int

    @property
    @abstractmethod
    def example_bytes(self) -> int:
        """The size of one example's gradient by all parameters of the call."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the gradients are."""

    @abstractmethod
    def closed_norms(self, p: float) -> list[Tensor] | None:
        """The l_p norms of pieces of the gradients, (num_examples,) each, if they need not be written down."""

    @abstractmethod
    def gradients(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """Per-example gradients of the examples in [start, stop): one (stop - start, ...) tensor per slot."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The sum over examples of weight times gradient, a new tensor per slot."""

    @cached_property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Ranges of examples whose gradients are written down together."""
        budget = _CHUNK_BYTES.get(self.device.type, _CHUNK_BYTES["cuda"])
        size = max(1, budget // max(1, self.example_bytes))
        return tuple(
            (start, min(start + size, self.num_examples)) for start in range(0, self.num_examples, size)
        )


class SummedCalls(AbstractCall):
    """Several calls with parameters in common: the gradient of an example is the sum over the calls."""

    def __init__(self, calls: Sequence[AbstractCall]) -> None:
        self._calls = tuple(calls)
        self.slots = tuple(sorted({slot for call in calls for slot in call.slots}))
        self.num_examples = calls[0].num_examples

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return sum(call.example_bytes for call in self._calls)

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._calls[0].device

    def closed_norms(self, p: float) -> None:
        """None: the norm of a sum is not made of norms."""

    def gradients(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return self._totals([call.gradients(start, stop) for call in self._calls])

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return self._totals([call.weighted_sum(weights) for call in self._calls])

    def _totals(self, parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        totals: dict[int, Tensor] = {}
        for call, tensors in zip(self._calls, parts, strict=True):
            for slot, tensor in zip(call.slots, tensors, strict=True):
                totals[slot] = totals[slot] + tensor if slot in totals else tensor
        return tuple(totals[slot] for slot in self.slots)


@dataclass(frozen=True)
class Measured:
    """A call, the norms of its gradients' pieces, and the gradients themselves where keeping them was cheap."""

    call: AbstractCall
    pieces: list[Tensor]
    kept: tuple[tuple[Tensor, ...], ...] | None

    @property
    def kept_bytes(self) -> int:
        """Memory held for the second stage."""
        return 0 if self.kept is None else self.call.example_bytes * self.call.num_examples

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The sum over examples of weight times gradient: weights @ gradients if those were kept."""
        if self.kept is None:
            return self.call.weighted_sum(weights)
        if len(self.kept) == 1:
            return tuple(_weighted(weights, tensor) for tensor in self.kept[0])
        slices = [weights[start:stop] for start, stop in self.call.chunks]
        totals = [_weighted(slices[0], tensor) for tensor in self.kept[0]]
        for weight, tensors in zip(slices[1:], self.kept[1:], strict=True):
            for total, tensor in zip(totals, tensors, strict=True):
                total.view(-1).addmv_(tensor.reshape(len(weight), -1).t(), weight)
        return tuple(totals)


def measure(call: AbstractCall, p: float, spare_bytes: int) -> Measured:
    """Find the l_p norms of every example's gradient, holding no more than a chunk and `spare_bytes`."""
    pieces = call.closed_norms(p)
    if pieces is not None:
        return Measured(call, pieces, None)
    kept: list[tuple[Tensor, ...]] | None = (
        [] if call.example_bytes * call.num_examples <= spare_bytes else None
    )
    columns: list[list[Tensor]] = [[] for _ in call.slots]
    for start, stop in call.chunks:
        tensors = call.gradients(start, stop)
        for column, tensor in zip(columns, tensors, strict=True):
            column.append(row_norms(tensor.reshape(stop - start, -1), p))
        if kept is not None:
            kept.append(tensors)
    norms = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
    return Measured(call, norms, None if kept is None else tuple(kept))


def _weighted(weights: Tensor, tensor: Tensor) -> Tensor:
    return torch.mv(tensor.reshape(len(weights), -1).t(), weights).view(tensor.shape[1:])
