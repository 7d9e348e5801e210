# SPDX-License-Identifier: Apache-2.0
"""Linear layers: per-example gradients are sums of outer products, g_i^T a_i over the positions of example
i.
"""

import functools
import math
from collections.abc import Hashable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.training.clipping.call import AbstractCall, Matrices, MatrixTerms, chunk_bytes
from ggdp.training.clipping.norms import OuterProduct, full_precision, has_kernels, outer_norms, row_norms
from ggdp.training.clipping.site import AbstractSite
from ggdp.training.clipping.workspace import may_be_kept


class Slots(NamedTuple):
    """The numbers of a layer's weight and bias, None where they do not exist or are frozen.

    `is_turned` says that the weight is (inputs, outputs), not (outputs, inputs).
    """

    weight: int | None
    bias: int | None
    is_turned: bool = False

    @property
    def present(self) -> tuple[int, ...]:
        """Those that are trained."""
        return tuple(slot for slot in (self.weight, self.bias) if slot is not None)

    def turned(self, weight: Tensor) -> Tensor:
        """The weight's gradient (..., outputs, inputs) as the weight itself has it."""
        return weight.transpose(-1, -2).contiguous() if self.is_turned else weight


class LinearSite(AbstractSite):
    """nn.Linear on inputs of any number of dimensions."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        self._slots = Slots(self.slots.get("weight"), self.slots.get("bias"))

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Plain weights only: a weight that is computed by a hook belongs to the functional rule."""
        return set(module._parameters) == {"weight", "bias"}

    def recorded(self, input: Tensor) -> Tensor:
        """See `AbstractSite`."""
        output = self._output(input)
        swapped = not self.batch_first and input.dim() > 2
        fold = self.check_examples(input.shape[1 if swapped else 0], may_fold=not swapped)
        note = partial(linear_call, self._slots, swapped=swapped, fold=fold)
        return self.watch(output, note, input, dim=1 if swapped else 0)

    def _output(self, input: Tensor) -> Tensor:
        return F.linear(input, cast(Tensor, self.parameter("weight")), self.parameter("bias"))


