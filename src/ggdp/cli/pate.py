# SPDX-License-Identifier: Apache-2.0
"""`ggdp pate`: votes in, labels that may be published out."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ggdp.arguments import shown
from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp.mechanisms import Adjacency
from ggdp.reporting import figures
from ggdp.reporting.pages import report_page
from ggdp.reporting.records import SEED_CAVEAT, Fields, bounds_record, record_of
from ggdp.reporting.run_report import pate_report, private_rows, public_rows
from ggdp.selection import (
    THRESHOLD_NOISE_RATIO,
    ConfidentGGNMax,
    GGNMax,
    Labelling,
    Votes,
    calibrate_confident_ggnmax,
    calibrate_ggnmax,
    hardmax_utility,
    read_labels,
    read_votes,
)
from ggdp.selection.data_dependent import CAVEAT

Source = Annotated[Path, typer.Argument(help="Votes, [queries, classes]: npz, npy or csv.", metavar="VOTES")]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="Answer only where the largest count reaches this, with noise.",
        parser=options.number("--threshold"),
        metavar="NUMBER",
    ),
]
Ratio = Annotated[
    float,
    typer.Option(
        "--noise-ratio",
        help="Noise of the threshold check divided by noise of the votes, in [0.01, 100].",
        parser=options.number("--noise-ratio", least=0.01, most=100.0),
        metavar="NUMBER",
    ),
]
Queries = Annotated[
    int | None,
    typer.Option(
        "--queries",
        help="Use the first rows only.",
        parser=options.whole("--queries", least=1),
        metavar="WHOLE",
    ),
]
Answers = Annotated[
    int | None,
    typer.Option(
        "--answers",
        help="Stop after so many answers; fewer answers need less noise. All queries if left out.",
        parser=options.whole("--answers", least=1),
        metavar="WHOLE",
    ),
]
Truth = Annotated[
    Path | None,
    typer.Option("--truth", help="True labels, for the accuracy: npz, npy or csv.", metavar="FILE"),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write the labels here, npy or csv; -1 is no answer.",
        parser=options.new_file("--out", ".npy", ".csv"),
        metavar="FILE",
    ),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write a report to this HTML file.",
        parser=options.new_file("--report"),
        metavar="FILE",
    ),
]


def pate(
    votes: Source,
    beta: options.Beta,
    epsilon: options.Epsilon,
    delta: options.DeltaOrZero,
    threshold: Threshold = None,
    noise_ratio: Ratio = THRESHOLD_NOISE_RATIO,
    queries: Queries = None,
    answers: Answers = None,
    adjacency: options.AdjacencyChoice = Adjacency.REPLACE,
    truth: Truth = None,
    out: Out = None,
    report: ReportFile = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Label records by a noisy vote of models (PATE).

    Each row of VOTES is one query and holds the number of models, called teachers, that vote for each class.
    The noise is the least for which all labels together keep --epsilon and --delta.
    The report has a part that may be published and a part, marked PRIVATE, that may not. Files appear whole
    or not at all. --report needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp pate votes.npz --beta 1.5 --epsilon 2 --delta 1e-5 --threshold 200 --out labels.npy
    """
    output.need("matplotlib" if report else None)
    for read in ({"VOTES": votes}, {"--truth": truth}):
        options.check_apart(read | {"--out": out, "--report": report})
    histograms = read_votes(votes)
    if queries is not None:
        if queries > histograms.num_queries:
            raise ValueError(
                f"--queries must be at most {histograms.num_queries}, the rows of {votes}, "
                f"got {shown(queries)}"
            )
        histograms = histograms.first(queries)
    if answers is not None and answers > histograms.num_queries:
        raise ValueError(
            f"--answers must be at most {histograms.num_queries}, the queries, got {shown(answers)}"
        )
    labels = None if truth is None else read_labels(truth, histograms.num_queries)
    rng = None if seed is None else np.random.default_rng(seed)
    budget: dict[str, Any] = {"beta": beta, "epsilon": epsilon, "delta": delta, "adjacency": adjacency}
    with output.progress(4) as tell:
        tell("calibrating the noise")
        aggregator: GGNMax | ConfidentGGNMax
        if threshold is None:
            aggregator = calibrate_ggnmax(**budget, times=answers or histograms.num_queries)
        else:
            aggregator = calibrate_confident_ggnmax(
                **budget, times=histograms.num_queries, threshold=threshold, most_answers=answers,
                noise_ratio=noise_ratio,
            )  # fmt: skip
        tell("labelling")
        labelling = aggregator.label(histograms, most_answers=answers, rng=rng)
        asked = {"delta": delta, "target_epsilon": epsilon, "threshold": threshold}
        result = _result(histograms, aggregator, labelling, labels, asked, seed is not None, tell)
    page = None if report is None else _page(result, histograms, aggregator, votes.name)
    if out is not None:
        write_atomically(out, _as_file(labelling.labels, out.suffix.lower()))
    if report is not None and page is not None:
        write_atomically(report, page)
    if seed is not None:
        output.warn(output.SEEDED)
    if json:
        told = {} if out is not None else {"labels": labelling.labels.tolist()}
        output.print_json(record_of("pate", [result | told]))
    else:
        _print(result)
        output.tell_written(out, report)


