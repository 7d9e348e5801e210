# SPDX-License-Identifier: Apache-2.0
"""Layer, group, instance and root-mean-square normalisation: scale and shift per feature or channel."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.linear import Slots
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.site import AbstractSite


class NormalizationSite(AbstractSite):
    """weight * normalised + bias, where an example is normalised by its own statistics."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        self._slots = Slots(self.slots.get("weight"), self.slots.get("bias"))
        self._normalise, self._features = _normaliser(module)

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """See `LinearSite.accepts`."""
        return set(module._parameters) <= {"weight", "bias"}

    def recorded(self, input: Tensor) -> Tensor:
        """See `AbstractSite`."""
        swapped = not self.batch_first and self._features > 0 and input.dim() > self._features + 1
        may_fold = not swapped and self._features > 0
        fold = self.check_examples(input.shape[1 if swapped else 0], may_fold=may_fold)
        affine = {name: self.parameter(name) for name in self.module._parameters}
        output = self._normalise(input, **affine)
        # The input is kept, which autograd keeps anyway, and normalised once more when it is needed.
        note = partial(_affine_call, self._slots, self._features, swapped, fold, self._normalise)
        return self.watch(output, note, input, dim=1 if swapped else 0)


def _normaliser(module: nn.Module) -> tuple[Callable[..., Tensor], int]:
    """The normalisation, without its affine part unless weight and bias are given, and the number of trailing
    feature dimensions (0: channels).
    """
    if isinstance(module, nn.LayerNorm):
        shape = list(module.normalized_shape)
        return partial(F.layer_norm, normalized_shape=shape, eps=module.eps), len(shape)
    if isinstance(module, nn.GroupNorm):
        return partial(F.group_norm, num_groups=module.num_groups, eps=module.eps), 0
    if isinstance(module, nn.RMSNorm):
        shape = list(module.normalized_shape)
        return partial(F.rms_norm, normalized_shape=shape, eps=module.eps), len(shape)
    instance = cast(nn.InstanceNorm2d, module)
    return partial(_instance_norm, eps=instance.eps), 0


def _instance_norm(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float
) -> Tensor:
    """With weights it fails on an empty batch, to which they make no difference."""
    if not len(input):
        weight = bias = None
    return F.instance_norm(input, weight=weight, bias=bias, use_input_stats=True, eps=eps)


def _affine_call(
    slots: Slots,
    features: int,
    swapped: bool,
    fold: int,
    normalise: Callable[[Tensor], Tensor],
    input: Tensor,
    cotangent: Tensor,
) -> "AffineCall":
    """Bring both to (n, positions, features), positions being what the parameters are broadcast over."""
    if input.dtype != cotangent.dtype:
        input = input.to(cotangent.dtype)
    normalised = normalise(input)
    if swapped:
        normalised, cotangent = normalised.transpose(0, 1), cotangent.transpose(0, 1)
    if fold > 1:
        normalised, cotangent = (
            tensor.unflatten(0, (len(tensor) // fold, fold))  # type: ignore[no-untyped-call]
            for tensor in (normalised, cotangent)
        )
    products = None if slots.weight is None else _summed(normalised * cotangent, features)
    shifts = None if slots.bias is None else _summed(cotangent, features)
    return AffineCall(slots.present, tuple(each for each in (products, shifts) if each is not None))


def _summed(tensor: Tensor, features: int) -> Tensor:
    """Sum over positions, an example's dimensions other than its features or channels."""
    over = range(1, tensor.dim() - features) if features else range(2, tensor.dim())
    return tensor.sum(dim=tuple(over)) if len(over) else tensor


class AffineCall(AbstractCall):
    """Parameters so few that their per-example gradients, no larger than activations, are simply kept."""

    def __init__(self, slots: tuple[int, ...], tensors: tuple[Tensor, ...]) -> None:
        self.slots, self._tensors = slots, tensors
        self.num_examples = len(tensors[0])

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._tensors[0].device

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return sum(tensor[:1].numel() * tensor.element_size() for tensor in self._tensors)

    def closed_norms(self, p: float) -> list[Tensor]:
        """See `AbstractCall`."""
        return [row_norms(tensor.flatten(1), p) for tensor in self._tensors]

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        return tuple(tensor[start:stop].flatten(1) for tensor in self._tensors)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.view(*flat.shape[:-1], *self._tensors[place].shape[1:])

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return tuple(
            torch.mv(tensor.flatten(1).t(), weights).view(tensor.shape[1:]) for tensor in self._tensors
        )

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._tensors = tuple(tensor.index_fill(0, rows, 0.0) for tensor in self._tensors)
