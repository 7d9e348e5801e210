# SPDX-License-Identifier: Apache-2.0
"""The demonstration's pictures, drawn from its record alone.

Line styles and markers differ as well as colours, so that the figures survive a black-and-white printer.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas
from ggdp.reporting.canvas import panels
from ggdp.reporting.demo_study import Study
from ggdp.reporting.example_data import READERS_BY_BRANCH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = canvas.COLOURS[:3]
LINES = ("-", "--", "-.")
MARKERS = ("o", "s", "^")


def training(study: Study) -> "Figure":
    """Epsilon of the training run as its steps go by."""
    figure, (axes,) = panels(1)
    for case, style, marker in zip(study.cases, _styles(), MARKERS, strict=True):
        steps = study.target.training_steps
        spent = [bounds.upper for bounds in case.training]
        axes.plot(steps, spent, marker=marker, label=f"beta = {case.beta:g}", **style)
    axes.set_xlabel("steps of DP-SGD")
    axes.set_ylabel(f"epsilon at delta = {study.target.delta:g}")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)
    return figure


def errors(study: Study) -> "Figure":
    """The noise that each branch's count received."""
    figure, (axes,) = panels(1)
    exact = np.array(list(READERS_BY_BRANCH.values()), dtype=np.float64)
    places = np.arange(len(exact))
    for shift, case, colour, marker in zip((-0.2, 0.0, 0.2), study.cases, COLOURS, MARKERS, strict=True):
        noise = np.array(case.released) - exact
        axes.vlines(places + shift, 0.0, noise, color=colour, linewidth=1.0)
        axes.plot(places + shift, noise, marker, color=colour, markersize=5, label=f"beta = {case.beta:g}")
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xticks(places, list(READERS_BY_BRANCH), rotation=30, ha="right")
    axes.set_ylabel("released count minus true count")
    figure.legend(frameon=False, ncols=3, loc="outside upper center")
    return figure


def _styles() -> list[dict[str, Any]]:
    return [{"color": colour, "linestyle": line} for colour, line in zip(COLOURS, LINES, strict=True)]
