# SPDX-License-Identifier: Apache-2.0
"""A ready training loop: epsilon per epoch, a stop before the budget is exceeded, and resumption."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import TensorDataset

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.errors import BudgetExceededError, CheckpointError
from ggdp.mechanisms import Composed
from ggdp.training.checkpoint import Checkpoint, Keeper, Progress, Stateful
from ggdp.training.poisson_batches import PoissonBatches
from ggdp.training.private import Private
from ggdp.training.report import EpochRow, FitReport, StoppedBy, best_of
from ggdp.training.weight_average import WeightAverage

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
Score = Callable[[nn.Module], float]
Show = Callable[[str], None]
Views = Callable[..., Any]


def fit(
    private: Private,
    *,
    loss: Loss = functional.cross_entropy,
    evaluate: Score | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    save_every: float = 30.0,
    keep: Mapping[str, Stateful] | None = None,
    patience: int | None = None,
    declines: int | None = None,
    keep_best: bool = False,
    scheduler: LRScheduler | None = None,
    average: float | None = None,
    make_views: Views | None = None,
    progress: bool = True,
    on_epoch: Callable[[EpochRow], None] | None = None,
) -> FitReport:
    """Train a private model: a ready-made loop with checkpoints, early stopping and weight averages.

    It takes the steps that `make_private` planned, and stops earlier only if an option below says so or the
    budget is spent.

        private = make_private(model, optimizer, loader, beta=2.0, clip_norm=1.0, target_epsilon=2.0, ...)
        report = fit(private, evaluate=accuracy_on(held_out))  # held_out: a TensorDataset

    Args:
        private: what `make_private` returned; its dataset gives pairs (inputs, target), or longer tuples
            whose last entry is the target.
        loss: a function of the model's output and the target: a scalar, mean or sum as `make_private` was
            told, or one loss for every example; the cross-entropy if left out. It is verified on the first
            batch (`Private.check`).
        evaluate: a function that scores the model on other data after every epoch; higher is better.
        checkpoint: a folder in which the run is saved, so that it can be resumed.
        resume: go on with the run that the folder holds; without it, a folder that holds a run is refused.
        save_every: seconds after which the run is saved within an epoch; it is saved after every epoch too.
        keep: further objects to save and restore with the run, by name: an average of the weights, say.
        patience: stop after so many epochs without a better score.
        declines: stop when the score has fallen in each of the last so many epochs. For one number this rule
            stops no sooner than `patience`; the report calls both patience.
        keep_best: give the model back as it was after its best epoch.
        scheduler: stepped after every epoch.
        average: decay in [0, 1) of a running average of the weights (`WeightAverage`). Scores are those of
            the average, and the model has its weights in the end. It costs no privacy.
        make_views: where `make_private` was given `views`: takes the inputs of a batch as the dataset gives
            them, returns them (or a tuple of them) with the views of an example in dimension 1. If left out,
            the dataset gives them so. Targets are repeated for every view.
        progress: show it on standard error.
        on_epoch: called with every row.

    Returns:
        A report with one row for each epoch, and why training stopped.

    Guarantees:
        * The ledger on disk never says less than what has been released, whenever the run is killed. An
          error or Ctrl-C in training or evaluation saves the run first, so that no step is lost.
        * A resumed run draws new batches and new noise, whatever generator it was given. What the ledger on
          disk holds stays charged, so that steps lost to an interruption are paid for; a budget is never
          exceeded, and the run may end before its plan does.

    Raises:
        CheckpointError: the folder holds another run, one that `resume` was not asked for, or files that are
            damaged.
    """
    arguments.real("save_every", save_every, above=0.0)
    for name, count in {"patience": patience, "declines": declines}.items():
        if count is not None:
            arguments.whole(name, count)
            if evaluate is None:
                raise ValueError(f"evaluate must be given with {name}, got {name}={count} and no score")
    if resume and checkpoint is None:
        raise ValueError("checkpoint must be given with resume, got None")
    if average is not None and private.is_sharded:
        raise ValueError(
            f"average must be left out of a run whose model is sharded, got {average}: such a model cannot "
            "be copied"
        )
    averaged = None if average is None else WeightAverage(private.model, private.optimizer, average)
    own = {"scheduler": scheduler, "average": averaged}
    kept = {**(keep or {}), **{name: each for name, each in own.items() if each is not None}}
    run = _Run(private, loss, evaluate, keep_best, averaged, make_views)
    with contextlib.ExitStack() as stack:
        if checkpoint is not None:
            files = Checkpoint(Path(checkpoint), private, kept)
            stack.enter_context(run.kept_in(files, resume, save_every))
        show = stack.enter_context(_progress(private, progress))
        while run.stopped_by is None:
            if (row := run.epoch()) is None:
                break
            if scheduler is not None:
                scheduler.step()
            run.save()
            if on_epoch is not None:
                on_epoch(row)
            show(_line(row))
            scores = [row.score for row in run.rows]
            if run.stopped_by is None and is_tired(scores, patience=patience, declines=declines):
                run.stopped_by = "patience"
        return run.report()


class _Run:
    """A run on its way: rows so far, and why it stopped."""

    def __init__(
        self,
        private: Private,
        loss: Loss,
        evaluate: Score | None,
        keep_best: bool,
        average: WeightAverage | None,
        make_views: Views | None,
    ) -> None:
        self._private, self._loss, self._evaluate, self._keep_best = private, loss, evaluate, keep_best
        self._scored, self._make_views = private.model if average is None else average.model, make_views
        self._progress = Progress()
        self._keeper: Keeper | None = None
        self._since = time.perf_counter()
        self.stopped_by: StoppedBy | None = self._end_of_plan

    @property
    def rows(self) -> tuple[EpochRow, ...]:
        """Of the epochs that have ended."""
        return self._progress.rows

    @contextlib.contextmanager
    def kept_in(self, files: Checkpoint, resume: bool, save_every: float) -> Iterator[None]:
        """Begin in a folder, or go on from it, and keep its files ahead of the steps from here on."""
        private = self._private
        with files.held():
            exists = files.exists
            if exists and not resume:
                raise CheckpointError(
                    f"{files.folder} holds a run already; pass resume=True to go on with it, or give "
                    "another folder"
                )
            if exists:
                self._progress = files.restore()
                self.stopped_by = self._end_of_plan
            self._since = time.perf_counter()
            self._keeper = keeper = Keeper(files, save_every, self._now)
            if not exists:
                private.group.from_leader(keeper.begin)
                self.save()
            if private.group.is_leader:
                private.optimizer.before_release = keeper.before_step
            try:
                yield
            finally:
                private.optimizer.before_release = None

    def epoch(self) -> EpochRow | None:
        """Train to the end of the epoch; its row, or None if the budget allowed no step of it."""
        private, per_epoch = self._private, self._private.plan.steps_per_epoch
        start = private.optimizer.steps
        end = self._progress.epoch_end or min((start // per_epoch + 1) * per_epoch, private.plan.steps)
        self._progress = replace(self._progress, epoch_end=end)
        try:
            self.stopped_by = self._trained_to(end)
            if self.stopped_by == "budget" and self.rows and private.optimizer.steps == start:
                return None
            row = self._row()
        except (Exception, KeyboardInterrupt):
            if self._keeper is not None and private.group.is_leader:
                self._keeper.stop()
            raise
        best = self._progress.best
        if self._keep_best and best_of((*self.rows, row)) is row:
            best = {name: value.clone() for name, value in self._scored.state_dict().items()}
        self._progress = Progress((*self.rows, row), best, row.seconds)
        self._since = time.perf_counter()
        return row

    def _trained_to(self, end: int) -> StoppedBy | None:
        """Take the steps up to `end`; say why no more will follow, if so."""
        loader: object = self._private.data_loader
        try:
            # A run under audit has canaries in its batches, which the loss does not see.
            is_first = self._private.gradients.steps == 0 and isinstance(loader, PoissonBatches)
            steps = end - self._private.optimizer.steps
            take_steps(
                self._private,
                steps,
                self._loss,
                make_views=self._make_views,
                rehearses=is_first,
                after_part=self._save_if_due if self._private.is_sharded and self._keeper else None,
            )
        except BudgetExceededError:
            return "budget"
        return self._end_of_plan

    def save(self) -> None:
        """Write down where the run stands, if it is kept."""
        if self._keeper is not None:
            self._by_all_who_must(self._keeper.save)

    def _save_if_due(self) -> None:
        """Have all processes of a sharded run save it when process 0 says so."""
        due = self._keeper is not None and self._keeper.is_due
        if self._private.group.leaders(float(due), _device(self._private.model)):
            self.save()

    def _by_all_who_must(self, write: Callable[[], None]) -> None:
        if self._private.is_sharded:
            write()
        else:
            self._private.group.from_leader(write)

    def report(self) -> FitReport:
        """What `fit` returns; the run has ended."""
        private = self._private
        if self._keeper is not None:
            self._by_all_who_must(self._keeper.finish)
        if self._keep_best and self._progress.best is not None:
            private.model.load_state_dict(self._progress.best)
        elif self._scored is not private.model:
            private.model.load_state_dict(self._scored.state_dict())
        stopped_by = self.stopped_by or "plan"
        return FitReport(private.plan, self.rows, stopped_by, _spent(private).method, _steps_lost(private))

    @property
    def _end_of_plan(self) -> StoppedBy | None:
        return "plan" if self._private.optimizer.steps >= self._private.plan.steps else None

    def _now(self) -> Progress:
        seconds = self._progress.seconds + time.perf_counter() - self._since
        return replace(self._progress, seconds=seconds)

    def _row(self) -> EpochRow:
        private, steps = self._private, self._private.optimizer.steps
        spent, score = _spent(private), math.nan
        lower = spent.lower
        if _steps_lost(private):  # they need not have been released
            lower = min(lower, private.plan.epsilon(steps).lower) if steps else 0.0
        if self._evaluate is not None:
            score = _score(private, self._scored, self._evaluate)
        return EpochRow(len(self.rows) + 1, steps, lower, spent.upper, score, self._now().seconds)


def _score(private: Private, scored: nn.Module, evaluate: Score) -> float:
    """What process 0 finds; an error in any process is one in all."""
    scored.eval()
    error, score, device = None, math.nan, _device(private.model)
    try:
        score = float(evaluate(scored))
    except Exception as found:
        error = found
    private.group.together(error, (), device)
    private.model.train()
    return private.group.leaders(score, device)


def take_steps(
    private: Private,
    steps: int,
    loss: Loss = functional.cross_entropy,
    *,
    make_views: Views | None = None,
    rehearses: bool = False,
    after_part: Callable[[], None] | None = None,
) -> None:
    """Train for so many logical steps: the loop of `fit`.

    Args:
        private: what `make_private` returned.
        steps: how many.
        loss: see `fit`.
        make_views: see `fit`.
        rehearses: whether the first batch with two examples goes through `Private.check`, loss and all.
        after_part: called after every part of a batch.

    Raises:
        SelfCheckError: the loss of an example depends on other examples.
        BudgetExceededError: the budget does not allow the next one.
    """
    model, optimizer, loader, _ = private
    device, views = _device(model), private.gradients.views
    model.train()

    def loss_of(*parts: torch.Tensor) -> torch.Tensor:
        *inputs, target = parts
        if make_views is not None:
            seen = make_views(*inputs)
            inputs = [seen] if isinstance(seen, torch.Tensor) else list(seen)
        outputs = model(*inputs)
        if views == 1:
            return loss(outputs, target)
        found = loss(outputs, target.repeat_interleave(views, dim=0))
        return found.unflatten(0, (-1, views)).mean(dim=1) if found.dim() else found  # type: ignore[no-untyped-call]

    for batch in loader.batches(steps):
        optimizer.zero_grad()
        try:
            parts = [part.to(device, non_blocking=True) for part in batch]
            opened = private.data_loader.clock.open
            shares = opened.least if private.is_sharded and opened is not None else len(parts[0])
            if rehearses and shares > 1:  # in all processes of a sharded model, or in none
                private.check(loss_of, *parts)
                rehearses = False
            found = loss_of(*parts)
            private.backward(found) if found.dim() else torch.autograd.backward(found)
        except Exception as error:
            optimizer.tell_others(error)
            raise
        optimizer.step()
        if after_part is not None:
            after_part()


def accuracy_on(dataset: TensorDataset, *, batch_size: int = 4096) -> Score:
    """A score for the argument `evaluate` of `fit`: the share of examples that the model labels right.

    Args:
        dataset: tensors (inputs, label), not those that the model is trained on.
        batch_size: how many examples are labelled at a time.
    """

    def score(model: nn.Module) -> float:
        device = _device(model)
        right = 0
        with torch.no_grad():
            for start in range(0, len(dataset), batch_size):
                *inputs, labels = (part.to(device) for part in dataset[start : start + batch_size])
                right += int((model(*inputs).argmax(dim=1) == labels).sum())
        return right / len(dataset)

    return score


def _spent(private: Private) -> Bounds:
    return private.accountant.epsilon(delta=private.plan.delta)


def _steps_lost(private: Private) -> int:
    """Steps of the plan that the ledger holds and the model does not."""
    recorded, plan = private.accountant.mechanism, private.plan
    charged = dict(recorded.parts).get(plan.step, 0) if recorded is not None else 0
    alongside = dict(Composed(plan.alongside).parts).get(plan.step, 0) if plan.alongside else 0
    taken = private.optimizer.steps
    if plan.batches.steps_per_draw == 1:
        return max(charged - alongside - taken, 0)
    return max(charged - alongside - plan.draws(taken), 0) * plan.batches.steps_per_draw


def is_tired(scores: Sequence[float], *, patience: int | None = None, declines: int | None = None) -> bool:
    """Whether a run with these scores so far, one for each epoch, should stop by one of the rules of `fit`.

    >>> is_tired([0.5, 0.7, 0.6, 0.65], patience=2), is_tired([0.5, 0.7, 0.6, 0.65], declines=2)
    (True, False)
    """
    known = [place for place, score in enumerate(scores) if not math.isnan(score)]
    best = max(known, key=lambda place: scores[place], default=len(scores) - 1)
    if patience is not None and len(scores) - 1 - best >= patience:
        return True
    last = scores[-declines - 1 :] if declines is not None and declines < len(scores) else ()
    return len(last) > 0 and all(after < before for before, after in itertools.pairwise(last))


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
        task = bar.add_task("epoch 1", total=private.plan.steps, completed=private.optimizer.steps)
        yield lambda text: bar.update(task, description=text, completed=private.optimizer.steps)
