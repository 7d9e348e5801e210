# SPDX-License-Identifier: Apache-2.0
"""`make_private`: a model, an optimizer and a data loader become private, and get an accountant."""

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

from ggdp import arguments
from ggdp.accounting import Accountant
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.mechanisms.batches import Sampling
from ggdp.mechanisms.composed import Part
from ggdp.training.clipping import Clipping, ExampleGradients
from ggdp.training.optimizer import PrivateOptimizer
from ggdp.training.plan import Plan, plan_training
from ggdp.training.poisson_batches import PoissonBatches, StepClock, check_loader
from ggdp.training.process_group import ProcessGroup
from ggdp.training.randomness import Generator, Randomness
from ggdp.training.sharding import Sharding, is_sharded

_LOG = logging.getLogger("ggdp.training")
_MANY_PARAMETERS = 1000


@dataclass(frozen=True)
class Private:
    """What `make_private` returns: model, optimizer, data loader and accountant; it unpacks into these four.

    Attributes:
        model: your own module, whose layers now also keep what clipping needs during training.
        optimizer: takes steps on noisy sums of clipped gradients.
        data_loader: gives Poisson batches.
        accountant: the ledger of every step taken.
        plan: noise, rate, steps and the other settings; `plan.epsilon()` is the epsilon of the whole run.
    """

    model: nn.Module
    optimizer: PrivateOptimizer
    data_loader: PoissonBatches
    accountant: Accountant
    plan: Plan
    gradients: ExampleGradients
    randomness: Randomness
    group: ProcessGroup

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds a part of every parameter (`fully_shard`)."""
        return any(is_sharded(each) for each in self.model.parameters())

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.optimizer, self.data_loader, self.accountant))

    def backward(self, losses: Tensor) -> None:
        """Backward from one loss per example (its mean over views), in place of `loss.backward()`.

        `loss.backward()` is for losses that are a plain mean (or sum) over the examples of the batch. Where
        the examples have weights, or some targets are ignored, or sequences have different lengths, compute
        one loss per example and hand all of them over:

            losses = functional.cross_entropy(model(inputs), labels, weight=weights, reduction="none")
            private.backward(losses)
            optimizer.step()

        For sequences, reduce over an example's own positions: `(token_losses * mask).sum(1) / mask.sum(1)`.

        Args:
            losses: of shape (examples,), computed from the model's outputs on the last batch.

        Raises:
            UnsupportedModelError: the loss of some example depends on other examples.
        """
        self.gradients.backward(losses)

    def check(self, loss_of: Callable[..., Tensor], *batch: Any) -> None:
        """Verify that your step treats examples apart: run some examples of a batch alone, and compare.

        Training checks the model by itself. This also checks everything between the batch and the loss:
        examples that are mixed before the model is called, targets centred by their mean, weights computed
        from the batch. Nothing is released, and the model's parameters stay as they are.

            private.check(lambda inputs, labels: criterion(model(inputs), labels), inputs, labels)

        Args:
            loss_of: takes the parts of a batch; returns the loss, a scalar or one for every example.
            batch: its parts; tensors with examples in dimension 0.

        Raises:
            SelfCheckError: an example has another gradient alone than in the batch.
        """
        self.gradients.rehearse(loss_of, *batch)

    def detach(self) -> nn.Module:
        """The model as it was before, without hooks; its trained parameters stay."""
        self.gradients.detach()
        return self.model


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    *,
    clip_norm: float,
    delta: float,
    beta: float | None = None,
    target_epsilon: float | None = None,
    scale: float | None = None,
    noise_multiplier: float | None = None,
    noise: GeneralizedGaussian | None = None,
    max_epsilon: float | None = None,
    norm: float | str | None = None,
    per_layer: bool = False,
    rate: float | None = None,
    batch_size: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    sampling: Sampling | str | None = None,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    num_examples: int | None = None,
    alongside: Sequence[Part] = (),
    non_finite: Literal["zero", "refuse"] = "zero",
    generator: Generator | None = None,
    views: int = 1,
    loss_reduction: Literal["mean", "sum"] = "mean",
    batch_first: bool = True,
    physical_batch_size: int | None = None,
    self_check: bool = True,
) -> Private:
    """Make a PyTorch training loop private: wrap model, optimizer and loader once, and keep the loop.

    Each step then clips the gradient of every example, sums them over a random batch, and adds noise to the
    sum before the optimizer uses it (DP-SGD). The step is counted by an accountant.

        model, optimizer, loader, accountant = make_private(
            model, optimizer, loader, beta=1.5, clip_norm=1.0, target_epsilon=2.0, delta=1e-6, epochs=20)
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()

    Guarantees:
        After any number of steps everything computed from the parameters is (epsilon, delta)-private for the
        accountant's epsilon, where neighbouring training sets differ by one example added or removed, or as
        `adjacency` says. With sampling="shuffled", a training set that lacks the example has an empty one in
        its place, which contributes nothing, so that all others stay in their batches. Not covered are the
        choice among several runs, and other data on which the model is scored. The guarantee assumes that
        each row of a layer's input comes from one example of the batch alone; this is tested on some examples
        of some batches (docs/clipping.md).

    Args:
        model: a module without batch normalisation or other layers that mix examples. It may be sharded by
            `torch.distributed.fsdp.fully_shard`, before the optimizer is made.
        optimizer: any optimizer over parameters of the model.
        data_loader: its dataset, collate function and workers are kept; its batches become Poisson samples.
            With several processes, each is given the whole dataset and takes its share of every batch.

        clip_norm: longer gradients of single examples are scaled down to this length, in the l_p norm.
        delta: the delta of the guarantee.
        beta: exponent of the noise; 2 is Gaussian noise. Its scale follows from one of the next three.
        target_epsilon: the least noise is taken for which the run is certified to have at most this epsilon.
            It is also the budget: a step that would exceed it raises `BudgetExceededError`.
        scale: the scale of the noise, in the units of gradients.
        noise_multiplier: scale / (sqrt(2) * clip_norm).
        noise: in place of beta and scale: the `GeneralizedGaussian` that is added to the sum of clipped
            gradients.
        max_epsilon: a budget for when the noise is given; if left out, steps are counted without limit.
        norm: p in [1, inf]; 2 if left out. At beta = 2 with norm 2, and for any beta with norm 1, epsilon is
            exact; otherwise a certified bound a few percent above it. norm="matched" and norm=beta, for
            beta < 2, need less noise for the same epsilon, but a gradient of d parameters is up to
            d^(1/norm - 1/2) times longer in them, and is clipped that much more. They are for models of few
            parameters and sparse gradients; on images and text they cost 10 to 27 points of accuracy.
        per_layer: clip each of L layers to clip_norm / L^(1/p) instead of all together to clip_norm.
        rate: the probability of each example to be in a batch; or
        batch_size: the expected size of a batch; the data loader's batch size if both are left out.
        steps: how many steps the run has; or
        epochs: how many expected passes over the data.
        sampling: how batches are drawn, and what the accountant then counts (docs/training.md says which to
            take): "fixed-size", "truncated-poisson", "with-replacement", "allocation" or "shuffled", whose
            numbers follow from rate or batch_size; or a `ggdp.Sampling`, or its text, with numbers. Poisson
            samples if left out.
        adjacency: which training sets are neighbours: "add-remove", or "replace", where one example stands in
            place of another and their number is the same. Ledger and report then speak of these. Allocation
            and draws with replacement have no proof for "replace", and are refused.
        num_examples: the public size of the training set; the size of the dataset if left out.
        alongside: other releases on the same data, which share the budget: pairs (mechanism, times).
        non_finite: what becomes of an example whose gradient is NaN or infinite. "zero" leaves it out of the
            sum, so that nothing but the noisy sum depends on it, and counts it in `optimizer.num_zeroed`;
            "refuse" raises `NonFiniteGradientError`, and then the error itself tells about the data.
        generator: for tests and repetition only; left out, batches and noise are unpredictable. A run that
            is resumed no longer follows it.

        views: how many views of each example (mirrored, shifted) the model is given. The gradient of an
            example's mean loss over its views is then clipped (De et al. 2022), and the cost is that of one
            view. The model is called with (examples, views, ...), and returns a row for every view, those of
            an example together:

                seen = torch.stack([images, images.flip(-1)], dim=1)
                criterion(model(seen), labels.repeat_interleave(2)).backward()

        loss_reduction: whether the loss is the mean or the sum over the examples of a batch. A sum is to be
            one of means over views.
        batch_first: whether examples are dimension 0 of the inputs.

        physical_batch_size: the most examples in memory at a time; a larger batch is processed in parts. It
            changes no result.
        self_check: whether some examples are run through the model alone, in the first steps and later on,
            to verify what was clipped (docs/clipping.md). Switch it off only to measure what it costs.

    Returns:
        `Private`, which unpacks into model, optimizer, data loader and accountant.

    Raises:
        ValueError: an argument is out of range, a layer is not supported, the target cannot be met, or the
            processes of a run were given different plans, data or models.
        OtherProcessError: another process of the run has raised an error here.
    """
    group = ProcessGroup.present()
    try:
        parts = _Parts.of(model, optimizer, data_loader)
        if sampling is not None and num_examples not in (None, parts.size):
            raise ValueError(
                f"num_examples must be the size of the data set, {parts.size}, where sampling is given, got "
                f"{num_examples}: its batches are drawn from so many"
            )
        sharding = Sharding.of(parts.model, group.rank, group.world_size)
        plan = plan_training(
            clip_norm=clip_norm,
            num_examples=parts.size if num_examples is None else num_examples,
            dimension=sum(tensor.numel() for tensor in parts.model.parameters() if tensor.requires_grad),
            delta=delta,
            beta=beta,
            target_epsilon=target_epsilon,
            scale=scale,
            noise_multiplier=noise_multiplier,
            noise=noise,
            max_epsilon=max_epsilon,
            norm=norm,
            rate=rate,
            batch_size=_batch_size(data_loader, sampling)
            if rate is None and batch_size is None
            else batch_size,
            sampling=sampling,
            adjacency=adjacency,
            steps=steps,
            epochs=epochs,
            alongside=alongside,
        )
        if plan.p < 2.0 and plan.dimension >= _MANY_PARAMETERS:
            _LOG.warning(
                "gradients of %d parameters are clipped in the l_%.4g norm, in which they are up to %.3g "
                "times as "
                "long as in l_2; with many parameters norm=2 usually trains better, though its noise is "
                "larger",
                plan.dimension,
                plan.p,
                plan.dimension ** (1.0 / plan.p - 0.5),
            )
        accountant = plan.ledger()
        clipping = Clipping(plan.clip_norm, plan.p, per_layer, non_finite)
        randomness, clock = Randomness.of(generator), StepClock()
        loader = PoissonBatches(
            data_loader,
            plan,
            randomness,
            clock,
            physical_batch_size=physical_batch_size,
            rank=group.rank,
            world_size=group.world_size,
            equal_parts=sharding is not None,
        )
        gradients = ExampleGradients(
            parts.model,
            loss_reduction=loss_reduction,
            batch_first=batch_first,
            views=views,
            self_check=self_check,
            sharding=sharding,
        )
    except Exception as error:
        group.agree(error, {})
        raise
    try:
        if group.world_size > 1:
            settings: dict[str, Any] = {"clipping": repr(clipping), "views": views}
            if sharding is not None:  # what decides how often the model is run
                settings |= {"self_check": self_check, "physical_batch_size": physical_batch_size}
            group.agree({**parts.facts(), **_flat(plan), **settings}, _HINTS)
    except Exception:
        gradients.detach()
        raise
    group.share_model(parts.model)
    randomness.share(group)
    private = PrivateOptimizer(
        optimizer, parts.model, gradients, plan, clipping, clock, accountant, randomness, group, sharding
    )
    return Private(parts.model, private, loader, accountant, plan, gradients, randomness, group)


_WHOLE = "give every process the whole dataset, in the same order: it takes its own share of it"
_HINTS = {"the number of examples": _WHOLE, "a digest of the examples": _WHOLE}


@dataclass(frozen=True)
class _Parts:
    """What a caller brings, checked; the model without a wrapper for several processes."""

    model: nn.Module
    dataset: Any
    size: int

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer, data_loader: DataLoader[Any]) -> "_Parts":
        arguments.instance("model", model, nn.Module)
        arguments.instance("optimizer", optimizer, Optimizer)
        check_loader(data_loader)
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module  # sums are added up here, clipped; the wrapper would average raw gradients
        _check_parameters(model, optimizer)
        return cls(model, data_loader.dataset, len(data_loader.dataset))  # type: ignore[arg-type]

    def facts(self) -> dict[str, Any]:
        """What every process must have alike; of a `TensorDataset` also a digest of some of its rows."""
        shapes = {name: (tuple(each.shape), str(each.dtype), each.requires_grad, is_sharded(each))
                  for name, each in self.model.named_parameters()}  # fmt: skip
        return {
            "the number of examples": self.size,
            "a digest of the examples": self._digest(),
            "parameters": shapes,
        }

    def _digest(self) -> str:
        found = hashlib.sha256()
        if type(self.dataset) is TensorDataset:
            rows = torch.linspace(0, self.size - 1, min(self.size, 64), dtype=torch.float64).long()
            for tensor in self.dataset.tensors:
                some = tensor[rows.to(tensor.device)].detach().cpu().contiguous()
                found.update(repr((tuple(tensor.shape), tensor.dtype)).encode())
                found.update(some.view(torch.uint8).numpy().tobytes() if some.numel() else b"")
        return found.hexdigest()[:16]


def _batch_size(data_loader: DataLoader[Any], sampling: Sampling | str | None) -> int | None:
    """The loader's, unless `sampling` says how large batches are."""
    says = isinstance(sampling, Sampling) or (sampling is not None and ":" in sampling)
    return None if says else data_loader.batch_size


