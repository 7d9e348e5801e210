# SPDX-License-Identifier: Apache-2.0
"""`ggdp outliers`: which exponent makes far-out noise least likely at equal privacy."""

from typing import Annotated, Any

import typer

from ggdp.calibration.outliers import OutlierStudy, OutlierTarget, outlier_study
from ggdp.cli import options, output
from ggdp.mechanisms import Adjacency
from ggdp.reporting.figures import outlier_figure
from ggdp.reporting.records import record_of

Thresholds = Annotated[
    list[float],
    typer.Option(
        "--threshold",
        help="Beyond which noise is an outlier, > 0, in the unit of the sensitivity; give it again for more.",
        parser=options.number("--threshold", above=0.0),
        metavar="NUMBER",
    ),
]
Points = Annotated[
    int,
    typer.Option(
        "--points",
        help="How many exponents, evenly spaced, in [2, 200].",
        parser=options.whole("--points", least=2, most=200),
        metavar="WHOLE",
    ),
]


def _end(option: str, help_text: str) -> Any:
    parser = options.number(option, least=1.0, most=8.0)
    return typer.Option(option, help=help_text, parser=parser, metavar="NUMBER")


def outliers(
    epsilon: options.Epsilon,
    delta: options.Delta,
    threshold: Thresholds,
    rate: options.Rate = 1.0,
    steps: options.Steps = 1,
    sensitivity: options.Sensitivity = 1.0,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    from_beta: Annotated[float, _end("--from-beta", "Smallest exponent, in [1, 8].")] = 1.0,
    to_beta: Annotated[float, _end("--to-beta", "Largest exponent, in [1, 8].")] = 4.0,
    points: Points = 25,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Print or draw P(|noise| > threshold) against beta for noises of equal privacy.

    --plot needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp outliers --epsilon 1.5 --delta 1e-5 --threshold 1 --threshold 2 --plot out.png
    """
    if from_beta >= to_beta:
        raise ValueError(f"--from-beta must be below --to-beta, got {from_beta:g} and {to_beta:g}")
    output.need("matplotlib" if plot else None)
    target = OutlierTarget(epsilon, delta, rate, steps, sensitivity, adjacency)
    with output.progress(points + len(threshold)) as tell:
        study = outlier_study(target, threshold, (from_beta, to_beta), points, on_progress=tell)
    record = record_of("outliers", **study.to_dict())
    title = f"P(|noise| > t) at epsilon = {epsilon:g}, delta = {delta:g}"
    if plot is not None:
        shown = f"{title.partition(' at ')[2]}, {steps} x, sampling rate {rate:g}"
        output.write_picture(plot, outlier_figure([(shown, record)]))
    if json:
        output.print_json(record)
    else:
        output.print_rows(title, _rows(study))
        output.tell_written(plot)


def _rows(study: OutlierStudy) -> list[dict[str, str]]:
    columns = [(f"t = {best.threshold:g}", study.log_weights(best.threshold)) for best in study.best]
    rows = [
        {"beta": f"{noise.beta:.4g}", "scale": f"{noise.scale:.6g}", "std": f"{noise.noise.std:.6g}"}
        | {name: output.probability(weights[position]) for name, weights in columns}
        for position, noise in enumerate(study.noises)
    ]
    least = {"beta": "best beta", "scale": "", "std": ""}
    return [*rows, least | {f"t = {best.threshold:g}": f"{best.beta:.3f}" for best in study.best}]