def _result(
    votes: Votes,
    aggregator: GGNMax | ConfidentGGNMax,
    labelling: Labelling,
    truth: np.ndarray[tuple[int], np.dtype[np.int64]] | None,
    asked: dict[str, Any],
    seeded: bool,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """The result for the record; what must not be published is under `private`, and nowhere else."""
    noises = {"votes": aggregator.noise}
    if isinstance(aggregator, ConfidentGGNMax):
        noises["threshold check"] = aggregator.threshold_noise
    tell("chances of winning")
    utility = float(np.mean(hardmax_utility(votes.counts, aggregator.noise)))
    tell("accounting")
    achieved = labelling.epsilon(delta=asked["delta"])
    on_these_votes = None  # at delta = 0 there is none
    if asked["delta"] > 0.0:
        on_these_votes = labelling.data_dependent_epsilon(votes, delta=asked["delta"])
    return {
        "epsilon": bounds_record(achieved),
        "delta": asked["delta"],
        "method": achieved.method,
        "target_epsilon": asked["target_epsilon"],
        "adjacency": str(aggregator.adjacency),
        "teachers": votes.num_teachers,
        "queries": votes.num_queries,
        "answered": labelling.num_answered,
        "abstained": labelling.num_abstained,
        "most_answers": labelling.most_answers,
        "threshold": asked["threshold"],
        "noise": {
            name: {"beta": noise.beta, "scale": noise.scale, "std": noise.std}
            for name, noise in noises.items()
        },
        "seeded": seeded,
        "caveats": [SEED_CAVEAT] if seeded else [],
        "private": {
            "data_dependent_epsilon": None if on_these_votes is None else on_these_votes.value,
            "caveat": CAVEAT,
            "expected_utility": utility,
            "accuracy": None if truth is None or not labelling.num_answered else labelling.accuracy(truth),
        },
    }


def _page(result: dict[str, Any], votes: Votes, aggregator: GGNMax | ConfidentGGNMax, source: str) -> str:
    caption = "Votes between the first and the second class, against the chance that noise turns them round."
    drawn = partial(figures.gap_figure, votes, aggregator.noise)
    return report_page([pate_report(Fields(result), ((drawn, caption),))], source)


def _print(result: dict[str, Any]) -> None:
    rows = {
        "epsilon, certified upper bound": output.rounded_up(result["epsilon"]["upper"], 7),
        "delta": f"{result['delta']:g}",
        "neighbours": "a voter changes its vote"
        if result["adjacency"] == Adjacency.REPLACE
        else "a voter comes or goes",
        **public_rows(Fields(result)),
    }
    kind = "NOT private, do not publish: the noise is from a seed" if result["seeded"] else "may be published"
    output.print_table(f"Labels by noisy vote: {kind}", rows)
    output.print_table("PRIVATE: do not publish", private_rows(Fields(result)))


def _as_file(labels: np.ndarray[tuple[int], np.dtype[np.int64]], kind: str) -> bytes:
    if kind == ".csv":
        return ("\n".join(map(str, labels.tolist())) + "\n").encode()
    buffer = io.BytesIO()
    np.save(buffer, labels)
    return buffer.getvalue()