def _flat(plan: Plan) -> dict[str, Any]:
    return {f"{name} of the plan": value for name, value in plan.to_dict().items()}


def _check_parameters(model: nn.Module, optimizer: Optimizer) -> None:
    """Every trainable parameter is stepped, and nothing else is: the rest would leave without noise."""
    _, *needed = inspect.signature(type(optimizer).step).parameters.values()
    if any(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in needed):
        raise ValueError(
            f"optimizer must step without a closure, got {type(optimizer).__name__}, which needs one: each "
            "evaluation of it would be a release of its own; use SGD, Adam or another one"
        )
    names = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    stepped: set[torch.Tensor] = {tensor for group in optimizer.param_groups for tensor in group["params"]}
    foreign = [tensor for tensor in stepped if tensor.requires_grad and tensor not in names]
    if foreign:
        shape = tuple(foreign[0].shape)
        raise ValueError(
            f"optimizer must hold parameters of the model only, got another one of shape {shape}, whose "
            "gradient would be neither clipped nor noised"
        )
    idle = [name for parameter, name in names.items() if parameter not in stepped]
    if idle:
        raise ValueError(
            f"optimizer must hold every trainable parameter of the model, {idle[0]!r} is missing; freeze it "
            "with requires_grad_(False), so that it costs no privacy"
        )
