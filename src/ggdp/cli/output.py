# SPDX-License-Identifier: Apache-2.0
"""What a command prints: one JSON record, one table, a bar while it works, or one line that says why not."""

import contextlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ggdp.atomic_file import write_atomically
from ggdp.reporting.records import probability as probability
from ggdp.reporting.records import rounded_down as rounded_down
from ggdp.reporting.records import rounded_up as rounded_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTRAS = {
    "plot": {"matplotlib"},
    "torch": {"torch"},
    "pate": {"sklearn", "joblib"},
    "dask": {"dask", "distributed"},
    "ray": {"ray"},
    "reproduce": {"matplotlib", "sklearn", "joblib", "torch"},
    "explore": {"matplotlib", "marimo"},
}
"""The optional packages that the commands import, by the extra of ggdp that brings them."""

SEEDED = (
    "the noise is from --seed: whoever knows or guesses the seed can remove it; this output is NOT private"
)


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
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, f"{value:.10g}" if isinstance(value, float) else str(value))
    Console().print(table)


def print_rows(title: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Print a line and a table with a header; the rows have the same names. No number is ever cut short."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(pad_edge=False)
    for name in rows[0]:
        cells = [*(row[name] for row in rows), *name.split("\n")]
        narrowest = max(len(word) for cell in cells for word in cell.split() or [""])
        table.add_column(name, justify="right", min_width=narrowest)
    for row in rows:
        table.add_row(*row.values())
    console = Console(highlight=False)
    console.print(title, soft_wrap=True)
    # Wider than a narrow terminal rather than with digits on two lines, where no one would read them as one.
    needed = Measurement.get(console, console.options.update(max_width=1000), table).minimum
    console.print(table, width=max(console.width, needed), crop=False)


def in_full(value: float) -> str:
    """A number that was given, with all its digits, so that no two of them look the same.

    >>> in_full(2.0), in_full(1.50000001), in_full(1e-6)
    ('2', '1.50000001', '1e-06')
    """
    return repr(value).removesuffix(".0")


def write_picture(path: Path, figure: "Figure") -> None:
    """Write a picture of the kind that the file's ending names."""
    from ggdp.reporting import canvas

    write_atomically(path, canvas.svg(figure) if path.suffix.lower() == ".svg" else canvas.png(figure))


def tell_written(*paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            typer.echo(f"Wrote {path}")


def warn(line: str) -> None:
    """Print one line on stderr that the reader must not miss."""
    typer.echo(f"WARNING: {line}", err=True)


@contextlib.contextmanager
def progress(total: int | None, start: str = "") -> Iterator[Callable[..., None]]:
    """A bar on stderr, only where that is a terminal; gives a function that tells of each step.

    `tell(step)` says what begins; `tell(step, completed=3)` how much is done, else one more each time;
    `tell(line=text)` prints a line above the bar, or alone where there is no bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:

        def tell_lines(step: str = "", *, completed: int | None = None, line: str = "") -> None:
            if line:
                typer.echo(line, err=True)

        yield tell_lines
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(start, total=total)
        begun = False

        def tell(step: str = "", *, completed: int | None = None, line: str = "") -> None:
            nonlocal begun
            if line:
                bar.console.print(line, highlight=False, markup=False)
                return
            if completed is not None:
                bar.update(task, description=step, completed=completed)
            else:
                bar.update(task, description=step, advance=1 if begun else 0)
            begun = True

        yield tell


def need(*packages: str | None) -> None:
    """Refuse before any work, in one line, a command whose optional packages are not all installed."""
    line = lacking([package for package in packages if package is not None])
    if line is not None:
        raise ValueError(f"this command {line}")


def lacking(packages: Iterable[str]) -> str | None:
    """What is not installed of these packages, and the extra that brings all of it; None if nothing lacks."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return lacking_line(missing) if missing else None


def lacking_line(missing: Sequence[str]) -> str:
    """The line that names missing packages and the smallest extra that brings all of them.

    >>> lacking_line(["torch", "matplotlib"])
    'needs torch and matplotlib, not installed here; try pip install "ggdp[reproduce]"'
    """
    wanted = {package.partition(".")[0] for package in missing}
    bringing = [name for name, brought in EXTRAS.items() if wanted <= brought]
    if bringing:
        extra = min(bringing, key=lambda name: len(EXTRAS[name]))
    else:  # no extra brings all of them, or none any
        extra = ",".join(name for name, brought in EXTRAS.items() if wanted & brought and name != "reproduce")
    tried = f'"ggdp[{extra}]"' if extra else " ".join(sorted(wanted))
    return f"needs {' and '.join(missing)}, not installed here; try pip install {tried}"


def refuse(line: str, *, code: int = 2) -> int:
    """Print one line on stderr, where that can be written, and return the exit status."""
    try:
        if sys.stderr is not None:
            print(f"ggdp: {line}", file=sys.stderr, flush=True)
    except OSError:  # the status still tells; Python must not write again what is left, when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def sentence(error: BaseException) -> str:
    """An exception as one line for people.

    Usage errors are told apart by `format_message`, because the class they derive from has moved between
    versions of typer.
    """
    if isinstance(error, OSError) and error.filename is not None:
        text = f"cannot use file {error.filename!r}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror is not None:  # of a stream, as a full disk is
        text = error.strerror
    elif isinstance(error, ModuleNotFoundError):
        text = f"this command {lacking_line([str(error.name)])}"
    elif isinstance(error, MemoryError):
        text = "there is not enough memory for this"
    elif hasattr(error, "format_message"):
        # Our own parsers name the option themselves; the toolkit's messages do not.
        own = str(getattr(error, "message", ""))
        text = own if own.startswith("--") else _of_toolkit(error, str(error.format_message()))
    else:
        text = str(error) or type(error).__name__
    # A name of a file may hold what a terminal obeys.
    return "".join(
        letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split())
    )


def _of_toolkit(error: BaseException, text: str) -> str:
    """A usage error of the toolkit in our form, with the way out."""
    choice = re.fullmatch(
        r"Invalid value for '(--[\w-]+)': (?:Value error, )?(.*) is not one of (.*?)\.?", text
    )
    if choice is not None:
        return f"{choice[1]} must be one of {choice[3].replace(chr(39), '')}, got {choice[2]}"
    command = getattr(getattr(error, "ctx", None), "command_path", "ggdp")
    return f"{text.rstrip('.')}; {command} --help says what there is"


def in_options(line: str, options: Mapping[str, str], given: Collection[str]) -> str:
    """A line of the library in the words of the command line: options, where it names Python arguments.

    Args:
        line: what the library says.
        options: the option of each argument of the library.
        given: the options that have a value, given or their default; an argument that follows from others is
            told in plain words.

    >>> names = {"scale": "--scale", "noise_multiplier": "--noise-multiplier", "resume": "--resume"}
    >>> in_options("scale must be small; pass resume=True", names, ["--scale"])
    '--scale must be small; pass --resume'
    >>> in_options("noise_multiplier must be small", names, ["--scale"])
    'the noise multiplier must be small'
    >>> in_options("scale must be given", names, [])
    '--scale must be given'
    >>> in_options("--sampling must fit: sample_size must be 1", names, [])
    '--sampling must fit: the sample size must be 1'
    """

    def subject(match: re.Match[str]) -> str:
        option = options.get(match[1])
        if option in given or (option is not None and f"{match[1]} must be given" in line):
            return str(option)
        return f"the {match[1].replace('_', ' ')}" if "_" in match[1] else match[0]

    def option(match: re.Match[str]) -> str:
        return options.get(match[1], match[0])

    line = re.sub(r"^(\w+)(?= must | = )", subject, line)
    line = re.sub(r"(?<=: )(\w+_\w+)(?= must )", lambda match: f"the {match[0].replace('_', ' ')}", line)
    line = re.sub(r"(?<![\w-])(\w+)=True\b", option, line)
    line = re.sub(
        r"(?<![\w/.'-])(\w+)=[\"']?(\w[\w.-]*)[\"']?",
        lambda match: f"{options[match[1]]} {match[2]}" if match[1] in options else match[0],
        line,
    )
    line = re.sub(r"\bgot None\b", "got none", line)  # an option that was left out
    return re.sub(r"(?<![\w/.'-])([a-z]+(?:_[a-z]+)+)(?![\w/.'])", option, line)  # no part of a path
