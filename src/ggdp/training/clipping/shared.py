# SPDX-License-Identifier: Apache-2.0
"""Calls that share parameters: a layer called twice, or an embedding whose matrix is the last layer's too.

The gradient of an example is the sum over the calls. Where all of them add outer products to one matrix, as
linear layers and embeddings do, its l_2 norm follows from products of positions, and the sum of gradients
is not written down:

    |sum_t u_t v_t^T|_2^2 = sum_ts (u_t . u_s)(v_t . v_s),

t and s over the positions of all calls. Of an embedding, u_t is 1 in the row of token t and 0 elsewhere. So
u_t . u_s is 1 where two tokens are equal, and an entry of the linear layer's cotangent where s is a position
of that.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ggdp.training.clipping.call import AbstractCall, Matrices, MatrixTerms, chunk_bytes
from ggdp.training.clipping.linear import gram_is_cheaper, passes_worth, scaled_to_one
from ggdp.training.clipping.norms import full_precision, row_norms
from ggdp.training.clipping.workspace import may_be_kept


class SummedCalls(AbstractCall):
    """Several calls with parameters in common: the gradient of an example is the sum over the calls."""

    def __init__(self, calls: Sequence[AbstractCall]) -> None:
        self._calls = tuple(calls)
        slots = sorted({slot for call in calls for slot in call.slots})
        if len(matrices := {terms.slot for call in calls if (terms := call.matrix_terms) is not None}) == 1:
            slots.sort(key=lambda slot: slot not in matrices)  # the matrix is the first
        self.slots = tuple(slots)
        self.num_examples = calls[0].num_examples
        self._shapes: tuple[torch.Size, ...] = ()
        self._spread: Tensor | None = None

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return sum(call.example_bytes for call in self._calls)

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._calls[0].device

    @property
    def _terms(self) -> list[MatrixTerms] | None:
        """The outer products of all calls, if they add up to one matrix."""
        found = [terms for call in self._calls if (terms := call.matrix_terms) is not None]
        is_one = len(found) == len(self._calls) and len({terms.slot for terms in found}) == 1
        return found if is_one else None

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """At p = 2, from products of positions, where they are cheaper than the matrix; otherwise None."""
        if p != 2.0 or (terms := self._terms) is None:
            return None
        positions = sum(each.right.shape[1] for each in terms)
        rows = max((each.left.shape[2] for each in terms if each.left.dim() == 3), default=0)
        columns = terms[0].right.shape[2]
        kept = may_be_kept(self.num_examples * self.example_bytes, self.device)
        operations, passes = positions**2 * (rows + columns), passes_worth(self.device)
        if rows and not gram_is_cheaper(operations, positions, rows * columns, kept=kept, passes=passes):
            return None
        norms, self._spread = _matrix_norms(terms, self.num_examples, operations)
        biases: dict[int, Tensor] = {}
        for slot, by_position in (each.bias for each in terms if each.bias is not None):
            gradients = by_position.sum(dim=1)
            biases[slot] = biases[slot] + gradients if slot in biases else gradients
        return [norms, *(row_norms(gradients, 2.0) for gradients in biases.values())]

    def spread(self, p: float) -> Tensor | None:
        """See `AbstractCall`: the sum over the positions of all calls."""
        if p == 2.0 and self._spread is not None:
            return self._spread
        if (terms := self._terms) is None:
            return None
        total = torch.zeros((), dtype=terms[0].right.dtype, device=self.device)
        for each in terms:
            sizes = _position_norms(each.right, p)
            if each.left.dim() == 3:
                sizes = sizes * _position_norms(each.left, p)
            total = total + sizes.sum(dim=1)
        return total.to(terms[0].right.dtype)

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`; all calls put into the parameters' own order."""
        totals = self._totals([_shaped_rows(call, start, stop) for call in self._calls])
        self._shapes = tuple(total.shape[1:] for total in totals)
        return tuple(total.flatten(1) for total in totals)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.view(*flat.shape[:-1], *self._shapes[place])

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return self._totals([call.weighted_sum(weights) for call in self._calls])

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._spread = None
        for call in self._calls:
            call.zero_rows(rows)

    def _totals(self, parts: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        totals: dict[int, Tensor] = {}
        for call, tensors in zip(self._calls, parts, strict=True):
            for slot, tensor in zip(call.slots, tensors, strict=True):
                totals[slot] = totals[slot] + tensor if slot in totals else tensor
        return tuple(totals[slot] for slot in self.slots)


def _shaped_rows(call: AbstractCall, start: int, stop: int) -> tuple[Tensor, ...]:
    return tuple(call.shaped(place, matrix) for place, matrix in enumerate(call.rows(start, stop)))


def _position_norms(vectors: Tensor, p: float) -> Tensor:
    return row_norms(vectors.reshape(-1, vectors.shape[-1]), p).view(vectors.shape[:2])


class _Scaled(NamedTuple):
    """Terms of some examples, each example's entries at most 1 in size, and what they were divided by (n,).

    Of several calls these differ. They are in float64, in which no product of four of them leaves the range.
    """

    left: Tensor
    right: Tensor
    size: Tensor

    @classmethod
    def of(cls, terms: MatrixTerms, start: int, stop: int) -> "_Scaled":
        left, (right, size) = terms.left[start:stop], scaled_to_one(terms.right[start:stop])
        if left.dim() == 2:
            return cls(left, right, size.double())
        left, other = scaled_to_one(left)
        return cls(left, right, size.double() * other)

    def products(self, other: "_Scaled") -> Tensor:
        """(u_t . u_s)(v_t . v_s), (n, T, S)."""
        with full_precision(self.right):
            found = torch.bmm(self.right, other.right.transpose(1, 2))
            if self.left.dim() == other.left.dim() == 3:
                return found.mul_(torch.bmm(self.left, other.left.transpose(1, 2)))
        if self.left.dim() == 3:
            return found.mul_(_entries(self.left, other.left))
        if other.left.dim() == 3:
            return found.mul_(_entries(other.left, self.left).transpose(1, 2))
        return found.mul_(self.left.unsqueeze(2) == other.left.unsqueeze(1))


def _entries(vectors: Tensor, rows: Tensor) -> Tensor:
    """Of each vector (n, T, d) the entries in these rows (n, S), (n, T, S)."""
    return vectors.gather(2, rows.unsqueeze(1).expand(-1, vectors.shape[1], -1))


def _matrix_norms(terms: list[MatrixTerms], count: int, operations: int) -> tuple[Tensor, Tensor]:
    """|sum_t u_t v_t^T|_2 of each example, and B = sum_t |u_t| |v_t|, t over the positions of all calls.

    What products of numbers at most 1 lose to underflow is less than one least normal number for every
    operation, and the rounding of the square is more than covered by 4 eps B^2 (see `linear.gram_norms`).
    Both are added.
    """
    info = torch.finfo(terms[0].right.dtype)
    positions = sum(each.right.shape[1] for each in terms)
    step = max(1, chunk_bytes(terms[0].right.device) // (2 * positions**2 * info.bits // 8))
    norms, bounds = [], []
    for start in range(0, count, step):
        parts = [_Scaled.of(each, start, min(start + step, count)) for each in terms]
        square = torch.zeros_like(parts[0].size)
        bound, size = torch.zeros_like(square), torch.zeros_like(square)
        for number, part in enumerate(parts):
            own = part.products(part)
            diagonal = own.diagonal(dim1=1, dim2=2).clamp_min(0.0)
            bound += diagonal.sqrt().sum(dim=1) * part.size
            size += part.size
            square += own.sum(dim=(1, 2)) * part.size.square()
            for other in parts[:number]:
                square += 2.0 * part.products(other).sum(dim=(1, 2)) * (part.size * other.size)
        lost = math.sqrt(operations * info.tiny) * size
        square = square.clamp_min_(0.0).add_(lost.square()).addcmul_(bound, bound, value=4.0 * info.eps)
        norms.append(square.sqrt_())
        bounds.append(bound)
    return torch.cat(norms), torch.cat(bounds)
