# SPDX-License-Identifier: Apache-2.0
"""Convolutions in one, two or three dimensions: a linear layer on patches, with the patches taken a few at a
time, or not at all: products of patches are sums of products of positions.
"""

import math
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ggdp.training.clipping.call import AbstractCall, Matrices, chunk_bytes, rows_of
from ggdp.training.clipping.linear import (
    Slots,
    cautious_roots,
    gram,
    gram_is_cheaper,
    gram_norms,
    scaled_to_one,
)
from ggdp.training.clipping.norms import has_kernels, row_norms
from ggdp.training.clipping.site import AbstractSite
from ggdp.training.clipping.workspace import may_be_kept, scratch

# From so many channels on, patches are copied faster channel by channel than position by position.
_MANY_CHANNELS = 4
# On a GPU, cuDNN takes milliseconds to plan for a batch size that it has not seen, and every Poisson batch
# has its own. From so many rows on they are rounded up, by at most a 32nd part, so that few sizes come up.
_MANY_ROWS = 256
# From so many channels on, its kernels are fastest with the channels last.
_CHANNELS_LAST = 16
# What writing gradients down costs beside their products, in multiply-adds, as measured on a CPU: for each
# number of a gradient, and for each number of a patch.
_PER_NUMBER, _PER_PATCH = 32, 8
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
        how, num_examples = self._geometry, input.shape[0]
        self.check_examples(num_examples)
        is_contiguous = input.is_contiguous()
        if _is_laid_out(input):
            input = cast(Tensor, _LaidOut.apply(input, how.groups == 1))  # type: ignore[no-untyped-call]
        output = self._convolve(
            input,
            cast(Tensor, self.parameter("weight")),
            self.parameter("bias"),
            how.stride,
            how.padding,
            how.dilation,
            how.groups,
        )
        if len(output) > num_examples:
            output = output[:num_examples]
        if is_contiguous:
            output = output.contiguous()
        return self.watch(output, partial(ConvolutionCall, self._slots, how), input)


def _is_laid_out(input: Tensor) -> bool:
    return input.is_cuda and len(input) >= _MANY_ROWS


