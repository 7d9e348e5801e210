# SPDX-License-Identifier: Apache-2.0
"""Pictures of votes: gaps and what noise does to them; utility against the exponent."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas
from ggdp.reporting.pate_study import PateStudy
from ggdp.selection import win_probabilities

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


def simulation_figure(record: Mapping[str, Any]) -> "Figure":
    """Left, utility against gap at the first epsilon, four exponents; right, area against exponent.

    The record is one of `ArgmaxSimulation.to_dict`.
    """
    figure, (curves, areas) = canvas.panels(2)
    first = record["results"][0]
    places = sorted({round(place) for place in np.linspace(0, len(first["noises"]) - 1, 4)})
    shown = [first["noises"][place] for place in places]
    for noise, style in zip(shown, canvas.styles_of([noise["beta"] for noise in shown]), strict=True):
        curves.plot(100.0 * np.asarray(record["gaps"]), noise["utility"], **style)
    curves.set_xlabel("runner-up gap (% of the largest count)")
    curves.set_ylabel("chance that the true winner wins")
    curves.set_title(f"epsilon = {first['target_epsilon']:g}, delta = {record['delta']:g}", fontsize="medium")
    curves.legend(frameon=False, fontsize="small")
    for number, result in enumerate(record["results"]):
        style, noises = canvas.style_number(number), result["noises"]
        label = f"epsilon = {result['target_epsilon']:g}"
        areas.plot(
            [noise["beta"] for noise in noises], [noise["area"] for noise in noises], label=label, **style
        )
        best = max(noises, key=lambda noise: noise["area"])
        areas.plot([best["beta"]], [best["area"]], "o", color=style["color"], clip_on=False)
    areas.set_xlabel("beta, the exponent of the noise (no unit)")
    areas.set_ylabel("area under the curve (1 is the most)")
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
    areas.legend(frameon=False, fontsize="small", columnspacing=1.0, **above)
    return figure
