# SPDX-License-Identifier: Apache-2.0
"""Canaries: examples with a known gradient that go through a user's own private run.

An extra layer of one weight for each canary stands beside the model. A canary is an example of the training
set whose gradient, before clipping, is a large number on its own weight and zero on everything else. It is
sampled, clipped, summed and noised by the code that does so for every other example, so that the noisy
gradient of its weight shows all that an adversary can learn about it.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.errors import BudgetExceededError
from ggdp.mechanisms.batches import Sampling
from ggdp.training.fit import take_steps
from ggdp.training.plan import sampling_of
from ggdp.training.poisson_batches import check_loader
from ggdp.training.private import Private, make_private

Train = Callable[[Private], Any]
Floats = NDArray[np.float64]
Choice = NDArray[np.int64]

_PUSH = 64.0  # a canary's gradient before clipping, in units of clip_norm: a clip that fails is seen to fail
NO_CANARY = -1
_BLANK = -2  # stands in the place of a canary that is not in the training set, and contributes nothing
_CANARIES = "canaries.weight"


@dataclass(frozen=True, eq=False)
class CanaryStep:
    """What one private step released.

    Attributes:
        means: by name of the model's parameter, the noisy sum of clipped gradients over the expected batch
            size.
        canaries: the noisy sums of the canaries' own weights.
        drawn: which canaries were in the batch, each as often as it was drawn.
        num_examples: how many other examples were in it.
        size: how many rows it had, those in place of canaries left out included.
        draw: which draw of the sampler it belongs to.
    """

    means: dict[str, Tensor]
    canaries: Floats
    drawn: Choice
    num_examples: int
    size: int
    draw: int


@dataclass(frozen=True)
class Recipe:
    """Everything that `make_private` needs, and how to train with what it returns.

    Attributes:
        model: as before `make_private`. It and
        optimizer: are copied for every run, and stay as they are.
        data_loader: of the training set.
        settings: the remaining arguments of `make_private`.
        train: a training loop; `classify` if None.
    """

    model: nn.Module
    optimizer: Optimizer
    data_loader: DataLoader[Any]
    settings: dict[str, Any]
    train: Train | None = None

    def __post_init__(self) -> None:
        arguments.instance("model", self.model, nn.Module)
        arguments.instance("optimizer", self.optimizer, Optimizer)
        check_loader(self.data_loader)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise ValueError(
                "an audit runs in one process, got an initialised torch.distributed; run it before, or in a "
                "process of its own"
            )

    def run(
        self,
        num_canaries: int,
        included: Choice,
        on_step: Callable[[Private, CanaryStep], None],
        *,
        loudness: float = 1.0,
        generator: Any = None,
    ) -> Private:
        """Train once with canaries; `on_step` is called after every private step.

        Args:
            num_canaries: how many weights are added.
            included: which canaries are in the training set.
            on_step: sees the run and what the step released. It may raise `Enough` to end the run.
            loudness: a factor of the gradients of all examples but the canaries, before clipping.
            generator: of batches and noise, as in `make_private`.
        """
        model, optimizer = copy.deepcopy((self.model, self.optimizer))
        audited = CanaryModel(model, num_canaries, self._push, self._batch_dim, loudness=loudness)
        optimizer.add_param_group({"params": list(audited.canaries.parameters())})
        loader = self.data_loader
        settings, rows = self._sized(num_canaries, included)
        dataset, collate = with_canaries(loader.dataset, rows, loader.collate_fn)
        private = make_private(
            audited,
            optimizer,
            DataLoader(
                dataset, batch_size=loader.batch_size, collate_fn=collate, num_workers=loader.num_workers
            ),
            **{**settings, "generator": generator},
        )
        marking = _Marking(audited, self._batch_dim)
        seen = _CanaryLoader(private.data_loader, marking)
        private = replace(private, model=marking, data_loader=seen)  # type: ignore[arg-type]
        _watch(private, audited, seen, on_step)
        with contextlib.suppress(Enough):
            (self.train or classify)(private)
        if private.optimizer.steps == 0:
            raise ValueError(
                "train must take at least one step of private.optimizer over private.data_loader, it took "
                "none; loop over the data_loader and call optimizer.step()"
            )
        return private

    def _sized(self, num_canaries: int, included: Choice) -> tuple[dict[str, Any], Choice]:
        """The settings of a run with canaries, and the rows that are added to the training set.

        Poisson samples keep their rate, and canaries that are not included are not there. Other batches are
        drawn from a number of examples that the accountant knows: they keep their share of the examples, and
        a row without a gradient stands in the place of a canary that is not included.
        """
        size, settings = len(self.data_loader.dataset), dict(self.settings)  # type: ignore[arg-type]
        rate, batch_size = settings.get("rate"), settings.get("batch_size")
        if rate is None and batch_size is None and ":" not in str(settings.get("sampling")):
            batch_size = self.data_loader.batch_size
        drawn = sampling_of(settings.get("sampling"), rate, batch_size, size)
        if drawn is None:
            public = settings.get("num_examples")  # the same whatever the coins
            return {**settings, "num_examples": size if public is None else public}, included
        kept = {name: value for name, value in settings.items() if name not in ("rate", "batch_size")}
        rows = np.full(num_canaries, _BLANK)
        rows[included] = included
        return {**kept, "sampling": _grown(drawn, size, size + num_canaries)}, rows

    def with_settings(self, *, noise: GeneralizedGaussian, **settings: Any) -> "Recipe":
        """The same with this noise, without a budget, and with other settings of the sampler."""
        asked = ["beta", "target_epsilon", "scale", "noise_multiplier", "max_epsilon"]
        asked += ["batch_size"] * ("rate" in settings) + ["epochs"] * ("steps" in settings)
        kept = {name: value for name, value in self.settings.items() if name not in asked}
        return replace(self, settings={**kept, "noise": noise, **settings})

    @property
    def _push(self) -> float:
        return _PUSH * arguments.real("clip_norm", self.settings["clip_norm"], above=0.0)

    @property
    def _batch_dim(self) -> int:
        return 0 if self.settings.get("batch_first", True) else 1


def _grown(sampling: Sampling, before: int, now: int) -> Sampling:
    """The same share of so many more examples."""
    first, *more = sampling.numbers
    if sampling.kind in ("fixed-size", "with-replacement"):
        return Sampling(sampling.kind, (max(1, round(first * now / before)), now))
    if sampling.kind == "truncated-poisson":
        return Sampling(sampling.kind, (first, round(more[0] * now / before), now))
    return sampling


class Enough(Exception):
    """Raised after a step to end a run of which enough has been seen."""


def classify(private: Private) -> None:
    """Train to the end of the plan, or of the budget, on batches (inputs, label) with the cross-entropy."""
    with contextlib.suppress(BudgetExceededError):
        take_steps(private, private.plan.steps - private.optimizer.steps)


class CanaryModel(nn.Module):
    """A model with one more weight for each canary; its outputs are those of the model inside.

    On the way back, the rows of canaries push their own weight by `push` and the model inside by nothing.
    """

    def __init__(
        self, model: nn.Module, num_canaries: int, push: float, dim: int, *, loudness: float = 1.0
    ) -> None:
        super().__init__()
        first = next((tensor for tensor in model.parameters() if tensor.requires_grad), None)
        if first is None:
            raise ValueError("model must have a trainable parameter, got one without")
        self.model = model
        self.canaries = nn.Embedding(num_canaries, 1, device=first.device, dtype=first.dtype)
        nn.init.zeros_(self.canaries.weight)
        self._push, self._dim, self._loudness = push, dim, loudness

    def forward(self, rows: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The output of the model inside; `rows` says which canary each example is, or NO_CANARY."""
        output = self.model(*args, **kwargs)
        leaves, spec = pytree.tree_flatten(output)
        where = [
            place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        if not where:
            return output
        is_canary, is_there = rows.flatten() != NO_CANARY, rows.flatten() >= 0
        for place in where:
            shape = tuple(leaves[place].shape)
            if len(shape) <= self._dim or shape[self._dim] != len(is_canary):
                raise ValueError(
                    f"model must return tensors with a row for each of the {len(is_canary)} examples of a "
                    f"batch, got one of shape {shape}; compute the loss outside the model, on the whole batch"
                )
        pushed = self.canaries(rows.clamp(min=0)).flatten()
        for number, place in enumerate(where):
            push = self._push if number == 0 else 0.0
            leaves[place] = _Push.apply(  # type: ignore[no-untyped-call]
                leaves[place], pushed, is_canary, is_there, push, self._loudness, self._dim
            )
        return pytree.tree_unflatten(leaves, spec)


class _Marking(nn.Module):
    """What a training loop calls: hands the marks of the batch at hand to the model, beside its inputs."""

    def __init__(self, audited: CanaryModel, dim: int) -> None:
        super().__init__()
        self.audited, self._dim = audited, dim
        self.rows: Tensor | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()) or self.rows is None:
            return self.audited.model(*args, **kwargs)
        rows = self.rows.to(self.audited.canaries.weight.device)
        return self.audited(rows.unsqueeze(1 - self._dim), *args, **kwargs)


