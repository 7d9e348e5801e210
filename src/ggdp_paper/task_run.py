# SPDX-License-Identifier: Apache-2.0
"""Train a built-in task privately: `prepare` makes a run from settings, `training_cell` one from a seed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LinearLR, LRScheduler
from torch.utils.data import DataLoader

from ggdp import arguments
from ggdp.mechanisms import Adjacency
from ggdp.training.fit import accuracy_on, fit
from ggdp.training.plan import Plan
from ggdp.training.private import Private, make_private
from ggdp.training.report import EpochRow, FitReport
from ggdp.training.weight_average import WeightAverage
from ggdp_paper.tasks import Task


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The choices of one run; what is None follows from the task's defaults.

    Attributes:
        beta: exponent of the noise.
        norm: in which gradients are clipped: p or "matched"; 2 if None.
        target_epsilon: calibrates the noise; or
        noise_multiplier: scale / (sqrt(2) * clip_norm).
        delta: of the guarantee.
        clip_norm: largest norm of one example's gradient.
        rate: Poisson sampling probability; or
        batch_size: its expectation.
        steps: of the run; or
        epochs: expected passes over the data.
        learning_rate: of stochastic gradient descent.
        learning_rate_end: fall to this, by the same amount after every epoch; constant if None.
        momentum: likewise.
        averages: decays of running averages of the weights, to score too; the first, if any, is the score.
        patience: stop after so many epochs without a better score.
        physical_batch_size: most examples in memory at a time.
        sampling: how batches are drawn; Poisson samples if left out.
        adjacency: which training sets are neighbours.
    """

    beta: float
    norm: float | str | None = None
    target_epsilon: float | None = None
    noise_multiplier: float | None = None
    delta: float | None = None
    clip_norm: float | None = None
    rate: float | None = None
    batch_size: float | None = None
    steps: int | None = None
    epochs: float | None = None
    learning_rate: float | None = None
    learning_rate_end: float | None = None
    momentum: float | None = None
    averages: tuple[float, ...] = ()
    patience: int | None = None
    physical_batch_size: int | None = None
    sampling: str | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE


@dataclass(frozen=True, eq=False)
class TaskRun:
    """A run that is about to start.

    Attributes:
        private: model, optimizer, batches and ledger.
        score: share of the test examples that are labelled right, by the first average if there is one.
        averages: of the weights, in the order of the settings.
        scheduler: of the learning rate, stepped after every epoch.
        patience: of the settings.
    """

    private: Private
    score: Callable[[nn.Module], float]
    averages: tuple[WeightAverage, ...]
    scheduler: LRScheduler | None
    patience: int | None

    def fit(
        self,
        *,
        checkpoint: Path | None = None,
        resume: bool = False,
        progress: bool = False,
        on_epoch: Callable[[EpochRow], None] | None = None,
    ) -> FitReport:
        """Train to the end; see `ggdp.training.fit`."""
        return fit(
            self.private,
            evaluate=self.score,
            checkpoint=checkpoint,
            resume=resume,
            keep={f"average {place}": average for place, average in enumerate(self.averages)},
            patience=self.patience,
            scheduler=self.scheduler,
            progress=progress,
            on_epoch=on_epoch,
        )


def prepare(
    task: Task, settings: RunSettings, *, generator: torch.Generator | None, weights: torch.Generator
) -> TaskRun:
    """Build the model, the plan and the ledger. What preprocessing released shares the budget.

    Args:
        task: data and model.
        settings: of the run.
        generator: of batches and noise, for repetition only; unpredictable if None.
        weights: of the first weights, which are public.
    """
    asked = private_arguments(task, settings, weights=weights)
    model, optimizer = asked["model"], asked["optimizer"]
    averages = tuple(WeightAverage(model, optimizer, decay) for decay in settings.averages)
    private = make_private(**asked, generator=generator)
    score = accuracy_on(task.test, batch_size=task.defaults.score_batch_size)
    return TaskRun(
        private,
        _score_of_first(averages, score),
        averages,
        _falling(optimizer, settings.learning_rate_end, private.plan),
        settings.patience,
    )


