# SPDX-License-Identifier: Apache-2.0
"""Any other module: its per-example gradients by torch.func, a chunk of examples at a time.

The module (with everything inside it) is taken as a function of its parameters and of one example's inputs,
and evaluated again when gradients are asked for. So it must be a function: dropout inside it would fall
differently the second time. The outputs of both times are compared, and a difference is refused.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.refusals import UnsupportedModelError
from ggdp.training.clipping.site import AbstractSite

Gradients = dict[str, Tensor]


class FunctionalSite(AbstractSite):
    """A module without a rule of its own, examples in dimension 0 of its inputs and outputs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._inside = False
        self.can_vmap = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`; the module's own forward while it is evaluated."""
        if self._inside:
            return self._plain(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def evaluate(self, parameters: Gradients, args: Any, kwargs: Any) -> Any:
        """The module's output with other values of its trainable parameters; nothing is noted."""
        self._inside = True
        try:
            return functional_call(self.module, parameters, args, kwargs)
        finally:
            self._inside = False

    @property
    def values(self) -> Gradients:
        """The trainable parameters of the module and all inside it, detached."""
        named = dict(self.module.named_parameters(remove_duplicate=False))
        return {name: named[name].detach() for name in self.slots}

    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`; inputs and outputs may be nested tuples, lists and dicts of tensors."""
        leaves, structure = tree_flatten((args, kwargs))
        inputs = [each for each in leaves if isinstance(each, Tensor)]
        if not inputs:
            raise UnsupportedModelError(
                f"module {self.shown} holds trainable parameters and was called without a tensor, so that no "
                f"example can be told from another; move its parameters into the module that uses them"
            )
        self.check_examples(inputs[0].shape[0])
        fixed = Inputs(tuple(_detached(each) for each in leaves), structure, inputs[0].shape[0])
        outputs, shape = tree_flatten(self.evaluate(self.values, args, kwargs))
        watched = [self._watched(each, place, fixed, inputs) for place, each in enumerate(outputs)]
        return tree_unflatten(watched, shape)

    def _watched(self, output: Any, place: int, fixed: "Inputs", inputs: list[Tensor]) -> Any:
        if not (isinstance(output, Tensor) and output.is_floating_point()):
            if output is None or isinstance(output, (Tensor, bool, int, str)):
                return output  # nothing to differentiate
            raise UnsupportedModelError(
                f"module {self.shown} returns {type(output).__name__}, in which tensors cannot be seen; let "
                "it return tensors, or tuples, lists or dicts of them"
            )
        if output.dim() == 0 or output.shape[0] != fixed.num_examples:
            raise UnsupportedModelError(
                f"module {self.shown} returns a tensor of shape {tuple(output.shape)} in a batch of "
                f"{fixed.num_examples}; its outputs must have the examples in dimension 0"
            )
        before = output.detach().clone()  # what follows may change the output in place
        if not output.requires_grad:
            output = output.clone()  # it may be part of the input

        def note(*tensors: Tensor) -> FunctionalCall:
            return FunctionalCall(self, fixed, place, before, tensors[-1])

        return self.watch(output, note, *inputs)


@dataclass(frozen=True)
class Inputs:
    """The arguments of a call, flattened; tensors with `num_examples` rows are cut into examples."""

    leaves: tuple[Any, ...]
    structure: TreeSpec
    num_examples: int

    def rows(self, rows: slice) -> dict[int, Tensor]:
        """The given examples' part of every tensor that has one, by place."""
        return {
            place: leaf[rows]
            for place, leaf in enumerate(self.leaves)
            if isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == self.num_examples
        }

    def arguments(self, parts: dict[int, Tensor]) -> tuple[Any, Any]:
        """Positional and keyword arguments with those parts in place."""
        leaves = [parts.get(place, leaf) for place, leaf in enumerate(self.leaves)]
        args, kwargs = tree_unflatten(leaves, self.structure)
        return args, kwargs


