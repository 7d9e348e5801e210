# SPDX-License-Identifier: Apache-2.0
"""Draw one_coordinate.png: what a shift costs when it is split, against what it costs in one coordinate.

Run from the root of the repository: python docs/figures/one_coordinate.py
"""

from pathlib import Path

import numpy as np

from ggdp import AdditiveNoise, GeneralizedGaussian, delta, epsilon
from ggdp.reporting.canvas import panels, png, styles_of

BETAS = [1.1, 1.25, 1.5, 1.75, 1.9]
PARTS = (2, 5)


def split(beta: float, parts: int) -> AdditiveNoise:
    """Unit-scale noise and a shift of l_beta norm one in so many equal coordinates."""
    return AdditiveNoise(GeneralizedGaussian(beta, 1.0), shift=((parts ** (-1.0 / beta), parts),))


def main() -> None:
    """Draw both panels and write the file beside this script."""
    figure, axes = panels(len(PARTS))
    for panel, parts in zip(axes, PARTS, strict=True):
        for beta, style in zip(BETAS, styles_of(BETAS), strict=True):
            deepest = epsilon(split(beta, 1), delta=1e-9).estimate
            epsilons = np.linspace(0.02, 1.0, 26) * deepest
            ratios = [
                delta(split(beta, parts), epsilon=float(e)).estimate
                / delta(split(beta, 1), epsilon=float(e)).estimate
                for e in epsilons
            ]
            panel.plot(epsilons, ratios, **style)
        panel.axhline(1.0, color="grey", linewidth=0.8)
        panel.set(xlabel="epsilon", title=f"split equally over {parts} coordinates", yscale="log")
        panel.set_yticks([0.7, 1, 1.5, 2, 3, 5], labels=["0.7", "1", "1.5", "2", "3", "5"])
        panel.minorticks_off()
        panel.set_ylim(0.6, 6.0)
    axes[0].set_ylabel("delta of the split / delta of one coordinate")
    axes[0].legend(frameon=False, fontsize=8)
    Path(__file__).with_suffix(".png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
