# SPDX-License-Identifier: Apache-2.0
"""`ggdp calibrate`: the noise, the number of steps or the sampling rate that a target allows."""

from enum import StrEnum
from typing import Annotated, Any, cast

import typer

from ggdp.calibration import Calibrated, calibrate_rate, calibrate_scale, calibrate_steps
from ggdp.cli import options, output
from ggdp.cli.privacy import bound_cells
from ggdp.mechanisms import Adjacency, Sampling
from ggdp.reporting.records import calibration_record, record_of


class Unknown(StrEnum):
    """What `ggdp calibrate` can look for."""

    SCALE = "scale"
    STEPS = "steps"
    RATE = "rate"


For = Annotated[
    Unknown, typer.Option("--for", help="What to find: the smallest scale, the most steps, the largest rate.")
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        help="Poisson sampling rate, in (0, 1]; 1 if left out.",
        parser=options.number("--rate", above=0.0, most=1.0),
        metavar="NUMBER",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        help="How many times the mechanism runs; 1 if left out.",
        parser=options.whole("--steps", least=1),
        metavar="WHOLE",
    ),
]


def calibrate(
    beta: options.Betas,
    epsilon: options.Epsilon,
    delta: options.DeltaOrZero,
    unknown: For = Unknown.SCALE,
    scale: options.Scale = None,
    noise_multiplier: options.NoiseMultiplier = None,
    std: options.Std = None,
    sensitivity: options.Sensitivity = 1.0,
    norm: options.Norm = None,
    dimension: options.Dimension = 1,
    rate: Rate = None,
    sampling: options.SamplingChoice = None,
    steps: Steps = None,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    json: options.Json = False,
) -> None:
    """Find the least noise that keeps a target epsilon.

    The certified upper bound of epsilon at --delta is then at most --epsilon. With --for steps it finds the
    most steps, and with --for rate the largest sampling rate, for noise that is given by --scale,
    --noise-multiplier or --std. `ggdp choose` says which exponent to take.

    Example: ggdp calibrate --beta 1.5 --epsilon 2 --delta 1e-6 --rate 0.01 --steps 5000
    """
    sought = {"--steps": steps} if unknown is Unknown.STEPS else {"--rate": rate}
    if unknown is Unknown.SCALE:
        sought = {"--scale": scale, "--noise-multiplier": noise_multiplier, "--std": std}
    for option, value in sought.items():
        if value is not None:
            raise ValueError(
                f"{option} must not be given with --for {unknown}, which finds it, got {value:g}"
            )

    drawn = cast(Sampling | None, sampling)

    def found_at(one: float) -> Calibrated:
        run: dict[str, Any] = {
            "beta": one,
            "epsilon": epsilon,
            "delta": delta,
            "sensitivity": sensitivity,
            "norm": norm,
            "dimension": dimension,
            "adjacency": adjacency,
            "sampling": drawn,
        }
        if unknown is Unknown.SCALE:
            found: Calibrated = calibrate_scale(**run, rate=rate or 1.0, steps=steps or 1)
            return found
        run["scale"] = options.noise_from(one, scale, noise_multiplier, std, sensitivity).scale
        if unknown is Unknown.STEPS:
            return calibrate_steps(**run, rate=rate or 1.0)
        return calibrate_rate(**run, steps=steps or 1)

    records = []
    with output.progress(len(beta)) as tell:
        for one in beta:
            tell(f"calibrating beta = {one:g}")
            records.append(calibration_record(found_at(one), epsilon, adjacency))
    if json:
        output.print_json(record_of("calibrate", records))
    else:
        title = f"Calibrated to epsilon = {epsilon:g} at delta = {delta:g} ({adjacency})"
        output.print_rows(title, [_row(record) for record in records])


def _row(record: dict[str, Any]) -> dict[str, str]:
    return {
        "beta": f"{record['beta']:g}",
        "scale": output.rounded_up(record["scale"]),
        "noise\nmultiplier": output.rounded_up(record["noise_multiplier"]),
        "std": output.rounded_up(record["std"], 6),
        **(
            {"batches": record["sampling"]}
            if "sampling" in record
            else {"rate": output.rounded_down(record["rate"])}
        ),
        "steps": str(record["steps"]),
        "epsilon <=": bound_cells("epsilon", record["epsilon"])["epsilon <="],
    }
