# SPDX-License-Identifier: Apache-2.0
"""`ggdp choose`: the exponent whose noise has the smallest error at the privacy that was promised."""

from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, cast

import numpy as np
import typer

from ggdp import arguments
from ggdp.calibration import BestNoise, NoiseSearch, WeighedNoise
from ggdp.calibration.calibrate import NoiseProblem
from ggdp.calibration.choice import Loss, LossName, suits_spherical
from ggdp.calibration.target import Target
from ggdp.cli import options, output
from ggdp.errors import CannotCertifyError
from ggdp.mechanisms import Adjacency
from ggdp.reporting.figures import choice_figure
from ggdp.reporting.records import choice_record, plain, record_of


class LossChoice(StrEnum):
    """The losses that can be made small, named as in `best_noise`."""

    STD = "std"
    MEAN_ABSOLUTE = "mean-absolute"
    OUTSIDE = "outside"
    INTERVAL = "interval"
    WRONG_WINNER = "wrong-winner"


class NoiseChoice(StrEnum):
    """Which noises are compared on a vector."""

    SPHERICAL = "spherical"
    INDEPENDENT = "independent"


def _number(option: str, help_text: str, **limits: float) -> Any:
    return typer.Option(option, help=help_text, parser=options.number(option, **limits), metavar="NUMBER")


def _whole(option: str, help_text: str, **limits: int) -> Any:
    return typer.Option(option, help=help_text, parser=options.whole(option, **limits), metavar="WHOLE")


Steps = Annotated[
    list[int] | None,
    _whole("--steps", "How many releases share the target, >= 1; give it again for a comparison.", least=1),
]
Thresholds = Annotated[
    list[float] | None,
    _number(
        "--threshold",
        "With --loss outside: the largest noise that is harmless, > 0; give it again for several.",
        above=0.0,
    ),
]
Level = Annotated[
    float | None,
    _number(
        "--level",
        "With --loss interval: the probability to be in the interval; 0.95 if left out.",
        above=0.0,
        below=1.0,
    ),
]


def choose(
    epsilon: options.Epsilon,
    delta: options.DeltaOrZero,
    steps: Steps = None,
    loss: Annotated[
        LossChoice,
        typer.Option(
            "--loss",
            help="What is to be small: the standard deviation of the noise; the mean of |noise|; the chance "
            "that |noise| exceeds --threshold; the width of the interval that holds the noise with "
            "probability --level; or the chance that a wrong class wins the noisy --votes.",
        ),
    ] = LossChoice.STD,
    threshold: Thresholds = None,
    level: Level = None,
    votes: Annotated[
        list[str] | None,
        typer.Option(
            "--votes",
            help="With --loss wrong-winner: the counts of a vote, such as 60,40; give it again for several. "
            "The answer depends on them: use public or made-up ones.",
            metavar="COUNTS",
        ),
    ] = None,
    rate: options.Rate = 1.0,
    sensitivity: options.Sensitivity = 1.0,
    norm: options.Norm = None,
    dimension: options.Dimension = 1,
    noise: Annotated[
        NoiseChoice | None,
        typer.Option(
            "--noise",
            help="For a vector: noise that depends on its Euclidean length alone, or independent noise on "
            "each number. Spherical if left out, with --norm 2, up to 10^6 dimensions and for a loss that is "
            "known of it (std, mean-absolute).",
        ),
    ] = None,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    from_beta: Annotated[
        float, _number("--from-beta", "Smallest exponent shown, in [1, 8].", least=1.0, most=8.0)
    ] = 1.0,
    to_beta: Annotated[
        float, _number("--to-beta", "Largest exponent shown, in [1, 8].", least=1.0, most=8.0)
    ] = 3.0,
    points: Annotated[
        int, _whole("--points", "How many exponents to show, evenly spaced, in [2, 200].", least=2, most=200)
    ] = 9,
    plot: options.Plot = None,
    json: options.Json = False,
) -> None:
    """Find the exponent whose noise has the smallest error.

    All noises in the table have the least scale that keeps the same epsilon and delta.
    The least in a column is marked with *; the best of all exponents from 1 to 8 is below the table.
    For a vector with --norm 2 spherical noise is compared, which depends on the Euclidean length alone.
    --plot needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp choose --epsilon 1 --delta 1e-6 --steps 5 --steps 10 --steps 1000
    """
    if from_beta >= to_beta:
        raise ValueError(f"--from-beta must be below --to-beta, got {from_beta:g} and {to_beta:g}")
    if noise is NoiseChoice.SPHERICAL and norm is None:
        raise ValueError("--norm must be 2 with --noise spherical, got none")
    output.need("matplotlib" if plot else None)
    betas = [float(beta) for beta in np.linspace(from_beta, to_beta, points)]
    far: list[float | None] = [*threshold] if threshold else [None]
    hurts = _loss_of(loss, votes)
    is_vote = loss is LossChoice.WRONG_WINNER
    shift = ((1.0, 1), (-1.0, 1)) if is_vote and adjacency is Adjacency.REPLACE else None
    counts, target = steps or [1], Target(epsilon, delta, adjacency)
    columns: dict[str, _Column] = {}
    fits = False
    with output.progress(len(counts) * (points + len(far))) as tell:
        for count in counts:
            problem = NoiseProblem(target, rate, count, sensitivity, norm, dimension, shift)
            fits = suits_spherical(problem, hurts) if noise is None else noise == NoiseChoice.SPHERICAL
            problem = replace(problem, spherical=fits)
            search = NoiseSearch(problem)
            for limit in far:
                search = search.with_loss(hurts, threshold=limit, level=level)
                many = "1 release" if count == 1 else f"{count} releases"
                tell(f"{many}: the best")
                best, tried = search.best(_SEARCHED), []
                for beta in betas:
                    if limit == far[0]:
                        tell(f"{many}: beta = {beta:.3g}")
                    tried.append(_weighed(search, beta))
                name = many if limit is None else f"{many}\nt = {output.in_full(limit)}"
                columns[name] = best, tried, limit
    kind = NoiseChoice.SPHERICAL if fits else NoiseChoice.INDEPENDENT
    record = record_of(
        "choose",
        [
            choice_record(best, [one for one in tried if one is not None], limit)
            for best, tried, limit in columns.values()
        ],
        target_epsilon=epsilon,
        delta=delta,
        loss=str(loss),
        rate=rate,
        sensitivity=sensitivity,
        adjacency=str(adjacency),
        **({} if level is None else {"level": level}),
        **({} if dimension == 1 else plain({"norm": norm, "dimension": dimension, "noise": str(kind)})),
    )
    title = f"{_TITLES[str(loss)]} at epsilon = {epsilon:g}, delta = {delta:g}"
    title += "" if dimension == 1 else f", {kind} noise on a vector"
    if plot is not None:
        output.write_picture(plot, choice_figure([(f"{title.partition(' at ')[2]}, rate {rate:g}", record)]))
    if json:
        output.print_json(record)
    else:
        output.print_rows(title, _rows(betas, columns))
        output.tell_written(plot)


