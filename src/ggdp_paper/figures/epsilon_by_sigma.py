# SPDX-License-Identifier: Apache-2.0
"""Figure 2: epsilon of one release against the noise multiplier, a curve for each exponent.

The paper adds that relative differences change with the number of compositions, and has no picture of it.
Ours shows the noise multiplier that several releases need at one budget, relative to the Gaussian's.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.accounting import epsilon
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise
from ggdp.reporting import canvas
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CHANGES = 0.1  # of a ratio of noise multipliers
_ROUNDING = 1e-8  # of epsilon, against the closed forms


def curve(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Epsilon of one exponent at every sigma, and the sigma where it meets the line."""
    beta, delta = config["beta"], config["delta"]
    grid = config["sigmas"]
    sigmas = [float(sigma) for sigma in np.geomspace(grid["from"], grid["to"], grid["points"])]
    bounds = [
        epsilon(AdditiveNoise(GeneralizedGaussian.from_noise_multiplier(beta, sigma)), delta=delta)
        for sigma in sigmas
    ]
    return {
        "beta": beta,
        "sigmas": sigmas,
        "epsilons": [bound.upper for bound in bounds],
        "widest bounds": max(bound.upper - bound.lower for bound in bounds),
        "sigma at the line": calibrate_scale(beta=beta, epsilon=config["line"], delta=delta).scale
        / math.sqrt(2.0),
    }


def needed(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """The noise multiplier of one exponent at which so many releases fit into a budget."""
    asked = {name: config[name] for name in ("beta", "epsilon", "delta")}
    sigmas = [calibrate_scale(**asked, steps=count).noise_multiplier for count in config["releases"]]
    return {"beta": config["beta"], "sigmas": sigmas}


def known_epsilon(beta: float, sigma: float, delta: float) -> float:
    """Epsilon of the Laplace (beta = 1) and the Gaussian mechanism (beta = 2), by their closed forms.

    Laplace of scale b: delta = 1 - exp((epsilon - 1/b) / 2) for epsilon <= 1/b. Gaussian: Balle and Wang
    2018, Theorem 8, delta = Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s), solved for epsilon.

    >>> round(known_epsilon(1.0, 1.0, 1e-5), 6), round(known_epsilon(2.0, 1.0, 1e-5), 6)
    (0.707087, 4.377178)
    """
    if beta == 1.0:
        return max(0.0, 1.0 / (math.sqrt(2.0) * sigma) + 2.0 * math.log1p(-delta))
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtr

    def excess(value: float) -> float:
        first, second = 0.5 / sigma - value * sigma, -0.5 / sigma - value * sigma
        return float(ndtr(first) - math.exp(value + log_ndtr(second)) - delta)

    return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, 200.0, xtol=1e-12))


def _cells(settings: Settings) -> list[Cell]:
    target = {name: settings[name] for name in ("delta", "line", "sigmas")}
    seeded_as = "ggdp.reproduction.epsilon_by_sigma:curve"
    curves = [
        Cell(f"{__name__}:curve", {**target, "beta": beta}, seeded_as=seeded_as) for beta in settings["betas"]
    ]
    budget = {"delta": settings["delta"], **settings["compositions"]}
    return curves + [Cell(f"{__name__}:needed", {**budget, "beta": beta}) for beta in settings["betas"]]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    results, several = results[: len(settings["betas"])], results[len(settings["betas"]) :]
    apart = {
        f"{result['beta']:g}": max(
            abs(known_epsilon(result["beta"], sigma, settings["delta"]) - found)
            for sigma, found in zip(result["sigmas"], result["epsilons"], strict=True)
        )
        for result in results
        if result["beta"] in (1.0, 2.0)
    }
    gaussian = next(row["sigmas"] for row in several if row["beta"] == 2.0)
    ratios = [
        {"beta": row["beta"], "ratios": [a / b for a, b in zip(row["sigmas"], gaussian, strict=True)]}
        for row in several
    ]
    return {"curves": results, "from the closed form": apart, "sigma relative to beta = 2": ratios}


