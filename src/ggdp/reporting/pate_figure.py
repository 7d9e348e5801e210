# SPDX-License-Identifier: Apache-2.0
"""Pictures of votes: gaps and what noise does to them; utility against the exponent."""

from typing import TYPE_CHECKING

import numpy as np

from ggdp.reporting import canvas
from ggdp.reporting.pate_study import PateStudy
from ggdp.selection import ArgmaxSimulation, win_probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def gap_figure(study: PateStudy) -> "Figure":
    """How many queries have which gap, and how often noise turns a gap round (two classes). Private."""
    figure, (axes,) = canvas.panels(1)
    axes.hist(study.gaps, bins=min(50, study.num_teachers + 1), color=canvas.COLOURS[5])
    axes.set_xlabel("runner-up gap (votes)")
    axes.set_ylabel("queries (count)")
    chance = axes.twinx()
    gaps = np.linspace(0.0, float(study.num_teachers), 101)
    turned = win_probabilities(np.stack([gaps, np.zeros_like(gaps)], axis=1), study.noises["votes"])[:, 1]
    chance.plot(gaps, turned, color=canvas.COLOURS[1], linewidth=2.0)
    chance.set_ylim(0.0, 0.5)
    chance.set_ylabel("chance that noise turns the gap round", color=canvas.COLOURS[1])
    return figure


def simulation_figure(simulation: ArgmaxSimulation) -> "Figure":
    """Left, utility against gap at the first epsilon, four exponents; right, area against exponent."""
    figure, (curves, areas) = canvas.panels(2)
    betas = list(simulation.betas)
    places = sorted({round(place) for place in np.linspace(0, len(betas) - 1, 4)})
    for place, style in zip(places, canvas.styles_of([betas[place] for place in places]), strict=True):
        curves.plot(100.0 * simulation.gaps, simulation.utilities[0, place], **style)
    curves.set_xlabel("runner-up gap (% of the largest count)")
    curves.set_ylabel("chance that the true winner wins")
    curves.set_title(f"epsilon = {simulation.epsilons[0]:g}, delta = {simulation.delta:g}", fontsize="medium")
    curves.legend(frameon=False, fontsize="small")
    for row, epsilon in enumerate(simulation.epsilons):
        line = ("-", *canvas.LINES)[row % (1 + len(canvas.LINES))]
        colour = canvas.COLOURS[row % len(canvas.COLOURS)]
        areas.plot(betas, simulation.areas[row], color=colour, linestyle=line, label=f"epsilon = {epsilon:g}")
        best = int(np.argmax(simulation.areas[row]))
        areas.plot([betas[best]], [simulation.areas[row, best]], "o", color=colour, clip_on=False)
    areas.set_xlabel("beta, the exponent of the noise (no unit)")
    areas.set_ylabel("area under the curve (1 is the most)")
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
    areas.legend(frameon=False, fontsize="small", columnspacing=1.0, **above)
    return figure
