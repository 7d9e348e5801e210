# SPDX-License-Identifier: Apache-2.0
"""Whole models held to the truth: the clipped sum is that of single examples, or the model is refused.

The truth is plain autograd in float64 on a second model of the same seed, one example at a time. Where a
model draws random numbers (dropout), those that the hooked model drew for the batch are noted, and each
example alone is given its own part of them.
"""

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ggdp.training.clipping import Clipping, ExampleGradients, NonFiniteGradientError, UnsupportedModelError

Batch = tuple[Any, ...]
Verdict = Literal["right", "refused", "crashed", "wrong"]


@dataclass(frozen=True)
class Case:
    """One row: a model, a batch of it, and what a user would call the loss.

    Attributes:
        name: What is special about the model.
        model: Builds the model; it is converted to float64.
        batch: Builds the batch. Tensors with `num_examples` rows (along `batch_dim`) and lists of that length
            are cut into examples; everything else is given to every example whole.
        loss: The loss of a model on a batch: one number per example, or a scalar. A scalar of a batch of one
            is that example's own loss.
        expected: "right" (the sums agree with the truth), "refused" (an error says why not), or "either";
            "rehearsed" where numbers that a loop computes from the batch make a loss mix examples: no graph
            shows that, and `ExampleGradients.rehearse` must; "crashes" where the model itself stumbles over
            an input that was given a row per example, with PyTorch's message.
        reduction: What `ExampleGradients` is told of the loss.
        train: Replaces `loss(model, batch).backward()` where a user's step is something else.
        plain: Builds the model of which the truth is told, where that is another than `model`.
        after: Called with the hooked model and the number of steps, to look at what the steps left behind.
        steps: How often the model is trained on a batch; more than the default where trouble comes late.
        double: Whether model and batch are converted to float64.
        tolerance: The largest relative error of norms and sums.
        device: Where model and batch are.
        self_check: Whether single examples are run alone, which calls the user's hooks again.
    """

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[..., Tensor]
    expected: Literal["right", "refused", "either", "rehearsed", "crashes"] = "right"
    reduction: Literal["mean", "sum"] = "mean"
    num_examples: int = 5
    batch_dim: int = 0
    train: Callable[[ExampleGradients, nn.Module, Batch], None] | None = None
    after: Callable[[nn.Module, int], None] | None = None
    plain: Callable[[], nn.Module] | None = None
    steps: int = 2
    double: bool = True
    tolerance: float = 1e-9
    device: str = "cpu"
    self_check: bool = True

    def built(self, build: Callable[[], nn.Module]) -> nn.Module:
        """The model that `build` gives, from the same seed each time."""
        torch.manual_seed(1)
        model = build()
        return (model.double() if self.double else model).to(self.device).train()

    def example(self, batch: Batch, index: int) -> Batch:
        """The batch of example `index` alone."""

        def cut(value: Any) -> Any:
            if isinstance(value, Tensor):
                of_batch = value.dim() > self.batch_dim and value.shape[self.batch_dim] == self.num_examples
                return value.narrow(self.batch_dim, index, 1).clone() if of_batch else value.clone()
            return value

        return tuple(
            value[index : index + 1]
            if isinstance(value, list) and len(value) == self.num_examples
            else tree_map(cut, value)
            for value in batch
        )


class HarnessError(RuntimeError):
    """The harness cannot tell the truth of this case."""


