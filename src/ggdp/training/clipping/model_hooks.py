# SPDX-License-Identifier: Apache-2.0
"""What is listened to beside layers: the size of the batch, and uses of parameters that no layer sees."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.hooks import RemovableHandle

from ggdp.training.clipping.refusals import batch_norms_of, stay_in_evaluation_mode
from ggdp.training.clipping.site import Tape


def hooked(
    model: nn.Module, numbers: dict[nn.Parameter, int], tape: Tape, *, batch_first: bool
) -> list[RemovableHandle]:
    """Put all hooks in place; their handles take them away again."""
    handles = [model.register_forward_pre_hook(BatchCounter(tape, batch_first), with_kwargs=True)]
    for parameter, number in numbers.items():
        handles.append(parameter.register_hook(StrayCatcher(tape, number)))  # type: ignore[no-untyped-call]
    for norm in batch_norms_of(model):
        handles.append(norm.register_forward_pre_hook(stay_in_evaluation_mode))
    return handles


class BatchCounter:
    """A forward pre-hook that reads off how many examples the model is called with."""

    def __init__(self, tape: Tape, batch_first: bool) -> None:
        self._tape, self._dim = tape, 0 if batch_first else 1

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Tell the tape, while the model trains."""
        if module.training and torch.is_grad_enabled():
            first = _first_tensor((args, kwargs))
            if first is not None and first.dim() > self._dim:
                self._tape.expect(first.shape[self._dim])

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_counter, ()  # a copy of the model is not listened to


class StrayCatcher:
    """A gradient hook on a parameter, for uses of it that no layer's forward has stood in for."""

    def __init__(self, tape: Tape, number: int) -> None:
        self._tape, self._number = tape, number

    def __call__(self, gradient: Tensor) -> None:
        """Tell the tape."""
        self._tape.strays.add(self._number)


def _without_counter() -> Any:
    return ignore_inputs


def ignore_inputs(module: nn.Module, args: Any, kwargs: Any) -> None:
    """What is left of the pre-hook in a copy of the model."""


def _first_tensor(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, PackedSequence):
        return None
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return next((found for each in inner if (found := _first_tensor(each)) is not None), None)
