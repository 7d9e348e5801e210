# SPDX-License-Identifier: Apache-2.0
"""The demonstration's pictures, drawn from its record alone.

Line styles and markers differ as well as colours, so that the figures survive a black-and-white printer.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import canvas
from ggdp.reporting.canvas import panels
from ggdp.reporting.canvas import png as png
from ggdp.reporting.demo_study import Study
from ggdp.reporting.example_data import READERS_BY_BRANCH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = canvas.COLOURS[:3]
LINES = ("-", "--", "-.")
MARKERS = ("o", "s", "^")


def densities(study: Study) -> "Figure":
    """The three densities of equal privacy, on a linear and on a logarithmic axis."""
    figure, (linear, logarithmic) = panels(2)
    # As far as the heaviest tail falls to one in a thousand, and to one in a billion.
    noises = [GeneralizedGaussian(case.beta, case.scale) for case in study.cases]
    for axes, prob in ((linear, 1e-3), (logarithmic, 1e-9)):
        end = max(float(noise.isf(prob / 2.0)) for noise in noises)
        x = np.linspace(-end, end, 801)
        for noise, style in zip(noises, _styles(), strict=True):
            axes.plot(x, noise.pdf(x), label=f"beta = {noise.beta:g}", **style)
        axes.set_xlabel("noise")
        axes.set_ylabel("density")
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(bottom=1e-12)
    linear.legend(frameon=False)
    return figure


def training(study: Study) -> "Figure":
    """Epsilon of the training run as its steps go by."""
    figure, (axes,) = panels(1)
    for case, style, marker in zip(study.cases, _styles(), MARKERS, strict=True):
        steps = study.target.training_steps
        axes.plot(steps, case.training_epsilon, marker=marker, label=f"beta = {case.beta:g}", **style)
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
