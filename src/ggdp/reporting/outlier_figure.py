# SPDX-License-Identifier: Apache-2.0
"""The picture of outliers: tail weight against the exponent at equal privacy, one line for each threshold."""

import math
from typing import TYPE_CHECKING

import numpy as np

from ggdp.reporting import canvas
from ggdp.reporting.outlier_study import OutlierStudy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_LOG = -600.0  # beyond it a weight is no double that a logarithmic axis could show


def outlier_figure(study: OutlierStudy) -> "Figure":
    """Draw P(|noise| > threshold) against beta; a dot marks the least, lines mark Laplace and Gaussian."""
    figure, (axes,) = canvas.panels(1)
    betas = [noise.beta for noise in study.noises]
    lines = [np.array(study.log_weights(best.threshold)) for best in study.best]
    in_logs = min(line.min() for line in lines) < _LEAST_LOG
    for number, (best, line) in enumerate(zip(study.best, lines, strict=True)):
        colour = canvas.COLOURS[number % len(canvas.COLOURS)]
        style = ("-", *canvas.LINES)[number % (1 + len(canvas.LINES))]
        label = f"threshold {best.threshold:g}, least at beta = {best.beta:.3g}"
        axes.plot(betas, _shown(line, in_logs), color=colour, linestyle=style, label=label)
        lowest = _shown(np.array([best.log_tail_weight]), in_logs)
        axes.plot([best.beta], lowest, "o", color=colour, clip_on=False)
    if not in_logs:
        axes.set_yscale("log")
    axes.set_xlabel("beta, the exponent of the noise (no unit)")
    axes.set_ylabel("log10 P(|noise| > threshold)" if in_logs else "P(|noise| > threshold)")
    for beta, name in ((1.0, "Laplace"), (2.0, "Gaussian")):
        if betas[0] <= beta <= betas[-1]:
            axes.axvline(beta, color=canvas.GAUSSIAN_COLOUR, linewidth=0.8, linestyle=":", zorder=0)
            axes.annotate(
                name,
                (beta, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize="small",
            )
    target = study.target
    steps = "1 step" if target.steps == 1 else f"{target.steps} steps"
    title = f"epsilon = {target.epsilon:g}, delta = {target.delta:g}, {steps}, sampling rate {target.rate:g}"
    axes.set_title(title, fontsize="medium", loc="left", pad=18)
    figure.legend(frameon=False, loc="outside right center", fontsize="small")
    return figure


def _shown(log_weights: np.ndarray[tuple[int], np.dtype[np.float64]], in_logs: bool) -> list[float]:
    shown = log_weights / math.log(10.0) if in_logs else np.exp(log_weights)
    return [float(weight) for weight in shown]
