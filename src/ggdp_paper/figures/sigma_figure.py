# SPDX-License-Identifier: Apache-2.0
"""The picture of epsilon against the noise multiplier, with a line where mechanisms are equally private."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_EPSILON = 50.0  # no one has use for the rest of the curves


def sigma_figure(curves: Sequence[Mapping[str, Any]], *, delta: float, line: float) -> "Figure":
    """Draw curves with `beta`, `sigmas`, `epsilons` and `sigma at the line`; dots mark the crossings."""
    figure, (axes,) = canvas.panels(1)
    styles = canvas.styles_of([curve["beta"] for curve in curves])
    for curve, style in zip(curves, styles, strict=True):
        axes.plot(curve["sigmas"], curve["epsilons"], **style)
        axes.plot([curve["sigma at the line"]], [line], "o", color=style["color"], zorder=3)
    axes.axhline(line, color="#7f7f7f", linewidth=1.0, zorder=0)
    axes.annotate(
        f"epsilon = {line:g}",
        (1.0, line),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize="small",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=_MOST_EPSILON)
    axes.set_xticks([0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0])
    axes.set_yticks([0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("noise multiplier sigma = scale / (sqrt(2) sensitivity), no unit")
    axes.set_ylabel("epsilon, upper bound (nats)")
    axes.set_title(f"one release, sensitivity 1, delta = {delta:g}", fontsize="medium", loc="left")
    figure.legend(frameon=False, loc="outside right center", fontsize="small")
    return figure
