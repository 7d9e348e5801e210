# SPDX-License-Identifier: Apache-2.0
"""Draw choosing_noise.png: standard deviation against the exponent, and what the best exponent saves.

Run from the root of the repository: python docs/figures/choosing_noise.py (about a minute)
"""

from pathlib import Path

import numpy as np

from ggdp.calibration import NoiseSearch
from ggdp.calibration.calibrate import NoiseProblem
from ggdp.calibration.target import Target
from ggdp.reporting.canvas import COLOURS, GAUSSIAN_COLOUR, mark_exponents, panels, png, style_number

TARGET = Target(epsilon=1.0, delta=1e-6)
DRAWN = (5, 10, 30, 1000)
BETAS = [1.0, 1.03, 1.06, *(float(beta) for beta in np.linspace(1.1, 2.6, 16))]
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 50, 100)


def main() -> None:
    """Draw both panels and write the file beside this script."""
    figure, (losses, savings) = panels(2)
    for number, steps in enumerate(DRAWN):
        search = NoiseSearch(NoiseProblem(TARGET, steps=steps))
        best, style = search.best((1.0, 8.0)), style_number(number)
        gaussian = search.weighed(2.0).loss
        values = [search.weighed(round(beta, 3)).loss / gaussian for beta in BETAS]
        losses.plot(BETAS, values, label=f"{steps} releases", **style)
        losses.plot([best.beta], [best.loss / gaussian], "o", color=style["color"], clip_on=False)
    mark_exponents(losses, BETAS[0], BETAS[-1])
    losses.set_xlabel("beta, the exponent of the noise")
    losses.set_ylabel("standard deviation, Gaussian = 1")
    losses.legend(frameon=False, fontsize="small")
    found = [NoiseSearch(NoiseProblem(TARGET, steps=steps)).best((1.0, 8.0)) for steps in COUNTS]
    for name, colour, line in (("Gaussian", GAUSSIAN_COLOUR, "-"), ("Laplace", COLOURS[1], "--")):
        saved = [100.0 * getattr(best, f"less_than_{name.lower()}") for best in found]
        savings.plot(COUNTS, saved, line, color=colour, label=f"than {name} noise")
    savings.set_xscale("log")
    savings.set_xticks([1, 2, 5, 10, 20, 50, 100], labels=["1", "2", "5", "10", "20", "50", "100"])
    savings.minorticks_off()
    savings.set_xlabel("releases that share epsilon = 1, delta = 1e-6")
    savings.set_ylabel("noise saved by the best exponent (%)")
    savings.legend(frameon=False, fontsize="small")
    Path(__file__).with_suffix(".png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
