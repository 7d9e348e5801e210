# SPDX-License-Identifier: Apache-2.0
"""`ggdp release`: numbers in, noisy numbers out, and what that costs."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ggdp import accounting
from ggdp.atomic_file import write_atomically
from ggdp.calibration import calibrate_scale
from ggdp.cli import options, output
from ggdp.cli.numbers_file import read_numbers
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.mechanisms import release as add_noise
from ggdp.mechanisms.release import grid_of
from ggdp.reporting.records import SEED_CAVEAT, Run, epsilon_record, record_of

DELTA = 1e-6
"""At which the cost is told where --delta is left out."""

_LEAST_SCALE_OF_COUNTS, _MOST_SCALE_OF_COUNTS = 0.125, 2.0**33

Source = Annotated[
    str, typer.Argument(help="A file of numbers or a CSV file; - is standard input.", metavar="FILE")
]
Columns = Annotated[
    list[str] | None, typer.Option("--column", help="The CSV column to release.", metavar="NAME")
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        help="A CSV column of public labels, written as it is, WITHOUT noise; give it again for more.",
        metavar="NAME",
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        "--epsilon",
        help="Calibrate: the least noise that costs no more than this at --delta.",
        parser=options.number("--epsilon", above=0.0),
        metavar="NUMBER",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help=f"Privacy parameter delta, in (0, 1), or 0 for beta 1. Needed with --epsilon; else the cost is "
        f"told at this delta, {DELTA:g} if left out.",
        parser=options.number("--delta", least=0.0, below=1.0),
        metavar="NUMBER",
    ),
]
Sensitivity = Annotated[
    float,
    typer.Option(
        "--sensitivity",
        help="Most one record moves all the numbers together, > 0; 1 for counts of records.",
        parser=options.number("--sensitivity", **options.SENSITIVITY),
        metavar="NUMBER",
    ),
]
Norm = Annotated[
    str,
    typer.Option(
        "--norm",
        help="How moves of several numbers add up to the sensitivity: 1 (their sum), p, inf, or matched.",
        parser=options.norm,
        metavar="P",
    ),
]
Round = Annotated[
    bool,
    typer.Option(
        "--round", help="Round to whole numbers, as counts are rounded by themselves; costs nothing."
    ),
]
Grid = Annotated[
    float | None,
    typer.Option(
        "--grid",
        help="Round to multiples of this power of two; 1 for counts, else 2^-10 of the scale, if left out.",
        parser=options.number("--grid", above=0.0),
        metavar="NUMBER",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write here instead of to standard output.",
        parser=options.new_file("--out"),
        metavar="FILE",
    ),
]


def release(
    beta: options.Beta,
    source: Source = "-",
    column: Columns = None,
    keep: Keep = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    scale: options.Scale = None,
    noise_multiplier: options.NoiseMultiplier = None,
    std: options.Std = None,
    sensitivity: Sensitivity = 1.0,
    norm: Norm = "1",
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    to_whole: Round = False,
    grid: Grid = None,
    out: Out = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Add noise to numbers and write them.

    Writes one number per line, and says on standard error what epsilon the release has. Give --epsilon for
    the least noise that keeps it, or the size of the noise by --scale, --noise-multiplier or --std.

    With --column, reads that column of a CSV file with a header line and writes it with the labels of --keep:
    no other column leaves. The output appears whole or not at all. The numbers must be aggregates, as counts
    are: a value that one record can move by more than --sensitivity is not protected. Numbers that are all
    written as whole numbers come back as whole numbers; that they are is not protected.

    Example: ggdp release readers.csv --column readers --keep branch --beta 1.5 --epsilon 1 --delta 1e-6
    """
    name = _one_column(column, keep)
    options.check_apart({"the numbers": None if source == "-" else Path(source), "--out": out})
    found = read_numbers(source, name, keep or ())
    dimension = len(found.values)
    at = DELTA if delta is None else delta
    if epsilon is None:
        noise = _given_noise(beta, scale, noise_multiplier, std, sensitivity)
    else:
        _check_calibration(delta, {"--scale": scale, "--noise-multiplier": noise_multiplier, "--std": std})
        noise = calibrate_scale(
            beta=beta, epsilon=epsilon, delta=at, sensitivity=sensitivity,
            norm=norm, dimension=dimension, adjacency=adjacency,
        ).noise  # fmt: skip
    step = _grid(noise, grid, found.whole or to_whole)
    mechanism = AdditiveNoise(noise, sensitivity, norm, dimension, grid=step)
    cost = _cost(Run(mechanism, 1.0, 1, adjacency), at)
    noisy = add_noise(mechanism, found.values, rng=None if seed is None else np.random.default_rng(seed))
    values = [round(value) for value in noisy] if to_whole or step >= 1.0 else noisy
    if json:
        result = {
            **cost,
            "column": name,
            "labels": found.labels,
            "values": values,
            "rounded": to_whole or step >= 1.0,
            "grid": step,
            "mechanism": mechanism.to_dict(),
            "seeded": seed is not None,
            "caveats": [] if seed is None else [SEED_CAVEAT],
        }
        text = output.json_line(record_of("release", [result]))
    else:
        text = _as_text(name, found.labels, values)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)
    if not json:
        typer.echo(_told(cost, mechanism), err=True)
    if seed is not None:
        output.warn(output.SEEDED)


