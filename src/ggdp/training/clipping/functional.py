# SPDX-License-Identifier: Apache-2.0
"""Any other module: its per-example gradients by torch.func, a chunk of examples at a time.

The module (with everything inside it) is taken as a function of its parameters and of one example's inputs,
and evaluated again when gradients are asked for. Random numbers that it drew, for dropout say, are kept and
used again (`draws`). The outputs of both times are compared, and a difference is refused.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.draws import Autocast, Recording, Replaying
from ggdp.training.clipping.site import AbstractSite, plain_forward

Gradients = dict[str, Tensor]


class _Inside(nn.Module):
    """A module's own forward, without the hooks on the module, which have run already."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See the module."""
        return plain_forward(self.module)(*args, **kwargs)


class _Together(torch.autograd.Function):
    """The identity on all outputs of a module at once: their cotangents arrive together."""

    @staticmethod
    def forward(ctx: Any, arrived: Any, anchor: Tensor, *outputs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.arrived = arrived
        return tuple(output.clone() for output in outputs)  # what follows may change them in place

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        ctx.arrived(cotangents)
        needed = ctx.needs_input_grad[2:]
        return (
            None,
            None,
            *(each if is_needed else None for each, is_needed in zip(cotangents, needed, strict=True)),
        )


class FunctionalSite(AbstractSite):
    """A module without a rule of its own, examples in dimension 0 of its inputs and outputs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._inside = False
        self._forward = _Inside(self.module)
        self.can_vmap = True
        # Of a parameter with several names inside the module, one: functional_call ties the others to it.
        self._names = {slot: name for name, slot in self.slots.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`; the module's own forward while it is evaluated."""
        if self._inside:
            return self._plain(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def evaluate(self, parameters: Gradients, args: Any, kwargs: Any) -> Any:
        """The module's output with other values of its trainable parameters; nothing is noted."""
        self._inside = True
        try:
            named = {f"module.{name}": value for name, value in parameters.items()}
            return functional_call(self._forward, named, args, kwargs)
        finally:
            self._inside = False

    @property
    def values(self) -> Gradients:
        """The trainable parameters of the module and all inside it, detached."""
        named = dict(self.module.named_parameters(remove_duplicate=False))
        return {name: named[name].detach() for name in self._names.values()}

    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`; inputs and outputs may be nested tuples, lists and dicts of tensors."""
        leaves, structure = tree_flatten((args, kwargs))
        inputs = [each for each in leaves if isinstance(each, Tensor)]
        if not inputs or inputs[0].dim() == 0:
            raise UnsupportedModelError(
                f"module {self.shown} holds trainable parameters and was called without a tensor, so that no "
                f"example can be told from another; move its parameters into the module that uses them"
            )
        self.check_examples(inputs[0].shape[0])
        fixed = Inputs(tuple(_detached(each) for each in leaves), structure, inputs[0].shape[0])
        with Recording() as recording:
            results, shape = tree_flatten(self.evaluate(self.values, args, kwargs))
        outputs = Outputs(
            places=[place for place, each in enumerate(results) if self._is_output(each, fixed.num_examples)],
            draws=recording.draws,
        )
        found = [results[place] for place in outputs.places]
        if not found:
            return tree_unflatten(results, shape)
        outputs.before = [each.detach().clone() for each in found]
        for place, each in zip(outputs.places, self._watched(found, outputs, fixed), strict=True):
            results[place] = each
        return tree_unflatten(results, shape)

    def _is_output(self, output: Any, num_examples: int) -> bool:
        if not (isinstance(output, Tensor) and output.is_floating_point()):
            if output is None or isinstance(output, (Tensor, bool, int, float, str)):
                return False  # nothing to differentiate
            raise UnsupportedModelError(
                f"module {self.shown} returns {type(output).__name__}, in which tensors cannot be seen; let "
                "it return tensors, or tuples, lists or dicts of them"
            )
        if output.dim() == 0 or output.shape[0] != num_examples:
            raise UnsupportedModelError(
                f"module {self.shown} returns a tensor of shape {tuple(output.shape)} in a batch of "
                f"{num_examples}; its outputs must have the examples in dimension 0"
            )
        return True

    def _watched(self, found: list[Tensor], outputs: "Outputs", fixed: "Inputs") -> tuple[Tensor, ...]:
        """The outputs, whose cotangents leave one note together."""
        current = self.tape.current
        tensors = [leaf for leaf in fixed.leaves if isinstance(leaf, Tensor)]
        versions = [each._version for each in tensors]

        def arrived(cotangents: tuple[Tensor | None, ...]) -> None:
            if not self.is_noting():
                return
            if [each._version for each in tensors] != versions:
                raise UnsupportedModelError(
                    f"the input of module {self.shown} was changed in place after the call, and is needed "
                    "for the gradients of single examples; use the operation that makes a new tensor"
                )
            whole = [
                torch.zeros_like(output) if each is None else each
                for each, output in zip(cotangents, outputs.before, strict=True)
            ]
            current.calls.append(FunctionalCall(self, fixed, outputs, whole))

        watched: tuple[Tensor, ...] = _Together.apply(arrived, self.tape.anchor, *found)  # type: ignore[no-untyped-call]
        current.tags.mark(watched[0].grad_fn, 0)
        return watched


@dataclass
class Outputs:
    """What a call gave: the places of its differentiable outputs, their values, and what it drew at "
    "random."""

    places: list[int]
    draws: list[Tensor]
    before: list[Tensor] = field(default_factory=list)
    autocast: Autocast = field(default_factory=Autocast)  # as it stands when this is made


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
    """One call of the module, and the cotangents of its outputs."""

    def __init__(
        self, site: FunctionalSite, inputs: Inputs, outputs: Outputs, cotangents: list[Tensor]
    ) -> None:
        self._values = site.values
        self.slots = tuple(site.slots[name] for name in self._values)
        self.num_examples = inputs.num_examples
        self._site, self._inputs, self._outputs, self._cotangents = site, inputs, outputs, cotangents
        self._zeroed: Tensor | None = None
        self._dtype = site.dtype

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._cotangents[0].device

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
            except (torch.OutOfMemoryError, UnsupportedModelError):
                raise
            except (RuntimeError, NotImplementedError):  # an operation without a batching rule
                self._site.can_vmap = False
        if not self._site.can_vmap:
            outputs, gradients = self._looped(rows)
        self._check(outputs, [before[rows] for before in self._outputs.before])
        matrices = [gradients[name].reshape(stop - start, -1).to(self._dtype) for name in self._values]
        if self._zeroed is not None:
            inside = self._zeroed[(self._zeroed >= start) & (self._zeroed < stop)] - start
            matrices = [matrix.index_fill(0, inside, 0.0) for matrix in matrices]
        return tuple(matrices)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.reshape((*flat.shape[:-1], *list(self._values.values())[place].shape))

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The module's ordinary gradient, of cotangents that carry the weights.

        Half-precision gradients are summed in float32 instead, from the rows, and so are those of batches in
        which an example counts for nothing because its gradient is not finite.
        """
        stored = next(iter(self._values.values())).dtype
        if stored != self._dtype or self._zeroed is not None:
            sums: list[Tensor] | None = None
            for start, stop in self.chunks:
                part = [torch.mv(matrix.t(), weights[start:stop]) for matrix in self.rows(start, stop)]
                sums = part if sums is None else [one + other for one, other in zip(sums, part, strict=True)]
            return tuple(self.shaped(place, flat) for place, flat in enumerate(sums or ()))
        scaled = [
            each * weights.to(each.dtype).view(-1, *(1,) * (each.dim() - 1)) for each in self._cotangents
        ]
        with Replaying(self._outputs.draws, f"module {self._site.shown}"):
            outputs, gradients = self._pulled({}, scaled)
        self._check(outputs, self._outputs.before)
        return tuple(gradients[name] for name in self._values)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._zeroed = rows

    def _results(self, values: Gradients, parts: dict[int, Tensor]) -> list[Tensor]:
        """The outputs for some examples or (no parts) the whole batch."""
        with self._outputs.autocast.again():
            outputs, _ = tree_flatten(self._site.evaluate(values, *self._inputs.arguments(parts)))
        return [outputs[place] for place in self._outputs.places]

    def _replaying(self, index: Tensor) -> Replaying:
        return Replaying(
            self._outputs.draws,
            f"module {self._site.shown}",
            index=index,
            num_examples=self.num_examples,
        )

    def _pulled(self, parts: dict[int, Tensor], cotangents: list[Tensor]) -> tuple[list[Tensor], Gradients]:
        """Outputs and gradients by ordinary autograd."""
        values = {name: value.clone().requires_grad_() for name, value in self._values.items()}
        with torch.enable_grad():
            outputs = self._results(values, parts)
            pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
            try:
                found = torch.autograd.grad(
                    [output for output, _ in pairs],
                    list(values.values()),
                    [cotangent for _, cotangent in pairs],
                    allow_unused=True,
                )
            except RuntimeError as error:
                if "use_reentrant" not in str(error):
                    raise
                raise UnsupportedModelError(
                    f"module {self._site.shown} uses activation checkpointing with use_reentrant=True; pass "
                    "use_reentrant=False"
                ) from error
        return [output.detach() for output in outputs], {
            name: torch.zeros_like(value) if gradient is None else gradient.to_dense()
            for (name, value), gradient in zip(values.items(), found, strict=True)
        }

    def _mapped(self, rows: slice) -> tuple[list[Tensor], Gradients]:
        """All examples of the chunk at once."""

        def one(
            example: dict[int, Tensor], cotangents: list[Tensor], index: Tensor
        ) -> tuple[list[Tensor], Gradients]:
            parts = {place: part.unsqueeze(0) for place, part in example.items()}

            def results(values: Gradients) -> list[Tensor]:
                with self._replaying(index):
                    return [each.squeeze(0) for each in self._results(values, parts)]

            outputs, pull, *_ = vjp(results, self._values)
            return outputs, pull(cotangents)[0]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")  # it loops instead: fine
            numbers = torch.arange(rows.start, rows.stop, device=self.device)
            cotangents = [each[rows] for each in self._cotangents]
            return vmap(one, randomness="error")(self._inputs.rows(rows), cotangents, numbers)

    def _looped(self, rows: slice) -> tuple[list[Tensor], Gradients]:
        """One example after another."""
        pairs = []
        for row in range(rows.start, rows.stop):
            own = slice(row, row + 1)
            with self._replaying(torch.tensor(row, device=self.device)):
                pairs.append(self._pulled(self._inputs.rows(own), [each[own] for each in self._cotangents]))
        stacked = {name: torch.stack([found[name] for _, found in pairs]) for name in self._values}
        outputs = [torch.cat(each) for each in zip(*(output for output, _ in pairs), strict=True)]
        return outputs, stacked

    def _check(self, again: list[Tensor], before: list[Tensor]) -> None:
        """Compare the outputs of both evaluations, to about half of their digits."""
        for one, other in zip(again, before, strict=True):
            tolerance = torch.finfo(other.dtype).eps ** 0.5
            finite = other.isfinite()
            known = other.where(finite, 0.0)
            size = known.abs().amax() if other.numel() else other.new_zeros(())
            gap = (one.where(finite, 0.0) - known).abs().nan_to_num(torch.inf)
            same = torch.equal(one.isfinite(), finite)
            if not (same and bool(gap.le(tolerance * (1.0 + size)).all())):
                raise UnsupportedModelError(
                    f"module {self._site.shown} gives another output for each example alone than for the "
                    "batch "
                    "(does it mix examples, or draw random numbers that are not PyTorch's?); move its own "
                    "parameters into a small module that is called with the examples in dimension 0"
                )


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
