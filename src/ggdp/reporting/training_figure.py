# SPDX-License-Identifier: Apache-2.0
"""The picture of a training run: accuracy and epsilon against the epoch."""

import math
from typing import TYPE_CHECKING, Any

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def training_figure(record: dict[str, Any]) -> "Figure":
    """Draw the record of `training_record`: the score on the left, the certified epsilon on the right."""
    figure, (score, cost) = canvas.panels(2)
    rows = record["rows"]
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) < 2 else ""
    (style,) = canvas.styles_of([record["beta"]])
    score.plot(epochs, [100.0 * row["score"] for row in rows], marker=marker, **style)
    best = record["best"]
    score.plot(
        [best["epoch"]],
        [100.0 * best["accuracy"]],
        "o",
        color=canvas.COLOURS[1],
        zorder=3,
        label=f"best epoch, {100.0 * best['accuracy']:.1f} %",
    )
    score.legend(frameon=False, loc="lower right")
    score.set_ylabel("test accuracy (%)")
    spent = [row["epsilon"]["upper"] for row in rows]
    cost.plot(epochs, [math.nan if upper is None else upper for upper in spent], marker=marker, **style)
    if record["target_epsilon"] is not None:
        cost.axhline(record["target_epsilon"], color=canvas.COLOURS[1], linewidth=1.0, label="budget")
    cost.set_ylim(bottom=0.0)
    cost.set_ylabel(f"certified epsilon, delta = {record['delta']:g}")
    cost.legend(frameon=False, loc="lower right")
    for axes in (score, cost):
        axes.set_xlabel("epoch (expected passes over the data)")
    made_up = ", made-up data" if record["synthetic"] else ""
    score.set_title(f"{record['task']}{made_up}", fontsize="medium", loc="left")
    settings = f"rate {record['rate']:.3g}, clip {record['clip_norm']:g} in l_{_norm(record['norm'])}"
    cost.set_title(settings, fontsize="medium", loc="left")
    return figure


def _norm(norm: float | str) -> str:
    return norm if isinstance(norm, str) else f"{norm:.4g}"
