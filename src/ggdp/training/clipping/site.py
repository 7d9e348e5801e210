# SPDX-License-Identifier: Apache-2.0
"""Layers whose calls are recorded: a *site* replaces the forward of a layer and notes its calls on a *tape*.

The new forward computes the layer's output from *detached* parameters: autograd then finds the derivatives by
activations, which every layer needs, and none by parameters, which would be sums over the batch and of no
use. A hook on the output catches the cotangent and hands it, with the activation, to the tape. Notes exist
only from the moment their cotangent arrives: a graph that is dropped without backward takes its activations
with it.
"""

import copy
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.call import AbstractCall
from ggdp.training.clipping.loss_graph import LossTerms, RowTags, is_of, outputs_used, read_loss

if TYPE_CHECKING:
    from ggdp.training.clipping.model_calls import ModelCall


class Pass:
    """One forward and backward pass: its batch size, and what its backward has left.

    Attributes:
        num_examples: Of the batch; each has `Tape.views` rows.
        calls: The calls of layers whose cotangents have arrived.
        model_calls: The calls of the model itself, likewise.
        scale: What makes an example's share of the loss its own loss again: the number of examples where
            the loss is their mean, otherwise 1.
        outputs_used: The outputs of the model that the loss is computed from, by their tokens.
        tags: Marks those nodes of autograd's graph that have a row per example.
        terms: What was read from the loss.
    """

    def __init__(self, owner: object) -> None:
        self.num_examples: int | None = None
        self.calls: list[AbstractCall] = []
        self.model_calls: list[ModelCall] = []
        self.scale: float | None = None
        self.tags = RowTags(owner)
        self.outputs_used: set[object] = set()
        self.terms = LossTerms()

    def handed_over(self) -> "Pass":
        """The same pass, of which autograd's graph no longer knows.

        The graph holds whatever listens to it, this pass among them. A pass that went on to hold
        activations, which hold the graph, would close a circle that no collector sees.
        """
        taken = copy.copy(self)
        self.calls, self.model_calls = [], []
        return taken