class TurnedLinearSite(LinearSite):
    """Conv1D of transformers, as in GPT-2: a linear layer whose weight is (inputs, outputs)."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        self._slots = self._slots._replace(is_turned=True)

    def _output(self, input: Tensor) -> Tensor:
        weight, bias = cast(Tensor, self.parameter("weight")), cast(Tensor, self.parameter("bias"))
        flat = torch.addmm(bias, input.reshape(-1, input.shape[-1]), weight)
        return flat.view(*input.shape[:-1], weight.shape[1])


def linear_call(
    slots: Slots, activation: Tensor, cotangent: Tensor, *, swapped: bool = False, fold: int = 1
) -> "LinearCall":
    """The note of one call, with examples brought to dimension 0 and the other positions to dimension 1.

    Each example has `fold` rows of the input, one after the other.
    """
    if swapped:
        activation, cotangent = activation.transpose(0, 1), cotangent.transpose(0, 1)
    if activation.dtype != cotangent.dtype:
        activation = activation.to(cotangent.dtype)
    if fold > 1:
        activation, cotangent = (
            tensor.reshape(len(tensor) // fold, -1, tensor.shape[-1]) for tensor in (activation, cotangent)
        )
    if cotangent.dim() == 2:
        return LinearCall(slots, activation, cotangent)
    if cotangent.dim() > 3:
        activation, cotangent = (
            tensor.reshape(tensor.shape[0], tensor.shape[1:-1].numel(), tensor.shape[-1])
            for tensor in (activation, cotangent)
        )
    if cotangent.shape[1] == 1:
        return LinearCall(slots, activation[:, 0], cotangent[:, 0])
    return SequenceCall(slots, activation, cotangent)


class LinearCall(AbstractCall):
    """One position per example: the weight's gradient is g_i^T a_i, and |g_i^T a_i|_p = |g_i|_p |a_i|_p."""

    _spread: Tensor | None = None  # at p = 2, where norms were found from products of positions

    def __init__(self, slots: Slots, activation: Tensor, cotangent: Tensor) -> None:
        self.slots = slots.present
        self.num_examples = len(cotangent)
        self.activation, self.cotangent, self._slots = activation, cotangent, slots

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self.cotangent.device

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        weight = 0 if self._slots.weight is None else self.activation.shape[-1]
        bias = 0 if self._slots.bias is None else 1
        return self.cotangent.shape[-1] * (weight + bias) * self.cotangent.element_size()

    @property
    def outer_product(self) -> OuterProduct | None:
        """See `AbstractCall`; the bias is the weight of a constant input."""
        weighted = self._slots.weight is not None
        return OuterProduct(
            self.activation if weighted else None, self.cotangent, self._slots.bias is not None
        )

    @property
    def matrix_terms(self) -> MatrixTerms | None:
        """See `AbstractCall`; a turned weight's rows are the inputs."""
        if self._slots.weight is None:
            return None
        flat = self.cotangent.dim() == 2
        a, g = (each.unsqueeze(1) if flat else each for each in (self.activation, self.cotangent))
        bias = None if self._slots.bias is None else (self._slots.bias, g)
        left, right = (a, g) if self._slots.is_turned else (g, a)
        return MatrixTerms(self._slots.weight, left, right, bias)

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """|g|_p |(a, 1)|_p."""
        return None if self.outer_product is None else outer_norms([self.outer_product], p)

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        cotangent = self.cotangent[start:stop]
        matrices = []
        if self._slots.weight is not None:
            products = cotangent.unsqueeze(2) * self.activation[start:stop].unsqueeze(1)
            matrices.append(products.flatten(1))
        if self._slots.bias is not None:
            matrices.append(cotangent)
        return tuple(matrices)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`; the weight comes first, if it is trained at all."""
        if place or self._slots.weight is None:
            return flat
        weight = flat.view(*flat.shape[:-1], self.cotangent.shape[-1], self.activation.shape[-1])
        return self._slots.turned(weight)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        tensors = []
        if self._slots.weight is not None:
            weight = (self.cotangent * weights.unsqueeze(1)).t() @ self.activation
            tensors.append(self._slots.turned(weight))
        if self._slots.bias is not None:
            tensors.append(torch.mv(self.cotangent.t(), weights))
        return tuple(tensors)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self.activation, self.cotangent = (
            tensor.index_fill(0, rows, 0.0) for tensor in (self.activation, self.cotangent)
        )
        self._spread = None

    def with_views(self, views: int) -> AbstractCall:
        """See `AbstractCall`: views are positions."""
        return linear_call(self._slots, self.activation, self.cotangent, fold=views)


class SequenceCall(LinearCall):
    """Several positions t per example: the weight's gradient is a product, the sum over t of g_it^T a_it."""

    _input: "SharedInput | None" = None
    _bias: Tensor | None = None

    @property
    def _bias_rows(self) -> Tensor:
        """The gradients of the bias, (n, O), found once."""
        if self._bias is None:
            self._bias = self.cotangent.sum(dim=1)
        return self._bias

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        super().zero_rows(rows)
        self._bias = None

    def share_input(self, inputs: dict[Hashable, Any]) -> None:
        """See `AbstractCall`."""
        if self._slots.weight is not None:
            a = self.activation
            key = (a.data_ptr(), a.shape, a.stride(), a.dtype, a.device)
            self._input = inputs.setdefault(key, SharedInput())
            self._input.users += 1

    @property
    def outer_product(self) -> None:
        """None: a sum of them is not one."""

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """At p = 2, the Gram identity where it is cheaper than the product; otherwise None."""
        if p != 2.0 or self._slots.weight is None:
            return None
        try:
            return self._gram_pieces()
        finally:
            if self._input is not None:
                self._input.leave()
                self._input = None

    def _gram_pieces(self) -> list[Tensor] | None:
        positions, outputs = self.cotangent.shape[1:]
        kept = may_be_kept(self.num_examples * self.example_bytes, self.device)
        inputs = self.activation.shape[-1]
        operations = positions**2 * (inputs + outputs)
        passes = passes_worth(self.device)
        if not gram_is_cheaper(operations, positions, inputs * outputs, kept=kept, passes=passes):
            return None
        shared = self._input or SharedInput()
        found = []
        for start, stop in self._gram_chunks(positions):
            a, a_top = shared.products(self.activation, start, stop)
            cotangent, g_top = scaled_to_one(self.cotangent[start:stop])
            norms, spread = gram_norms(gram(cotangent), a, inputs + outputs)
            found.append((norms * (size := a_top * g_top), spread * size))
        norms, spread = found[0] if len(found) == 1 else map(torch.cat, zip(*found, strict=True))
        self._spread, pieces = spread, [norms]
        if self._slots.bias is not None:
            pieces.append(row_norms(self._bias_rows, 2.0))
        return pieces

    def spread(self, p: float) -> Tensor | None:
        """See `AbstractCall`: the sum over t of |g_t|_p |a_t|_p."""
        if self._slots.weight is None:
            return None
        if p == 2.0 and self._spread is not None:
            return self._spread
        a, g = (
            row_norms(tensor.reshape(-1, tensor.shape[-1]), p).view(tensor.shape[:2])
            for tensor in (self.activation, self.cotangent)
        )
        return (a * g).sum(dim=1).to(self.cotangent.dtype)

    def _gram_chunks(self, positions: int) -> list[tuple[int, int]]:
        """Ranges of examples whose two Gram matrices, and what they are made from, make up a chunk."""
        width = self.activation.shape[-1] + self.cotangent.shape[-1]
        numbers = positions * (2 * positions + width)
        size = max(1, chunk_bytes(self.device) // (numbers * self.cotangent.element_size()))
        return [(start, min(start + size, self.num_examples)) for start in range(0, self.num_examples, size)]

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        cotangent = self.cotangent[start:stop]
        matrices = []
        if self._slots.weight is not None:
            activation, shape = self.activation[start:stop], (stop - start, self.cotangent.shape[2], -1)
            if into is None:
                matrices.append(torch.bmm(cotangent.transpose(1, 2), activation).flatten(1))
            else:
                torch.bmm(cotangent.transpose(1, 2), activation, out=into[0].view(shape))
                matrices.append(into[0])
        if self._slots.bias is not None:
            matrices.append(self._bias_rows[start:stop])
        return tuple(matrices)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        tensors = []
        if self._slots.weight is not None:
            scaled = (self.cotangent * weights.view(-1, 1, 1)).flatten(0, 1)
            weight = scaled.t() @ self.activation.reshape(len(scaled), -1)
            tensors.append(self._slots.turned(weight))
        if self._slots.bias is not None:
            tensors.append(torch.mv(self._bias_rows.t(), weights))
        return tuple(tensors)


class SharedInput:
    """Products of positions of an input that several layers have, as queries, keys and values do.

    Attributes:
        users: Calls that have yet to ask; what the last one asked for is not kept.
    """

    def __init__(self) -> None:
        self.users = 0
        self._found: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def products(self, activation: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """The `gram` matrices of these examples divided by their largest entry, and those entries."""
        found = self._found.get((start, stop))
        if found is None:
            scaled, top = scaled_to_one(activation[start:stop])
            found = gram(scaled), top
            total = len(activation) * found[0][0].numel() * found[0].element_size()
            if self.users > 1 and total <= chunk_bytes(activation.device):
                self._found[start, stop] = found
        return found

    def leave(self) -> None:
        """One of the calls has asked all that it will."""
        self.users -= 1
        if self.users < 1:
            self._found.clear()


def gram_is_cheaper(operations: int, positions: int, size: int, *, kept: bool, passes: int = 8) -> bool:
    """Whether two T x T Gram matrices, for so many multiply-adds, beat the gradient, of I O = `size` numbers.

    The weighted sum takes T I O more. The gradient takes T I O and some passes over I O numbers, worth so
    many multiply-adds each; if it cannot be kept, the sum takes T I O once more.
    """
    return operations < size * (passes if kept else positions + passes)


def passes_worth(device: torch.device) -> int:
    """How many multiply-adds take as long as the passes over one number of a gradient that is written down.

    A GPU does some 25 of them in the time in which it reads or writes a number, and a CPU's cache is quicker.
    """
    return 8 if device.type == "cpu" else 80


def scaled_to_one(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Every example divided by its largest entry, and those entries (n,)."""
    if tensor.is_cuda:  # one pass, whatever the order of memory
        top = torch.linalg.vector_norm(tensor, math.inf, dim=tuple(range(1, tensor.dim())))
    else:
        top = tensor.flatten(1).abs().amax(dim=1)
    top = top.clamp_min_(torch.finfo(tensor.dtype).tiny)
    return tensor / top.view(-1, *(1,) * (tensor.dim() - 1)), top


def gram(vectors: Tensor) -> Tensor:
    """The products v_t . v_s of every example's vectors, (n, T, T) of (n, T, I), in full precision."""
    with full_precision(vectors):
        return torch.bmm(vectors, vectors.transpose(1, 2))


def gram_norms(products: Tensor, others: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """|sum_t g_t^T a_t|_2 of each example from sum_ts (g_t . g_s)(a_t . a_s); and B, see below.

    Both `gram` matrices are (n, T, T), and the first is overwritten; I + O = `width` numbers make up g_t and
    a_t. These must be at most 1 in size (`scaled_to_one`): then nothing overflows, and what underflows is
    less than T^2 (I + O) times the least normal number in the square of the norm. Where the outer products
    cancel, that square n^2 carries the rounding of B^2, B = sum_t |g_t| |a_t|; errors of T^2 terms are
    independent, so that 4 eps B^2 more than covers them. Both are added, to keep the norm from falling
    short.
    """
    if has_kernels(products):
        from ggdp.training.clipping.kernels import patch_products

        squares, bound = patch_products(products, others, _own_places(products.shape[1], products.device))
        return cautious_roots(squares, bound, products[0].numel() * width), bound
    products.mul_(others)
    bound = products.diagonal(dim1=1, dim2=2).clamp_min(0.0).sqrt().sum(dim=1)
    return cautious_roots(products.sum(dim=(1, 2)), bound, products[0].numel() * width), bound


@functools.lru_cache(maxsize=64)
def _own_places(positions: int, device: torch.device) -> Tensor:
    """Every position alone, as `patch_products` takes places."""
    return torch.arange(positions, dtype=torch.int32, device=device).unsqueeze(0)


def cautious_roots(squares: Tensor, bound: Tensor, terms: int) -> Tensor:
    """Norms from their squares, with what `gram_norms` says may be lost added; `squares` are overwritten."""
    info = torch.finfo(squares.dtype)
    squares = squares.clamp_min_(0.0).add_(terms * info.tiny)
    return squares.addcmul_(bound, bound, value=4.0 * info.eps).sqrt_()
