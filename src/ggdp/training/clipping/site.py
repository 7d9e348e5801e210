# SPDX-License-Identifier: Apache-2.0
"""Where a layer is listened to: its forward is stood in for, and each call leaves a note on the tape.

The stand-in computes the layer's output from *detached* parameters: autograd then finds the derivatives by
activations, which every layer needs, and none by parameters, which would be sums over the batch and of no
use. A hook on the output catches the cotangent and hands it, with the activation, to the tape. Notes exist
only from the moment their cotangent arrives: a graph that is dropped without backward takes its activations
with it.
"""

import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from ggdp.training.clipping.call import AbstractCall
from ggdp.training.clipping.refusals import UnsupportedModelError


class Pass:
    """One forward and backward pass: its batch size, and the calls whose cotangents have arrived."""

    def __init__(self) -> None:
        self.num_examples: int | None = None
        self.calls: list[AbstractCall] = []

    def handed_over(self) -> "Pass":
        """The same pass, of which autograd's graph no longer knows.

        The graph holds whatever listens to it, this pass among them. A pass that went on to hold
        activations, which hold the graph, would close a circle that no collector sees.
        """
        taken = Pass()
        taken.num_examples, taken.calls, self.calls = self.num_examples, self.calls, []
        return taken


class Tape:
    """What forward and backward passes have left since it was last read."""

    def __init__(self) -> None:
        self._passes = [Pass()]
        self.anchor = torch.zeros((), requires_grad=True)
        self.strays: set[int] = set()

    @property
    def current(self) -> Pass:
        """The pass that a layer called now belongs to: a forward after a backward opens a new one.

        A forward *during* a backward is activation checkpointing at work, and belongs to the pass it repeats.
        """
        latest = self._passes[-1]
        if latest.calls and torch._C._current_graph_task_id() == -1:
            self._passes.append(latest := Pass())
        return latest

    def take(self) -> list[Pass]:
        """Everything noted so far, after which the tape is blank."""
        passes, self._passes = self._passes, [Pass()]
        self.strays.clear()
        return [each.handed_over() for each in passes if each.calls]

    def expect(self, num_examples: int) -> None:
        """The model is called with so many examples."""
        self.current.num_examples = num_examples
        self.strays.clear()


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
    """A module, listened to; calling it does what the module's own forward does.

    Attributes:
        path: The module's name inside the model.
        slots: Number of each trainable parameter of the module (or of its subtree), by local name.
    """

    def __init__(
        self, module: nn.Module, path: str, slots: dict[str, int], tape: Tape, *, batch_first: bool
    ) -> None:
        self.module, self.path, self.slots, self.tape = module, path, slots, tape
        self.batch_first = batch_first
        self.dtype = next(p.dtype for name, p in module.named_parameters() if name in slots)
        self._plain = plain_forward(module)

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Whether this kind of site knows the module in all its settings."""
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the module's forward gives, noted while training."""
        if self.module.training and torch.is_grad_enabled():
            return self.recorded(*args, **kwargs)
        return self._plain(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy or a pickle of the model holds the plain forward of its own class, and leaves no notes.
        return plain_forward, (self.module,)

    @abstractmethod
    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output, whose cotangent leaves a note."""

    def attach(self) -> None:
        """Stand in for the module's forward."""
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

    def watch(self, output: Tensor, note: Callable[..., AbstractCall], *activations: Tensor) -> Tensor:
        """Have `note(*activations, cotangent)` called when the output's cotangent arrives, and put on the
        tape.
        """
        current, dtype = self.tape.current, self.dtype
        saved = [activation.detach() for activation in activations]
        versions = [activation._version for activation in saved]

        def arrived(cotangent: Tensor) -> None:
            if [activation._version for activation in saved] != versions:
                raise RuntimeError(
                    f"the input of module {self.shown} was changed in place after the call, and is needed "
                    "for the gradients of single examples; use the operation that makes a new tensor"
                )
            current.calls.append(note(*saved, cotangent if cotangent.dtype == dtype else cotangent.to(dtype)))

        if not output.requires_grad:
            started: Tensor = _Start.apply(output, self.tape.anchor, arrived)  # type: ignore[no-untyped-call]
            return started
        # A hook on the operation, not on the tensor: quicker, and later changes of the tensor in place are
        # operations of their own.
        place, operation = output.output_nr, cast(Node, output.grad_fn)
        operation.register_prehook(
            lambda cotangents: None if cotangents[place] is None else arrived(cotangents[place])
        )
        return output

    def check_examples(self, num_examples: int) -> None:
        """Refuse a call whose rows are not the examples of the batch."""
        current = self.tape.current
        if current.num_examples is None:
            current.num_examples = num_examples
        elif current.num_examples != num_examples:
            raise UnsupportedModelError(
                f"module {self.shown} was called with {num_examples} rows in a batch of "
                f"{current.num_examples} examples; keep the examples in dimension 0 of its input (a shared "
                "input, such as positions, must be expanded to one row per example)"
            )
