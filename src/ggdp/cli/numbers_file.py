# SPDX-License-Identifier: Apache-2.0
"""Read numbers from a file or standard input: bare, or one column of a CSV file with columns of labels."""

import csv
import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ggdp import arguments

_MOST_SHOWN = 20
MOST_BYTES = 1 << 27
"""128 MiB: more than ten million numbers, and an end for files that have none, as /dev/zero."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of a file in their order, and the labels beside them, by the name of their column."""

    values: list[float]
    labels: dict[str, list[str]]
    whole: bool
    """Whether all are written as whole numbers, without a point or an exponent, as counts are."""


def read_numbers(source: str, column: str | None, keep: Sequence[str] = ()) -> Numbers:
    """The numbers of a file (`-` is standard input), every one finite.

    Without `column` the file holds numbers separated by white space or commas; with it, CSV with a header,
    whose columns `keep` are read as text.

    Raises:
        ValueError: Something is not a finite number, or there is none; the message names the line.
        OSError: The file cannot be read.
    """
    place = "standard input" if source == "-" else source
    text = _text(source, place)
    labels: dict[str, list[str]] = {}
    if column is None:
        cells = _bare(text)
    else:
        lines, (chosen, *kept) = _columns(text, {"--column": [column], "--keep": keep}, place)
        cells, labels = list(zip(lines, chosen, strict=True)), dict(zip(keep, kept, strict=True))
    if not cells:
        raise ValueError(f"{place} must hold at least one number, got none")
    whole = all(cell.strip().lstrip("+-").isdecimal() for _, cell in cells)
    return Numbers([_finite(cell, line, place, column) for line, cell in cells], labels, whole)


def read_limited(path: Path) -> bytes:
    """The content of a file of at most `MOST_BYTES`."""
    with path.open("rb") as file:
        return _limited(file, str(path))


def _limited(file: BinaryIO, place: str) -> bytes:
    raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"{place} must hold at most {MOST_BYTES >> 20} MiB, got more")
    return raw


def _text(source: str, place: str) -> str:
    if not source:
        raise ValueError("the name of the file of numbers must not be empty; - is standard input")
    if source != "-":
        raw = read_limited(Path(source))
    elif sys.stdin is None:
        raise ValueError("standard input is closed; give the name of a file")
    else:
        raw = _limited(sys.stdin.buffer, place)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{place} must be UTF-8 text, got byte {error.start} undecodable") from None


def _bare(text: str) -> list[tuple[int, str]]:
    lines = enumerate(text.splitlines(), start=1)
    return [(number, cell) for number, line in lines for cell in line.replace(",", " ").split()]


def _columns(text: str, wanted: dict[str, Sequence[str]], place: str) -> tuple[list[int], list[list[str]]]:
    """The numbers of the lines, and the cells of each wanted column; a cell that is not there is empty."""
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [name.strip() for name in next(reader, [])]
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} of {place} must be CSV: {error}") from None
    positions = []
    for option, names in wanted.items():
        for name in names:
            if header.count(name) != 1:
                problem = "is not a column" if name not in header else "names more than one column"
                raise ValueError(
                    f"{option} {problem} of {place}, got {arguments.shown(name)}; "
                    f"the columns are {_few(header)}"
                )
            positions.append(header.index(name))
    cells = [[row[at] if at < len(row) else "" for _, row in rows] for at in positions]
    return [line for line, _ in rows], cells


def _few(header: list[str]) -> str:
    """The names of columns, without most of those that would fill a screen."""
    shown = ", ".join(map(arguments.shown, header[:_MOST_SHOWN]))
    return f"[{shown}]" + (f" and {len(header) - _MOST_SHOWN} more" if len(header) > _MOST_SHOWN else "")


def _finite(cell: str, line: int, place: str, column: str | None) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        where = f"line {line} of {place}" + (f", column {column!r}," if column is not None else "")
        shown = cell if len(cell) <= 60 else f"{cell[:57]}..."
        header = "; of a CSV file with a header give --column" if column is None and line == 1 else ""
        raise ValueError(f"{where} must be a finite number, got {shown!r}{header}")
    return number
