# SPDX-License-Identifier: Apache-2.0
"""`ggdp demo`: a first report, on data that ships with the package."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ggdp import version
from ggdp.atomic_file import write_atomically

if TYPE_CHECKING:
    from ggdp.reporting.demo_study import Study

Out = Annotated[Path, typer.Option("--out", help="The folder to write report.html and report.json to.")]


def demo(out: Out = Path("demo-report")) -> None:
    """Calibrate, account, release and choose with three noises of equal privacy; write a report.

    Needs matplotlib: pip install 'ggdp[plot]'.

    Example: ggdp demo --out demo-report
    """
    import matplotlib  # noqa: F401  before any work, so that its absence is told at once

    from ggdp.reporting import demo_page

    out.mkdir(parents=True, exist_ok=True)
    study = _with_progress_bar()
    write_atomically(out / "report.json", json.dumps({"ggdp": version(), **study.to_dict()}, indent=1))
    write_atomically(out / "report.html", demo_page.page(study, version()))
    _print_table(study)
    typer.echo(f"Wrote {out / 'report.html'}")


def _with_progress_bar() -> "Study":
    from rich.console import Console
    from rich.progress import Progress

    from ggdp.reporting.demo_study import NUM_PROGRESS_STEPS, Target, demo_study

    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=NUM_PROGRESS_STEPS)

        def tell(step: str) -> None:
            progress.update(task, description=step)
            progress.advance(task)

        return demo_study(Target(), on_progress=tell)


def _print_table(study: "Study") -> None:
    from rich.console import Console
    from rich.table import Table

    from ggdp.reporting import demo_page

    target = study.target
    table = Table(title=f"Noise of equal privacy: epsilon = {target.epsilon:g}, delta = {target.delta:g}")
    for column in demo_page.COLUMNS:
        table.add_column(column, justify="right")
    for row in demo_page.table_rows(study):
        table.add_row(*row)
    Console().print(table)
