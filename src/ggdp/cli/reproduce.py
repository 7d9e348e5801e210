# SPDX-License-Identifier: Apache-2.0
"""`ggdp reproduce`: the paper's figures and tables from the library's own functions, with one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ggdp import version
from ggdp.atomic_file import write_atomically
from ggdp.cli import options
from ggdp.reproduction.backends import BackendName, Workers
from ggdp.reproduction.catalogue import NAMES, chosen, experiment_named

if TYPE_CHECKING:
    from ggdp.reproduction.reproduce import Place, Skipped

Figures = Annotated[
    list[str] | None, typer.Argument(help=f"all, or some of {', '.join(NAMES)}.", metavar="[FIGURE]...")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="The folder of the published data (pate/, adult/, ...).")
]
Quick = Annotated[bool, typer.Option("--quick", help="Small settings: minutes on two cores.")]
Out = Annotated[Path, typer.Option("--out", help="The folder for index.html, records and pictures.")]
Backend = Annotated[BackendName, typer.Option("--backend", help="Where the cells of a sweep run.")]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        help="How many workers, in [1, 1024].",
        parser=options.whole("--jobs", least=1, most=1024),
        metavar="WHOLE",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Address of a running Dask scheduler or Ray cluster; else one is started."
    ),
]


def reproduce(
    figures: Figures = None,
    data: Data = None,
    quick: Quick = False,
    out: Out = Path("reproduction"),
    backend: Backend = BackendName.LOKY,
    jobs: Jobs = 2,
    cluster: Cluster = None,
) -> None:
    """Make figures of the paper again and say, statement by statement, whether we agree.

    Every finished cell of a sweep is kept in --out: stopped and started again, the command goes on where it
    was. A figure whose data are not there is skipped, and the line says what to pass. One whose cells fail is
    told, the others are made, and the exit status is 1.
    Needs joblib and matplotlib: pip install 'ggdp[plot,pate]'.

    Example: ggdp reproduce fig1 fig2 --quick --out reproduction
    """
    import joblib  # noqa: F401  before any work, so that its absence is told at once
    import matplotlib  # noqa: F401

    from ggdp.reproduction.reproduce import Place, Skipped
    from ggdp.reproduction.sweep import SweepError

    wanted = chosen(figures or [])
    workers = Workers(backend, jobs, cluster)
    if data is not None and not data.is_dir():
        raise ValueError(f"--data must be a folder, got {str(data)!r}")
    out.mkdir(parents=True, exist_ok=True)
    place = Place(out, None if data is None else data.resolve())  # as workers elsewhere see it
    skipped: dict[str, str] = {}
    num_failed = 0
    for experiment in wanted:
        try:
            found = _with_progress_bar(experiment.name, place, workers, quick)
        except SweepError as error:  # the other figures are worth having
            found = Skipped(experiment.name, str(error))
            num_failed += 1
        if isinstance(found, Skipped):
            skipped[found.name] = found.why
            typer.echo(f"{found.name}: skipped, {found.why}")
        else:
            for finding in found["findings"]:
                typer.echo(f"{experiment.name}: {finding['agreement']}: {finding['found']}")
    write_atomically(out / "index.html", _index(place, skipped))
    typer.echo(f"Wrote {out / 'index.html'}")
    if num_failed:
        raise typer.Exit(1)


def _with_progress_bar(
    name: str, place: "Place", workers: Workers, quick: bool
) -> "dict[str, Any] | Skipped":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ggdp.reproduction.reproduce import reproduce as reproduce_one

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=None)

        def tell(finished: int, total: int) -> None:
            progress.update(task, completed=finished, total=total)

        return reproduce_one(experiment_named(name), place, workers=workers, quick=quick, on_progress=tell)


def _index(place: "Place", skipped: dict[str, str]) -> str:
    """The page of all records in the folder, those of earlier runs included."""
    from ggdp.reproduction.index_page import index_page
    from ggdp.reproduction.record import read_record

    records = [read_record(place.record(name)) for name in NAMES if place.record(name).is_file()]
    return index_page(records, skipped, version())
