# SPDX-License-Identifier: Apache-2.0
"""Draw trade_off.png: what attackers can achieve against training runs of equal noise multiplier.

Run from the root of the repository: python docs/figures/trade_off.py
"""

from pathlib import Path

from ggdp import AdditiveNoise, Adjacency, GeneralizedGaussian, Risk, account
from ggdp.cli.risk import CURVE
from ggdp.reporting.canvas import png
from ggdp.reporting.figures import trade_off_figure
from ggdp.reporting.records import Run, risk_record


def result_of(beta: float) -> dict[str, object]:
    """The record of 1000 steps at a sampling rate of 0.01 and a noise multiplier of 1."""
    noise = GeneralizedGaussian.from_noise_multiplier(beta, 1.0, 1.0)
    run = Run(AdditiveNoise(noise), 0.01, 1000, Adjacency.ADD_REMOVE)
    profile = account(run.mechanism)
    risk = Risk(profile)
    curve = list(zip(CURVE, risk.trade_off_curve(CURVE), strict=True))
    return risk_record(run, [risk.attack_success()], curve, risk.gdp(), profile.epsilon(delta=1e-6), 1e-6)


if __name__ == "__main__":
    figure = trade_off_figure([result_of(beta) for beta in (1.0, 1.5, 2.0)])
    Path(__file__).with_suffix(".png").write_bytes(png(figure))
