# SPDX-License-Identifier: Apache-2.0
"""Draw epsilon_by_steps.png: what a training run costs as it goes on, by this and by the usual accountants.

Run from the root of the repository: python docs/figures/epsilon_by_steps.py (half a minute)
"""

from pathlib import Path

from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled, epsilon, renyi_epsilon
from ggdp.reporting.canvas import COLOURS, GAUSSIAN_COLOUR, panels, png

DELTA, RATE = 1e-6, 0.01
STEPS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000)


def main() -> None:
    """Draw both panels and write the file beside this script."""
    figure, (costs, loose) = panels(2)
    for std, line in ((1.0, "-"), (2.0, "--")):
        step = PoissonSampled(AdditiveNoise(Gaussian(std=std)), rate=RATE)
        runs = [Composed(step, times=steps) for steps in STEPS]
        certified = [epsilon(run, delta=DELTA).upper for run in runs]
        renyi = [renyi_epsilon(run, delta=DELTA).upper for run in runs]
        costs.plot(STEPS, certified, line, color=GAUSSIAN_COLOUR, label=f"ggdp, noise multiplier {std:g}")
        costs.plot(STEPS, renyi, line, color=COLOURS[1], label=f"Renyi accountant, {std:g}")
        above = [100.0 * (r / c - 1.0) for r, c in zip(renyi, certified, strict=True)]
        loose.plot(STEPS, above, line, color=COLOURS[1], label=f"noise multiplier {std:g}")
    for axes in (costs, loose):
        axes.set_xscale("log")
        axes.set_xlabel(f"steps, each on a share of {RATE:g} of the records")
    costs.set_yscale("log")
    costs.set_ylabel(f"epsilon at delta = {DELTA:g}")
    costs.legend(frameon=False, fontsize="small")
    loose.set_yscale("log")
    loose.set_ylabel("how far a Renyi accountant is above (%)")
    loose.legend(frameon=False, fontsize="small")
    Path(__file__).with_suffix(".png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
