# SPDX-License-Identifier: Apache-2.0
"""`ggdp risk`: what attackers can achieve against a run of noisy steps, in words and as a picture."""

from typing import Annotated

import typer

from ggdp.accounting import Bounds, GaussianPrivacy, Risk, account
from ggdp.cli import options, output
from ggdp.cli.privacy import runs_from
from ggdp.mechanisms import Adjacency
from ggdp.reporting.figures import trade_off_figure
from ggdp.reporting.guarantee import risk_sentences
from ggdp.reporting.records import Fields, record_of, risk_record

CURVE = (
    *(10.0 ** (-k / 4.0) for k in range(24, 4, -1)),
    *(k / 20.0 for k in range(2, 19)),
    *(1.0 - 10.0 ** (-k / 2.0) for k in range(3, 13)),
)
"""The false positive rates of the trade-off curve, most of them near 0 and near 1."""

DRAWN = 1e-5
"""How closely that curve is computed."""

FalsePositiveRates = Annotated[
    list[float],
    typer.Option(
        "--false-positive-rate",
        help="How often the attacker raises a false alarm, in (0, 1); give it again for several.",
        parser=options.number("--false-positive-rate", above=0.0, below=1.0),
        metavar="NUMBER",
    ),
]
Prior = Annotated[
    float,
    typer.Option(
        "--prior",
        help="The attacker's probability of a member before it sees the output, in (0, 1).",
        parser=options.number("--prior", above=0.0, below=1.0),
        metavar="NUMBER",
    ),
]


def risk(
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
    false_positive_rate: FalsePositiveRates = [0.001, 0.01, 0.1],  # noqa: B006 (typer reads the default)
    prior: Prior = 0.5,
    delta: options.DeltaOrZero = 1e-6,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Say in words what an attacker can achieve.

    The attacker sees the released numbers and guesses whether one record was in the data. All numbers are
    certified. --plot draws the trade-off between false alarms and records that are missed.

    --plot needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp risk --beta 2 --noise-multiplier 1 --rate 0.01 --steps 1000 --plot out.png
    """
    output.need("matplotlib" if plot else None)
    runs = runs_from(
        beta, scale, noise_multiplier, std, sensitivity, rate, steps, adjacency, norm, dimension, sampling
    )
    results = []
    with output.progress(len(runs)) as tell:
        for run in runs:
            tell(f"beta = {run.step.noise.beta:g}")
            profile = account(run.mechanism, adjacency=adjacency)
            found = Risk(profile)
            attacks = [
                found.attack_success(false_positive_rate=one, prior=prior) for one in false_positive_rate
            ]
            rates = (
                CURVE if json or plot is not None else ()
            )  # which takes most of the time, and words need not
            curve = list(zip(rates, found.trade_off_curve(rates, tolerance=DRAWN), strict=True))
            results.append(risk_record(run, attacks, curve, _mu(found), profile.epsilon(delta=delta), delta))
    if plot is not None:
        output.write_picture(plot, trade_off_figure(results))
    if json:
        output.print_json(record_of("risk", results))
        return
    for result in results:
        typer.echo(f"beta = {result['beta']:g}, noise multiplier {result['noise_multiplier']:g}:")
        for line in risk_sentences(Fields(result)):
            typer.echo(f"- {line}")
    output.tell_written(plot)


def _mu(found: Risk) -> GaussianPrivacy:
    """mu and the regret; without a bound where none can be found."""
    try:
        return found.gdp()
    except ValueError:
        unknown = Bounds(0.0, float("inf"), float("inf"), "no bound")
        return GaussianPrivacy(unknown, Bounds(0.0, 1.0, 1.0, "no bound"), 1e-10)
