# SPDX-License-Identifier: Apache-2.0
"""What a command prints: one JSON object, one table, or one line that says why not."""

import decimal
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from ggdp.reporting.rounding import rounded_down as rounded_down
from ggdp.reporting.rounding import rounded_up as rounded_up
from ggdp.reproduction.experiment import EXTRAS


def json_line(record: Mapping[str, Any]) -> str:
    """One JSON object as one line of text."""
    return json.dumps(record, allow_nan=False) + "\n"


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, and nothing else."""
    typer.echo(json_line(record), nl=False)


def print_table(title: str, rows: Mapping[str, object]) -> None:
    """Print a table of two columns, name and value."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in rows.items():
        table.add_row(name, f"{value:.10g}" if isinstance(value, float) else str(value))
    Console().print(table)


def print_rows(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print a line and a table with a header; the rows have the same names. No number is ever cut short."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for name in rows[0]:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row.values())
    console = Console(highlight=False)
    console.print(title, soft_wrap=True)
    console.print(table)


def probability(log_prob: float) -> str:
    """A probability from its logarithm, with four digits, also where it is smaller than any double.

    >>> probability(-1.0), probability(-10000.0)
    ('0.3679', '1.135e-4343')
    """
    with decimal.localcontext(prec=20):
        return f"{decimal.Decimal(log_prob).exp():.4g}"


def refuse(line: str, *, code: int = 2) -> int:
    """Print one line on stderr and return the exit status."""
    print(f"ggdp: {line}", file=sys.stderr)
    return code


def sentence(error: Exception) -> str:
    """An exception as one line for people.

    Usage errors are told apart by `format_message`, because the class they derive from has moved between
    versions of typer.
    """
    if isinstance(error, OSError) and error.filename is not None:
        text = f"cannot use file {error.filename!r}: {error.strerror}"
    elif isinstance(error, ModuleNotFoundError):
        extra = EXTRAS.get(str(error.name).partition(".")[0], "plot")
        text = f"this command needs {error.name!r}, which is not installed; try pip install 'ggdp[{extra}]'"
    elif hasattr(error, "format_message"):
        # Our own parsers name the option themselves; the toolkit's messages do not.
        own = str(getattr(error, "message", ""))
        text = own if own.startswith("--") else str(error.format_message())
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