def _headline(numbers: Numbers) -> dict[str, float]:
    found = {}
    for row in numbers["curves"]:
        found[f"sigma at the line, beta = {row['beta']:g}"] = row["sigma at the line"]
        found[f"epsilon at the smallest sigma, beta = {row['beta']:g}"] = row["epsilons"][0]
        found[f"epsilon at the largest sigma, beta = {row['beta']:g}"] = row["epsilons"][-1]
    return found


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    rows = numbers["curves"]
    falls = all(np.all(np.diff(row["epsilons"]) < 0.0) for row in rows)
    apart = numbers["from the closed form"]
    worst = max(apart.values(), default=math.inf)
    crossing = [row["sigma at the line"] for row in rows]
    listed = ", ".join(f"{row['sigma at the line']:.4f} ({row['beta']:g})" for row in rows)
    ordered = bool(np.all(np.diff(crossing) > 0.0))
    above = bool(np.all(np.diff([row["epsilons"] for row in rows], axis=0) > 0.0))
    return {
        "form": Finding(
            "Every curve falls with sigma; those of Laplace and Gaussian meet their closed forms to "
            f"{worst:.0e}.",
            Agreement.of(bool(falls) and worst <= _ROUNDING),
        ),
        "more noise": Finding(
            "At every sigma of the grid epsilon grows with beta."
            if above
            else "The curves cross: at some sigma a larger beta has the smaller epsilon.",
            Agreement.of(above),
        ),
        "line": Finding(
            f"epsilon = {settings['line']:g} is met at sigma = {listed}; beta in brackets.",
            Agreement.of(ordered),
        ),
        "compositions": _compositions(settings, numbers["sigma relative to beta = 2"]),
    }


def _compositions(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> Finding:
    """To change is to move by more than a tenth from the fewest releases to the most."""
    others = [row for row in rows if row["beta"] != 2.0]
    listed = "; ".join(
        f"{', '.join(f'{ratio:.2f}' for ratio in row['ratios'])} (beta = {row['beta']:g})" for row in others
    )
    counts = ", ".join(f"{count:g}" for count in settings["compositions"]["releases"])
    return Finding(
        f"At epsilon = {settings['compositions']['epsilon']:g} the noise multiplier relative to that of "
        f"beta = 2, for {counts} releases: {listed}.",
        Agreement.of_all(abs(row["ratios"][-1] / row["ratios"][0] - 1.0) > _CHANGES for row in others),
    )


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    return {
        "fig2": sigma_figure(numbers["curves"], delta=settings["delta"], line=settings["line"]),
        "fig2_compositions": _ratio_figure(settings, numbers["sigma relative to beta = 2"]),
    }


def _ratio_figure(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> "Figure":
    figure, (axes,) = canvas.panels(1)
    asked = settings["compositions"]
    for row, style in zip(rows, canvas.styles_of([row["beta"] for row in rows]), strict=True):
        axes.plot(asked["releases"], row["ratios"], marker="o", markersize=4, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_yticks([0.2, 0.5, 1.0, 2.0, 3.0])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xlabel("number of releases in the budget")
    axes.set_ylabel("noise multiplier / that of beta = 2")
    title = f"equally private noise, epsilon = {asked['epsilon']:g}, delta = {settings['delta']:g}"
    axes.set_title(title, fontsize="medium", loc="left")
    figure.legend(frameon=False, loc="outside right center", fontsize="small")
    return figure


_MOST_EPSILON = 50.0  # no one has use for the rest of the curves


def sigma_figure(curves: Sequence[Mapping[str, Any]], *, delta: float, line: float) -> "Figure":
    """Draw curves with `beta`, `sigmas`, `epsilons` and `sigma at the line`; dots mark the crossings."""
    figure, (axes,) = canvas.panels(1)
    styles = canvas.styles_of([curve["beta"] for curve in curves])
    for curve, style in zip(curves, styles, strict=True):
        axes.plot(curve["sigmas"], curve["epsilons"], **style)
        axes.plot([curve["sigma at the line"]], [line], "o", color=style["color"], zorder=3)
    axes.axhline(line, color="#7f7f7f", linewidth=1.0, zorder=0)
    axes.annotate(
        f"epsilon = {line:g}",
        (1.0, line),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize="small",
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=_MOST_EPSILON)
    axes.set_xticks([0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0])
    axes.set_yticks([0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("noise multiplier sigma = scale / (sqrt(2) sensitivity), no unit")
    axes.set_ylabel("epsilon, upper bound (nats)")
    axes.set_title(f"one release, sensitivity 1, delta = {delta:g}", fontsize="medium", loc="left")
    figure.legend(frameon=False, loc="outside right center", fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="fig2",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