def private_arguments(task: Task, settings: RunSettings, *, weights: torch.Generator) -> dict[str, Any]:
    """The arguments of `make_private` for a task: a fresh model, its optimizer, the data and the settings."""
    defaults = task.defaults
    model = task.build(weights).to(task.train.tensors[0].device)
    sized = settings.rate is not None or settings.batch_size is not None or ":" in (settings.sampling or "")
    timed = settings.steps is not None or settings.epochs is not None
    return {
        "model": model,
        "optimizer": SGD(
            model.parameters(),
            lr=_or(settings.learning_rate, defaults.learning_rate),
            momentum=_or(settings.momentum, defaults.momentum),
        ),
        "data_loader": DataLoader(task.train, shuffle=True),
        "beta": settings.beta,
        "clip_norm": _or(settings.clip_norm, defaults.clip_norm),
        "delta": _or(settings.delta, defaults.delta),
        "norm": settings.norm,
        "rate": settings.rate,
        "batch_size": settings.batch_size if sized else min(defaults.batch_size, task.num_examples),
        "steps": settings.steps,
        "epochs": settings.epochs if timed else defaults.epochs,
        "target_epsilon": settings.target_epsilon,
        "noise_multiplier": settings.noise_multiplier,
        "alongside": [(mechanism, 1) for mechanism in task.charged],
        "views": task.views,
        "physical_batch_size": settings.physical_batch_size,
        "sampling": settings.sampling,
        "adjacency": settings.adjacency,
    }


def _falling(optimizer: SGD, end: float | None, plan: Plan) -> LRScheduler | None:
    """A learning rate that falls in a straight line and reaches `end` in the last epoch."""
    if end is None:
        return None
    start = optimizer.param_groups[0]["lr"]
    arguments.real("learning_rate_end", end, least=0.0, most=start)
    epochs = math.ceil(plan.steps / plan.steps_per_epoch)
    return LinearLR(optimizer, 1.0, end / start, total_iters=max(1, epochs - 1))


def _score_of_first(
    averages: tuple[WeightAverage, ...], score: Callable[[nn.Module], float]
) -> Callable[[nn.Module], float]:
    def first(model: nn.Module) -> float:
        return score(averages[0].model if averages else model)

    return first


def _or(given: float | None, default: float) -> float:
    return default if given is None else given


_CHUNK = 4096


def training_cell(
    task: Task,
    *,
    beta: float,
    epsilon: float,
    clip_norm: float,
    learning_rate: float,
    seed: int,
    **more: Any,
) -> dict[str, Any]:
    """Train once and report, as data for JSON.

    A run from a seed can be repeated by anybody, noise included: its model is not private. It measures what a
    private run would reach. Choosing settings by such scores is not part of any epsilon either.

    Args:
        task: as `load_task` returns it.
        beta: exponent of the noise.
        epsilon: the budget, to which the noise is calibrated.
        clip_norm: largest norm of one example's gradient.
        learning_rate: of stochastic gradient descent.
        seed: of first weights, batches and noise.
        **more: further fields of `RunSettings`.

    Returns:
        `accuracy`, at the end of the run; `mirrored_accuracy`, of predictions averaged over an image and its
        mirror image, which processes what was released and costs nothing; `best_accuracy`, of the best epoch,
        as the paper reports; `epsilon` spent, certified, preprocessing included, and its `lower_epsilon`,
        below which it cannot be; `noise_multiplier`;
        `seconds`; and `epochs`, a row for each, with the accuracy of further averages in their order.
    """
    settings = RunSettings(
        beta=beta, target_epsilon=epsilon, clip_norm=clip_norm, learning_rate=learning_rate, **more
    )
    generator = torch.Generator().manual_seed(seed)
    weights = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    run = prepare(task, settings, generator=generator, weights=weights)
    score = accuracy_on(task.test, batch_size=task.defaults.score_batch_size)
    rows: list[dict[str, Any]] = []

    def note(row: EpochRow) -> None:
        others = [score(average.model) for average in run.averages[1:]]
        found = {"epoch": row.epoch, "epsilon": row.epsilon, "accuracy": row.score}
        rows.append({**found, "other_averages": others} if others else found)

    report = run.fit(on_epoch=note)
    scored = run.averages[0].model if run.averages else run.private.model
    return {
        "mirrored_accuracy": accuracy_with_mirror(scored, task),
        "accuracy": report.last.score,
        "best_accuracy": report.best.score,
        "epsilon": report.last.epsilon,
        "lower_epsilon": report.last.epsilon_lower,
        "method": report.method,
        "noise_multiplier": report.plan.noise_multiplier,
        "norm": report.plan.p,
        "steps": report.last.steps,
        "stopped_by": report.stopped_by,
        "seconds": report.last.seconds,
        "epochs": rows,
    }


def accuracy_with_mirror(model: nn.Module, task: Task) -> float | None:
    """Share of the test examples labelled right by the mean prediction for both views, if there are two."""
    if task.mirrored is None:
        return None
    model.eval()
    with torch.no_grad():
        views = [
            torch.cat([model(part).softmax(dim=1) for part in torch.split(view.tensors[0], _CHUNK)])
            for view in (task.test, task.mirrored)
        ]
    right = (views[0] + views[1]).argmax(dim=1) == task.test.tensors[1]
    return float(right.double().mean())
