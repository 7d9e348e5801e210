# SPDX-License-Identifier: Apache-2.0
"""One call of a layer, remembered: its per-example gradients as a function of activations and cotangents.

With a_i what example i fed to the layer and g_i the derivative of the loss by what came out, every
parameter's per-example gradient is known, and need not be written down to be measured or summed.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from ggdp.training.clipping.norms import OuterProduct, outer_norms, product_rounding, row_norms
from ggdp.training.clipping.workspace import Workspace

# Gradients are written down for so many bytes' worth of examples at a time: on a CPU as many as stay in the
# second-level cache while they are measured.
_CHUNK_BYTES: Final = {"cpu": 1 << 20, "cuda": 1 << 28}


Matrices = tuple[Tensor, ...]


class MatrixTerms(NamedTuple):
    """A matrix's gradient as a sum over positions t of outer products u_t v_t^T; beside it, a bias's.

    Attributes:
        slot: The number of the matrix.
        left: u_t, (n, T, rows); or (n, T) whole numbers, of the one row in which u_t is 1 and not 0.
        right: v_t, (n, T, columns).
        bias: The number of the bias and its gradients by position (n, T, size), if there is one.
    """

    slot: int
    left: Tensor
    right: Tensor
    bias: tuple[int, Tensor] | None = None


def chunk_bytes(device: torch.device) -> int:
    """How much is written down at a time."""
    return _CHUNK_BYTES.get(device.type, _CHUNK_BYTES["cuda"])


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
        """The memory that one example's rows take, and what is needed to find them."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the gradients are."""

    @property
    def outer_product(self) -> OuterProduct | None:
        """The factors of the gradients, if every example's is an outer product."""
        return None

    @property
    def matrix_terms(self) -> MatrixTerms | None:
        """The outer products that the gradients are sums of, if they are; see `shared`."""
        return None

    def share_input(self, inputs: dict[Hashable, Any]) -> None:  # noqa: B027
        """Find out, among what other calls have put here, which of them have the same input."""

    @abstractmethod
    def closed_norms(self, p: float) -> list[Tensor] | None:
        """The l_p norms of the gradients' pieces, (num_examples,) each, if nothing need be written down."""

    def spread(self, p: float) -> Tensor | None:
        """At least the sum over positions of the l_p norms whose vectors the weight's gradient adds up, (n,).

        The rounding of a sum is a share of this, not of the sum, which may be much smaller where terms
        cancel. None if there is but one position.
        """
        return None

    @abstractmethod
    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """Gradients of the examples in [start, stop): one (stop - start, d) matrix per slot, in any order of
        d.

        They may be written `into` the matrices given, and are returned in any case.
        """

    @abstractmethod
    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """A row, or a matrix of rows, of the slot at this place in the shape and order of its parameter."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The sum over examples of weight times gradient, a new tensor per slot."""

    @abstractmethod
    def zero_rows(self, rows: Tensor) -> None:
        """Let the gradients of the examples numbered in `rows`, which may be NaN or infinite, be zero."""

    def with_views(self, views: int) -> "AbstractCall":
        """The same call where each example has so many rows, views of it, one after the other."""
        return ViewsCall(self, views)

    @cached_property
    def chunks(self) -> tuple[tuple[int, int], ...]:
        """Ranges of examples whose gradients are written down together."""
        size = max(1, chunk_bytes(self.device) // max(1, self.example_bytes))
        return tuple(
            (start, min(start + size, self.num_examples)) for start in range(0, self.num_examples, size)
        )


class ViewsCall(AbstractCall):
    """A call whose rows are views of examples: the gradient of an example is the sum over its views."""

    def __init__(self, call: AbstractCall, views: int) -> None:
        self._call, self._views = call, views
        self.slots, self.num_examples = call.slots, call.num_examples // views

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return self._views * self._call.example_bytes

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._call.device

    def closed_norms(self, p: float) -> None:
        """None: the norm of a sum is not made of norms."""

    def spread(self, p: float) -> Tensor | None:
        """See `AbstractCall`."""
        spread = self._call.spread(p)
        return None if spread is None else spread.view(-1, self._views).sum(dim=1)

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        rows = self._call.rows(start * self._views, stop * self._views)
        return tuple(matrix.view(stop - start, self._views, -1).sum(dim=1) for matrix in rows)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return self._call.shaped(place, flat)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return self._call.weighted_sum(weights.repeat_interleave(self._views))

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._call.zero_rows(rows_of(rows, self._views))


def rows_of(examples: Tensor, views: int) -> Tensor:
    """The rows of some examples, of which each has so many."""
    return (examples.unsqueeze(1) * views + torch.arange(views, device=examples.device)).flatten()


@dataclass(frozen=True)
class Measured:
    """A call, the norms of its gradients' pieces, and the gradients where keeping them was cheap.

    `found` are the norms as they were computed, `pieces` have what rounding may have taken from them added.
    """

    call: AbstractCall
    found: list[Tensor]
    pieces: list[Tensor]
    kept: Matrices | None

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The sum over examples of weight times gradient: weights @ gradients if those were kept."""
        if self.kept is None:
            return self.call.weighted_sum(weights)
        sums = (torch.mv(matrix.t(), weights) for matrix in self.kept)
        return tuple(self.call.shaped(place, flat) for place, flat in enumerate(sums))


class Weighed(NamedTuple):
    """The calls of one pass by layer, the factors of its examples by layer, and what `ClippedSum` tells."""

    layers: dict[int, list[Measured]]
    weights: dict[int, Tensor]
    norms: Tensor
    num_zeroed: int

    def sums(self, count: int) -> Iterator[Tensor | None]:
        """The clipped sums of parameters 0 ... count - 1, each computed when its turn comes; None is zero."""
        calls = {
            slot: (measured, self.weights[layer])
            for layer, group in self.layers.items()
            for measured in group
            for slot in measured.call.slots
        }
        waiting: dict[int, Tensor] = {}
        for slot in range(count):
            if slot in calls and slot not in waiting:
                measured, weights = calls[slot]
                with torch.no_grad(), torch.autocast(weights.device.type, enabled=False):
                    found = measured.weighted_sum(weights)
                waiting.update(zip(measured.call.slots, found, strict=True))
            yield waiting.pop(slot, None)


def weighted_sums(layers: dict[int, list[Measured]], weights: dict[int, Tensor]) -> dict[int, Tensor]:
    """By parameter, the sum over examples of its layer's weight times gradient."""
    sums: dict[int, Tensor] = {}
    for layer, group in layers.items():
        for measured in group:
            sums.update(zip(measured.call.slots, measured.weighted_sum(weights[layer]), strict=True))
    return sums


def measure_all(calls: Sequence[AbstractCall], p: float, workspace: Workspace) -> list[Measured]:
    """`measure` every call, outer products together, products of a common input once."""
    inputs: dict[Hashable, Any] = {}
    for call in calls:
        call.share_input(inputs)
    products = {call: product for call in calls if (product := call.outer_product) is not None}
    found = dict(zip(products, outer_norms(list(products.values()), p), strict=True)) if products else {}
    return [
        Measured(call, [found[call]], [found[call]], None) if call in found else measure(call, p, workspace)
        for call in calls
    ]


def measure(call: AbstractCall, p: float, workspace: Workspace) -> Measured:
    """Find the l_p norms of every example's gradient, holding no more than a chunk beside the workspace."""
    pieces = call.closed_norms(p)
    if pieces is not None:
        return Measured(call, pieces, _with_rounding(call, pieces, p), None)
    columns: list[list[Tensor]] = [[] for _ in call.slots]
    kept: Matrices | None = None
    for start, stop in call.chunks:
        into = None if kept is None else tuple(matrix[start:stop] for matrix in kept)
        matrices = call.rows(start, stop, into)
        for column, matrix in zip(columns, matrices, strict=True):
            column.append(row_norms(matrix, p))
        if start == 0:  # when widths are known
            kept = workspace.matrices(call.num_examples, matrices)
            into = None if kept is None else tuple(matrix[:stop] for matrix in kept)
        for place, matrix in zip(into or (), matrices, strict=into is not None):
            if place is not matrix:
                place.copy_(matrix)
    norms = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
    return Measured(call, norms, _with_rounding(call, norms, p), kept)


def _with_rounding(call: AbstractCall, pieces: list[Tensor], p: float) -> list[Tensor]:
    """Norms that do not fall short of what the summed products may have become by rounding."""
    spread = call.spread(p)
    if spread is None:
        return pieces
    return [pieces[0] + product_rounding(spread) * spread, *pieces[1:]]
