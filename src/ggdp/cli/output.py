# SPDX-License-Identifier: Apache-2.0
"""What a command prints: one JSON object, one table, or one line that says why not."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import typer


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


def refuse(line: str, *, code: int = 2) -> int:
    """Print one line on stderr and return the exit status."""
    print(f"ggdp: {line}", file=sys.stderr)
    return code


def sentence(error: Exception) -> str:
    """An exception as one line for people.

    Usage errors are told apart by `format_message`, because the class they derive from has moved between
    versions of typer.
    """
    if isinstance(error, OSError):
        text = f"cannot use file {error.filename!r}: {error.strerror}"
    elif isinstance(error, ModuleNotFoundError):
        text = f"this command needs {error.name!r}, which is not installed; try pip install 'ggdp[plot]'"
    elif hasattr(error, "format_message"):
        # Our own parsers name the option themselves; the toolkit's messages do not.
        own = str(getattr(error, "message", ""))
        text = own if own.startswith("--") else str(error.format_message())
    else:
        text = str(error)
    return " ".join(text.split())
