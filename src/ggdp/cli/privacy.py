# SPDX-License-Identifier: Apache-2.0
"""`ggdp epsilon` and `ggdp delta`: what a run of noisy steps costs."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ggdp import accounting
from ggdp.cli import options, output
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.reporting.records import Run, delta_record, epsilon_record, record_of


def epsilon(
    beta: options.Betas,
    delta: options.DeltaOrZero,
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
    json: options.Json = False,
) -> None:
    """Compute epsilon at a given delta.

    Prints certified bounds: the true epsilon lies between them. Publish the upper one. Give the size of the
    noise by --scale, --noise-multiplier or --std.

    Example: ggdp epsilon --beta 1.5 --noise-multiplier 2 --rate 0.01 --steps 5000 --delta 1e-6
    """
    runs = runs_from(
        beta, scale, noise_multiplier, std, sensitivity, rate, steps, adjacency, norm, dimension, sampling
    )
    records = []
    with output.progress(len(runs)) as tell:
        for run in runs:
            tell(f"beta = {run.step.noise.beta:g}")
            with _about(run, runs):
                found = accounting.epsilon(run.mechanism, delta=delta, adjacency=adjacency)
            records.append(epsilon_record(run, delta, found))
    if json:
        output.print_json(record_of("epsilon", records))
    else:
        title = f"Epsilon at delta = {delta:g} ({_described(runs[0])})"
        output.print_rows(title, [_row(record, "epsilon") for record in records])


def delta(
    beta: options.Betas,
    epsilon: options.Epsilon,
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
    json: options.Json = False,
) -> None:
    """Compute delta at a given epsilon.

    Prints certified bounds: the true delta lies between them. Publish the upper one. Give the size of the
    noise by --scale, --noise-multiplier or --std.

    Example: ggdp delta --beta 1.5 --noise-multiplier 2 --rate 0.01 --steps 5000 --epsilon 1.3
    """
    runs = runs_from(
        beta, scale, noise_multiplier, std, sensitivity, rate, steps, adjacency, norm, dimension, sampling
    )
    records = []
    with output.progress(len(runs)) as tell:
        for run in runs:
            tell(f"beta = {run.step.noise.beta:g}")
            with _about(run, runs):
                found = accounting.delta(run.mechanism, epsilon=epsilon, adjacency=adjacency)
            records.append(delta_record(run, epsilon, found))
    if json:
        output.print_json(record_of("delta", records))
    else:
        title = f"delta at epsilon = {epsilon:g} ({_described(runs[0])})"
        output.print_rows(title, [_row(record, "delta") for record in records])


@contextlib.contextmanager
def _about(run: Run, runs: list[Run]) -> Iterator[None]:
    """Where several exponents are compared, a refusal says which of them it is about."""
    try:
        yield
    except ValueError as error:
        which = "" if len(runs) == 1 else f"; this is about --beta {run.step.noise.beta:g}"
        raise ValueError(f"{error}{which}") from None


def runs_from(
    betas: list[float],
    scale: float | None,
    noise_multiplier: float | None,
    std: float | None,
    sensitivity: float,
    rate: float,
    steps: int,
    adjacency: Adjacency,
    norm: float | str | None = None,
    dimension: int | float = 1,
    sampling: Any = None,
) -> list[Run]:
    """One run for each exponent, with the noise that exactly one of three options describes."""
    noises = [options.noise_from(beta, scale, noise_multiplier, std, sensitivity) for beta in betas]
    return [
        Run(AdditiveNoise(noise, sensitivity, norm, dimension), rate, steps, adjacency, sampling)
        for noise in noises
    ]


def bound_cells(name: str, bounds: Mapping[str, float | None]) -> dict[str, str]:
    """Lower and upper end as text, each rounded to its own side."""
    lower, upper = bounds["lower"], bounds["upper"]
    return {
        f"{name} >=": output.rounded_down(lower or 0.0),
        f"{name} <=": "no bound" if upper is None else output.rounded_up(upper),
    }


def _row(record: dict[str, Any], asked: str) -> dict[str, str]:
    return {
        "beta": f"{record['beta']:g}",
        "scale": f"{record['scale']:.6g}",
        "noise\nmultiplier": f"{record['noise_multiplier']:.6g}",
        "std": f"{record['std']:.6g}",
        **bound_cells(asked, record[asked]),
        "method": record["method"],
    }


def _described(run: Run) -> str:
    step = run.step
    vector = "" if step.dimension == 1 else f" in l_{step.p:.4g}, dimension {step.dimension:,}"
    drawn = f"rate {run.rate:g}" if run.sampling is None else str(run.sampling)
    return f"{run.steps} x, {drawn}, sensitivity {step.sensitivity:g}{vector}, {run.adjacency}"
