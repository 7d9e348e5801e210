# SPDX-License-Identifier: Apache-2.0
"""Parameters that stand beside layers in one module: class tokens, positions, scales of residual branches.

While the module runs, a parameter of shape (1, ...) is replaced by one copy for every example, (examples,
...). The cotangent of a copy is that example's gradient. Any other parameter is replaced by a `_Factor`,
which can be multiplied with the examples' numbers, or added to them, and nothing else: the gradient of an
example is then the sum over its positions of cotangent times number, or of cotangents. The layers inside the
module keep their own rules, where `functional` would take the module and all that is inside it as one.

Not every module can be given copies: `self.token.repeat(n, 1, 1)` asks for one row, and `self.positions[0]`
would give the copy of example 0 to all. So the first batch is a trial, without derivatives: the copy of one
example is changed, and the outputs of that example must change and no others. A module that does not pass,
or that uses a factor in another way, goes the way of `functional`.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.normalization import AffineCall
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.site import AbstractSite


class _OtherUseError(Exception):
    """A factor was used in a way that is not known."""


class _Factor(Tensor):
    """Stands in for a parameter, and knows when it is multiplied with examples or added to them.

    It holds NaN instead of values, so that a use which it does not see is seen in the module's outputs.

    Attributes:
        use: Called with an operation, the examples' numbers and the shape that the parameter has there.
    """

    use: "Callable[[Callable[..., Tensor], Tensor, torch.Size], Tensor]"

    @classmethod
    def of(
        cls, like: Tensor, use: "Callable[[Callable[..., Tensor], Tensor, torch.Size], Tensor]"
    ) -> "_Factor":
        """A factor of this shape."""
        made = torch.Tensor._make_subclass(cls, torch.full_like(like, torch.nan))
        made.use = use
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is known, and refuse the rest."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in _LOOKS:
                return func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if name in _RESHAPES and isinstance(args[0], cls):
                return cls.of(func(*args, **(kwargs or {})).as_subclass(Tensor), args[0].use)
            if name in _PRODUCTS | _SUMS and len(args) == 2 and not kwargs:
                own, other = (args[0], args[1]) if isinstance(args[0], cls) else (args[1], args[0])
                if type(other) is Tensor and _is_broadcast(own, other):
                    operation = torch.mul if name in _PRODUCTS else torch.add
                    return own.use(operation, other, own.shape)
        raise _OtherUseError(f"{name} of a parameter")


_RESHAPES = frozenset(
    {"reshape", "view", "unsqueeze", "flatten", "contiguous", "detach"}
)  # that keep the order
_PRODUCTS = frozenset({"mul", "multiply", "__mul__", "__rmul__"})
_SUMS = frozenset({"add", "__add__", "__radd__"})
_LOOKS = frozenset(
    {
        getattr(Tensor, name).__get__
        for name in ("shape", "dtype", "device", "requires_grad", "ndim", "is_cuda", "grad", "is_leaf")
    }
    | {Tensor.dim, Tensor.size, Tensor.numel, Tensor.__len__, Tensor.is_floating_point}
)


def _is_broadcast(own: Tensor, other: Tensor) -> bool:
    """Whether every example gets the same numbers of `own`, and their product has the shape of `other`."""
    widened = (1,) * (other.dim() - own.dim()) + tuple(own.shape)
    return (
        0 < own.dim() <= other.dim()
        and widened[0] == 1
        and all(size in (1, there) for size, there in zip(widened, other.shape, strict=True))
    )


class OwnParametersSite(AbstractSite):
    """The parameters of a module itself, not those of the modules inside it.

    Attributes:
        replaced: Called when the module fails its trial; gives the site that stands in for it from then on.
    """

    replaced: "Callable[[OwnParametersSite], AbstractSite]"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._passed = False

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Whether other modules inside have parameters too."""
        own = list(module.parameters(recurse=False))
        return all(each.dim() > 0 for each in own) and len(own) < len(list(module.parameters()))

    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`."""
        inputs = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
        rows = inputs[0].shape[0] if inputs and inputs[0].dim() else 0
        if not self._passed and (rows == 0 or (rows > 1 and not self._passes(rows, args, kwargs))):
            return self.replaced(self)(*args, **kwargs)
        self._passed = self._passed or rows > 1
        self.check_examples(rows)
        copies = {
            name: self.watch(copy, lambda cotangent, slot=self.slots[name]: OwnCall(slot, cotangent))
            for name, copy in self._copies(rows).items()
        }
        try:
            with self._standing_in(copies | self._factors(rows, self._noted)):
                return self._plain(*args, **kwargs)
        except _OtherUseError as error:
            raise UnsupportedModelError(
                f"module {self.shown} used its own parameters otherwise than in its first call ({error}); "
                "put them into a small module that is called with the examples in dimension 0"
            ) from error

    def _copies(self, rows: int) -> dict[str, Tensor]:
        return {
            name: each.expand(rows, *each.shape[1:]).clone()
            for name in self.slots
            if _has_one_row(each := cast(Tensor, self.parameter(name)))
        }

    def _factors(
        self, rows: int, use: "Callable[[str, Callable[..., Tensor], Tensor, Tensor], Tensor]"
    ) -> dict[str, Tensor]:
        def used(name: str, operation: Callable[..., Tensor], numbers: Tensor, shape: torch.Size) -> Tensor:
            if len(numbers) != rows:
                raise _OtherUseError(f"{len(numbers)} rows in a batch of {rows}")
            if not torch.is_grad_enabled():
                raise _OtherUseError("in a function with derivatives of its own, or without any")
            return use(name, operation, numbers, cast(Tensor, self.parameter(name)).reshape(shape))

        return {
            name: _Factor.of(each, partial(used, name))
            for name in self.slots
            if not _has_one_row(each := cast(Tensor, self.parameter(name)))
        }

    def _noted(self, name: str, operation: Callable[..., Tensor], numbers: Tensor, values: Tensor) -> Tensor:
        """The sum or product, whose cotangent leaves a note."""
        shape = cast(Tensor, self.parameter(name)).shape
        note = partial(_factor_call, self.slots[name], shape, values.shape)
        return self.watch(operation(numbers, values), note, *((numbers,) if operation is torch.mul else ()))

    @contextlib.contextmanager
    def _standing_in(self, copies: dict[str, Tensor]) -> Iterator[None]:
        """Have the module find copies where its parameters are: attributes come before parameters."""
        self.module.__dict__.update(copies)
        try:
            yield
        finally:
            for name in copies:
                self.module.__dict__.pop(name, None)

    def _passes(self, rows: int, args: Any, kwargs: Any) -> bool:
        """Whether each example's outputs depend on its own copy, and on no other."""
        with self._trying():
            try:
                plain = self._outputs(None, args, kwargs)
                same = self._outputs(self._copies(rows), args, kwargs)
                has_copies = any(_has_one_row(cast(Tensor, self.parameter(name))) for name in self.slots)
                if not plain or len(plain) != len(same) or any(each.shape[:1] != (rows,) for each in same):
                    return False
                if not all(_is_close(one, other) for one, other in zip(plain, same, strict=True)):
                    return False
                indices = {0, rows - 1} if has_copies else set()
                return all(self._is_own(index, rows, same, args, kwargs) for index in indices)
            except torch.OutOfMemoryError:
                raise
            except Exception:  # whatever a module says to a shape that it does not expect
                return False

    def _is_own(self, index: int, rows: int, same: list[Tensor], args: Any, kwargs: Any) -> bool:
        changed = self._copies(rows)
        for copy in changed.values():
            copy[index] += torch.randn_like(copy[index]) * (1.0 + copy[index].abs().max())
        others = torch.arange(rows, device=same[0].device) != index
        found = self._outputs(changed, args, kwargs)
        return all(
            _is_close(one[others], other[others]) for one, other in zip(same, found, strict=True)
        ) and any(not _is_close(one[index], other[index]) for one, other in zip(same, found, strict=True))

    def _outputs(self, copies: dict[str, Tensor] | None, args: Any, kwargs: Any) -> list[Tensor]:
        torch.manual_seed(0)  # of draws in the trial, whose outputs nobody sees
        factors: dict[str, Tensor] = {}
        if copies is not None:
            rows = next(each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)).shape[0]
            factors = self._factors(rows, lambda _, operation, *numbers: operation(*numbers))
        with self._standing_in((copies or {}) | factors), torch.set_grad_enabled(bool(factors)):
            found, _ = tree_flatten(self._plain(*args, **kwargs))
        return [each.detach() for each in found if isinstance(each, Tensor) and each.is_floating_point()]

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        """Run layers plainly, and leave generators, buffers and parameters as they were.

        Behind a head that begins with zeros nothing would be seen to depend on anything, so that such
        parameters are something else for the trial.
        """
        zeros = [each for each in self.module.parameters() if not each.any()]
        kept = [(each, each.detach().clone()) for each in (*self.module.buffers(), *zeros)]
        device = next(self.module.parameters()).device
        devices = [device] if device.type == "cuda" else []
        self.tape.is_alone = True
        try:
            with contextlib.ExitStack() as stack:
                # Nobody who notes what the model draws is to note the trial.
                stack.enter_context(_disable_current_modes())
                stack.enter_context(_no_function_modes())
                stack.enter_context(torch.random.fork_rng(devices))
                stack.enter_context(torch.no_grad())
                for each in zeros:
                    each.normal_()
                yield
        finally:
            self.tape.is_alone = False
            with torch.no_grad():
                for buffer, before in kept:
                    buffer.copy_(before)


@contextlib.contextmanager
def _no_function_modes() -> Iterator[None]:
    """A context without the modes that see every call of a function; factors still see theirs."""
    modes = []
    try:
        while torch._C._len_torch_function_stack():
            modes.append(torch._C._pop_torch_function_stack())
        yield
    finally:
        for mode in reversed(modes):
            torch._C._push_on_torch_function_stack(mode)


def _has_one_row(parameter: Tensor) -> bool:
    return parameter.dim() > 1 and parameter.shape[0] == 1


def _factor_call(slot: int, shape: torch.Size, used: torch.Size, *found: Tensor) -> AffineCall:
    """Gradients of a factor of this shape, used in another one: the last of `found` are the cotangents."""
    products = found[-1] * found[0] if len(found) > 1 else found[-1]
    first = products.dim() - len(used)
    over = [dim for dim in range(1, products.dim()) if dim < first or used[dim - first] == 1]
    rows = products.sum(dim=over) if over else products
    return AffineCall((slot,), (rows.reshape(len(rows), *shape),))


def _is_close(one: Tensor, other: Tensor) -> bool:
    size = float(one.abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=1e-2, atol=1e-3 * size)


class OwnCall(AbstractCall):
    """The cotangents of the examples' copies of one parameter: their gradients."""

    def __init__(self, slot: int, cotangent: Tensor) -> None:
        self.slots, self.num_examples, self._cotangent = (slot,), len(cotangent), cotangent

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._cotangent.device

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return self._cotangent[0].numel() * self._cotangent.element_size()

    def closed_norms(self, p: float) -> list[Tensor]:
        """See `AbstractCall`."""
        return [row_norms(self._cotangent.flatten(1), p)]

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """See `AbstractCall`."""
        return (self._cotangent[start:stop].flatten(1),)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.view(*flat.shape[:-1], 1, *self._cotangent.shape[1:])

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        return (torch.tensordot(weights, self._cotangent, dims=1).unsqueeze(0),)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._cotangent = self._cotangent.index_fill(0, rows, 0.0)