class FunctionalCall(AbstractCall):
    """One output of one call of the module, and its cotangent."""

    def __init__(
        self, site: FunctionalSite, inputs: Inputs, place: int, output: Tensor, cotangent: Tensor
    ) -> None:
        self.slots = tuple(site.slots.values())
        self.num_examples = len(cotangent)
        self._site, self._inputs, self._place = site, inputs, place
        self._output, self._cotangent = output, cotangent
        self._values = site.values

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._cotangent.device

    @property
    def example_bytes(self) -> int:
        """Gradients and, about as large, what vmap holds to find them."""
        return 2 * sum(value.numel() * value.element_size() for value in self._values.values())

    def closed_norms(self, p: float) -> None:
        """None: nothing is known of the module."""

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        rows = slice(start, stop)
        if self._site.can_vmap:
            try:
                outputs, gradients = self._mapped(rows)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, NotImplementedError):  # an operation without a batching rule
                self._site.can_vmap = False
        if not self._site.can_vmap:
            outputs, gradients = self._looped(rows)
        self._check(outputs, self._output[rows])
        return tuple(gradients[name].reshape(stop - start, -1) for name in self._values)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.view(*flat.shape[:-1], *list(self._values.values())[place].shape)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The module's ordinary gradient, of cotangents that carry the weights."""
        scaled = self._cotangent * weights.view(-1, *(1,) * (self._cotangent.dim() - 1))
        output, gradients = self._pulled({}, scaled)
        self._check(output, self._output)
        return tuple(gradients[name] for name in self._values)

    def _outcome(self, values: Gradients, parts: dict[int, Tensor]) -> Tensor:
        """The output in question, for some examples or (no parts) the whole batch."""
        outputs, _ = tree_flatten(self._site.evaluate(values, *self._inputs.arguments(parts)))
        tensor: Tensor = outputs[self._place]
        return tensor

    def _pulled(self, parts: dict[int, Tensor], cotangent: Tensor) -> tuple[Tensor, Gradients]:
        """Output and gradients by ordinary autograd."""
        values = {name: value.clone().requires_grad_() for name, value in self._values.items()}
        with torch.enable_grad():
            output = self._outcome(values, parts)
            found = torch.autograd.grad(output, list(values.values()), cotangent, allow_unused=True)
        return output.detach(), {
            name: torch.zeros_like(value) if gradient is None else gradient
            for (name, value), gradient in zip(values.items(), found, strict=True)
        }

    def _mapped(self, rows: slice) -> tuple[Tensor, Gradients]:
        """All examples of the chunk at once."""

        def one(example: dict[int, Tensor], cotangent: Tensor) -> tuple[Tensor, Gradients]:
            parts = {place: part.unsqueeze(0) for place, part in example.items()}
            output, pull, *_ = vjp(lambda values: self._outcome(values, parts).squeeze(0), self._values)
            return output, pull(cotangent)[0]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")  # it loops instead: fine
            mapped = vmap(one, randomness="different")
            return mapped(self._inputs.rows(rows), self._cotangent[rows])

    def _looped(self, rows: slice) -> tuple[Tensor, Gradients]:
        """One example after another."""
        pairs = [
            self._pulled(self._inputs.rows(slice(row, row + 1)), self._cotangent[row : row + 1])
            for row in range(rows.start, rows.stop)
        ]
        stacked = {name: torch.stack([found[name] for _, found in pairs]) for name in self._values}
        return torch.cat([output for output, _ in pairs]), stacked

    def _check(self, again: Tensor, before: Tensor) -> None:
        """Compare the outputs of both evaluations, to about half of their digits."""
        tolerance = torch.finfo(before.dtype).eps ** 0.5
        size = before.abs().amax() if before.numel() else before.new_zeros(())
        if not bool((again - before).abs().le(tolerance * (1.0 + size)).all() | ~before.isfinite().all()):
            raise UnsupportedModelError(
                f"module {self._site.shown} gives another output for each example alone than for the batch "
                "(is there dropout inside, or does it mix examples?); move its own parameters into a small "
                "module that is called with the examples in dimension 0"
            )


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
