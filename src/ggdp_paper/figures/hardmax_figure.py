# SPDX-License-Identifier: Apache-2.0
"""The picture of simulated votes: utility against the runner-up gap, and its area against the exponent."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN_BETAS = (1.0, 1.25, 2.0, 3.0, 4.0)


def hardmax_figure(curves: Sequence[Mapping[str, Any]], *, delta: float) -> "Figure":
    """Left, the utilities of the middle epsilon; right, the areas of all, with error bars, the best marked.

    A curve has `classes`, `votes`, `epsilon`, `betas`, `gaps`, `utilities` [beta, gap], `areas`,
    `standard errors` and `best beta`.
    """
    figure, (left, right) = canvas.panels(2)
    shown = curves[len(curves) // 2]
    places = [place for place, beta in enumerate(shown["betas"]) if beta in _SHOWN_BETAS]
    styles = canvas.styles_of([shown["betas"][place] for place in places])
    for place, style in zip(places, styles, strict=True):
        left.plot(100.0 * np.asarray(shown["gaps"]), shown["utilities"][place], **style)
    left.set_xlabel("runner-up gap (% of the largest count)")
    left.set_ylabel("chance that the true winner wins")
    votes = "one vote" if shown["votes"] == 1 else f"{shown['votes']} votes in a budget"
    title = f"{shown['classes']} classes, {votes}, epsilon = {shown['epsilon']:g}"
    left.set_title(title, fontsize="medium", loc="left", pad=18)
    left.legend(frameon=False, fontsize="small")
    for number, curve in enumerate(curves):
        style = canvas.style_number(number)
        right.errorbar(
            curve["betas"],
            curve["areas"],
            yerr=curve["standard errors"],
            capsize=2,
            label=f"epsilon = {curve['epsilon']:g}",
            **style,
        )
        best = curve["betas"].index(curve["best beta"])
        right.plot([curve["best beta"]], [curve["areas"][best]], "o", color=style["color"], clip_on=False)
    canvas.mark_exponents(right, curves[0]["betas"][0], curves[0]["betas"][-1])
    right.set_xlabel("beta, the exponent of the noise (no unit)")
    right.set_ylabel("area under the curve (1 is the most)")
    right.set_title(f"delta = {delta:g}; a dot marks the best", fontsize="medium", loc="left", pad=18)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 3}
    right.legend(frameon=False, fontsize="small", **below)
    figure.set_figheight(3.8)
    return figure
