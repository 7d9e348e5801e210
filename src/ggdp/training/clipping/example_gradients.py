# SPDX-License-Identifier: Apache-2.0
"""Sums of clipped per-example gradients from ordinary forward and backward passes of an ordinary model."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from ggdp import arguments
from ggdp.errors import NonFiniteGradientError, UnsupportedModelError
from ggdp.training.clipping.bounds import ClippedSum, Clipping
from ggdp.training.clipping.call import AbstractCall, Measured, Weighed, measure_all, weighted_sums
from ggdp.training.clipping.draws import Recording, Replaying
from ggdp.training.clipping.functional import FunctionalSite
from ggdp.training.clipping.loss_graph import check_rows
from ggdp.training.clipping.model_calls import ModelListener, StrayCatcher
from ggdp.training.clipping.model_sites import attach_all, layers_of, sites_of, whole_site
from ggdp.training.clipping.norms import combined, factors, margin
from ggdp.training.clipping.own_parameters import OwnParametersSite
from ggdp.training.clipping.self_check import Used, check_pass, chosen_examples, compare_norms, is_due
from ggdp.training.clipping.shared import SummedCalls
from ggdp.training.clipping.site import AbstractSite, Pass, Tape
from ggdp.training.clipping.workspace import Workspace
from ggdp.training.sharding import Sharding

Result = TypeVar("Result")


class ExampleGradients:
    """Clipped sums of the per-example gradients of a model, computed after an ordinary backward pass.

    The model is used as ever: `loss(model(x), y).backward()`. No gradient is accumulated in `.grad`; instead
    every layer keeps its activations and the cotangents of its outputs until `clipped_sum` is called:

        sum over examples i of g_i * min(1, C / |g_i|_p),    g_i the gradient of example i's own loss.

    Stage one finds the norms layer by layer, by identities or by writing gradients down for a few examples
    at a time; stage two is one ordinary weight gradient per layer with cotangents scaled by the factors.
    Memory grows with activations, as in ordinary training, never with examples times parameters. In
    evaluation mode and under `torch.no_grad` the model is its plain self.

    The loss must be a plain mean (or sum) over examples of one term each; `loss_graph` reads from autograd's
    graph whether it is. For any other loss there is `backward(losses)` with one loss per example.

    Guarantees:
        * The l_p norm of every example's share in `sums` is at most clip_norm: factors aim below it by
          `norms.margin`, which covers the rounding of norms, factors and products. Norms and sums are taken
          in float32 or float64, whatever the parameters' precision.
        * What is clipped is each example's whole gradient, also where parameters are shared between layers or
          calls. Frozen parameters take no part.
        * In the first steps, and now and then later, some examples are run through the model alone, by plain
          autograd. If their gradients are not what clipping used, `SelfCheckError` is raised.
        * A call that raises consumes what was recorded and returns nothing.

    Args:
        model: Any module whose output for one example does not depend on others.
        loss_reduction: Whether the loss that backward starts from is the mean or the sum over the batch.
        batch_first: Whether examples are dimension 0 of the model's input, or dimension 1.
        views: How many views of each example the model is given, in dimension 1 of its inputs. They become
            rows of the model's inputs and outputs, those of an example together; what is clipped is the
            gradient of an example's share of the loss, all its views together.
        self_check: Whether single examples are checked; switch it off only to measure what it costs.
        sharding: Of a model whose parameters are shared out over processes. `weighed` then takes the place
            of `clipped_sum`.

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
        views: int = 1,
        self_check: bool = True,
        sharding: Sharding | None = None,
    ) -> None:
        arguments.instance("model", model, nn.Module)
        arguments.one_of("loss_reduction", loss_reduction, ("mean", "sum"))
        self.views = arguments.whole("views", views)
        if views > 1 and not batch_first:
            raise ValueError(f"views must be 1 with batch_first=False, got {views}: views are dimension 1")
        self.parameters: tuple[nn.Parameter, ...] = tuple(p for p in model.parameters() if p.requires_grad)
        is_mean = loss_reduction == "mean"
        self._tape, self._workspace = Tape(model, is_mean=is_mean, views=views), Workspace()
        self._is_checking = self._tape.is_checked = self_check
        self.steps = self.num_checks = 0
        self._targets: set[int] = set()  # of every example, in a mean over targets
        numbers = {parameter: number for number, parameter in enumerate(self.parameters)}
        self._sites = sites_of(model, numbers, self._tape, batch_first=batch_first)
        if not self._sites:
            raise UnsupportedModelError("the model has no trainable parameters; nothing can be clipped")
        self._numbers, self._sharding = numbers, sharding
        if sharding is not None:
            _check_rules(self._sites)
        self._number_layers()
        attach_all(self._sites)
        for site in self._sites:
            if isinstance(site, OwnParametersSite):
                site.replaced = self._taken_whole
        self._names = {numbers[p]: name for name, p in model.named_parameters() if p in numbers}
        self._listener = ModelListener(model, numbers, self._tape, batch_first=batch_first)
        self._handles = sharding.watch(lambda number: StrayCatcher(self._tape, number)) if sharding else []

    def _number_layers(self) -> None:
        layers = layers_of(self._sites)
        self._num_layers = max(layers) + 1
        self._layer_of_slot = {
            slot: layer
            for site, layer in zip(self._sites, layers, strict=True)
            for slot in site.slots.values()
        }

    def _taken_whole(self, site: AbstractSite) -> AbstractSite:
        """Listen to a module as one, in place of its parameters and of the layers inside it."""
        inside = set(site.module.modules())
        for each in self._sites:
            if each.module in inside:
                each.detach()
        whole = whole_site(site, self._numbers)
        self._sites = [each for each in self._sites if each.module not in inside] + [whole]
        self._number_layers()
        whole.attach()
        return whole

    def discard(self) -> None:
        """Forget what forward and backward have left."""
        self._tape.take()

    def detach(self) -> None:
        """Leave the model as it was; what was recorded is forgotten."""
        for site in self._sites:
            site.detach()
        self._listener.remove()
        for handle in self._handles:
            handle.remove()
        self.discard()

    def backward(self, losses: Tensor) -> None:
        """Backward from one loss per example, of shape (examples,): the gradient of their sum.

        Use it where the loss is no plain mean or sum over examples: with class weights, with a mean over
        tokens that are not padding, with terms whose weights change from step to step.

        Raises:
            UnsupportedModelError: A loss depends on the rows of other examples.
        """
        arguments.instance("losses", losses, Tensor)
        count = self._tape.current.num_examples
        if losses.dim() != 1 or len(losses) != count or losses.grad_fn is None:
            raise ValueError(
                f"losses must hold one loss per example, of shape ({count},) and computed from the model's "
                f"output, got shape {tuple(losses.shape)}; reduce over an example's own positions with "
                "mean(dim=1)"
            )
        if count:
            try:
                check_rows(losses.grad_fn, self._tape.current.tags, count)
            except UnsupportedModelError:  # an operation that is not known; see what it does
                self._probe(losses)
        self._tape.takes_losses = True
        try:
            torch.autograd.backward(losses.sum())
        finally:
            self._tape.takes_losses = False

    def _probe(self, losses: Tensor) -> None:
        """Verify that the losses of some examples depend on no other example's rows of the model's outputs.

        Raises:
            UnsupportedModelError: One does, or cannot be looked at.
        """
        for index in chosen_examples(len(losses), 1)[0]:
            probed: list[tuple[Tensor, int | None]] = []
            self._tape.probed = probed
            try:
                torch.autograd.grad(losses[index], self._tape.anchor, retain_graph=True, allow_unused=True)
            finally:
                self._tape.probed = None
            for cotangent, dim in probed:
                others = torch.arange(len(losses), device=cotangent.device) != index
                if dim is not None and cotangent.shape[dim] != len(losses):
                    others = others.repeat_interleave(self.views)
                if dim is None or bool(cotangent.index_select(dim, others.nonzero().flatten()).any()):
                    raise UnsupportedModelError(
                        f"the loss of example {index} depends on the model's outputs for other examples, "
                        "so that one "
                        "example changes the gradients of others; compute each loss from its own example "
                        "alone"
                    )
            if not probed:
                raise UnsupportedModelError(
                    "the losses were not computed from the outputs of the model's last call, or so that it "
                    "cannot "
                    "be seen; hand over losses that follow from these outputs"
                )

    def rehearse(self, loss_of: Callable[..., Tensor], *batch: Any) -> None:
        """Compare the gradients of some examples in a batch with those of the same examples alone.

        Unlike the check in `clipped_sum` it runs the caller's own function from batch to loss, so that it
        sees everything that function does: examples mixed before the model is called, targets centred by
        their mean, weights computed from the batch. Nothing is released, and nothing is left behind.

        Args:
            loss_of: Takes the parts of a batch; returns a scalar loss, or one loss per example.
            batch: Its parts. Tensors as long as the first one are cut into examples.

        Raises:
            SelfCheckError: An example has another gradient alone than in the batch.
        """
        first = next((each for each in tree_flatten(batch)[0] if isinstance(each, Tensor)), None)
        if first is None or first.dim() == 0 or len(first) < 2:
            raise ValueError("batch must hold tensors with at least two examples in dimension 0")
        count, state = len(first), (self.steps, self._tape.is_checked)
        self.discard()
        try:
            with self.whole_model():
                with Recording() as recording:
                    loss = loss_of(*batch)
                whole = self._rehearsed(loss)
                for index in chosen_examples(count, 1)[0]:
                    alone = tree_map(lambda each, index=index: _row(each, index, count), batch)
                    number = torch.tensor(index)
                    with Replaying(recording.draws, "the loss", index=number, num_examples=count):
                        loss = loss_of(*alone)
                    compare_norms(index, float(whole[index]), float(self._rehearsed(loss)[0]), whole)
        finally:
            self.discard()
            self.steps, self._tape.is_checked = state

    def _rehearsed(self, loss: Tensor) -> Tensor:
        """The norms of the examples' gradients."""
        if loss.dim():
            self.backward(loss)
        else:
            torch.autograd.backward(loss)
        self._tape.is_checked = False
        found = self._passes(Clipping(1.0, 2.0), lambda weighed: weighed.norms)
        return torch.cat(found) if found else torch.empty(0)

    @contextlib.contextmanager
    def whole_model(self, *, needed: bool = True) -> Iterator[None]:
        """All of a sharded model in every process, if that is needed; all processes enter together."""
        with self._sharding.whole() if needed and self._sharding else contextlib.nullcontext():
            yield

    @property
    def checks_next(self) -> bool:
        """Whether single examples of the pass that comes, or was not yet summed, are run alone."""
        return self._tape.is_checked

    def clipped_sum(self, clipping: Clipping) -> ClippedSum:
        """Sum the clipped gradients of all examples that went through backward since the last call.

        Raises:
            NonFiniteGradientError: Some example's gradient is NaN or infinite, and `clipping` refuses that.
            SelfCheckError: An example, run alone, has another gradient than the one that was clipped.
            UnsupportedModelError: A trainable parameter was used past its module's forward.
        """
        parts = self._passes(
            clipping,
            lambda found: _Part(weighted_sums(found.layers, found.weights), found.norms, found.num_zeroed),
        )
        self.end_step(any(len(part.norms) > 1 for part in parts))
        return self._total(parts)

    def weighed(self, clipping: Clipping) -> Weighed | None:
        """The factors of all examples that went through backward since the last call, and no sums yet.

        None if there were none. What `clipped_sum` raises is raised here too, and `end_step` is to be called
        when the sums have been taken.

        Raises:
            UnsupportedModelError: There was more than one backward pass.
        """
        found = self._passes(clipping, lambda weighed: weighed)
        if len(found) > 1:
            raise UnsupportedModelError(
                f"a batch of a sharded model came in {len(found)} backward passes; call backward once for "
                "each batch that the loader hands out, and bound its size with physical_batch_size"
            )
        return found[0] if found else None

    def end_step(self, has_shown: bool) -> None:
        """Go on to the next step; examples are checked in it if it is due, or if this check showed nothing.

        Args:
            has_shown: Whether there were several examples: with one alone a check shows nothing.
        """
        self.steps += 1
        is_checked = self._tape.is_checked
        if is_checked and has_shown:
            self.num_checks += 1
        waits = is_checked and not has_shown
        self._tape.is_checked = self._is_checking and (waits or is_due(self.steps + 1))

    def _passes(self, clipping: Clipping, result_of: Callable[[Weighed], Result]) -> list[Result]:
        """What `result_of` makes of every pass since the last call; what was recorded is used up."""
        strays = sorted(self._tape.strays)
        passes = self._tape.take()
        if strays:
            raise UnsupportedModelError(
                f"parameter {self._names[strays[0]]} was used other than by calling the module that holds "
                "it, where gradients of single examples cannot be seen; use it inside that module's forward"
            )
        device = self.parameters[0].device.type
        lowered = torch.is_autocast_enabled(device)
        with torch.no_grad(), torch.autocast(device, enabled=False) if lowered else contextlib.nullcontext():
            return [result_of(self._weighed(each, clipping)) for each in passes if each.calls[0].num_examples]

    def _total(self, parts: list["_Part"]) -> ClippedSum:
        """Add up passes; parameters that took no part get zeros."""
        sums: dict[int, Tensor] = {}
        for part in parts:
            for slot, tensor in part.sums.items():
                sums[slot] = sums[slot] + tensor if slot in sums else tensor
        norms = [part.norms for part in parts]
        dtype = torch.promote_types(self.parameters[0].dtype, torch.float32)
        if len(norms) == 1:
            whole = norms[0]
        else:
            whole = torch.cat([torch.empty(0, dtype=dtype, device=self.parameters[0].device), *norms])
        return ClippedSum(
            sums=tuple(
                sums[slot] if slot in sums else torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
                for slot, parameter in enumerate(self.parameters)
            ),
            num_examples=len(whole),
            norms=whole,
            num_zeroed=sum(part.num_zeroed for part in parts),
        )

    def _weighed(self, each: Pass, clipping: Clipping) -> Weighed:
        """The factors of one pass, and its examples' norms."""
        if not each.model_calls:
            raise UnsupportedModelError(
                "layers were called without calling the model that holds them, so that their gradients "
                "cannot be "
                "checked; call the model itself, or give make_private the module that is called"
            )
        p = clipping.norm
        each.terms.settle(self._targets)
        dtype, device = torch.promote_types(self.parameters[0].dtype, torch.float32), each.calls[0].device
        calls = _disjoint(each.calls, self.views)
        count = calls[0].num_examples
        layers, pieces = self._measured(calls, p)
        norms = combined([piece for group in pieces.values() for piece in group], p)
        bad = _not_finite(norms)
        if bad is not None:
            if clipping.non_finite == "refuse":
                _refuse(bad, len(norms))
            for call in calls:
                call.zero_rows(bad)
            layers, pieces = self._measured(calls, p)
            norms = combined([piece for group in pieces.values() for piece in group], p)
        # Cotangents of a mean loss are the examples' own divided by their count; the factors make up for it:
        # count * min(1, C / (count * norm)) = min(count, C / norm).
        scale = each.scale or 1.0
        aim = 1.0 - margin(dtype, device)
        if clipping.per_layer:
            share = clipping.layer_norm(self._num_layers) * aim
            weights = {
                layer: factors(combined(group, p), share, most=scale).to(dtype)
                for layer, group in pieces.items()
            }
        else:
            flat = factors(norms, clipping.clip_norm * aim, most=scale).to(dtype)
            weights = dict.fromkeys(layers, flat)
        if self._tape.is_checked and count > 1:
            with torch.enable_grad():
                self._check(each, layers, weights, p, set() if bad is None else set(bad.tolist()))
        return Weighed(layers, weights, (norms * scale).to(dtype), 0 if bad is None else len(bad))

    def _measured(
        self, calls: list[AbstractCall], p: float
    ) -> tuple[dict[int, list[Measured]], dict[int, list[Tensor]]]:
        """Every layer's calls with the norms of their gradients, and those norms alone."""
        self._workspace.clear()
        layers: dict[int, list[Measured]] = {}
        for measured in measure_all(calls, p, self._workspace):
            layers.setdefault(self._layer_of_slot[measured.call.slots[0]], []).append(measured)
        pieces = {
            layer: [piece for measured in group for piece in measured.pieces]
            for layer, group in layers.items()
        }
        return layers, pieces

    def _check(
        self,
        each: Pass,
        layers: dict[int, list[Measured]],
        weights: dict[int, Tensor],
        p: float,
        left_out: set[int],
    ) -> None:
        """Have some examples compared with themselves alone."""
        norms = combined([piece for group in layers.values() for each in group for piece in each.found], p)
        chosen, spare = (
            [index for index in some if index not in left_out]
            for some in chosen_examples(len(norms), self.steps + 1)
        )
        if not chosen:
            return

        def share(index: int) -> dict[int, Tensor]:
            with torch.no_grad():
                only = torch.zeros_like(next(iter(weights.values())))
                only[index] = 1.0
                return weighted_sums(layers, {layer: each * only for layer, each in weights.items()})

        by_slot = {slot: weights[layer] for slot, layer in self._layer_of_slot.items() if layer in weights}
        used = Used(norms, by_slot, share)
        parameters = self.parameters if self._sharding is None else self._sharding.present
        check_pass(each, parameters, self._names, chosen, spare, used, p)