class Tape:
    """The record of forward and backward passes since it was last read.

    Attributes:
        listening: Whether a backward pass is under way whose loss was read and found plain. What any other
            backward pass computes (`torch.autograd.grad`, say) adds nothing to gradients of parameters, and
            leaves nothing here.
        is_retained: Whether that backward pass was told to keep the graph for another one.
        is_alone: Whether the model is being run for single examples, as a check; layers are then their plain
            selves.
        takes_losses: Whether backward starts from one loss per example.
        probed: While a single loss is looked at, the cotangents of the model's outputs, with the dimension
            in which their examples are.
        is_checked: Whether the present pass will be checked that way.
        views: How many rows of the batch each example has, one after the other.
    """

    def __init__(self, model: nn.Module, *, is_mean: bool, views: int = 1) -> None:
        self._owner = object()
        self._passes, self._model = [Pass(self._owner)], model
        self._is_mean, self.views = is_mean, views
        self._sizes: set[float] | None = None
        self.anchor = torch.zeros((), requires_grad=True)
        self.strays: set[int] = set()
        self.listening = self.is_alone = self.is_retained = False
        self.is_checked = True
        self.takes_losses = False
        self.probed: list[tuple[Tensor, int | None]] | None = None

    @property
    def current(self) -> Pass:
        """The pass that a layer called now belongs to: a forward after a backward opens a new one.

        A forward *during* a backward is activation checkpointing at work, and belongs to the pass it repeats.
        """
        latest = self._passes[-1]
        if latest.calls and torch._C._current_graph_task_id() == -1:
            self._passes.append(latest := Pass(self._owner))
        return latest

    @property
    def is_open(self) -> bool:
        """Whether layers leave notes: the model trains, and is not being checked."""
        return self._model.training and not self.is_alone

    def take(self) -> list[Pass]:
        """Everything noted so far, after which the tape is blank."""
        passes, self._passes = self._passes, [Pass(self._owner)]
        self.strays.clear()
        return [each.handed_over() for each in passes if each.calls]

    def expect(self, num_examples: int) -> None:
        """The model is called with so many examples."""
        self.current.num_examples = num_examples

    def heard(self, roots: Sequence[Tensor], gradients: Any) -> bool:
        """Read the loss that backward is about to start from; False if it does not come from the model.

        Raises:
            UnsupportedModelError: It is not a plain mean or sum over examples.
        """
        if self.is_alone:
            return False
        nodes = [root.grad_fn for root in roots if root.grad_fn is not None]
        concerned = [each for each in self._passes if any(each.tags.is_below(node) for node in nodes)]
        if not concerned:
            if any(is_of(node, self._owner) for node in nodes):
                raise UnsupportedModelError(
                    "backward was called on a forward pass that has been used or discarded already; call "
                    "the model "
                    "again"
                )
            return False
        if len(concerned) > 1:
            raise UnsupportedModelError(
                "the loss depends on the model's outputs before and after an earlier backward pass; call "
                "backward for each on its own"
            )
        each, count = concerned[0], concerned[0].num_examples or 0
        each.outputs_used = set(outputs_used(roots))
        is_mean = self._is_mean and not self.takes_losses
        if count and not self.takes_losses:
            if len(roots) > 1 or gradients is not None or roots[0].numel() != 1:
                raise UnsupportedModelError(
                    "backward must start from one scalar loss; if there is a loss for every example, call "
                    "backward(losses) of the private object"
                )
            terms = read_loss(nodes[0], each.tags, count, is_mean=is_mean)
            each.terms.pending.extend(terms.pending)
            sizes = {size for size in terms.sizes if size != 1.0}
            if self._sizes is None:
                self._sizes = sizes
            elif not sizes <= self._sizes:
                raise UnsupportedModelError(
                    f"the loss is a mean over {max(sizes - self._sizes):g} numbers of every example, which "
                    "it was "
                    "not in the first step. If batches are padded to their longest example, that length "
                    "depends "
                    "on other examples, and so do all gradients; compute one loss per example and call "
                    "backward(losses) of the private object in place of loss.backward()"
                )
        scale = float(count) if is_mean else 1.0
        if each.scale not in (None, scale):
            raise UnsupportedModelError(
                "one forward pass was followed by both loss.backward() and backward(losses); use one of them"
            )
        each.scale = scale
        return True


class _Start(torch.autograd.Function):
    """The identity on an output before which nothing needs derivatives: backward ends with its cotangent."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, arrived: Callable[[Tensor], None]) -> Tensor:
        ctx.mark_dirty(output)
        ctx.arrived = arrived
        return output

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[None, None, None]:
        ctx.arrived(cotangents[0])
        return None, None, None


def plain_forward(module: nn.Module) -> Callable[..., Any]:
    """The forward of the module's class, bound to it."""
    return types.MethodType(type(module).forward, module)


