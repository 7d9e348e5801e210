# SPDX-License-Identifier: Apache-2.0
"""Read numbers from a file or standard input: bare, or one column of a CSV file."""

import csv
import io
import math
import sys
from pathlib import Path


def read_numbers(source: str, column: str | None) -> list[float]:
    """The numbers of a file (`-` is standard input), every one finite.

    Without `column` the file holds numbers separated by white space or commas; with it, CSV with a header.

    Raises:
        ValueError: Something is not a finite number, or there is none; the message names the line.
        OSError: The file cannot be read.
    """
    text = _text(source)
    place = "standard input" if source == "-" else source
    cells = _bare(text) if column is None else _column(text, column, place)
    if not cells:
        raise ValueError(f"{place} must hold at least one number, got none")
    return [_finite(cell, line, place, column) for line, cell in cells]


def _text(source: str) -> str:
    raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} must be UTF-8 text, got byte {error.start} undecodable") from None


def _bare(text: str) -> list[tuple[int, str]]:
    lines = enumerate(text.splitlines(), start=1)
    return [(number, cell) for number, line in lines for cell in line.replace(",", " ").split()]


def _column(text: str, column: str, place: str) -> list[tuple[int, str]]:
    reader = csv.reader(io.StringIO(text, newline=""))
    header = [name.strip() for name in next(reader, [])]
    if header.count(column) != 1:
        problem = "is not a column" if column not in header else "names more than one column"
        raise ValueError(f"--column {problem} of {place}, got {column!r}; the columns are {header}")
    position = header.index(column)
    rows = [(reader.line_num, row) for row in reader if row]
    return [(line, row[position] if position < len(row) else "") for line, row in rows]


def _finite(cell: str, line: int, place: str, column: str | None) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        where = f"line {line} of {place}" + (f", column {column!r}," if column is not None else "")
        raise ValueError(f"{where} must be a finite number, got {cell!r}")
    return number