class _Part(NamedTuple):
    """The clipped sums of one pass by parameter, the norms of its examples, and how many were set to zero."""

    sums: dict[int, Tensor]
    norms: Tensor
    num_zeroed: int


def _check_rules(sites: list[AbstractSite]) -> None:
    """Refuse what needs parameters again after the pass, when a sharded model has taken them apart."""
    for site in sites:
        if isinstance(site, (FunctionalSite, OwnParametersSite)):
            raise UnsupportedModelError(
                f"module {site.shown} ({type(site.module).__name__}) has no rule that works on a sharded "
                "model; build it of layers that have one (docs/clipping.md), put parameters of its own into "
                "nn.Linear or nn.Embedding, or train without fully_shard"
            )


def _disjoint(calls: list[AbstractCall], views: int) -> list[AbstractCall]:
    """Calls with no parameter in common: those that share one are summed, example by example."""
    if views > 1:
        calls = [call.with_views(views) for call in calls]
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


def _row(value: Any, index: int, count: int) -> Any:
    is_cut = isinstance(value, Tensor) and value.dim() > 0 and len(value) == count
    return value[index : index + 1] if is_cut else value


def _not_finite(norms: Tensor) -> Tensor | None:
    """The examples whose gradient is NaN or infinite, None if there are none."""
    if math.isfinite(norms.sum().item()):  # the only wait for the device
        return None
    bad = (~norms.isfinite()).nonzero().flatten()
    return bad if len(bad) else None  # and not merely a sum too large


def _refuse(bad: Tensor, count: int) -> None:
    raise NonFiniteGradientError(
        f"the gradients of {len(bad)} of {count} examples are NaN or infinite, first of example "
        f"{int(bad[0])} of the batch; lower the learning rate, or look at that input"
    )