class _Push(torch.autograd.Function):
    """The identity on the way forward; on the way back, what the class above says."""

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        pushed: Tensor,
        is_canary: Tensor,
        is_there: Tensor,
        push: float,
        loudness: float,
        dim: int,
    ) -> Tensor:
        ctx.save_for_backward(is_canary, is_there)
        ctx.push, ctx.loudness, ctx.dim, ctx.dtype = push, loudness, dim, pushed.dtype
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (cotangent,) = cotangents
        is_canary, is_there = ctx.saved_tensors
        shape = [1] * cotangent.dim()
        shape[ctx.dim] = len(is_canary)
        nothing = torch.zeros_like(cotangent)
        # Not a product with 0: a loss that does not matter here may be infinite.
        others = cotangent * ctx.loudness if ctx.loudness else nothing
        kept = torch.where(is_canary.view(shape), nothing, others)
        return kept, is_there.to(ctx.dtype) * ctx.push, None, None, None, None, None


def with_canaries(
    dataset: Dataset[Any], added: Choice, collate: Callable[[list[Any]], Any] | None
) -> tuple[Dataset[Any], Callable[[list[Any]], Any] | None]:
    """The dataset and the rows added, canaries by their numbers; batches say which canary each row is.

    A canary carries the input of the first example, which the layer above makes irrelevant.
    """
    size, count = len(dataset), len(added)  # type: ignore[arg-type]
    rows = torch.cat([torch.full((size,), NO_CANARY), torch.from_numpy(added)])
    if type(dataset) is TensorDataset and collate in (None, default_collate):
        carried = [
            torch.cat([tensor, tensor[:1].expand(count, *tensor.shape[1:])]) for tensor in dataset.tensors
        ]
        return TensorDataset(*carried, rows.to(carried[0].device)), default_collate
    return _Marked(dataset, rows), _MarkedCollate(collate or default_collate)


