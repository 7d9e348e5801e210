# SPDX-License-Identifier: Apache-2.0
"""The picture of a guarantee: the most that a membership test can detect, against its false alarms."""

from typing import TYPE_CHECKING

import numpy as np

from ggdp.reporting import canvas
from ggdp.reporting.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def detection_figure(guarantee: Guarantee) -> "Figure":
    """Draw the bound on the true-positive rate, and blind guessing; no test lies above the bound."""
    figure, (linear, logarithmic) = canvas.panels(2)
    for axes, rates in ((linear, np.linspace(0.0, 1.0, 401)), (logarithmic, np.geomspace(1e-6, 1.0, 401))):
        most = np.array([guarantee.most_detection(float(rate)) for rate in rates])
        axes.plot(rates, most, label="most that any test detects", **canvas.style_number(0))
        axes.fill_between(rates, most, 1.0, color=canvas.COLOURS[0], alpha=0.12, label="ruled out")
        axes.plot(rates, rates, color="#7f7f7f", linestyle=":", label="blind guessing")
        axes.set_xlabel("false-positive rate (probability)")
        axes.set_ylabel("true-positive rate (probability)")
    logarithmic.set_xscale("log")
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(1e-6, 1.3)
    linear.legend(frameon=False, fontsize="small", loc="lower right")
    return figure
