# SPDX-License-Identifier: Apache-2.0
"""One cell of a table of experiments: settings in, numbers out, the same numbers every time."""

from typing import Any

import torch
from torch import nn

from ggdp.training.fit import accuracy_on
from ggdp.training.report import EpochRow
from ggdp.training.task_run import RunSettings, prepare
from ggdp.training.tasks import Task

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
