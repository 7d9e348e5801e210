# SPDX-License-Identifier: Apache-2.0
"""`ggdp reproduce`: the paper's figures and tables from the library's own functions, with one command."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ggdp import __version__, arguments
from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp_paper.figures import NAMES, chosen, experiment_named
from ggdp_paper.workers import BackendName, ClusterError, Workers

if TYPE_CHECKING:
    from ggdp_paper.reproduce import Place, Skipped


def _backend(text: str) -> BackendName:
    try:
        arguments.one_of("--backend", str(text), tuple(map(str, BackendName)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return BackendName(text)


Figures = Annotated[
    list[str] | None, typer.Argument(help=f"all, or some of {', '.join(NAMES)}.", metavar="FIGURE")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="The folder of the published data (pate/, adult/, ...).", metavar="FOLDER"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small settings: minutes on two cores.")]
Out = Annotated[
    Path,
    typer.Option("--out", help="The folder for index.html, records and pictures.", metavar="FOLDER"),
]
Backend = Annotated[
    BackendName,
    typer.Option(
        "--backend",
        help=f"Where the cells of a sweep run: {', '.join(BackendName)}.",
        parser=_backend,
        metavar="NAME",
    ),
]
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
        "--cluster",
        help="Address of a running Dask scheduler or Ray cluster; else one is started.",
        metavar="ADDRESS",
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
    """Redo the figures and tables of the paper.

    Writes a page that says, statement by statement, whether the results agree with the paper.

    Finished parts are kept in --out: a command that was stopped and is started again goes on where it was. A
    figure whose data are not there is skipped, and a line says which option to pass. Training that needs a
    GPU is read from a kept record where there is no GPU, and a line says so. If a part of a figure fails, the
    others are still made, and the exit status is 1. A quick run never replaces a full one in --out.
    Figures have the paper's numbers: fig4 and those that begin with fig4_ are panels of its Figure 4, fig7
    makes Figures 7 and 8, fig9 makes Figures 9 to 16, and table1_rdp is the first row of Table 1. speed
    measures how long it takes to draw noise, accountants what other accountants say, and training_choices
    when to stop and how large batches should be.
    Needs joblib and matplotlib: pip install "ggdp[reproduce]".

    Example: ggdp reproduce fig1 fig2 --quick --out reproduction
    """
    package = {BackendName.DASK: "distributed", BackendName.RAY: "ray"}.get(backend)
    output.need("joblib", "matplotlib", package)

    from ggdp_paper.reproduce import Place, Skipped
    from ggdp_paper.sweep import SweepError

    wanted = chosen(figures or [])
    workers = _workers(backend, jobs, cluster)
    data = None if data is None else _data(data)
    place = Place(_folder(out), data)
    left_out: dict[str, str] = {}
    made: set[str] = set()
    num_failed = 0
    for experiment in wanted:
        try:
            found = _with_progress_bar(experiment.name, place, workers, quick)
        except ClusterError as error:
            raise ValueError(f"--{error}") from None
        except SweepError as error:  # the other figures are worth having
            found = Skipped(experiment.name, f"failed, {error}")
            num_failed += 1
            typer.echo(f"{found.name}: {found.why}")
        else:
            _tell(found)
        if isinstance(found, Skipped):
            left_out[found.name] = found.why
        else:
            made.add(experiment.name)
    write_atomically(out / "index.html", _index(place, left_out, made))
    typer.echo(f"Wrote {out / 'index.html'}")
    if num_failed:
        raise typer.Exit(1)


def _workers(backend: BackendName, jobs: int, cluster: str | None) -> Workers:
    try:
        return Workers(backend, jobs, cluster)
    except ValueError as error:  # in the words of the command line
        raise ValueError(f"--{error}".replace(" backend ", " --backend ")) from None


def _data(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(f"--data must be a folder, got {str(folder)!r}")
    return folder.resolve()  # as workers elsewhere see it


def _folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(
            f"--out must be a folder, or the name of a new one, got {str(out)!r}, where a file is in the way"
        ) from None
    except OSError as error:
        raise ValueError(
            f"--out must be a folder that can be made, got {str(out)!r}: {error.strerror}"
        ) from None
    return out


def _with_progress_bar(
    name: str, place: "Place", workers: Workers, quick: bool
) -> "dict[str, Any] | Skipped":
    from ggdp_paper.reproduce import reproduce as reproduce_one

    with contextlib.ExitStack() as shown:
        bar: list[Any] = []

        def tell(finished: int, total: int) -> None:
            if not bar:  # a figure without cells has no bar
                bar.append(shown.enter_context(output.progress(total, name)))
            bar[0](f"{name}: {finished}/{total}", completed=finished)

        return reproduce_one(experiment_named(name), place, workers=workers, quick=quick, on_progress=tell)


def _tell(found: "dict[str, Any] | Skipped") -> None:
    if not isinstance(found, dict):
        typer.echo(f"{found.name}: skipped, {found.why}")
        return
    if "read from" in found:
        typer.echo(f"{found['figure']}: {found['numbers']['notes'][0]}")
    for finding in found["findings"]:
        typer.echo(f"{found['figure']}: {finding['agreement']}: {finding['found']}")


def _index(place: "Place", left_out: dict[str, str], made: set[str]) -> str:
    """The page of all records in the folder, those of earlier runs included; what is no record is told."""
    from ggdp_paper.index_page import index_page
    from ggdp_paper.record import read_record

    records = []
    for name in NAMES:
        try:
            records.append(read_record(place.record(name)))
        except FileNotFoundError:
            continue
        except (ValueError, OSError) as error:
            why = output.sentence(error)
            typer.echo(f"{name}: left out of the page, {why}")
            left_out[name] = "; ".join([left_out[name], why] if name in left_out else [why])
    earlier = {record["figure"] for record in records} - made
    return index_page(records, left_out, __version__, earlier=earlier)