class AbstractSite(ABC):
    """A module whose calls are recorded; they return what the module's own forward returns.

    Attributes:
        path: The module's name inside the model.
        slots: Number of each trainable parameter of the module (or of its subtree), by local name.
    """

    def __init__(
        self, module: nn.Module, path: str, slots: dict[str, int], tape: Tape, *, batch_first: bool
    ) -> None:
        self.module, self.path, self.slots, self.tape = module, path, slots, tape
        self.batch_first = batch_first
        stored = next(p.dtype for name, p in module.named_parameters() if name in slots)
        # Norms and sums of half-precision gradients are taken in float32: 256 + 1 is 256 in bfloat16.
        self.dtype = torch.promote_types(stored, torch.float32)
        self._plain = plain_forward(module)

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Whether this kind of site knows the module in all its settings."""
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module's forward gives, noted while training."""
        if torch.is_grad_enabled() and self.tape.is_open:
            if any(isinstance(each, Tensor) and each.is_nested for each in args):
                raise UnsupportedModelError(
                    f"module {self.shown} was called with a nested tensor, in which examples cannot be told "
                    "apart; pad its rows to one length"
                )
            return self.recorded(*args, **kwargs)
        return self._plain(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy or a pickle of the model holds the plain forward of its own class, and leaves no notes.
        return plain_forward, (self.module,)

    @abstractmethod
    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output, whose cotangent leaves a note."""

    def attach(self) -> None:
        """Replace the module's forward."""
        if "forward" in self.module.__dict__:
            raise UnsupportedModelError(
                f"module {self.shown} has a forward of its own instance (another ExampleGradients may be "
                "attached: detach it first)"
            )
        self.module.forward = self

    def detach(self) -> None:
        """Give the module its forward back."""
        if self.module.__dict__.get("forward") is self:
            del self.module.__dict__["forward"]

    @property
    def shown(self) -> str:
        """The path as people call it."""
        return self.path or "(the model itself)"

    def parameter(self, name: str) -> Tensor | None:
        """The parameter of this name, detached."""
        value = self.module._parameters[name]
        return None if value is None else value.detach()

    def watch(
        self, output: Tensor, note: Callable[..., AbstractCall], *activations: Tensor, dim: int = 0
    ) -> Tensor:
        """Have `note(*activations, cotangent)` called when the output's cotangent arrives, and put on the
        tape. Examples are dimension `dim` of the output.
        """
        current, dtype = self.tape.current, self.dtype
        saved = [activation.detach() for activation in activations]
        versions = [activation._version for activation in saved]

        def arrived(cotangent: Tensor) -> None:
            if not self.is_noting():
                return
            if len(saved) < len(versions):
                raise UnsupportedModelError(
                    "backward was called a second time on one forward pass, whose activations are gone; call "
                    "the model again, or pass retain_graph=True to the first backward"
                )
            if [activation._version for activation in saved] != versions:
                raise UnsupportedModelError(
                    f"the input of module {self.shown} was changed in place after the call, and is needed "
                    "for the gradients of single examples; use the operation that makes a new tensor"
                )
            current.calls.append(note(*saved, cotangent if cotangent.dtype == dtype else cotangent.to(dtype)))
            if not self.tape.is_retained:
                saved.clear()  # or they would live as long as the model's outputs, which hold the graph

        if output._is_view():
            # An operation in place on a view would take the hooked node out of the graph.
            output = torch.ops.aten._unsafe_view(output, output.shape)
        if not output.requires_grad:
            output = _Start.apply(output, self.tape.anchor, arrived)  # type: ignore[no-untyped-call]
        else:
            # A hook on the operation, not on the tensor: quicker, and later changes of the tensor in place
            # are operations of their own.
            place, operation = output.output_nr, cast(Node, output.grad_fn)
            operation.register_prehook(
                lambda cotangents: None if cotangents[place] is None else arrived(cotangents[place])
            )
        current.tags.mark(output.grad_fn, dim)
        return output

    def is_noting(self) -> bool:
        """Whether cotangents that arrive now are those of a loss that was read.

        Raises:
            UnsupportedModelError: Derivatives are being differentiated themselves.
        """
        if self.tape.listening and torch.is_grad_enabled():
            raise UnsupportedModelError(
                "backward was called with create_graph=True; second derivatives, as in a gradient penalty, "
                "cannot be clipped example by example"
            )
        return self.tape.listening

    def check_examples(self, num_rows: int, *, may_fold: bool = False) -> int:
        """Refuse a call whose rows are not the examples of the batch.

        Returns:
            How many rows of the input each example has. It is 1 unless the caller says that the layer
            treats rows alike, so that positions, or windows of an image, may have been folded into the batch.
        """
        current = self.tape.current
        if current.num_examples is None:
            current.num_examples = num_rows // self.tape.views
        expected = current.num_examples * self.tape.views
        if expected == num_rows:
            return 1
        if may_fold and expected and num_rows % expected == 0:
            return num_rows // expected
        kind = "examples" if self.tape.views == 1 else "views of examples"
        raise UnsupportedModelError(
            f"module {self.shown} was called with {num_rows} rows in a batch of {expected} {kind}; keep the "
            "examples in dimension 0 of its input (a shared input, such as positions, must be expanded to "
            "one row per example)"
        )
