# SPDX-License-Identifier: Apache-2.0
"""The picture of densities: the same noises on a linear and on a logarithmic axis."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_DENSITY = 1e-9


def density_figure(
    noises: Sequence[GeneralizedGaussian], title: str, *, unit: str = "sensitivity"
) -> "Figure":
    """Draw the densities as far as one of them is not negligible."""
    figure, (linear, logarithmic) = canvas.panels(2)
    styles = canvas.styles_of([noise.beta for noise in noises])
    # As far as the widest of them falls to one in a thousand, and to one in a hundred million.
    for axes, prob in ((linear, 1e-3), (logarithmic, 1e-8)):
        end = max(float(noise.isf(prob / 2.0)) for noise in noises)
        x = np.linspace(-end, end, 1201)
        for noise, style in zip(noises, styles, strict=True):
            axes.plot(x, noise.pdf(x), **style)
        axes.set_xlabel(f"noise (in units of the {unit})")
        axes.set_ylabel(f"density (per unit of the {unit})")
        axes.set_xlim(-end, end)
    linear.set_ylim(bottom=0.0)
    linear.legend(frameon=False, fontsize="small", loc="upper left", handlelength=1.7)
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(bottom=_LEAST_DENSITY)
    figure.suptitle(title, fontsize="medium")
    return figure
