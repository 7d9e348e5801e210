# SPDX-License-Identifier: Apache-2.0
"""Sums of clipped per-example gradients from ordinary forward and backward passes of an ordinary model."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ggdp import arguments
from ggdp.training.clipping.bounds import ClippedSum, Clipping
from ggdp.training.clipping.call import AbstractCall, Measured, SummedCalls, measure_all
from ggdp.training.clipping.model_hooks import hooked
from ggdp.training.clipping.model_sites import attach_all, layers_of, sites_of
from ggdp.training.clipping.norms import combined, factors, margin
from ggdp.training.clipping.refusals import NonFiniteGradientError, UnsupportedModelError
from ggdp.training.clipping.site import Pass, Tape
from ggdp.training.clipping.workspace import Workspace


class ExampleGradients:
    """Listens to a model; after backward, sums its per-example gradients, each held to a norm.

    The model is used as ever: `loss(model(x), y).backward()`. No gradient is accumulated in `.grad`; instead
    every layer keeps its activations and the cotangents of its outputs until `clipped_sum` is called:

        sum over examples i of g_i * min(1, C / |g_i|_p),    g_i the gradient of example i's own loss.

    Stage one finds the norms layer by layer, by identities or by writing gradients down for a few examples
    at a time; stage two is one ordinary weight gradient per layer with cotangents scaled by the factors.
    Memory grows with activations, as in ordinary training, never with examples times parameters. In
    evaluation mode and under `torch.no_grad` the model is its plain self.

    Guarantees:
        * The l_p norm of every example's share in `sums` is at most clip_norm: factors aim below it by
          `norms.margin`, which covers the rounding of norms, factors and products.
        * What is clipped is each example's whole gradient, also where parameters are shared between layers or
          calls. Frozen parameters take no part.
        * A call that raises consumes what was recorded and returns nothing.

    Args:
        model: Any module whose output for one example does not depend on others.
        loss_reduction: Whether the loss that backward starts from is the mean or the sum over the batch.
        batch_first: Whether examples are dimension 0 of the model's input, or dimension 1.

    Raises:
        UnsupportedModelError: A module mixes examples (batch normalisation), or cannot be listened to.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> gradients = ExampleGradients(model, loss_reduction="sum")
    >>> model(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).sum().backward()
    >>> clipped = gradients.clipped_sum(Clipping(clip_norm=1.0, norm=2.0))
    >>> clipped.norms
    tensor([5.0000, 0.5000])
    >>> clipped.sums[0]
    tensor([[0.9000, 1.2000]])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss_reduction: Literal["mean", "sum"] = "mean",
        batch_first: bool = True,
    ) -> None:
        arguments.instance("model", model, nn.Module)
        arguments.one_of("loss_reduction", loss_reduction, ("mean", "sum"))
        self.parameters: tuple[nn.Parameter, ...] = tuple(p for p in model.parameters() if p.requires_grad)
        self._tape, self._workspace = Tape(), Workspace()
        self._is_mean = loss_reduction == "mean"
        numbers = {parameter: number for number, parameter in enumerate(self.parameters)}
        self._sites = sites_of(model, numbers, self._tape, batch_first=batch_first)
        if not self._sites:
            raise UnsupportedModelError("the model has no trainable parameters; nothing can be clipped")
        layers = layers_of(self._sites)
        self._num_layers = max(layers) + 1
        self._layer_of_slot = {
            slot: layer
            for site, layer in zip(self._sites, layers, strict=True)
            for slot in site.slots.values()
        }
        attach_all(self._sites)
        self._names = {numbers[p]: name for name, p in model.named_parameters() if p in numbers}
        self._handles = hooked(model, numbers, self._tape, batch_first=batch_first)

    def discard(self) -> None:
        """Forget what forward and backward have left."""
        self._tape.take()

    def detach(self) -> None:
        """Leave the model as it was; what was recorded is forgotten."""
        for site in self._sites:
            site.detach()
        for handle in self._handles:
            handle.remove()
        self.discard()

    def clipped_sum(self, clipping: Clipping) -> ClippedSum:
        """Sum the clipped gradients of all examples that went through backward since the last call.

        Raises:
            NonFiniteGradientError: Some example's gradient is NaN or infinite.
            UnsupportedModelError: A trainable parameter was used past its module's forward.
        """
        strays = sorted(self._tape.strays)
        passes = self._tape.take()
        if strays and passes:
            raise UnsupportedModelError(
                f"parameter {self._names[strays[0]]} was used other than by calling the module that holds "
                "it, where gradients of single examples cannot be seen; use it inside that module's forward"
            )
        with torch.no_grad():
            parts = [self._clipped(each, clipping) for each in passes if each.calls[0].num_examples]
        return self._total(parts)

    def _total(self, parts: list[tuple[dict[int, Tensor], Tensor]]) -> ClippedSum:
        """Add up passes; parameters that took no part get zeros."""
        sums: dict[int, Tensor] = {}
        for part, _ in parts:
            for slot, tensor in part.items():
                sums[slot] = sums[slot] + tensor if slot in sums else tensor
        norms = [norms for _, norms in parts]
        whole = norms[0] if len(norms) == 1 else torch.cat([self.parameters[0].new_empty(0), *norms])
        return ClippedSum(
            sums=tuple(
                sums[slot] if slot in sums else torch.zeros_like(parameter, requires_grad=False)
                for slot, parameter in enumerate(self.parameters)
            ),
            num_examples=len(whole),
            norms=whole,
            num_zeroed=int((~whole.isfinite()).sum()),
        )

    def _clipped(self, each: Pass, clipping: Clipping) -> tuple[dict[int, Tensor], Tensor]:
        """The clipped sums of one pass by parameter, and its examples' norms."""
        p, count = clipping.norm, each.calls[0].num_examples
        self._workspace.clear()
        layers: dict[int, list[Measured]] = {}
        for measured in measure_all(_disjoint(each.calls), p, self._workspace):
            layers.setdefault(self._layer_of_slot[measured.call.slots[0]], []).append(measured)
        pieces = {
            layer: [piece for measured in group for piece in measured.pieces]
            for layer, group in layers.items()
        }
        # Cotangents of a mean loss are the examples' own divided by their count; the factors make up for it:
        # count * min(1, C / (count * norm)) = min(count, C / norm).
        scale = float(count) if self._is_mean else 1.0
        dtype, device = self.parameters[0].dtype, each.calls[0].device
        aim = 1.0 - margin(dtype, device)
        norms = combined([piece for group in pieces.values() for piece in group], p)
        if clipping.non_finite == "refuse":
            _check_finite(norms)
        elif not math.isfinite(norms.sum().item()) and not bool(norms.isfinite().all()):
            left_out = ~norms.isfinite()
            for call in each.calls:
                _leave_out(call, left_out)
            others, found = self._clipped(each, clipping)
            return others, found.masked_fill(left_out, torch.nan)
        if clipping.per_layer:
            share = clipping.layer_norm(self._num_layers) * aim
            weights = {
                layer: factors(combined(group, p), share, most=scale).to(dtype)
                for layer, group in pieces.items()
            }
        else:
            flat = factors(norms, clipping.clip_norm * aim, most=scale).to(dtype)
            weights = dict.fromkeys(layers, flat)
        sums: dict[int, Tensor] = {}
        for layer, group in layers.items():
            for measured in group:
                sums.update(zip(measured.call.slots, measured.weighted_sum(weights[layer]), strict=True))
        return sums, (norms if scale == 1.0 else norms * scale).to(dtype)


