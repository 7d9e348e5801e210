# SPDX-License-Identifier: Apache-2.0
"""`ggdp curve`: epsilon over a range of deltas, as a table, as JSON or as a picture."""

from typing import Annotated, Any

import numpy as np
import typer

from ggdp.accounting import privacy_curve
from ggdp.cli import options, output
from ggdp.cli.privacy import runs_from
from ggdp.mechanisms import Adjacency
from ggdp.reporting.figures import curve_figure
from ggdp.reporting.records import curve_record, record_of


def _delta(option: str, help_text: str) -> Any:
    parser = options.number(option, least=1e-100, below=1.0)
    return typer.Option(option, help=help_text, parser=parser, metavar="NUMBER")


LeastDelta = Annotated[float, _delta("--from-delta", "Smallest delta, in [1e-100, 1).")]
MostDelta = Annotated[float, _delta("--to-delta", "Largest delta, in [1e-100, 1).")]
Points = Annotated[
    int,
    typer.Option(
        "--points",
        help="How many deltas, evenly spaced in their logarithm, in [2, 1000].",
        parser=options.whole("--points", least=2, most=1000),
        metavar="WHOLE",
    ),
]


def curve(
    beta: options.Betas,
    scale: options.Scale = None,
    noise_multiplier: options.NoiseMultiplier = None,
    std: options.Std = None,
    sensitivity: options.Sensitivity = 1.0,
    norm: options.Norm = None,
    dimension: options.Dimension = 1,
    rate: options.Rate = 1.0,
    sampling: options.SamplingChoice = None,
    steps: options.Steps = 1,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    from_delta: LeastDelta = 1e-10,
    to_delta: MostDelta = 1e-2,
    points: Points = 17,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Print or draw epsilon against delta.

    Several --beta share one picture.

    --plot needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp curve --beta 1 --beta 2 --noise-multiplier 2 --rate 0.01 --steps 5000 --plot out.png
    """
    if from_delta >= to_delta:
        raise ValueError(f"--from-delta must be below --to-delta, got {from_delta:g} and {to_delta:g}")
    output.need("matplotlib" if plot else None)
    deltas = [float(delta) for delta in np.geomspace(from_delta, to_delta, points)]
    runs = runs_from(
        beta, scale, noise_multiplier, std, sensitivity, rate, steps, adjacency, norm, dimension, sampling
    )
    records = []
    with output.progress(len(runs)) as tell:
        for run in runs:
            tell(f"beta = {run.step.noise.beta:g}")
            found = privacy_curve(run.mechanism, deltas=deltas, adjacency=adjacency)
            records.append(curve_record(run, deltas, found))
    if plot is not None:
        output.write_picture(plot, curve_figure(records))
    if json:
        output.print_json(record_of("curve", records))
    else:
        output.print_rows("Epsilon, certified upper bounds", _rows(deltas, records))
        output.tell_written(plot)


def _rows(deltas: list[float], records: list[dict[str, Any]]) -> list[dict[str, str]]:
    rows = []
    for position, delta in enumerate(deltas):
        row = {"delta": f"{delta:.4g}"}
        for record in records:
            upper = record["curve"][position]["epsilon"]["upper"]
            row[f"beta = {output.in_full(record['beta'])}"] = (
                "no bound" if upper is None else output.rounded_up(upper)
            )
        rows.append(row)
    return rows
