# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one, two or three dimensions: a linear layer on patches, with the patches taken a few at a
time.
"""

import math
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.linear import Slots, gram_is_cheaper, gram_norms, scaled_to_one
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.scratch import scratch
from ggdp.training.clipping.site import AbstractSite
from ggdp.training.clipping.workspace import may_be_kept

# From so many channels on, patches are copied faster channel by channel than position by position.
_MANY_CHANNELS = 4
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Geometry(NamedTuple):
    """How a kernel walks over its input; one number per dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class ConvolutionSite(AbstractSite):
    """nn.Conv1d, nn.Conv2d and nn.Conv3d, with any stride, dilation, groups and padding mode."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        convolution = cast(_ConvNd, module)
        self._slots = Slots(self.slots.get("weight"), self.slots.get("bias"))
        # Only symmetric zeros are padded by the convolution itself; the rest is part of the activation.
        within = convolution.padding_mode == "zeros" and not isinstance(convolution.padding, str)
        self._pad = None if within else list(convolution._reversed_padding_repeated_twice)
        self._pad_mode = "constant" if convolution.padding_mode == "zeros" else convolution.padding_mode
        dimensions = len(convolution.kernel_size)
        self._convolve = _CONVOLUTIONS[dimensions]
        self._geometry = Geometry(
            kernel=tuple(convolution.kernel_size),
            stride=tuple(convolution.stride),
            padding=cast(tuple[int, ...], tuple(convolution.padding)) if within else (0,) * dimensions,
            dilation=tuple(convolution.dilation),
            groups=convolution.groups,
        )

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """See `LinearSite.accepts`."""
        return set(module._parameters) == {"weight", "bias"}

    def recorded(self, input: Tensor) -> Tensor:
        """See `AbstractSite`."""
        if self._pad is not None:
            input = F.pad(input, self._pad, mode=self._pad_mode)
        how = self._geometry
        self.check_examples(input.shape[0])
        output = self._convolve(
            input,
            cast(Tensor, self.parameter("weight")),
            self.parameter("bias"),
            how.stride,
            how.padding,
            how.dilation,
            how.groups,
        )
        return self.watch(output, partial(ConvolutionCall, self._slots, how), input)


class ConvolutionCall(AbstractCall):
    """The weight's gradient is g_i (outputs x positions) times patches of a_i (positions x patch size)."""

    def __init__(self, slots: Slots, geometry: Geometry, activation: Tensor, cotangent: Tensor) -> None:
        self.slots, self._slots, self._geometry = slots.present, slots, geometry
        self.num_examples = len(cotangent)
        self.activation = (
            activation if activation.dtype == cotangent.dtype else activation.to(cotangent.dtype)
        )
        self.cotangent = cotangent
        self._outputs = cotangent.shape[1] // geometry.groups
        self._positions = cotangent.shape[2:].numel()
        self._patch = activation.shape[1] // geometry.groups * torch.Size(geometry.kernel).numel()
        self._channels_last = geometry.groups == 1 and activation.shape[1] >= _MANY_CHANNELS

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self.cotangent.device

    @property
    def example_bytes(self) -> int:
        """The gradient and, while it is made, the patches."""
        weight = self._geometry.groups * self._patch * max(self._outputs, self._positions)
        return (weight + self.cotangent.shape[1]) * self.cotangent.element_size()

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """At p = 2, the Gram identity where it is cheaper; otherwise None."""
        if p != 2.0 or self._slots.weight is None:
            return None
        weight_bytes = self._patch * self.cotangent.shape[1] * self.cotangent.element_size()
        kept = may_be_kept(self.num_examples * weight_bytes, self.device)
        if not gram_is_cheaper(self._positions, self._patch, self._outputs, kept=kept):
            return None
        (activation, a_top), (cotangent, g_top) = map(scaled_to_one, (self.activation, self.cotangent))
        scaled = ConvolutionCall(self._slots, self._geometry, activation, cotangent)
        weight = [scaled._gram_norms(start, stop) for start, stop in self.chunks]
        pieces = [torch.cat(weight) * a_top * g_top]
        if self._slots.bias is not None:
            pieces.append(row_norms(self.cotangent.flatten(2).sum(dim=2), 2.0))
        return pieces

    def spread(self, p: float) -> Tensor | None:
        """See `AbstractCall`: by Hoelder's inequality at most |(|g_t|_p)_t|_q (K |a|_p^p)^(1/p).

        Here 1/p + 1/q = 1, t are positions, and every number of the input lies in at most K patches, K the
        size of the kernel.
        """
        if self._slots.weight is None:
            return None
        other = math.inf if p == 1.0 else 1.0 if math.isinf(p) else p / (p - 1.0)
        cotangent = self.cotangent.flatten(2).transpose(1, 2)
        g = row_norms(cotangent.reshape(-1, cotangent.shape[2]), p).view(cotangent.shape[:2])
        kernel = torch.Size(self._geometry.kernel).numel()
        a = row_norms(self.activation.flatten(1), p) * kernel ** (0.0 if math.isinf(p) else 1.0 / p)
        spread: Tensor = (row_norms(g, other) * a).to(self.cotangent.dtype)
        return spread

    def _gram_norms(self, start: int, stop: int) -> Tensor:
        cotangent, patches = self._factors(start, stop)
        by_group = gram_norms(patches, cotangent.transpose(1, 2)).view(stop - start, -1)
        return by_group[:, 0] if self._geometry.groups == 1 else row_norms(by_group, 2.0)

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        matrices = []
        if self._slots.weight is not None:
            cotangent, patches = self._factors(start, stop)
            if into is None:
                matrices.append(torch.bmm(cotangent, patches).view(stop - start, -1))
            else:
                torch.bmm(cotangent, patches, out=into[0].view(len(cotangent), self._outputs, -1))
                matrices.append(into[0])
        if self._slots.bias is not None:
            matrices.append(self.cotangent[start:stop].flatten(2).sum(dim=2))
        return tuple(matrices)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`; the weight comes first, if it is trained at all."""
        if place or self._slots.weight is None:
            return flat
        lead, kernel = flat.shape[:-1], self._geometry.kernel
        if not self._channels_last:
            return flat.view(*lead, self.cotangent.shape[1], -1, *kernel)
        weight = flat.view(*lead, self.cotangent.shape[1], *kernel, -1)
        return weight.movedim(-1, len(lead) + 1).contiguous()

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The layer's ordinary weight gradient, of cotangents that carry the weights."""
        how, dimensions = self._geometry, len(self._geometry.kernel)
        scaled = self.cotangent * weights.view(-1, *(1,) * (dimensions + 1))
        channels = self.activation.shape[1] // how.groups
        shape = self.activation.new_empty(1).expand(self.cotangent.shape[1], channels, *how.kernel)
        _, weight, bias = torch.ops.aten.convolution_backward(
            scaled,
            self.activation,
            shape,
            [self.cotangent.shape[1]],
            how.stride,
            how.padding,
            how.dilation,
            False,
            (0,) * dimensions,
            how.groups,
            (False, self._slots.weight is not None, self._slots.bias is not None),
        )
        return tuple(tensor for tensor in (weight, bias) if tensor is not None)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self.activation, self.cotangent = (
            tensor.index_fill(0, rows, 0.0) for tensor in (self.activation, self.cotangent)
        )

    def _factors(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Cotangents (rows, outputs, positions) and patches (rows, positions, K), a row per group."""
        how, spatial = self._geometry, self.cotangent.shape[2:]
        cotangent = self.cotangent[start:stop].reshape(-1, self._outputs, self._positions)
        activation = self.activation[start:stop]
        if self._channels_last:
            windows = _windows(activation.movedim(1, -1), 1, how, spatial)
            patches = scratch("patches", windows.shape, windows).copy_(windows)
            return cotangent, patches.view(-1, self._positions, self._patch)
        windows = _windows(activation, 2, how, spatial)
        patches = scratch("patches", windows.shape, windows).copy_(windows)
        return cotangent, patches.view(-1, self._patch, self._positions).transpose(1, 2)


def _windows(activation: Tensor, first: int, how: Geometry, positions: torch.Size) -> Tensor:
    """What lies under the kernel at every position: a view of a padded copy.

    Spatial dimensions start at `first`. Channels last (first = 1) give (n, *positions, *kernel, channels),
    where a row of the kernel and its channels are one run in memory; channels first (first = 2) give (n,
    channels, *kernel, *positions), where a row of positions is, which suits few channels.
    """
    dimensions = len(positions)
    after = activation.dim() - first - dimensions
    if any(how.padding):
        sides = [side for pad in reversed(how.padding) for side in (pad, pad)]
        activation = F.pad(activation, [0, 0] * after + sides)
    activation = activation.contiguous()
    strides = activation.stride()
    spatial = strides[first : first + dimensions]
    within = tuple(step * dilation for step, dilation in zip(spatial, how.dilation, strict=True))
    along = tuple(step * stride for step, stride in zip(spatial, how.stride, strict=True))
    if after:
        shape = (activation.shape[0], *positions, *how.kernel, activation.shape[-1])
        return activation.as_strided(shape, (strides[0], *along, *within, 1), activation.storage_offset())
    shape = (*activation.shape[:2], *how.kernel, *positions)
    return activation.as_strided(shape, (*strides[:2], *within, *along), activation.storage_offset())
