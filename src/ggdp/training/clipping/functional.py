# SPDX-License-Identifier: Apache-2.0
"""Any other module: its per-example gradients by torch.func, a chunk of examples at a time.

The module (with everything inside it) is taken as a function of its parameters and of one example's inputs, and
evaluated again when gradients are asked for. So it must be a function: dropout inside it would fall differently the
second time. The outputs of both times are compared, and a difference is refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vjp, vmap

from ggdp.training.clipping.call import AbstractCall
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
        """See `AbstractSite`; a module may return one tensor, or a tuple of tensors and other things."""
        inputs = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        if not inputs:
            raise UnsupportedModelError(
                f"module {self.shown} holds trainable parameters and was called without a tensor, so that no "
                f"example can be told from another; move its parameters into the module that uses them"
            )
        self.check_examples(inputs[0].shape[0])
        output = self.evaluate(self.values, args, kwargs)
        if isinstance(output, Tensor):
            return self._watched(output, None, args, kwargs)
        if not isinstance(output, tuple):
            raise UnsupportedModelError(
                f"module {self.shown} returns {type(output).__name__}; it must return a tensor or a tuple"
            )
        return tuple(
            self._watched(each, place, args, kwargs) if _has_derivatives(each) else each
            for place, each in enumerate(output)
        )

    def _watched(self, output: Tensor, place: int | None, args: Any, kwargs: Any) -> Tensor:
        if output.dim() == 0 or output.shape[0] != self.tape.current.num_examples:
            raise UnsupportedModelError(
                f"module {self.shown} returns a tensor of shape {tuple(output.shape)} in a batch of "
                f"{self.tape.current.num_examples}; its outputs must have the examples in dimension 0"
            )
        fixed = tuple(_detached(each) for each in args), {key: _detached(kwargs[key]) for key in kwargs}
        before = output.detach().clone()  # what follows may change the output in place

        def note(*tensors: Tensor) -> FunctionalCall:
            return FunctionalCall(self, fixed, place, before, tensors[-1])

        return self.watch(output, note, *(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)))


class FunctionalCall(AbstractCall):
    """One output of one call of the module, and its cotangent."""

    def __init__(
        self, site: FunctionalSite, inputs: tuple[Any, Any], place: int | None, output: Tensor, cotangent: Tensor
    ) -> None:
        self.slots = tuple(site.slots.values())
        self.num_examples = len(cotangent)
        self._site, self._place = site, place
        self._args, self._kwargs = inputs
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

    def gradients(self, start: int, stop: int) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        rows = slice(start, stop)
        if self._site.can_vmap:
            try:
                outputs, gradients = self._mapped(rows)
            except (RuntimeError, NotImplementedError):  # an operation without a batching rule
                self._site.can_vmap = False
        if not self._site.can_vmap:
            outputs, gradients = self._looped(rows)
        self._check(outputs, self._output[rows])
        return tuple(gradients[name] for name in self._values)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The module's ordinary gradient, of cotangents that carry the weights."""
        scaled = self._cotangent * weights.view(-1, *(1,) * (self._cotangent.dim() - 1))
        output, gradients = self._pulled(self._args, self._kwargs, scaled)
        self._check(output, self._output)
        return tuple(gradients[name] for name in self._values)

    def _pulled(self, args: Any, kwargs: Any, cotangent: Tensor) -> tuple[Tensor, Gradients]:
        values = {name: value.clone().requires_grad_() for name, value in self._values.items()}
        with torch.enable_grad():
            output = self._chosen(self._site.evaluate(values, args, kwargs))
            found = torch.autograd.grad(output, list(values.values()), cotangent, allow_unused=True)
        return output.detach(), {
            name: torch.zeros_like(value) if gradient is None else gradient
            for (name, value), gradient in zip(values.items(), found, strict=True)
        }

    def _mapped(self, rows: slice) -> tuple[Tensor, Gradients]:
        """All examples of the chunk at once."""
        mapped = {key: value[rows] for key, value in self._tensors() if self._is_mapped(value)}

        def one(example: dict[Any, Tensor], cotangent: Tensor) -> tuple[Tensor, Gradients]:
            args, kwargs = self._with(lambda key: example[key].unsqueeze(0), mapped)
            output, pull = vjp(
                lambda values: self._chosen(self._site.evaluate(values, args, kwargs)).squeeze(0), self._values
            )
            return output, pull(cotangent)[0]

        return vmap(one, randomness="different")(mapped, self._cotangent[rows])  # type: ignore[no-any-return]

    def _looped(self, rows: slice) -> tuple[Tensor, Gradients]:
        """One example after another."""
        mapped = {key: value for key, value in self._tensors() if self._is_mapped(value)}
        outputs, gradients = [], []
        for row in range(rows.start, rows.stop):
            args, kwargs = self._with(lambda key, row=row: mapped[key][row : row + 1], mapped)  # type: ignore[misc]
            output, found = self._pulled(args, kwargs, self._cotangent[row : row + 1])
            outputs.append(output)
            gradients.append(found)
        stacked = {name: torch.stack([each[name] for each in gradients]) for name in self._values}
        return torch.cat(outputs), stacked

    def _tensors(self) -> list[tuple[Any, Tensor]]:
        pairs = (*enumerate(self._args), *self._kwargs.items())
        return [(key, value) for key, value in pairs if isinstance(value, Tensor)]

    def _is_mapped(self, value: Tensor) -> bool:
        return value.dim() > 0 and value.shape[0] == self.num_examples

    def _with(self, row: Callable[[Any], Tensor], mapped: dict[Any, Tensor]) -> tuple[Any, Any]:
        args = tuple(row(key) if key in mapped else value for key, value in enumerate(self._args))
        return args, {key: row(key) if key in mapped else value for key, value in self._kwargs.items()}

    def _chosen(self, output: Any) -> Tensor:
        tensor: Tensor = output if self._place is None else output[self._place]
        return tensor

    def _check(self, again: Tensor, before: Tensor) -> None:
        """Compare the outputs of both evaluations, to about half of their digits."""
        tolerance = torch.finfo(before.dtype).eps ** 0.5
        size = before.abs().amax() if before.numel() else before.new_zeros(())
        if not bool((again - before).abs().le(tolerance * (1.0 + size)).all() | ~before.isfinite().all()):
            raise UnsupportedModelError(
                f"module {self._site.shown} gives another output for each example alone than for the batch (is there "
                f"dropout inside, or does it mix examples?); move its own parameters into a small module that is "
                f"called with the examples in dimension 0"
            )


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _has_derivatives(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
