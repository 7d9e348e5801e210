# SPDX-License-Identifier: Apache-2.0
"""nn.MultiheadAttention: its projections are linear layers on sequences, what lies between has no
parameters.
"""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.draws import merged_mask
from ggdp.training.clipping.linear import LinearCall, Slots, linear_call
from ggdp.training.clipping.site import AbstractSite


class AttentionSite(AbstractSite):
    """Self- and cross-attention with masks and dropout; examples where the module's `batch_first` says."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        self._attention = cast(nn.MultiheadAttention, module)

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Keys and values of one width, and none added to them; the rest goes by the functional rule."""
        attention = cast(nn.MultiheadAttention, module)
        return (
            attention._qkv_same_embed_dim
            and attention.bias_k is None
            and not attention.add_zero_attn
            and set(module.out_proj._parameters) == {"weight", "bias"}  # type: ignore[union-attr]
        )

    def recorded(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See `AbstractSite`; the arguments are nn.MultiheadAttention's."""
        attention = self._attention
        if query.dim() != 3:
            raise UnsupportedModelError(
                f"module {self.shown} was called with {query.dim()} dimensions; give it three, with a batch"
            )
        same = query is key and key is value
        if not attention.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        self.check_examples(query.shape[0])
        q, k, v = (self._heads(each) for each in self._projected(query, key, value, same=same))
        mask = merged_mask(attn_mask, key_padding_mask, q)
        dropout = attention.dropout if attention.training else 0.0
        if need_weights:
            scores = q @ k.transpose(2, 3) / math.sqrt(attention.head_dim)
            weights = F.dropout((scores if mask is None else scores + mask).softmax(dim=-1), dropout)
            heads = weights @ v
        else:
            weights = None
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        mixed = heads.transpose(1, 2).flatten(2)
        output = self._output(mixed)
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        return output if attention.batch_first else output.transpose(0, 1), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor, *, same: bool) -> tuple[Tensor, ...]:
        """Queries, keys and values by the rows of one weight; in self-attention by one product."""
        weight, bias = self.parameter("in_proj_weight"), self.parameter("in_proj_bias")
        slots = Slots(self.slots.get("in_proj_weight"), self.slots.get("in_proj_bias"))
        size = self._attention.embed_dim
        if same:
            inputs: tuple[Tensor, ...] = (query,)
            joint = F.linear(query, cast(Tensor, weight), bias)
        else:
            inputs = (query, key, value)
            weights = cast(Tensor, weight).chunk(3)
            biases = (None, None, None) if bias is None else bias.chunk(3)
            parts = [F.linear(*each) for each in zip(inputs, weights, biases, strict=True)]
            if slots.present:
                return tuple(
                    self.watch(part, _third(slots, number, size), each)
                    for number, (part, each) in enumerate(zip(parts, inputs, strict=True))
                )
            return tuple(parts)
        if slots.present:
            joint = self.watch(joint, lambda a, g: linear_call(slots, a, g), query)
        return joint.chunk(3, dim=-1)

    def _heads(self, tensor: Tensor) -> Tensor:
        n, length, _ = tensor.shape
        return tensor.view(n, length, self._attention.num_heads, self._attention.head_dim).transpose(1, 2)

    def _output(self, mixed: Tensor) -> Tensor:
        last = self._attention.out_proj
        output = F.linear(mixed, last.weight.detach(), None if last.bias is None else last.bias.detach())
        slots = Slots(self.slots.get("out_proj.weight"), self.slots.get("out_proj.bias"))
        if not slots.present:
            return output
        return self.watch(output, lambda a, g: linear_call(slots, a, g), mixed)


def _third(slots: Slots, number: int, size: int) -> Callable[[Tensor, Tensor], AbstractCall]:
    return lambda a, g: ThirdCall(slots, number, size, linear_call(slots, a, g))


class ThirdCall(AbstractCall):
    """A call by a third of a weight's rows: the other rows' gradients are zero in this call."""

    def __init__(self, slots: Slots, number: int, size: int, call: LinearCall) -> None:
        self.slots, self.num_examples = slots.present, call.num_examples
        self._call, self._rows = call, (number * size, (number + 1) * size)
        self._size = size

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._call.device

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return 3 * self._call.example_bytes

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """Zeros add nothing to a norm."""
        return self._call.closed_norms(p)

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        parts = self._call.rows(start, stop)
        return tuple(
            self._placed(self._call.shaped(place, part), dim=1).flatten(1) for place, part in enumerate(parts)
        )

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        rows = 3 * self._size
        return flat.view(*flat.shape[:-1], rows, -1) if flat.shape[-1] > rows else flat

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return tuple(self._placed(tensor, dim=0) for tensor in self._call.weighted_sum(weights))

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._call.zero_rows(rows)

    def _placed(self, tensor: Tensor, dim: int) -> Tensor:
        shape = list(tensor.shape)
        shape[dim] = 3 * self._size
        whole = tensor.new_zeros(shape)
        whole.narrow(dim, self._rows[0], self._size).copy_(tensor)
        return whole
