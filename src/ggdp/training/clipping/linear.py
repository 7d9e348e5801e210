# SPDX-License-Identifier: Apache-2.0
"""Linear layers: per-example gradients are sums of outer products, g_i^T a_i over the positions of example
i.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.norms import in_range, row_norms
from ggdp.training.clipping.site import AbstractSite
from ggdp.training.clipping.workspace import may_be_kept


class Slots(NamedTuple):
    """The numbers of a layer's weight and bias, None where they do not exist or are frozen."""

    weight: int | None
    bias: int | None

    @property
    def present(self) -> tuple[int, ...]:
        """Those that are trained."""
        return tuple(slot for slot in self if slot is not None)


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
        output = F.linear(input, self.parameter("weight"), self.parameter("bias"))  # type: ignore[arg-type]
        swapped = not self.batch_first and input.dim() > 2
        self.check_examples(input.shape[1 if swapped else 0])
        return self.watch(output, partial(linear_call, self._slots, swapped=swapped), input)


def linear_call(
    slots: Slots, activation: Tensor, cotangent: Tensor, *, swapped: bool = False
) -> "LinearCall":
    """The note of one call, with examples brought to dimension 0 and the other positions to dimension 1."""
    if swapped:
        activation, cotangent = activation.transpose(0, 1), cotangent.transpose(0, 1)
    if activation.dtype != cotangent.dtype:
        activation = activation.to(cotangent.dtype)
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

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """|g|_p |(a, 1)|_p: the bias is the weight of a constant input."""
        norms = row_norms(self.cotangent, p)
        if self._slots.weight is None:
            return [norms]
        inputs = row_norms(self.activation, p)
        weight = norms * inputs
        return [weight] if self._slots.bias is None else [weight, norms]

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
        return flat.view(*flat.shape[:-1], self.cotangent.shape[-1], self.activation.shape[-1])

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        tensors = []
        if self._slots.weight is not None:
            tensors.append((self.cotangent * weights.unsqueeze(1)).t() @ self.activation)
        if self._slots.bias is not None:
            tensors.append(torch.mv(self.cotangent.t(), weights))
        return tuple(tensors)


class SequenceCall(LinearCall):
    """Several positions t per example: the weight's gradient is the sum over t of g_it^T a_it, a matrix
    product.
    """

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """At p = 2, the Gram identity where it is cheaper than the product; otherwise None."""
        if p != 2.0 or self._slots.weight is None:
            return None
        positions, outputs = self.cotangent.shape[1:]
        kept = may_be_kept(self.num_examples * self.example_bytes, self.device)
        if not gram_is_cheaper(positions, self.activation.shape[-1], outputs, kept=kept):
            return None
        norms = [
            gram_norms(self.activation[start:stop], self.cotangent[start:stop])
            for start, stop in self.gram_chunks(positions)
        ]
        pieces = [torch.cat(norms)]
        if self._slots.bias is not None:
            pieces.append(row_norms(self.cotangent.sum(dim=1), 2.0))
        return pieces

    def gram_chunks(self, positions: int) -> list[tuple[int, int]]:
        """Ranges of examples whose two Gram matrices take about a megabyte together."""
        size = max(1, (1 << 20) // (2 * positions**2 * self.cotangent.element_size()))
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
            matrices.append(cotangent.sum(dim=1))
        return tuple(matrices)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        scaled = (self.cotangent * weights.view(-1, 1, 1)).flatten(0, 1)
        tensors = []
        if self._slots.weight is not None:
            tensors.append(scaled.t() @ self.activation.reshape(len(scaled), -1))
        if self._slots.bias is not None:
            tensors.append(scaled.sum(dim=0))
        return tuple(tensors)


def gram_is_cheaper(positions: int, inputs: int, outputs: int, *, kept: bool) -> bool:
    """Whether two T x T Gram matrices beat the I x O gradient.

    They take T^2 (I + O) multiply-adds, and the weighted sum T I O more. The gradient takes T I O and some
    passes over I O numbers, worth 16 multiply-adds each; if it cannot be kept, the sum takes T I O once more.
    """
    return positions**2 * (inputs + outputs) < inputs * outputs * (16 if kept else positions + 16)


def gram_norms(activation: Tensor, cotangent: Tensor) -> Tensor:
    """|sum_t g_t^T a_t|_2 of each example from sum_ts (g_t . g_s)(a_t . a_s), (n, T, I) and (n, T, O) in.

    Where the outer products cancel, the square n^2 of the norm carries the rounding of B^2, with B = sum_t
    |g_t| |a_t|. Errors of T^2 terms are independent, so that 4 eps B^2 more than covers them; it is added,
    to keep the norm from falling short. Where squares may leave the range, both sides are scaled first.
    """
    if not cotangent.is_cuda:  # which a look at the outcome would make wait
        norms = _unscaled_gram_norms(activation, cotangent)
        if in_range(norms, activation.shape[1] ** 2, 4.0):
            return norms
    tiny = torch.finfo(cotangent.dtype).tiny
    tops = [each.abs().amax(dim=(1, 2)).clamp_min(tiny) for each in (activation, cotangent)]
    scaled = (each / top.view(-1, 1, 1) for each, top in zip((activation, cotangent), tops, strict=True))
    return _unscaled_gram_norms(*scaled) * tops[0] * tops[1]


def _unscaled_gram_norms(activation: Tensor, cotangent: Tensor) -> Tensor:
    products = torch.bmm(activation, activation.transpose(1, 2))
    products.mul_(torch.bmm(cotangent, cotangent.transpose(1, 2)))
    bound = products.diagonal(dim1=1, dim2=2).sqrt().sum(dim=1)
    squares = products.sum(dim=(1, 2)).clamp_min_(0.0)
    return squares.addcmul_(bound, bound, value=4.0 * torch.finfo(cotangent.dtype).eps).sqrt_()
