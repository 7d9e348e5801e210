# SPDX-License-Identifier: Apache-2.0
"""A spot check of Opacus: are its per-example gradients those of single examples?

Opacus computes the gradient of example i from row i of what each layer was called with. That is wrong, and
nothing says so, where a weight is also used outside its own layer, where the rows of a layer are not examples
(a positional embedding of as many positions as there are examples), and where examples depend on each other
(batch statistics written by hand, a loss whose denominator runs over the batch). Then what is clipped is not
what one example contributes, and no epsilon holds.

`SpotCheck` looks at the first batches. It keeps the inputs of the model and, by hooks, the gradients of the
loss by its outputs. For two examples it then runs the model on that example alone, in two equal copies,
backward from the first copy's part of those gradients, and compares with what Opacus found. A model that
draws random numbers (dropout) runs on the whole batch instead, from the same state of the generators and
backward from one example's part; that examples do not mix is then seen from the outputs in evaluation mode.

The loss itself is not known here. What is recognised from outputs and their gradients is a cross entropy (or
negative log-likelihood): the weight that it gives to each class must not change from batch to batch.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import nn
from torch.func import functional_call
from torch.utils import _pytree as pytree

BATCHES = 3  # that are looked at
_WAY_OUT = "GGPrivacyEngine(check_gradients=False) leaves this check out, and you vouch for it"
_REASON = (
    "a weight used outside its own layer, a layer whose rows are not examples, examples that depend on each "
    "other, or a loss inside the model that divides by a sum over the batch"
)
_LOW = (torch.bfloat16, torch.float16)


@dataclass
class _Call:
    """One run of the model: inputs, states of generators before it, outputs and the gradients by them."""

    inputs: tuple[Any, Any]
    generators: list[torch.Tensor]
    autocast: tuple[bool, torch.dtype]
    is_random: bool = False
    outputs: list[torch.Tensor] = field(default_factory=list)
    cotangents: dict[int, torch.Tensor] = field(default_factory=dict)


class SpotCheck:
    """Compares two examples of each of the first `BATCHES` batches with plain autograd.

    Args:
        wrapper: what Opacus made of the model, a `GradSampleModule` or `GradSampleHooks`.
    """

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper
        self._model: nn.Module = wrapper._module
        while isinstance(
            self._model, (nn.parallel.DistributedDataParallel, DifferentiallyPrivateDistributedDataParallel)
        ):
            self._model = self._model.module
        self._names = {parameter: name for name, parameter in self._model.named_parameters()}
        self._left = BATCHES
        self._calls: list[_Call] = []
        self._is_busy = False
        self._class_weights: dict[int, float] = {}
        self._handles = [
            self._model.register_forward_pre_hook(self._before, with_kwargs=True),
            self._model.register_forward_hook(self._after, with_kwargs=True),
        ]

    def __deepcopy__(self, memo: Any) -> "SpotCheck":
        """A copy of the model has its hooks, which do nothing: its gradients are nobody's."""
        idle = object.__new__(SpotCheck)
        idle._left, idle._is_busy, idle._calls = 0, False, []
        return idle

    def gradients_dropped(self) -> None:
        """Forget runs whose gradients were cleared; those without a backward pass yet may still count."""
        self._calls = [call for call in self._calls if not call.cotangents]

    def verify(self, parameters: Sequence[nn.Parameter]) -> None:
        """Refuse per-example gradients that are not those of plain autograd.

        Raises:
            ValueError: they are others, or it cannot be seen.
        """
        gradients = {
            parameter: parameter.grad_sample  # type: ignore[attr-defined]
            for parameter in parameters
            if isinstance(getattr(parameter, "grad_sample", None), torch.Tensor)
        }
        calls, self._calls = [call for call in self._calls if call.cotangents], []
        num_examples = max((len(gradient) for gradient in gradients.values()), default=0)
        if not self._left or not num_examples:
            return
        if not calls:
            raise ValueError(
                "the model must be called as a whole for its gradients to be checked, got a backward pass "
                f"through parts of it alone; {_WAY_OUT}"
            )
        for index in {0, num_examples - 1}:
            self._compare(gradients, calls, index, num_examples)
        for call in calls:
            self._check_class_weights(call, num_examples)
        self._left -= 1
        if not self._left:
            for handle in self._handles:
                handle.remove()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._is_watching(module):
            device = next(iter(self._names)).device.type
            autocast = (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            self._calls.append(_Call(_cloned((args, kwargs)), self._generators(), autocast))

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not self._is_watching(module) or not self._calls:
            return
        call = self._calls[-1]
        call.is_random = any(
            not torch.equal(a, b) for a, b in zip(call.generators, self._generators(), strict=True)
        )
        for number, leaf in enumerate(_tensors(output)):
            call.outputs.append(leaf.detach())
            if leaf.requires_grad:
                leaf.register_hook(partial(_keep, call.cotangents, number))  # type: ignore[no-untyped-call]

    def _is_watching(self, module: nn.Module) -> bool:
        return self._left > 0 and not self._is_busy and module.training and torch.is_grad_enabled()

    def _generators(self) -> list[torch.Tensor]:
        """The states of the generators that a model draws from."""
        states = [torch.get_rng_state()]
        devices = {parameter.device for parameter in self._names if parameter.is_cuda}
        return states + [torch.cuda.get_rng_state(device) for device in sorted(devices, key=str)]

    def _set_generators(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        devices = {parameter.device for parameter in self._names if parameter.is_cuda}
        for device, state in zip(sorted(devices, key=str), states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    def _compare(
        self,
        gradients: Mapping[nn.Parameter, torch.Tensor],
        calls: Sequence[_Call],
        index: int,
        num_examples: int,
    ) -> None:
        """Against all runs since the last step, and if that fails against the last one alone.

        The gradients of earlier ones may have been cleared by the model's own `zero_grad`.
        """
        expected = [self._gradients(call, index, num_examples, gradients) for call in calls]
        total = {
            parameter: torch.stack([part[parameter] for part in expected]).sum(0) for parameter in gradients
        }
        worst = _worst(gradients, total, index, calls)
        if worst is not None and len(calls) > 1:
            worst = _worst(gradients, expected[-1], index, calls)
        if worst is not None:
            parameter, error = worst
            raise ValueError(
                f"the per-example gradients of {self._names[parameter]!r} must be those of single examples, "
                f"got ones that differ from plain autograd's by {_percent(error)} in example {index} of "
                f"{num_examples}: {_REASON}. No epsilon holds for such steps, nor for those before. "
                f"{_WAY_OUT}"
            )
        for call in calls:
            if call.is_random:
                self._check_mixing(call, index, num_examples)

    def _gradients(
        self, call: _Call, index: int, num_examples: int, wanted: Mapping[nn.Parameter, Any]
    ) -> dict[nn.Parameter, torch.Tensor]:
        """What one example adds to the gradients, by plain autograd."""
        inputs = None if call.is_random else self._alone(call, index, num_examples)
        try:
            return self._plain_gradients(call, inputs, index, num_examples, wanted)
        except Exception as error:
            if inputs is None:
                _refuse_unseen(error)
        try:  # as of a packed sequence, whose rows are not examples
            return self._plain_gradients(call, None, index, num_examples, wanted)
        except Exception as error:
            _refuse_unseen(error)

    def _alone(self, call: _Call, index: int, num_examples: int) -> Any:
        """The inputs of one example, in copies, or None where no tensor has a row per example."""
        copies, found = _copies(num_examples), False

        def of_example(leaf: Any) -> Any:
            nonlocal found
            dims = (0,) if self._wrapper.batch_first else (1, 0)
            for dim in dims if isinstance(leaf, torch.Tensor) else ():
                if leaf.ndim > dim and leaf.shape[dim] == num_examples:
                    found = True
                    return leaf.index_select(dim, torch.full((copies,), index, device=leaf.device))
            return leaf

        rows = pytree.tree_map(of_example, call.inputs)
        return rows if found else None

    def _plain_gradients(
        self, call: _Call, alone: Any, index: int, num_examples: int, wanted: Mapping[nn.Parameter, Any]
    ) -> dict[nn.Parameter, torch.Tensor]:
        fresh = {parameter: parameter.detach().clone().requires_grad_() for parameter in wanted}
        with self._plainly(call), torch.enable_grad():
            args, kwargs = _cloned(call.inputs if alone is None else alone)
            outputs = _tensors(functional_call(self._model, self._state(fresh), args, kwargs))
            pairs = []
            for number, cotangent in call.cotangents.items():
                part = self._part(cotangent, outputs[number], index, num_examples, is_whole=alone is None)
                pairs.append((outputs[number], part))
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                list(fresh.values()),
                [part for _, part in pairs],
                allow_unused=True,
            )
        return {
            parameter: torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(fresh, found, strict=True)
        }

    def _state(self, fresh: Mapping[nn.Parameter, torch.Tensor]) -> dict[str, torch.Tensor]:
        state = {name: fresh.get(tensor, tensor.detach()) for tensor, name in self._names.items()}
        return state | {name: buffer.clone() for name, buffer in self._model.named_buffers()}

    def _part(
        self, cotangent: torch.Tensor, output: torch.Tensor, index: int, num_examples: int, *, is_whole: bool
    ) -> torch.Tensor:
        """One example's part of the gradients by an output, as the loss of that example would have it.

        Opacus multiplies by the number of examples where the loss is their mean. An output without a row per
        example is a loss that the model computes itself: it is the same for every number of equal copies if
        it is a mean, and grows with it if it is a sum.
        """
        scale = float(num_examples) if self._wrapper.loss_reduction == "mean" else 1.0
        copies = num_examples if is_whole else _copies(num_examples)
        dims = [dim for dim, size in enumerate(cotangent.shape) if size == num_examples]
        if not is_whole:
            dims = [dim for dim, size in enumerate(cotangent.shape) if size != output.shape[dim]]
        if not dims and not is_whole:
            return cotangent * (1.0 if self._wrapper.loss_reduction == "mean" else 1.0 / copies)
        dim = dims[0] if dims else 0
        rows = cotangent.shape[dim] // num_examples
        if rows * num_examples != cotangent.shape[dim] or output.shape[dim] != rows * copies:
            raise ValueError(f"an output of shape {tuple(cotangent.shape)} for {num_examples} examples")
        part = torch.zeros_like(output)
        own = cotangent.narrow(dim, index * rows, rows)
        part.narrow(dim, index * rows if is_whole else 0, rows).copy_(scale * own)
        return part

    def _check_mixing(self, call: _Call, index: int, num_examples: int) -> None:
        """Whether an example's outputs in evaluation mode are the same alone and in its batch."""
        alone = self._alone(call, index, num_examples)
        modes = [(module, module.training) for module in self._model.modules()]
        if alone is None:
            return
        try:
            self._model.eval()
            with self._plainly(call), torch.no_grad():
                pairs = [
                    _tensors(functional_call(self._model, self._state({}), *_cloned(inputs)))
                    for inputs in (call.inputs, alone)
                ]
        except Exception:
            return  # what only runs in training mode
        finally:
            for module, mode in modes:
                module.training = mode
        for whole, single in zip(*pairs, strict=False):
            if whole.ndim and whole.shape[0] == num_examples and whole.shape[1:] == single.shape[1:]:
                error = _distance(whole[index], single[0])
                if error > _tolerances([whole], [call])[0]:
                    raise ValueError(
                        f"examples must not depend on each other, got outputs of example {index} of "
                        f"{num_examples} that differ by {_percent(error)} when it is alone: {_REASON}. "
                        f"{_WAY_OUT}"
                    )

    @contextmanager
    def _plainly(self, call: _Call) -> Iterator[None]:
        """Without Opacus's hooks, from the generators' states of that run, which are put back."""
        states, enabled = self._generators(), getattr(self._wrapper, "hooks_enabled", None)
        device = next(iter(self._names)).device.type
        self._is_busy = True
        if enabled is not None:
            self._wrapper.hooks_enabled = False
        try:
            self._set_generators(call.generators)
            is_on, dtype = call.autocast
            with warnings.catch_warnings(), torch.autocast(device, dtype=dtype, enabled=is_on):
                warnings.simplefilter("ignore")
                yield
        finally:
            self._set_generators(states)
            self._is_busy = False
            if enabled is not None:
                self._wrapper.hooks_enabled = enabled

    def _check_class_weights(self, call: _Call, num_examples: int) -> None:
        """Refuse a cross entropy whose weights change, all by one factor, from one batch to another."""
        if call.autocast[0] or len(call.cotangents) != 1:
            return
        ((number, cotangent),) = call.cotangents.items()
        found = class_weights(call.outputs[number], cotangent)
        scale = num_examples if self._wrapper.loss_reduction == "mean" else 1
        now = {label: scale * weight for label, weight in found.items()}
        ratios = [now[label] / self._class_weights[label] for label in now if label in self._class_weights]
        self._class_weights |= {} if ratios else now
        if not ratios or max(ratios) - min(ratios) > 1e-3 * max(ratios) or abs(ratios[0] - 1.0) < 1e-2:
            return
        raise ValueError(
            "the loss must weigh an example alike in every batch, got weights that changed by the factor "
            f"{ratios[0]:.4g} from one batch to another (with loss_reduction="
            f"{self._wrapper.loss_reduction!r}): it divides by something that other examples change, such as "
            "the sum of class weights, the number of labels not ignored, or of tokens, or the size of the "
            "batch. No epsilon holds for such steps, those recorded before included; divide by a constant. "
            f"{_WAY_OUT}"
        )


def class_weights(outputs: torch.Tensor, cotangents: torch.Tensor) -> dict[int, float]:
    """The weight of each class in a cross entropy of logits, or of log-probabilities, with these gradients.

    Empty where it is another loss, or where examples of one class have different weights.

    >>> logits = torch.tensor([[1.0, 0.0, 2.0], [0.5, 0.5, 0.0]], requires_grad=True)
    >>> nn.functional.cross_entropy(logits, torch.tensor([2, 0]), reduction="sum").backward()
    >>> sorted((label, round(weight, 4)) for label, weight in class_weights(logits, logits.grad).items())
    [(0, 1.0), (2, 1.0)]
    """
    if outputs.ndim < 2 or outputs.shape != cotangents.shape or outputs.dtype in _LOW:
        return {}
    for dim in {1, outputs.ndim - 1}:
        logits = outputs.double().movedim(dim, -1).flatten(0, -2)
        given = cotangents.double().movedim(dim, -1).flatten(0, -2)
        used = given.abs().amax(dim=1) > 0.0
        logits, given = logits[used], given[used]
        if not len(given) or given.shape[1] < 2:
            continue
        label = given.argmin(dim=1, keepdim=True)
        target = torch.zeros_like(given).scatter_(1, label, 1.0)
        for direction in (logits.softmax(dim=1) - target, -target):
            away = -direction.gather(1, label)
            sure = away.squeeze(1) > 1e-2  # elsewhere rounding hides the weight
            weight = -given.gather(1, label) / away.clamp(min=1e-9)
            fits = (given - weight * direction).abs().amax(dim=1) <= 1e-3 * given.abs().amax(dim=1)
            if bool(fits[sure].all()) and bool(sure.any()):
                return _by_class(label[sure, 0].tolist(), weight[sure, 0].tolist())
    return {}


def _by_class(labels: list[int], weights: list[float]) -> dict[int, float]:
    found: dict[int, float] = {}
    for label, weight in zip(labels, weights, strict=True):
        if abs(weight - found.setdefault(label, weight)) > 1e-3 * abs(weight):
            return {}
    return found


def _keep(cotangents: dict[int, torch.Tensor], number: int, seen: torch.Tensor) -> None:
    cotangents[number] = seen.detach()


def _refuse_unseen(error: Exception) -> NoReturn:
    raise ValueError(
        f"per-example gradients could not be checked, since a second run of the model failed ({error}); "
        f"{_WAY_OUT}"
    ) from error


def _copies(num_examples: int) -> int:
    """So many that an output shows by its shape where its examples are."""
    return 3 if num_examples == 2 else 2


def _cloned(tree: Any) -> Any:
    return pytree.tree_map(
        lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, tree
    )


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _worst(
    gradients: Mapping[nn.Parameter, torch.Tensor],
    expected: Mapping[nn.Parameter, torch.Tensor],
    index: int,
    calls: Sequence[_Call],
) -> tuple[nn.Parameter, float] | None:
    """The parameter whose gradient is furthest off, if by more than rounding explains."""
    relative, absolute = _tolerances(list(gradients.values()), calls)
    whole = max(float(wanted.double().norm()) for wanted in expected.values())
    worst = None
    for parameter, wanted in expected.items():
        if len(gradients[parameter]) <= index or gradients[parameter].shape[1:] != wanted.shape:
            continue  # refused by the optimizer, which names the shape
        got, size = gradients[parameter][index].double(), float(wanted.double().norm())
        off = float((got - wanted.double()).norm())
        error = off / max(size, absolute * whole, 1e-300)
        if off > relative * size + absolute * whole and (worst is None or error > worst[1]):
            worst = (parameter, error)
    return worst


def _percent(error: float) -> str:
    return f"{error:.0%}" if error < 10.0 else "more than 1000%"


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).double().norm() / b.double().norm().clamp(min=1e-30))


def _tolerances(tensors: Sequence[torch.Tensor], calls: Sequence[_Call]) -> tuple[float, float]:
    """What rounding may explain: relative to a parameter's own gradient, and to the largest of all."""
    if any(call.autocast[0] for call in calls) or any(tensor.dtype in _LOW for tensor in tensors):
        return 0.3, 0.1
    return (0.1, 0.02) if any(tensor.is_cuda for tensor in tensors) else (0.02, 0.002)
