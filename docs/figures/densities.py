# SPDX-License-Identifier: Apache-2.0
"""Draw densities.png: the family of noises at one standard deviation, and its tails on a logarithmic scale.

Run from the root of the repository: python docs/figures/densities.py (a second)
"""

from pathlib import Path

import numpy as np

from ggdp import GeneralizedGaussian
from ggdp.reporting.canvas import panels, png, styles_of

BETAS = [1.0, 1.5, 2.0, 4.0]


def main() -> None:
    """Draw both panels and write the file beside this script."""
    figure, (centre, tails) = panels(2)
    for beta, style in zip(BETAS, styles_of(BETAS), strict=True):
        noise = GeneralizedGaussian.from_std(beta, 1.0)
        x = np.linspace(-4.0, 4.0, 801)
        centre.plot(x, noise.pdf(x), **style)
        x = np.linspace(0.0, 6.0, 601)
        tails.semilogy(x, noise.tail_weight(x), **style)
    centre.set_xlabel("noise, in standard deviations")
    centre.set_ylabel("density")
    tails.set_xlabel("t, in standard deviations")
    tails.set_ylabel("chance of noise beyond t")
    tails.set_ylim(1e-9, 1.5)
    tails.legend(frameon=False, fontsize="small", loc="lower left")
    Path(__file__).with_suffix(".png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