def _rounded_up(count: int) -> int:
    """The next of a few numbers of rows: multiples of a power of two, at most a 32nd part larger."""
    step = 1 << (count.bit_length() - 6)
    return -(-count // step) * step


class _LaidOut(torch.autograd.Function):
    """A batch with rows of zeros after it, and the channels last, as a GPU convolves it fastest."""

    @staticmethod
    def forward(ctx: Any, batch: Tensor, may_reorder: bool) -> Tensor:
        ctx.num_rows = len(batch)
        rows = _rounded_up(len(batch))
        reorders = may_reorder and batch.dim() == 4 and batch.shape[1] >= _CHANNELS_LAST
        is_last = batch.dim() == 4 and batch.is_contiguous(memory_format=torch.channels_last)
        if rows == len(batch) and (is_last or not reorders):
            return batch.view_as(batch)
        memory_format = torch.channels_last if reorders or is_last else torch.contiguous_format
        laid_out = torch.empty(
            (rows, *batch.shape[1:]), dtype=batch.dtype, device=batch.device, memory_format=memory_format
        )
        laid_out[: len(batch)].copy_(batch)
        laid_out[len(batch) :].zero_()
        return laid_out

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        return cotangent[: ctx.num_rows], None


class ConvolutionCall(AbstractCall):
    """The weight's gradient is g_i (outputs x positions) times patches of a_i (positions x patch size).

    Each example has `views` rows, one after the other, whose positions count as its own. The activation may
    have further rows, of zeros.
    """

    def __init__(
        self, slots: Slots, geometry: Geometry, activation: Tensor, cotangent: Tensor, views: int = 1
    ) -> None:
        self.slots, self._slots, self._geometry = slots.present, slots, geometry
        self.num_examples, self._views = len(cotangent) // views, views
        self.activation = (
            activation if activation.dtype == cotangent.dtype else activation.to(cotangent.dtype)
        )
        self.cotangent = cotangent
        self._outputs = cotangent.shape[1] // geometry.groups
        self._positions = views * cotangent.shape[2:].numel()
        self._inputs = views * activation.shape[2:].numel()
        self._patch = activation.shape[1] // geometry.groups * torch.Size(geometry.kernel).numel()
        self._spread: Tensor | None = None  # at p = 2, once it is known
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

    def with_views(self, views: int) -> AbstractCall:
        """See `AbstractCall`."""
        return ConvolutionCall(self._slots, self._geometry, self.activation, self.cotangent, views)

    def closed_norms(self, p: float) -> list[Tensor] | None:
        """At p = 2, the Gram identity where it is cheaper; otherwise None."""
        if p != 2.0 or self._slots.weight is None:
            return None
        size = self._patch * self._outputs
        kept_bytes = self.num_examples * self._geometry.groups * size * self.cotangent.element_size()
        by_patches, by_positions = self._gram_costs()
        cost = min(by_patches, by_positions)
        kept = may_be_kept(kept_bytes, self.device)
        cost -= _PER_PATCH * self._positions * self._patch  # which the gradient takes besides
        if not gram_is_cheaper(cost, self._positions, size, kept=kept, passes=_PER_NUMBER):
            return None
        (activation, a_top), (cotangent, g_top) = (
            scaled_to_one(tensor.unflatten(0, (self.num_examples, self._views)))  # type: ignore[no-untyped-call]
            for tensor in (self._activation, self.cotangent)
        )
        scaled = self._again(activation.flatten(0, 1), cotangent.flatten(0, 1))
        if by_patches < by_positions:
            weight = [scaled._gram_norms(start, stop) for start, stop in self.chunks]
        else:
            found = [scaled._position_norms(start, stop) for start, stop in self._position_chunks]
            weight = [norms for norms, _ in found]
            self._spread = torch.cat([spread for _, spread in found]) * a_top * g_top
        pieces = [torch.cat(weight) * a_top * g_top]
        if self._slots.bias is not None:
            pieces.append(row_norms(self._bias_rows(0, self.num_examples), 2.0))
        return pieces

    def spread(self, p: float) -> Tensor | None:
        """See `AbstractCall`: by Hoelder's inequality at most |(|g_t|_p)_t|_q (K |a|_p^p)^(1/p).

        Here 1/p + 1/q = 1, t are positions, and every number of the input lies in at most K patches, K the
        size of the kernel.
        """
        if self._slots.weight is None:
            return None
        if p == 2.0 and self._spread is not None:
            return self._spread
        other = math.inf if p == 1.0 else 1.0 if math.isinf(p) else p / (p - 1.0)
        cotangent = self.cotangent.flatten(2).transpose(1, 2)
        g = row_norms(cotangent.reshape(-1, cotangent.shape[2]), p).view(cotangent.shape[:2])
        kernel = torch.Size(self._geometry.kernel).numel()
        activation = self._activation
        if not activation.is_contiguous():
            activation = activation.movedim(1, -1)  # a norm does not mind the order
        a = row_norms(activation.flatten(1), p) * kernel ** (0.0 if math.isinf(p) else 1.0 / p)
        spread: Tensor = (row_norms(g, other) * a).to(self.cotangent.dtype)
        return spread if self._views == 1 else spread.view(-1, self._views).sum(dim=1)

    def _gram_costs(self) -> tuple[int, int]:
        """Multiply-adds to find all products of two patches of a group: from patches, and from positions.

        The products of two positions are P^2 numbers (P positions of the input, T of the output), of which
        windows are added up one dimension of the kernel after the other; a pass is worth 8 multiply-adds.
        """
        outputs = self._positions**2 * self._outputs
        inputs = self._inputs
        channels = self.activation.shape[1] // self._geometry.groups
        passes = 8 * sum(self._geometry.kernel) * self._positions * max(inputs, self._positions)
        return self._positions**2 * self._patch + outputs, inputs**2 * channels + passes + outputs

    @property
    def _position_chunks(self) -> list[tuple[int, int]]:
        """Ranges of examples whose products of positions make up a chunk."""
        numbers = self._inputs**2 + 2 * self._positions**2
        size = numbers * self._geometry.groups * self.cotangent.element_size()
        step = max(1, chunk_bytes(self.device) // size)
        return [(start, min(start + step, self.num_examples)) for start in range(0, self.num_examples, step)]

    def _position_norms(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Norms and `spread` from products of positions, which the kernel adds up to products of patches."""
        groups = self._geometry.groups
        inputs, outputs = (
            gram(self._by_position(tensor, start, stop)) for tensor in (self.activation, self.cotangent)
        )
        a, g = (each.diagonal(dim1=1, dim2=2).sum(dim=1) for each in (inputs, outputs))
        spread = (a * g).clamp_min_(0.0).mul_(math.prod(self._geometry.kernel)).sqrt_()
        if has_kernels(inputs):
            from ggdp.training.clipping.kernels import patch_products

            sizes = (tuple(self.activation.shape[2:]), tuple(self.cotangent.shape[2:]))
            places = _places(self._geometry, *sizes, self._views, self.device)
            squares, bound = patch_products(inputs, outputs, places)
            norms = cautious_roots(squares, bound, self._positions**2 * (self._patch + self._outputs))
        else:
            norms, _ = gram_norms(self._patch_products(inputs), outputs, self._patch + self._outputs)
        if groups == 1:
            return norms, spread
        return row_norms(norms.view(-1, groups), 2.0), spread.view(-1, groups).sum(dim=1)

    def _patch_products(self, products: Tensor) -> Tensor:
        """(rows, T, T) of (rows, P, P), all views together."""
        how, rows = self._geometry, len(products)
        sizes = list(self.activation.shape[2:])
        for dim, kernel in enumerate(how.kernel):
            length = self.cotangent.shape[2 + dim]
            # One dimension of both positions at a time: (rows, before, H, after, before, H, after).
            before, after = self._views * math.prod(sizes[:dim]), math.prod(sizes[dim + 1 :])
            shaped = products.view(rows, before, sizes[dim], after, before, sizes[dim], after)
            products = _window_sums(
                shaped, kernel, length, how.stride[dim], how.padding[dim], how.dilation[dim]
            )
            sizes[dim] = length
        return products.view(rows, self._positions, self._positions)

    def _by_position(self, tensor: Tensor, start: int, stop: int) -> Tensor:
        """Vectors (rows, positions, channels), a row per example and group, of (views, channels, ...)."""
        part = tensor[start * self._views : stop * self._views].flatten(2).transpose(1, 2)
        if self._geometry.groups == 1:
            return part.reshape(stop - start, -1, part.shape[2])
        grouped = part.reshape(
            stop - start, -1, self._geometry.groups, part.shape[2] // self._geometry.groups
        )
        return grouped.transpose(1, 2).flatten(0, 1)

    def _gram_norms(self, start: int, stop: int) -> Tensor:
        cotangent, patches = self._factors(start, stop)
        norms, _ = gram_norms(gram(patches), gram(cotangent.transpose(1, 2)), self._patch + self._outputs)
        by_group = norms.view(stop - start, -1)
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
            matrices.append(self._bias_rows(start, stop))
        return tuple(matrices)

    def _bias_rows(self, start: int, stop: int) -> Tensor:
        sums = self.cotangent[start * self._views : stop * self._views].flatten(2).sum(dim=2)
        return sums if self._views == 1 else sums.view(stop - start, self._views, -1).sum(dim=1)

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
        if self._views > 1:
            weights = weights.repeat_interleave(self._views)
        factors = weights.view(-1, *(1,) * (dimensions + 1))
        if len(self.activation) == len(self.cotangent):
            scaled = self.cotangent * factors
        else:
            is_last = dimensions == 2 and self.activation.is_contiguous(memory_format=torch.channels_last)
            scaled = torch.empty(
                (len(self.activation), *self.cotangent.shape[1:]),
                dtype=self.cotangent.dtype,
                device=self.device,
                memory_format=torch.channels_last if is_last else torch.contiguous_format,
            )
            torch.mul(self.cotangent, factors, out=scaled[: len(self.cotangent)])
            scaled[len(self.cotangent) :].zero_()
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
        return tuple(tensor.contiguous() for tensor in (weight, bias) if tensor is not None)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        rows = rows_of(rows, self._views)
        self.activation, self.cotangent = (
            tensor.index_fill(0, rows, 0.0) for tensor in (self.activation, self.cotangent)
        )

    @property
    def _activation(self) -> Tensor:
        """Without rows of zeros."""
        return self.activation[: len(self.cotangent)]

    def _again(self, activation: Tensor, cotangent: Tensor) -> "ConvolutionCall":
        return ConvolutionCall(self._slots, self._geometry, activation, cotangent, self._views)

    def _factors(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Cotangents (rows, outputs, positions) and patches (rows, positions, K), a row per group."""
        how, spatial = self._geometry, self.cotangent.shape[2:]
        if self._views == 1:
            cotangent = self.cotangent[start:stop].reshape(-1, self._outputs, self._positions)
        else:
            cotangent = self._by_position(self.cotangent, start, stop).transpose(1, 2)
        activation = self.activation[start * self._views : stop * self._views]
        if self._channels_last:
            windows = _windows(activation.movedim(1, -1), 1, how, spatial)
            patches = scratch("patches", windows.shape, windows).copy_(windows)
            return cotangent, patches.view(-1, self._positions, self._patch)
        windows = _windows(activation, 2, how, spatial)
        patches = scratch("patches", windows.shape, windows).copy_(windows)
        if self._views == 1:
            return cotangent, patches.view(-1, self._patch, self._positions).transpose(1, 2)
        grouped = patches.view(stop - start, self._views, how.groups, self._patch, spatial.numel())
        return cotangent, grouped.permute(0, 2, 1, 4, 3).reshape(-1, self._positions, self._patch)


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


@lru_cache(maxsize=64)
def _places(
    how: Geometry, inputs: tuple[int, ...], outputs: tuple[int, ...], views: int, device: torch.device
) -> Tensor:
    """Which position of the input lies under part k of the kernel at position t, (K, views T); -1 if none."""
    flat, inside = torch.zeros(1, 1, dtype=torch.int32), torch.ones(1, 1, dtype=torch.bool)
    for dim, (size, length) in enumerate(zip(inputs, outputs, strict=True)):
        part = how.dilation[dim] * torch.arange(how.kernel[dim], dtype=torch.int32)
        start = how.stride[dim] * torch.arange(length, dtype=torch.int32) - how.padding[dim]
        place = part[:, None] + start
        # (K, 1, T, 1) and (1, k, 1, t): the last dimension is the innermost of both.
        flat = (flat[:, None, :, None] * size + place[:, None, :]).flatten(2).flatten(0, 1)
        is_in = (place >= 0) & (place < size)
        inside = (inside[:, None, :, None] & is_in[:, None, :]).flatten(2).flatten(0, 1)
    of_views = math.prod(inputs) * torch.arange(views, dtype=torch.int32).view(-1, 1, 1)
    found = torch.where(inside, flat + of_views, -1)
    return found.transpose(0, 1).flatten(1).contiguous().to(device)


def _window_sums(
    products: Tensor, kernel: int, length: int, stride: int, padding: int, dilation: int
) -> Tensor:
    """The sum over k of products[:, :, s t + d k - pad, :, :, s u + d k - pad, :] for all t and u."""
    size = products.shape[2]
    total = products.new_zeros(*products.shape[:2], length, *products.shape[3:5], length, products.shape[6])
    for offset in range(kernel):
        shift = dilation * offset - padding
        first = max(0, -(shift // stride))  # the least t with s t + shift >= 0
        last = min(length - 1, (size - 1 - shift) // stride)
        if first > last:
            continue
        source = slice(first * stride + shift, last * stride + shift + 1, stride)
        target = slice(first, last + 1)
        total[:, :, target, :, :, target].add_(products[:, :, source, :, :, source])
    return total
