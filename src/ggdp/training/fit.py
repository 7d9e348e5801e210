# SPDX-License-Identifier: Apache-2.0
"""A ready training loop: epsilon per epoch, a stop before the budget is exceeded, exact resumption."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import TensorDataset

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting.budget import BudgetExceededError
from ggdp.training.checkpoint import Checkpoint, CheckpointError
from ggdp.training.private import Private
from ggdp.training.report import EpochRow, FitReport, StoppedBy, best_of

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
Score = Callable[[nn.Module], float]
Show = Callable[[str], None]


def fit(
    private: Private,
    *,
    loss: Loss = functional.cross_entropy,
    evaluate: Score | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    patience: int | None = None,
    keep_best: bool = False,
    scheduler: LRScheduler | None = None,
    progress: bool = True,
    on_epoch: Callable[[EpochRow], None] | None = None,
) -> FitReport:
    """Train to the end of the plan.

    Args:
        private: what `make_private` returned; its dataset gives pairs (inputs, target), or longer tuples
            whose last entry is the target.
        loss: of the model's output and the target, mean or sum as `make_private` was told.
        evaluate: a score of the model on other data, higher is better, after every epoch.
        checkpoint: a folder to keep the run in; see `ggdp.training.checkpoint`.
        resume: go on with the run that the folder holds; a folder that holds one is otherwise refused.
        patience: stop after so many epochs without a better score.
        keep_best: give the model back as it was after its best epoch.
        scheduler: stepped after every epoch.
        progress: show it on standard error.
        on_epoch: called with every row.

    Guarantees:
        The ledger on disk never says less than what has been released. Interrupted at any moment and resumed,
        the run ends with the same parameters (on deterministic hardware) and the same ledger.

    Raises:
        CheckpointError: the folder holds another run, or one that `resume` was not asked for.
    """
    if patience is not None:
        arguments.whole("patience", patience)
        if evaluate is None:
            raise ValueError(f"evaluate must be given with patience, got patience={patience} and no score")
    files = None if checkpoint is None else Checkpoint(Path(checkpoint), private.group.rank)
    rows, best = _begin(private, files, resume, scheduler)
    elapsed = rows[-1].seconds if rows else 0.0
    stopped_by: StoppedBy | None = "plan" if private.optimizer.num_steps >= private.plan.steps else None
    with _progress(private, progress) as show:
        while stopped_by is None:
            start = time.perf_counter()
            planned = min(private.plan.steps_per_epoch, private.plan.steps - private.optimizer.num_steps)
            if files:
                files.reserve(private, planned)
            stopped_by = _epoch(private, planned, loss)
            row = _row(private, rows, evaluate, elapsed + time.perf_counter() - start)
            elapsed, rows = row.seconds, (*rows, row)
            if keep_best and best_of(rows) is row:
                best = {name: value.clone() for name, value in private.model.state_dict().items()}
            if scheduler is not None:
                scheduler.step()
            if files:
                files.save(private, rows, best, scheduler)
            if on_epoch is not None:
                on_epoch(row)
            show(_line(row))
            if stopped_by is None and _is_tired(rows, patience):
                stopped_by = "patience"
    if files:
        files.finish(private)
    if keep_best and best is not None:
        private.model.load_state_dict(best)
    return FitReport(private.plan, rows, stopped_by, _spent(private).method)


def accuracy_on(dataset: TensorDataset, *, batch_size: int = 4096) -> Score:
    """A score for `fit`: the share of a dataset of (inputs, label) that the model labels right."""

    def score(model: nn.Module) -> float:
        device = _device(model)
        right = 0
        with torch.no_grad():
            for start in range(0, len(dataset), batch_size):
                *inputs, labels = (part.to(device) for part in dataset[start : start + batch_size])
                right += int((model(*inputs).argmax(dim=1) == labels).sum())
        return right / len(dataset)

    return score


def _begin(
    private: Private, files: Checkpoint | None, resume: bool, scheduler: LRScheduler | None
) -> tuple[tuple[EpochRow, ...], dict[str, Any] | None]:
    if resume and files is None:
        raise ValueError("checkpoint must be given with resume, got None")
    if files is None:
        return (), None
    if not files.exists:
        files.save(private, (), None, scheduler)  # so that the first epoch can be repeated too
        return (), None
    if not resume:
        raise CheckpointError(
            f"{files.folder} holds a run already; pass resume=True to go on with it, or another folder"
        )
    return files.restore(private, scheduler)


def _epoch(private: Private, planned: int, loss: Loss) -> StoppedBy | None:
    """Take up to `planned` logical steps; say why no more will follow, if so."""
    model, optimizer, loader, _ = private
    device, end = _device(model), optimizer.num_steps + planned
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        if loader.clock.open.size:
            *inputs, target = (part.to(device, non_blocking=True) for part in batch)
            torch.autograd.backward(loss(model(*inputs), target))
        try:
            optimizer.step()
        except BudgetExceededError:
            return "budget"
        if optimizer.num_steps == end:
            break
    return "plan" if optimizer.num_steps >= private.plan.steps else None


def _row(private: Private, rows: tuple[EpochRow, ...], evaluate: Score | None, seconds: float) -> EpochRow:
    spent = _spent(private)
    score = math.nan
    if evaluate is not None:
        private.model.eval()
        score = private.group.leaders(float(evaluate(private.model)), _device(private.model))
        private.model.train()
    steps = private.optimizer.num_steps
    return EpochRow(len(rows) + 1, steps, spent.lower, spent.upper, score, seconds)


def _spent(private: Private) -> Bounds:
    return private.accountant.epsilon(delta=private.plan.delta)


def _is_tired(rows: tuple[EpochRow, ...], patience: int | None) -> bool:
    return patience is not None and rows[-1].epoch - best_of(rows).epoch >= patience


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _line(row: EpochRow) -> str:
    score = "" if math.isnan(row.score) else f", score {row.score:.4f}"
    return f"epoch {row.epoch}: epsilon {row.epsilon:.4f}{score}"


@contextlib.contextmanager
def _progress(private: Private, wanted: bool) -> Iterator[Show]:
    """A bar over the steps of the plan, on standard error."""
    if not wanted or not private.group.is_leader:
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("epoch 1", total=private.plan.steps, completed=private.optimizer.num_steps)
        yield lambda text: bar.update(task, description=text, completed=private.optimizer.num_steps)
