# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one, two or three dimensions: a linear layer on patches, with the patches taken a few at a time."""

from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ggdp.training.clipping.call import AbstractCall
from ggdp.training.clipping.linear import Slots, gram_norms
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.site import AbstractSite

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
            self.parameter("weight"),
            self.parameter("bias"),
            how.stride,
            how.padding,
            how.dilation,
            how.groups,
        )
        return self.watch(output, partial(ConvolutionCall, self._slots, how), input)


class ConvolutionCall(AbstractCall):
    """The weight's gradient is g_i (outputs x positions) times the patches of a_i (positions x patch size)."""

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
        """At p = 2, the Gram identity where it saves work though sums must be found anew; otherwise None.

        Multiply-adds per example and group, with T positions, patches of K and O outputs: writing the gradient
        down takes T K O, and a few passes over K O numbers; the identity T^2 (K + O), and T K O for the sum.
        """
        positions, patch, outputs = self._positions, self._patch, self._outputs
        if p != 2.0 or self._slots.weight is None:
            return None
        if positions * positions * (patch + outputs) + positions * patch * outputs >= patch * outputs * (
            positions + 16
        ):
            return None
        weight = []
        for start, stop in self.chunks:
            cotangent, patches = self._rows(start, stop)
            norms = gram_norms(patches.transpose(1, 2), cotangent.transpose(1, 2))
            weight.append(row_norms(norms.view(stop - start, -1), 2.0))
        pieces = [torch.cat(weight)]
        if self._slots.bias is not None:
            pieces.append(row_norms(self.cotangent.flatten(2).sum(dim=2), 2.0))
        return pieces

    def gradients(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        tensors = []
        if self._slots.weight is not None:
            cotangent, patches = self._rows(start, stop)
            product = torch.bmm(cotangent, patches.transpose(1, 2))
            shape = (stop - start, self.cotangent.shape[1], -1, *self._geometry.kernel)
            tensors.append(product.view(shape))
        if self._slots.bias is not None:
            tensors.append(self.cotangent[start:stop].flatten(2).sum(dim=2))
        return tuple(tensors)

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

    def _rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Cotangents (examples * groups, outputs, positions) and patches (examples * groups, K, positions)."""
        rows = (stop - start) * self._geometry.groups
        cotangent = self.cotangent[start:stop].reshape(rows, self._outputs, self._positions)
        patches = _patches(self.activation[start:stop], self._geometry, self.cotangent.shape[2:])
        return cotangent, patches.reshape(rows, self._patch, self._positions)


def _patches(activation: Tensor, how: Geometry, positions: torch.Size) -> Tensor:
    """The input under the kernel at every position, (n, channels, *kernel, *positions): a view if nothing is padded."""
    if any(how.padding):
        activation = F.pad(activation, [side for pad in reversed(how.padding) for side in (pad, pad)])
    rows, channels, *steps = activation.stride()
    shape = (*activation.shape[:2], *how.kernel, *positions)
    within = tuple(step * dilation for step, dilation in zip(steps, how.dilation, strict=True))
    along = tuple(step * stride for step, stride in zip(steps, how.stride, strict=True))
    return activation.as_strided(shape, (rows, channels, *within, *along), activation.storage_offset())