def _disjoint(calls: list[AbstractCall]) -> list[AbstractCall]:
    """Calls with no parameter in common: those that share one are summed, example by example."""
    if len({call.num_examples for call in calls}) > 1:
        counts = sorted({call.num_examples for call in calls})
        raise UnsupportedModelError(
            f"one backward pass went through layers with {counts[0]} and with {counts[-1]} rows; every layer "
            f"must see the same examples"
        )
    groups: list[list[AbstractCall]] = []
    taken: set[int] = set()
    for call in calls:
        if taken.isdisjoint(call.slots):
            groups.append([call])
        else:
            touching = [group for group in groups if any(set(call.slots) & set(old.slots) for old in group)]
            groups = [group for group in groups if group not in touching]
            groups.append([old for group in touching for old in group] + [call])
        taken.update(call.slots)
    return [group[0] if len(group) == 1 else SummedCalls(group) for group in groups]


def _leave_out(call: AbstractCall, left_out: Tensor) -> None:
    """Zeros in place of some examples, wherever the call keeps something of every example."""
    for name, value in list(vars(call).items()):
        if isinstance(value, Tensor) and value.dim() and len(value) == len(left_out):
            shape = (-1, *[1] * (value.dim() - 1))
            setattr(call, name, value.masked_fill(left_out.view(shape), 0))


def _check_finite(norms: Tensor) -> None:
    if math.isfinite(norms.sum().item()):  # the only wait for the device
        return
    bad = (~norms.isfinite()).nonzero().flatten().tolist()
    if bad:  # and not merely a sum too large
        raise NonFiniteGradientError(
            f"the gradients of {len(bad)} of {len(norms)} examples are NaN or infinite, first of example "
            f"{bad[0]} of the batch; lower the learning rate, or look at that input"
        )
