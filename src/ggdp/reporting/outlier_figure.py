# SPDX-License-Identifier: Apache-2.0
"""The picture of outliers: tail weight against the exponent at equal privacy, one line for each threshold."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_LOG = -600.0  # beyond it a weight is no double that a logarithmic axis could show


def outlier_figure(records: Sequence[tuple[str, Mapping[str, Any]]]) -> "Figure":
    """Draw P(|noise| > threshold) against beta; a dot marks the least, lines mark Laplace and Gaussian.

    One panel for each name and record of `OutlierStudy.to_dict`, side by side.
    """
    figure, panels = canvas.panels(len(records))
    figure.set_figheight(4.2)
    for axes, (name, record) in zip(panels, records, strict=True):
        _panel(axes, record)
        axes.set_title(name, fontsize="medium", loc="left", pad=18)
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=1)
    return figure


def _panel(axes: Any, record: Mapping[str, Any]) -> None:
    curves = record["results"]
    betas = [row["beta"] for row in curves[0]["weights"]]
    lines = [np.array([row["log_tail_weight"] for row in curve["weights"]]) for curve in curves]
    in_logs = min(line.min() for line in lines) < _LEAST_LOG
    for number, (curve, line) in enumerate(zip(curves, lines, strict=True)):
        style, best = canvas.style_number(number), curve["best"]
        label = f"threshold {curve['threshold']:g}, least at beta = {best['beta']:.3g}"
        axes.plot(betas, _shown(line, in_logs), label=label, **style)
        lowest = _shown(np.array([best["log_tail_weight"]]), in_logs)
        axes.plot([best["beta"]], lowest, "o", color=style["color"], clip_on=False)
    if not in_logs:
        axes.set_yscale("log")
    axes.set_xlabel("beta, the exponent of the noise (no unit)")
    axes.set_ylabel("log10 P(|noise| > threshold)" if in_logs else "P(|noise| > threshold)")
    canvas.mark_exponents(axes, betas[0], betas[-1])


def _shown(log_weights: np.ndarray[tuple[int], np.dtype[np.float64]], in_logs: bool) -> list[float]:
    shown = log_weights / math.log(10.0) if in_logs else np.exp(log_weights)
    return [float(weight) for weight in shown]
