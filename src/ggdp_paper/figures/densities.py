# SPDX-License-Identifier: Apache-2.0
"""Figure 1: densities of equally private noises, on a linear and on a logarithmic axis."""

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLACK = 1e-6  # of epsilon: calibration stops a little on the private side
_FAR_PROB = 1e-30  # where the Laplace tail weighs this much is far out


def calibrated(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, float]:
    """The smallest scale of one exponent."""
    found = calibrate_scale(beta=config["beta"], epsilon=config["epsilon"], delta=config["delta"])
    return {"beta": found.beta, "scale": found.scale, "epsilon": found.achieved.upper}


def _cells(settings: Settings) -> list[Cell]:
    target = {name: settings[name] for name in ("epsilon", "delta")}
    seeded_as = "ggdp.reproduction.densities:calibrated"
    return [
        Cell(f"{__name__}:calibrated", {**target, "beta": beta}, seeded_as=seeded_as)
        for beta in settings["betas"]
    ]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    noises = [GeneralizedGaussian(result["beta"], result["scale"]) for result in results]
    far = float(noises[0].isf(_FAR_PROB / 2.0))
    rows = [
        {
            **result,
            "noise_multiplier": noise.scale / math.sqrt(2.0),
            "std": noise.std,
            "mass within one sensitivity": 1.0 - 2.0 * float(noise.sf(1.0)),
            "mass within one scale": 1.0 - 2.0 * float(noise.sf(noise.scale)),
            "log10 of the far tail": (float(noise.logsf(far)) + math.log(2.0)) / math.log(10.0),
        }
        for result, noise in zip(results, noises, strict=True)
    ]
    return {"noises": rows, "far": far}


def _headline(numbers: Numbers) -> dict[str, float]:
    return {f"scale, beta = {row['beta']:g}": row["scale"] for row in numbers["noises"]}


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    rows, target = numbers["noises"], settings["epsilon"]
    apart = max(abs(row["epsilon"] - target) for row in rows)
    over = any(row["epsilon"] > target for row in rows)
    sigmas = [row["noise_multiplier"] for row in rows]
    centre = [row["mass within one sensitivity"] for row in rows]
    same_scale = [row["mass within one scale"] for row in rows]
    tails = [row["log10 of the far tail"] for row in rows]
    ends = f"beta = {rows[0]['beta']:g} to {rows[-1]['beta']:g}"
    return {
        "equal privacy": Finding(
            f"The certified epsilons are at most {target:g} and within {apart:.1g} of it.",
            Agreement.of(apart <= _SLACK and not over),
        ),
        "scale": Finding(
            f"sigma grows from {sigmas[0]:.3f} to {sigmas[-1]:.3f} over {ends}; beyond {numbers['far']:.1f} "
            f"the tail weighs 1e{tails[0]:.0f} and 1e{tails[-1]:.0f}.",
            Agreement.of(_rises(sigmas) and tails[-1] < tails[0]),
        ),
        "concentration": Finding(
            f"The chance that the noise is at most one sensitivity goes from {centre[0]:.3f} to "
            f"{centre[-1]:.3f} over {ends}; at equal scale it would go from {same_scale[0]:.3f} to "
            f"{same_scale[-1]:.3f}.",
            Agreement.of(_rises(centre)),
        ),
    }


def _rises(values: list[float]) -> bool:
    return all(before < after for before, after in itertools.pairwise(values))


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.figures import density_figure

    noises = [GeneralizedGaussian(row["beta"], row["scale"]) for row in numbers["noises"]]
    title = f"epsilon = {settings['epsilon']:g}, delta = {settings['delta']:g}, sensitivity 1"
    return {"fig1": density_figure(noises, title)}


EXPERIMENT = Experiment(
    name="fig1",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
