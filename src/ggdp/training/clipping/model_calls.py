# SPDX-License-Identifier: Apache-2.0
"""Records of the calls of a whole model: what it was called with, and the cotangents of what it returned.

With both, one example can be run through the model again, alone and by plain autograd (`ModelCall.alone`).
That gradient owes nothing to the rules by which clipping finds gradients, and `self_check` compares the two.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.hooks import RemovableHandle

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.draws import Autocast, Recording, Replaying, example_part
from ggdp.training.clipping.loss_graph import listen, mark_output
from ggdp.training.clipping.refusals import batch_norms_of, stay_in_evaluation_mode
from ggdp.training.clipping.site import Tape


class _Apart(torch.autograd.Function):
    """The identity on several outputs, of which one may be computed from another.

    The cotangent of each is then what the loss sends to it, without what comes back through the others. A
    model that returns its loss beside its logits does not need it, since the loss alone is used.
    """

    @staticmethod
    def forward(ctx: Any, *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(output.clone() for output in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return cotangents


class ModelCall:
    """One call of the model in training mode.

    Args:
        model: It.
        tape: Where the call is noted once a cotangent of its outputs has arrived.
        inputs: Its arguments, positional and by name.
        num_examples: How many examples they hold, each in `Tape.views` rows.
        dim: The dimension of inputs in which examples are.
        is_checked: Whether single examples may be run again: what that needs is kept.
    """

    def __init__(
        self, model: nn.Module, tape: Tape, inputs: Any, num_examples: int, dim: int, *, is_checked: bool
    ) -> None:
        self._model, self._tape, self._dim = model, tape, dim
        self.num_examples, self.is_checked = num_examples, is_checked
        self.autocast = Autocast()
        self._cotangents: dict[int, Tensor] = {}
        self._leaves: list[Any] = []
        self.recording = Recording()
        if is_checked:
            leaves, self._structure = tree_flatten(inputs)
            self._leaves = [each.detach() if isinstance(each, Tensor) else each for each in leaves]
            self._versions = self._present_versions()
            self._buffers = {
                name: (buffer, buffer.clone(), buffer._version)
                for name, buffer in model.named_buffers()
                if buffer.is_floating_point()
            }

    def returned(self, outputs: Any) -> Any:
        """The model's outputs, whose cotangents are kept from now on."""
        if type(outputs) is Tensor and outputs.requires_grad:  # the usual case
            return self._watched(outputs, 0)
        leaves, structure = tree_flatten(outputs)
        if not any(isinstance(each, Tensor) for each in leaves):
            kinds = sorted({type(each).__name__ for each in leaves}) or [type(outputs).__name__]
            raise UnsupportedModelError(
                f"the model returns {', '.join(kinds)}, in which tensors cannot be seen; let it return "
                "tensors, "
                "or tuples, lists or dicts of them"
            )
        places = [
            place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        found = [leaves[place] for place in places]
        if len(found) > 1 and all(output.numel() > 1 for output in found):
            found = list(_Apart.apply(*found))  # type: ignore[no-untyped-call]
        for place, output in zip(places, found, strict=True):
            leaves[place] = self._watched(output, place)
        return tree_unflatten(leaves, structure)

    def _watched(self, output: Tensor, place: int) -> Tensor:
        current = self._tape.current
        if output._is_view():
            # An operation in place on a view would leave the hook below with the cotangent of another value.
            output = torch.ops.aten._unsafe_view(output, output.shape)
        counts = {self.num_examples, self.num_examples * self._tape.views}
        dims = [dim for dim, size in enumerate(output.shape) if size in counts]
        dim = self._dim if self._dim in dims else dims[0] if dims else None
        if output.numel() > 1 and dim is not None:
            current.tags.mark(output.grad_fn, dim)

        token = object()
        mark_output(output, token)

        def arrived(cotangent: Tensor) -> None:
            if self._tape.probed is not None:
                self._tape.probed.append((cotangent, dim))
            elif self._tape.listening and token in current.outputs_used:
                if not self._cotangents:
                    current.model_calls.append(self)
                before = self._cotangents.get(place)
                self._cotangents[place] = cotangent if before is None else before + cotangent

        output.register_hook(arrived)  # type: ignore[no-untyped-call]
        return output

    @property
    def was_changed(self) -> bool:
        """Whether an input was changed in place since the call, so that it cannot be repeated."""
        return self._present_versions() != self._versions

    def _present_versions(self) -> list[int]:
        return [each._version for each in self._leaves if isinstance(each, Tensor)]

    @property
    def ambiguous(self) -> list[int]:
        """Inputs after the first that may be as long as the batch by accident: square masks, and positions.

        Nothing else is given whole to one example alone: a second input that holds a row of every example
        would let examples see each other.
        """
        return [
            place
            for place, leaf in enumerate(self._leaves)
            if place and isinstance(leaf, Tensor) and self._is_about_positions(leaf)
        ]

    def _is_about_positions(self, leaf: Tensor) -> bool:
        rows = self.num_examples * self._tape.views
        if leaf.shape == (rows, rows):
            return True
        whole = leaf.shape == (rows,) and not leaf.is_floating_point() and leaf.dtype != torch.bool
        return whole and bool((leaf.diff() == 1).all())

    def alone(
        self, index: int, parameters: tuple[Tensor, ...], scale: float, shared: tuple[int, ...] = ()
    ) -> list[Tensor | None]:
        """The gradients of example `index`, run through the model alone by plain autograd.

        Args:
            index: The example's row in the batch.
            parameters: By which to differentiate.
            scale: See `Pass.scale`.
            shared: Places of inputs that are given whole; of others as long as the batch its row is taken.
        """
        args, kwargs = tree_unflatten(self._inputs_of(index, shared), self._structure)
        number = torch.tensor(index)
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.autocast.again())
            stack.enter_context(self._buffers_as_before())
            stack.enter_context(torch.enable_grad())
            self._tape.is_alone = True
            stack.callback(setattr, self._tape, "is_alone", False)
            try:
                with Replaying(
                    self.recording.draws, "the model", index=number, num_examples=self.num_examples
                ):
                    outputs, _ = tree_flatten(self._model(*args, **kwargs))
                pairs = [
                    (outputs[place], self._own(cotangent, outputs[place], number, scale))
                    for place, cotangent in self._cotangents.items()
                    if outputs[place].requires_grad
                ]
                if not pairs:
                    return [None] * len(parameters)
                heads, cotangents = zip(*pairs, strict=True)
                return list(torch.autograd.grad(heads, parameters, cotangents, allow_unused=True))
            except UnsupportedModelError:
                raise
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                if "use_reentrant" in str(error):
                    raise UnsupportedModelError(
                        "the model uses activation checkpointing with use_reentrant=True, under which one "
                        "example cannot be run alone to check its clipped gradient; pass use_reentrant=False"
                    ) from error
                raise UnsupportedModelError(
                    f"the model cannot be run for one example of the batch alone ({error}), so that its "
                    "clipped gradients cannot be checked; let it accept a batch of one example"
                ) from error

    def _inputs_of(self, index: int, shared: tuple[int, ...]) -> list[Any]:
        leaves, views = list(self._leaves), self._tape.views
        for place, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor) and place not in shared:
                dims = [dim for dim, size in enumerate(leaf.shape[:2]) if size == self.num_examples * views]
                if dims:
                    dim = self._dim if self._dim in dims else dims[0]
                    leaves[place] = leaf.narrow(dim, index * views, views)
        return leaves

    def _own(self, cotangent: Tensor, output: Tensor, number: Tensor, scale: float) -> Tensor:
        """The part of a batch's cotangent that belongs to one example's own output."""
        if cotangent.numel() == 1 and output.numel() == 1 and self.num_examples > 1:
            return cotangent.view_as(output) / scale  # a loss that the model computes itself
        part = example_part(cotangent, output.shape, number, self.num_examples)
        if part is None:
            raise UnsupportedModelError(
                f"the model returns a tensor of shape {tuple(cotangent.shape)} for {self.num_examples} "
                "examples "
                f"and one of shape {tuple(output.shape)} for one example alone, so that the rows of an "
                "example "
                "cannot be told; return its tensors with the examples in dimension 0"
            )
        return part

    @contextlib.contextmanager
    def _buffers_as_before(self) -> Iterator[None]:
        """Repeat the call with the buffers that it found, and compare how it leaves them.

        Raises:
            UnsupportedModelError: What the call writes into a buffer depends on the data.
        """
        changed = {
            name: (buffer, before, buffer.clone())
            for name, (buffer, before, version) in self._buffers.items()
            if buffer._version != version
        }
        with torch.no_grad():
            for buffer, before, _ in changed.values():
                buffer.copy_(before)
        yield
        with torch.no_grad():
            for name, (buffer, _, after) in changed.items():
                is_same = torch.allclose(buffer, after, rtol=1e-3, atol=1e-6, equal_nan=True)
                buffer.copy_(after)
                if not is_same:
                    raise UnsupportedModelError(
                        f"the model writes into its buffer {name!r} something that depends on the examples "
                        "of "
                        "the batch (running statistics, say), which would leave without noise; remove it"
                    )


