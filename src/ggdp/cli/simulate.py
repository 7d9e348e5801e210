# SPDX-License-Identifier: Apache-2.0
"""`ggdp simulate-argmax`: which exponent finds the winner of simulated votes most often."""

from typing import Annotated, Any

import numpy as np
import typer

from ggdp.cli import options, output
from ggdp.mechanisms import Adjacency
from ggdp.reporting.figures import simulation_figure
from ggdp.reporting.records import record_of
from ggdp.selection import ArgmaxSimulation, simulate_argmax


def _whole(option: str, help_text: str, **limits: int) -> Any:
    return typer.Option(option, help=help_text, parser=options.whole(option, **limits), metavar="WHOLE")


def _number(option: str, help_text: str, **limits: float) -> Any:
    return typer.Option(option, help=help_text, parser=options.number(option, **limits), metavar="NUMBER")


def simulate(
    epsilon: Annotated[
        list[float],
        _number("--epsilon", "Privacy parameter epsilon, > 0; give it again for several.", above=0.0),
    ],
    delta: options.DeltaOrZero,
    classes: Annotated[
        int,
        _whole("--classes", "How many classes there are to vote for: 2, or 6 to 1000.", least=2, most=1000),
    ] = 2,
    votes: Annotated[
        int, _whole("--votes", "How many votes each simulated vote counts, up to 10^9.", least=2, most=10**9)
    ] = 1000,
    histograms: Annotated[
        int, _whole("--histograms", "How many votes to simulate, one for each gap.", least=2, most=10**5)
    ] = 500,
    most_gap: Annotated[
        float,
        _number(
            "--most-gap", "Largest gap, as a part of the largest count, in [1e-9, 1).", least=1e-9, below=1.0
        ),
    ] = 0.1,
    times: Annotated[
        int, _whole("--times", "How many noisy votes share --epsilon and --delta.", least=1, most=10**9)
    ] = 1,
    from_beta: Annotated[
        float, _number("--from-beta", "Smallest exponent, in [1, 8].", least=1.0, most=8.0)
    ] = 1.0,
    to_beta: Annotated[
        float, _number("--to-beta", "Largest exponent, in [1, 8].", least=1.0, most=8.0)
    ] = 4.0,
    points: Annotated[
        int, _whole("--points", "How many exponents, evenly spaced, in [2, 200].", least=2, most=200)
    ] = 13,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    seed: Annotated[
        int | None, _whole("--seed", "Simulate the same votes again.", least=0, most=2**63 - 1)
    ] = None,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Compare exponents on simulated votes.

    Each simulated vote has a known gap between its winner and the runner-up. The table says how often the
    true winner also wins with noise, as a mean over all gaps; these chances are computed, not sampled.

    With --delta 0, pure privacy, Laplace noise (beta = 1) is the only one that is compared.

    --plot needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp simulate-argmax --classes 25 --epsilon 1 --epsilon 2 --delta 1e-5 --plot out.png
    """
    if from_beta >= to_beta:
        raise ValueError(f"--from-beta must be below --to-beta, got {from_beta:g} and {to_beta:g}")
    betas = [float(beta) for beta in np.linspace(from_beta, to_beta, points)]
    if delta == 0.0:
        if from_beta > 1.0:
            raise ValueError(
                f"--from-beta must be 1 with --delta 0, got {from_beta:g}: only Laplace noise (beta = 1) is "
                "purely private; or give a delta above 0, such as 1e-6"
            )
        betas = [1.0]
    if 2 < classes < 6:
        raise ValueError(f"--classes must be 2 or at least 6, got {classes}")
    output.need("matplotlib" if plot else None)
    with output.progress(len(betas) * len(epsilon)) as tell:
        simulation = simulate_argmax(
            num_classes=classes,
            epsilons=epsilon,
            delta=delta,
            betas=betas,
            gaps=[float(gap) for gap in np.linspace(most_gap / histograms, most_gap, histograms)],
            num_votes=votes,
            times=times,
            rng=np.random.default_rng(seed),
            adjacency=adjacency,
            on_progress=tell,
        )
    record = record_of("simulate-argmax", **simulation.to_dict())
    if plot is not None:
        output.write_picture(plot, simulation_figure(record))
    if json:
        output.print_json(record)
    else:
        title = f"Area under hardmax utility for gaps up to {most_gap:g}, delta = {delta:g}; 1 is the most"
        output.print_rows(title, _rows(simulation))
        output.tell_written(plot)


def _rows(simulation: ArgmaxSimulation) -> list[dict[str, str]]:
    rows = []
    for place, beta in enumerate(simulation.betas):
        row = {"beta": f"{beta:.4g}"}
        for position, epsilon in enumerate(simulation.epsilons):
            row[f"epsilon = {output.in_full(epsilon)}"] = f"{simulation.areas[position, place]:.6f}"
        rows.append(row)
    best = zip(simulation.epsilons, simulation.best_betas, strict=True)
    return [
        *rows,
        {"beta": "best beta"}
        | {f"epsilon = {output.in_full(epsilon)}": f"{beta:.4g}" for epsilon, beta in best},
    ]