_SEARCHED = (1.0, 8.0)
_Column = tuple[BestNoise, list[WeighedNoise | None], float | None]
_TITLES = {
    "std": "Standard deviation of the noise",
    "mean-absolute": "E|noise|",
    "outside": "P(|noise| > t)",
    "interval": "Width of the interval",
    "wrong-winner": "Chance of a wrong winner",
}


def _loss_of(loss: LossChoice, votes: list[str] | None) -> Loss:
    """The loss as `best_noise` takes it."""
    if loss is not LossChoice.WRONG_WINNER:
        if votes:
            raise ValueError(f"--votes must be left out except with --loss wrong-winner, got {votes[0]!r}")
        return cast(LossName, str(loss))
    if not votes:
        raise ValueError("--votes must be given with --loss wrong-winner: counts such as 60,40")
    from ggdp.selection import wrong_winner

    try:
        histograms = [[float(count) for count in vote.split(",")] for vote in votes]
    except ValueError:
        raise ValueError(
            f"--votes must be counts such as 60,40, got {arguments.shown(' '.join(votes))}"
        ) from None
    for vote, histogram in zip(votes, histograms, strict=True):
        if len(histogram) < 2 or not all(0.0 <= count <= 1e15 for count in histogram):
            raise ValueError(
                f"--votes must be two or more counts in [0, 1e15], such as 60,40, got {arguments.shown(vote)}"
            )
    if len({len(histogram) for histogram in histograms}) > 1:
        raise ValueError("--votes must all have the same number of counts")
    return wrong_winner(histograms)


def _weighed(search: NoiseSearch, beta: float) -> WeighedNoise | None:
    """None where no noise of this exponent meets the target, which is no reason to hide the others."""
    try:
        return search.weighed(round(beta, 12))
    except (ValueError, CannotCertifyError):
        return None


def _rows(betas: list[float], columns: "dict[str, _Column]") -> list[dict[str, str]]:
    rows = []
    for place, beta in enumerate(betas):
        row = {"beta": f"{beta:.4g}"}
        for name, (_, tried, limit) in columns.items():
            one = tried[place]
            least = min((other.log_loss for other in tried if other is not None), default=0.0)
            row[name] = "-" if one is None else _shown(one, limit) + " *" * (one.log_loss == least)
        rows.append(row)
    for label in ("best beta", "its loss", "its scale", "less than Laplace by", "less than Gaussian by"):
        row = {"beta": label}
        for name, (best, _, limit) in columns.items():
            row[name] = {
                "best beta": f"{best.beta:.4g}",
                "its loss": _shown(best, limit),
                "its scale": output.rounded_up(best.scale, 7),
                "less than Laplace by": _percent(best.less_than_laplace),
                "less than Gaussian by": _percent(best.less_than_gaussian),
            }[label]
        rows.append(row)
    return rows


def _percent(part: float) -> str:
    return f"{round(100.0 * part, 1) + 0.0:.1f}%"  # never -0.0


def _shown(one: WeighedNoise, limit: float | None) -> str:
    return f"{one.loss:.5g}" if limit is None else output.probability(one.log_loss)