class ModelListener:
    """Hooks on the model itself, on frozen batch normalisations, and on parameters.

    Args:
        model: What is listened to.
        numbers: The number of every trainable parameter.
        tape: What is told.
        batch_first: Whether examples are dimension 0 of the model's inputs, or dimension 1.
    """

    def __init__(
        self, model: nn.Module, numbers: dict[nn.Parameter, int], tape: Tape, *, batch_first: bool
    ) -> None:
        self._tape, self._dim = tape, 0 if batch_first else 1
        self._open: list[ModelCall] = []
        before, after = _Before(self), _After(self)
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            model.register_forward_hook(after, always_call=True),
        ]
        for parameter, number in numbers.items():
            self._handles.append(parameter.register_hook(StrayCatcher(tape, number)))  # type: ignore[no-untyped-call]
        for norm in batch_norms_of(model):
            self._handles.append(norm.register_forward_pre_hook(stay_in_evaluation_mode))
        self._stop = listen(tape)

    def remove(self) -> None:
        """Take all hooks away again."""
        for handle in self._handles:
            handle.remove()
        self._stop()

    def before(self, model: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The model is called; views of examples become rows of its inputs."""
        if not (model.training and torch.is_grad_enabled()) or self._tape.is_alone:
            return None
        first = _first_tensor((args, kwargs))
        if first is None or first.dim() <= self._dim:
            return None
        if first.is_nested:
            raise UnsupportedModelError(
                "the model was called with a nested tensor, in which examples cannot be told apart; pad "
                "its rows to "
                "one length"
            )
        count = first.shape[self._dim]
        if self._tape.views > 1:
            args, kwargs = _views_as_rows((args, kwargs), first, self._tape.views)
        self._tape.expect(count)
        is_checked = self._tape.is_checked and count > 0
        call = ModelCall(model, self._tape, (args, kwargs), count, self._dim, is_checked=is_checked)
        self._open.append(call)
        if is_checked:
            call.recording.__enter__()  # type: ignore[no-untyped-call]
        return (args, kwargs) if self._tape.views > 1 else None

    def after(self, model: nn.Module, outputs: Any) -> Any:
        """The model has returned, or raised (then there are no outputs)."""
        if self._tape.is_alone or not self._open:
            return None
        call = self._open.pop()
        if call.is_checked:
            call.recording.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        return None if outputs is None else call.returned(outputs)


class _Before:
    def __init__(self, listener: ModelListener) -> None:
        self._listener = listener

    def __call__(self, model: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        return self._listener.before(model, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_before, ()  # a copy of the model is not listened to


class _After:
    def __init__(self, listener: ModelListener) -> None:
        self._listener = listener

    def __call__(self, model: nn.Module, args: Any, outputs: Any) -> Any:
        return self._listener.after(model, outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_after, ()


class StrayCatcher:
    """A gradient hook on a parameter, for uses of it that no layer's forward has stood in for."""

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self._number = tape, number

    def __call__(self, gradient: Tensor) -> None:
        """Tell the tape."""
        if self._tape.listening and not self._tape.is_alone:
            self._tape.strays.add(self._number)


def _no_before() -> Any:
    return ignore_inputs


def _no_after() -> Any:
    return ignore_outputs


def ignore_inputs(module: nn.Module, args: Any, kwargs: Any) -> None:
    """What is left of the pre-hook in a copy of the model."""


def ignore_outputs(module: nn.Module, args: Any, outputs: Any) -> None:
    """What is left of the hook in a copy of the model."""


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, PackedSequence):
        return None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((found for each in inner if (found := _first_tensor(each)) is not None), None)


def _views_as_rows(inputs: Any, first: Tensor, views: int) -> Any:
    """Inputs of shape (examples, views, ...) with a row for every view, those of an example together.

    Raises:
        UnsupportedModelError: The first input has another shape.
    """
    if first.dim() < 2 or first.shape[1] != views:
        raise UnsupportedModelError(
            f"the model was made private with views={views}, so that it takes inputs of shape (examples, "
            f"{views}, ...) in training, got {tuple(first.shape)}; put the views of each example side by "
            "side with torch.stack([...], dim=1)"
        )
    return tree_map(
        lambda each: (
            each.flatten(0, 1) if isinstance(each, Tensor) and each.shape[:2] == first.shape[:2] else each
        ),
        inputs,
    )
