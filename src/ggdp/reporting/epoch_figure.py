# SPDX-License-Identifier: Apache-2.0
"""The picture of one training run: epsilon and score after every epoch."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def epoch_figure(rows: Sequence[Mapping[str, Any]], *, delta: float, budget: float | None) -> "Figure":
    """Draw rows with `epoch`, `epsilon` and, where there is one, `score`."""
    figure, (spent, scored) = canvas.panels(2)
    epochs = [row["epoch"] for row in rows]
    spent.plot(epochs, [row["epsilon"] for row in rows], marker=".", **canvas.style_number(0))
    if budget is not None:
        spent.axhline(budget, color="#7f7f7f", linestyle=":", label=f"budget {budget:g}")
        spent.legend(frameon=False, fontsize="small")
    spent.set_ylim(bottom=0.0)
    spent.set_ylabel(f"epsilon at delta = {delta:g} (nats)")
    known = [row for row in rows if row.get("score") is not None]
    scored.plot(
        [row["epoch"] for row in known], [row["score"] for row in known], marker=".", **canvas.style_number(1)
    )
    scored.set_ylabel("score (as the run measured it)")
    for axes in (spent, scored):
        axes.set_xlabel("epochs")
        axes.locator_params(axis="x", integer=True)
    return figure
