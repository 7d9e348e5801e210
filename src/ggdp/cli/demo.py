# SPDX-License-Identifier: Apache-2.0
"""`ggdp demo`: a first report, on data that ships with the package."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ggdp import version
from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="The folder to write report.html and report.json to.",
        parser=options.new_folder("--out"),
        metavar="FOLDER",
    ),
]


def demo(out: Out = Path("demo-report")) -> None:
    """Calibrate, account, release and choose with three noises of equal privacy; write a report.

    Needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp demo --out demo-report
    """
    output.need("matplotlib")

    from ggdp.reporting import demo_page
    from ggdp.reporting.demo_study import NUM_PROGRESS_STEPS, Target, demo_study

    out.mkdir(parents=True, exist_ok=True)
    with output.progress(NUM_PROGRESS_STEPS) as tell:
        study = demo_study(Target(), on_progress=tell)
    write_atomically(out / "report.json", json.dumps(study.to_dict(), indent=1, allow_nan=False) + "\n")
    write_atomically(out / "report.html", demo_page.page(study, version()))
    target = study.target
    title = f"Noise of equal privacy: epsilon = {target.epsilon:g}, delta = {target.delta:g}"
    output.print_rows(title, demo_page.table_rows(study))
    typer.echo(demo_page.least_noise(study))
    typer.echo(f"Wrote {out / 'report.html'}")