_IN_PLACE = ("bernoulli_", "uniform_", "normal_", "exponential_", "geometric_", "random_", "log_normal_")
_DRAWN = ("bernoulli", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm")
_DRAWN += ("multinomial", "normal", "poisson")


class Draws(TorchDispatchMode):
    """Notes what random operations give; or gives one example its part of what was noted."""

    def __init__(self, count: int, noted: "Draws | None" = None, index: int = 0) -> None:
        super().__init__()
        self.numbers: list[tuple[str, Tensor]] = []
        self._count, self._index = count, index
        self._rest = None if noted is None else iter(noted.numbers)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in _IN_PLACE:
            drawn = func(*args, **kwargs) if self._rest is None else args[0].copy_(self._next(name, args[0]))
            self.numbers.append((name, drawn.clone()))
            return drawn
        if name in _DRAWN:
            drawn = func(*args, **kwargs)
            drawn = drawn if self._rest is None else self._next(name, drawn).clone()
            self.numbers.append((name, drawn.clone()))
            return drawn
        if name == "native_dropout":  # what dropout is on a GPU: the output and the mask
            output, mask = func(*args, **kwargs)
            if self._rest is not None:
                mask = self._next(name, mask).clone()
                output = args[0] * mask / (1.0 - args[1])
            self.numbers.append((name, mask.clone()))
            return output, mask
        if name in ("rrelu_with_noise", "rrelu_with_noise_"):
            slopes = args[1]
            output = func(*args, **kwargs)
            if self._rest is not None:
                slopes.copy_(self._next(name, slopes))
                output = torch.where(args[0] > 0, args[0], args[0] * slopes)
            self.numbers.append((name, slopes.clone()))
            return output
        return func(*args, **kwargs)

    def _next(self, name: str, alone: Tensor) -> Tensor:
        noted, drawn = next(self._rest, ("", alone))
        if noted != name:
            raise HarnessError(f"the batch drew {noted or 'nothing more'} where one example draws {name}")
        if name == "randperm" and drawn.shape != alone.shape:
            return alone
        if drawn.shape == alone.shape:  # drawn once for the whole batch
            return drawn
        if drawn.dim() == alone.dim():
            differ = [dim for dim, size in enumerate(alone.shape) if drawn.shape[dim] != size]
            dim, size = differ[0], alone.shape[differ[0]]
            if len(differ) == 1 and drawn.shape[dim] == size * self._count:
                return drawn.narrow(dim, self._index * size, size)
        if drawn.numel() == alone.numel() * self._count:  # drawn in another shape, example by example
            return drawn.reshape(self._count, *alone.shape)[self._index]
        raise HarnessError(f"{name} drew {tuple(drawn.shape)} for the batch, {tuple(alone.shape)} alone")


@dataclass(frozen=True)
class Truth:
    """Gradients of single examples, (examples, all coordinates)."""

    rows: Tensor

    def norms(self, p: float) -> Tensor:
        """The l_p norm of every example's gradient, which may lie near the ends of the range of float64."""
        largest = self.rows.abs().amax(dim=1, keepdim=True)
        largest = torch.where(largest == 0.0, 1.0, largest)
        return torch.linalg.vector_norm(self.rows / largest, p, dim=1) * largest[:, 0]

    def clipped_sum(self, p: float, clip_norm: float) -> Tensor:
        """All coordinates of the sum."""
        return ((clip_norm / self.norms(p)).clamp(max=1.0).unsqueeze(1) * self.rows).sum(dim=0)


def truth(case: Case, plain: nn.Module, batch: Batch, noted: Draws) -> Truth:
    """The gradients of the examples alone, given the numbers that were drawn for the batch."""
    parameters = [p for p in plain.parameters() if p.requires_grad]
    buffers = [buffer.clone() for buffer in plain.buffers()]
    rows = []
    for index in range(case.num_examples):
        with Draws(case.num_examples, noted, index), _without_checkpoints():
            case.loss(plain, *case.example(batch, index)).sum().backward()
        rows.append(torch.cat([_gradient(p) for p in parameters]))
        for parameter in plain.parameters():
            parameter.grad = None
        with torch.no_grad():
            for buffer, before in zip(plain.buffers(), buffers, strict=True):
                buffer.copy_(before)
    return Truth(torch.stack(rows).double())


def outcome(case: Case) -> tuple[Verdict, str]:
    """What becomes of the case, and the words that go with it."""
    with warnings.catch_warnings(), _one_thread():
        warnings.simplefilter("ignore")
        model = case.built(case.model)
        try:
            gradients = ExampleGradients(
                model,
                loss_reduction=case.reduction,
                batch_first=case.batch_dim == 0,
                self_check=case.self_check,
            )
        except Exception as error:
            return _failed(error)
        plain = case.built(case.plain or case.model)
        if case.expected == "rehearsed":
            try:
                gradients.rehearse(partial(case.loss, model), *tree_map(_doubled, case.batch()))
            except UnsupportedModelError as error:
                return _failed(error)
        try:
            for step in range(case.steps):
                found, words = _step(case, model, plain, gradients, step)
                if found != "right":
                    return found, words
            if case.after is not None:
                case.after(model, case.steps)
        finally:
            gradients.detach()
    return "right", ""


def check(case: Case) -> None:
    """Fail unless the case comes out as its row says; a sum that is silently wrong fails every row."""
    found, words = outcome(case)
    allowed = {"either": ("right", "refused"), "rehearsed": ("refused",), "crashes": ("crashed",)}.get(
        case.expected, (case.expected,)
    )
    if found not in allowed:
        raise AssertionError(f"{case.name}: expected {case.expected}, found {found}: {words}")


def _step(
    case: Case, model: nn.Module, plain: nn.Module, gradients: ExampleGradients, step: int
) -> tuple[Verdict, str]:
    """One batch, in the l_2 norm with a reduced loss, or in another with a vector of losses."""
    p = 2.0 if step % 2 == 0 else 1.33
    torch.manual_seed(100 + step)
    batch = tree_map(_doubled, case.batch()) if case.double else case.batch()
    batch = tree_map(lambda each: each.to(case.device) if isinstance(each, Tensor) else each, batch)
    noted, again = Draws(case.num_examples), Draws(case.num_examples)
    before = [buffer.clone() for buffer in plain.buffers()]
    with noted:  # to see whether anything is drawn, and what becomes of the buffers
        case.loss(plain, *_fresh(batch))
    with torch.no_grad():
        buffers = [buffer.clone() for buffer in plain.buffers()]
        for buffer, value in zip(plain.buffers(), before, strict=True):
            buffer.copy_(value)
    try:
        with again if noted.numbers else nullcontext():
            if case.train is not None:
                case.train(gradients, model, _fresh(batch))
            else:
                loss = case.loss(model, *_fresh(batch))
        if case.train is None:
            _backward(case, gradients, loss, by_example=step % 2 == 1)
    except Exception as error:
        return _failed(error)
    right = truth(case, plain, batch, again if noted.numbers else noted)
    norms = right.norms(p)
    bound = float(norms.nanmedian()) or 1.0
    try:
        clipped = gradients.clipped_sum(Clipping(bound, p, non_finite="refuse"))
    except Exception as error:
        return _failed(error)
    with torch.no_grad():
        for buffer, value in zip(plain.buffers(), buffers, strict=True):
            buffer.copy_(value)
    found = torch.cat([each.to_dense().flatten() for each in clipped.sums]).double()
    wanted = right.clipped_sum(p, bound)
    if clipped.num_examples != case.num_examples:
        return "wrong", f"step {step}: {clipped.num_examples} examples in place of {case.num_examples}"
    error = _relative(clipped.norms.double(), norms)
    if not error <= case.tolerance:
        return "wrong", f"step {step}: norms {clipped.norms.tolist()} in place of {norms.tolist()}"
    error = _relative(found, wanted)
    if not error <= case.tolerance:
        return "wrong", f"step {step}: the clipped sum is off by {error:.1e} of its largest coordinate"
    for (name, one), other in zip(model.named_buffers(), buffers, strict=True):
        if not torch.allclose(one, other, equal_nan=True):
            return "wrong", f"step {step}: buffer {name} is not what one pass over the batch leaves"
    if any(parameter.grad is not None for parameter in model.parameters()):
        return "wrong", f"step {step}: raw gradients were left in .grad"
    return "right", ""


def _relative(found: Tensor, wanted: Tensor) -> float:
    """The largest difference over the largest number wanted."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=torch.finfo(torch.float64).tiny))


def _failed(error: Exception) -> tuple[Verdict, str]:
    """Refused in words of this library, or crashed somewhere."""
    if isinstance(error, (UnsupportedModelError, NonFiniteGradientError)):
        return "refused", str(error)
    return "crashed", "".join(traceback.format_exception(error))


def _backward(case: Case, gradients: ExampleGradients, loss: Tensor, *, by_example: bool) -> None:
    if loss.dim() == 0:
        loss.backward()
    elif by_example and hasattr(gradients, "backward"):
        gradients.backward(loss)
    else:
        (loss.mean() if case.reduction == "mean" else loss.sum()).backward()


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter).detach().flatten()
    return parameter.grad.to_dense().flatten()


def _doubled(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _fresh(batch: Batch) -> Batch:
    """A copy, for models that change their input in place."""
    return tuple(
        tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, each) for each in batch
    )


@contextmanager
def _without_checkpoints() -> Iterator[None]:
    """Activations are kept: recomputing them would draw again."""
    plain = torch.utils.checkpoint.checkpoint
    torch.utils.checkpoint.checkpoint = lambda run, *args, use_reentrant, **kwargs: run(*args, **kwargs)
    try:
        yield
    finally:
        torch.utils.checkpoint.checkpoint = plain


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tiny models are quickest on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
