# SPDX-License-Identifier: Apache-2.0
"""Parameters of shape (1, ...) that stand beside layers in one module: class tokens and positions of a ViT.

While the module runs, each such parameter is replaced by one copy for every example, (examples, ...). The
cotangent of a copy is that example's gradient. The layers inside the module keep their own rules, where
`functional` would take the module and all that is inside it as one.

Not every module can be given copies: `self.token.repeat(n, 1, 1)` asks for one row, and `self.positions[0]`
would give the copy of example 0 to all. So the first batch is a trial, without derivatives: the copy of one
example is changed, and the outputs of that example must change and no others. A module that does not pass
goes the way of `functional`.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten

from ggdp.training.clipping.call import AbstractCall, Matrices
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.site import AbstractSite


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
        """Whether all parameters of its own have one row, and other modules inside have parameters too."""
        own = list(module.parameters(recurse=False))
        return all(each.dim() > 1 and each.shape[0] == 1 for each in own) and len(own) < len(
            list(module.parameters())
        )

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
        with self._standing_in(copies):
            return self._plain(*args, **kwargs)

    def _copies(self, rows: int) -> dict[str, Tensor]:
        found = {name: self.parameter(name) for name in self.slots}
        return {
            name: each.expand(rows, *each.shape[1:]).clone()
            for name, each in found.items()
            if each is not None
        }

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
                if not plain or len(plain) != len(same) or any(each.shape[:1] != (rows,) for each in same):
                    return False
                if not all(_is_close(one, other) for one, other in zip(plain, same, strict=True)):
                    return False
                return all(self._is_own(index, rows, same, args, kwargs) for index in {0, rows - 1})
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
        with self._standing_in(copies or {}):
            found, _ = tree_flatten(self._plain(*args, **kwargs))
        return [each for each in found if isinstance(each, Tensor) and each.is_floating_point()]

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
                stack.enter_context(torch._C.DisableTorchFunction())
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
