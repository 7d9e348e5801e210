# SPDX-License-Identifier: Apache-2.0
"""The picture of accuracy against the exponent, in panels, with error bars; the Gaussian is marked."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Mapping[str, Any]


def accuracy_figure(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    label: str,
    *,
    rows: int = 1,
    title: str = "",
    same_scale: bool = False,
) -> "Figure":
    """Draw, in each panel, curves with a `label`, `betas` and `values` in [0, 1].

    `errors` are half-lengths of error bars: of the curve itself, or, if the curve has them, of `points` that
    were measured beside it and are drawn without a line. `reference` is a point of someone else's, drawn as a
    cross. With `same_scale` the panels have one scale and one legend.
    """
    figure, found = canvas.panels(len(panels), rows=rows)
    for axes, (name, curves) in zip(found, panels, strict=True):
        for number, curve in enumerate(curves):
            _draw(axes, curve, number)
        betas = [beta for curve in curves for beta in curve["betas"]]
        if betas:
            canvas.mark_exponents(axes, min(betas), max(betas))
        axes.set_title(name, fontsize="medium", loc="left", pad=18)
        axes.set_xlabel("beta, the exponent of the noise (no unit)")
        axes.set_ylabel(label)
        if not same_scale:
            axes.legend(frameon=False, fontsize="small")
    if same_scale:
        fullest = max(found, key=lambda axes: len(axes.containers))
        handles, labels = fullest.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize="small", loc="outside lower center", ncols=6)
        ends = [axes.get_ylim() for axes in found]
        for axes in found:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def _draw(axes: Any, curve: Curve, number: int) -> None:
    style = canvas.style_number(number)
    if "reference" in curve:
        beta, value = curve["reference"]
        axes.plot([beta], [100.0 * value], "x", color=style["color"], markersize=9, markeredgewidth=2)
    marker = canvas.MARKERS[number % len(canvas.MARKERS)]
    values = 100.0 * np.asarray(curve["values"])
    bars = 100.0 * np.asarray(curve["errors"]) if "errors" in curve else None
    if "points" in curve:
        # errorbar throughout: the legend lists plain lines first, whatever the order of drawing.
        axes.errorbar(curve["betas"], values, label=curve["label"], **style)
        points = 100.0 * np.asarray(curve["points"])
        beside = {"color": style["color"], "markersize": 4, "capsize": 2, "linestyle": "none"}
        axes.errorbar(curve["betas"], points, yerr=bars, marker=marker, label="mean of trials", **beside)
    else:
        axes.errorbar(
            curve["betas"],
            values,
            yerr=bars,
            marker=marker,
            markersize=4,
            capsize=3,
            label=curve["label"],
            **style,
        )