def _one_column(column: list[str] | None, keep: list[str] | None) -> str | None:
    if column is None:
        if keep:
            raise ValueError(f"--keep goes with --column, of a CSV file, got --keep {keep[0]!r} alone")
        return None
    if len(column) != 1:
        raise ValueError(
            f"--column must be given once, got {' and '.join(map(repr, column))}; each column is a "
            "release of its own, and what they cost adds up"
        )
    if column[0] in (keep or ()):
        raise ValueError(f"--keep must name other columns than --column, got {column[0]!r} for both")
    if len(set(keep or ())) != len(keep or ()):
        raise ValueError(f"--keep must name each column once, got {' and '.join(map(repr, keep or ()))}")
    return column[0]


def _given_noise(
    beta: float, scale: float | None, noise_multiplier: float | None, std: float | None, sensitivity: float
) -> GeneralizedGaussian:
    if scale is None and noise_multiplier is None and std is None:
        raise ValueError(
            "exactly one of --epsilon, --scale, --noise-multiplier, --std must be given, got none"
        )
    return options.noise_from(beta, scale, noise_multiplier, std, sensitivity)


def _grid(noise: GeneralizedGaussian, given: float | None, whole: bool) -> float:
    """The grid of the answer; whole numbers, unless the noise is so small that it would be rounded away."""
    if given is not None:
        return given
    return 1.0 if whole and _LEAST_SCALE_OF_COUNTS <= noise.scale <= _MOST_SCALE_OF_COUNTS else grid_of(noise)


def _check_calibration(delta: float | None, others: Mapping[str, float | None]) -> None:
    if delta is None:
        raise ValueError("--epsilon needs --delta, at which it holds; 1e-6 is usual, got none")
    for option, value in others.items():
        if value is not None:
            raise ValueError(f"{option} must not be given with --epsilon, which finds it, got {value:g}")


def _cost(run: Run, delta: float) -> dict[str, Any]:
    """What the release costs; noise that the accountant does not cover has no certified cost."""
    try:
        return epsilon_record(
            run, delta, accounting.epsilon(run.mechanism, delta=delta, adjacency=run.adjacency)
        )
    except ValueError as error:
        if delta == 0.0:  # asked for, and met by Laplace noise alone
            raise
        unknown = {"lower": 0.0, "estimate": None, "upper": None}
        return {"epsilon": unknown, "delta": delta, "method": f"none: {error}", **run.to_dict()}


def _told(cost: Mapping[str, Any], mechanism: AdditiveNoise) -> str:
    upper, noise = cost["epsilon"]["upper"], mechanism.noise
    moved = f"one record must move the numbers by at most {mechanism.sensitivity:g}"
    several = f" (norm: l_{mechanism.p:.4g})" if mechanism.dimension != 1 else ""
    price = (
        f"no cost is certified ({output.in_options(cost['method'].removeprefix('none: '), {}, ())})"
        if upper is None
        else f"it costs epsilon <= {output.rounded_up(upper, 6)} at delta = {cost['delta']:g}"
    )
    return (
        f"noise: beta = {noise.beta:g}, scale {noise.scale:.6g}, std {noise.std:.6g}, rounded to multiples "
        f"of {mechanism.grid:.6g}; {price} "
        f"({cost['adjacency']}); {moved}{several}, which nothing here can check"
    )


def _as_text(column: str | None, labels: Mapping[str, Sequence[str]], values: Sequence[float]) -> str:
    if column is None:
        return "\n".join(map(repr, values)) + "\n"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*labels, column])
    writer.writerows(zip(*labels.values(), map(repr, values), strict=True))
    return text.getvalue()