class _Marked(Dataset[Any]):
    def __init__(self, dataset: Dataset[Any], rows: Tensor) -> None:
        self._dataset, self._rows = dataset, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        row = int(self._rows[index])
        return self._dataset[index if row == NO_CANARY else 0], row


class _MarkedCollate:
    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, examples: list[tuple[Any, int]]) -> tuple[Any, Tensor]:
        return self._collate([example for example, _ in examples]), torch.tensor([row for _, row in examples])


class _CanaryLoader:
    """The private loader: takes the canaries' marks off every batch and hands them to the model."""

    def __init__(self, loader: Any, model: _Marking) -> None:
        self._loader, self._model = loader, model
        self.drawn: list[Tensor] = []  # the marks of the parts of the logical batch so far

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        return self.batches(len(self))

    def batches(self, steps: int) -> Iterator[Any]:
        """See `PoissonBatches.batches`."""
        for batch in self._loader.batches(steps):
            *rest, rows = batch
            self._model.rows = rows
            self.drawn.append(rows)
            yield rest[0] if type(self._loader.dataset) is _Marked else rest


def _watch(
    private: Private,
    model: CanaryModel,
    loader: _CanaryLoader,
    on_step: Callable[[Private, CanaryStep], None],
) -> None:
    """Call `on_step` after every logical step of the optimizer."""
    optimizer, step = private.optimizer, private.optimizer.step
    named = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.steps
        result = step(*args, **kwargs)
        if self.steps != before:
            means = {name: tensor.grad for name, tensor in named if tensor.grad is not None}
            drawn = torch.cat(loader.drawn).cpu().numpy() if loader.drawn else np.empty(0, np.int64)
            loader.drawn.clear()
            own = means.pop(_CANARIES).flatten().double().cpu().numpy() * private.plan.expected_batch_size
            inside = {name.removeprefix("model."): mean for name, mean in means.items()}
            others = int((drawn == NO_CANARY).sum())
            on_step(private, CanaryStep(inside, own, drawn[drawn >= 0], others, len(drawn), self.draw))
        return result

    optimizer.step = MethodType(watched, optimizer)  # type: ignore[method-assign]
