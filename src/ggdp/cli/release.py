# SPDX-License-Identifier: Apache-2.0
"""`ggdp release`: numbers in, noisy numbers out."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp.cli.numbers_file import read_numbers
from ggdp.mechanisms import AdditiveNoise
from ggdp.mechanisms import release as add_noise

Source = Annotated[str, typer.Argument(help="A file of numbers or a CSV file; - is standard input.")]
Column = Annotated[str | None, typer.Option("--column", help="The CSV column to release.", metavar="NAME")]
Out = Annotated[Path | None, typer.Option("--out", help="Write here instead of to standard output.")]


def release(
    beta: options.Beta,
    source: Source = "-",
    column: Column = None,
    scale: options.Scale = None,
    noise_multiplier: options.NoiseMultiplier = None,
    std: options.Std = None,
    sensitivity: options.Sensitivity = 1.0,
    out: Out = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Write numbers with noise added to each, one per line.

    With --column, reads that column of a CSV file with a header line, and writes that column only: no other
    column leaves. The output appears whole or not at all.

    Example: ggdp release ages.csv --column age --beta 1.5 --scale 2 --sensitivity 1 --out noisy.csv
    """
    noise = options.noise_from(beta, scale, noise_multiplier, std, sensitivity)
    mechanism = AdditiveNoise(noise, sensitivity)
    numbers = read_numbers(source, column)
    rng = None if seed is None else np.random.default_rng(seed)
    noisy = add_noise(mechanism, numbers, rng=rng)
    if json:
        record = {
            "column": column,
            "values": noisy,
            "mechanism": mechanism.to_dict(),
            "seeded": seed is not None,
        }
        text = output.json_line(record)
    else:
        header = [] if column is None else [_csv_cell(column)]
        text = "\n".join([*header, *map(repr, noisy)]) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text)


def _csv_cell(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in ',"\n\r') else name
