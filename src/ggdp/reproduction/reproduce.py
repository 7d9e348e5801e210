# SPDX-License-Identifier: Apache-2.0
"""Run one figure from its configuration to its record and pictures."""

import hashlib
import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggdp.atomic_file import write_atomically
from ggdp.reporting import canvas
from ggdp.reproduction.backends import Workers
from ggdp.reproduction.experiment import Experiment
from ggdp.reproduction.measured import measured
from ggdp.reproduction.record import made_record
from ggdp.reproduction.sweep import sweep

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Skipped:
    """A figure that was not made, and the line that says what it needs."""

    name: str
    why: str


@dataclass(frozen=True)
class Place:
    """Where data come from and results go."""

    out: Path
    data: Path | None = None

    def cells(self, experiment: Experiment) -> Path:
        """The folder of a figure's finished cells."""
        return self.out / "cells" / (experiment.kept_with or experiment.name)

    def record(self, name: str) -> Path:
        """A figure's record."""
        return self.out / f"{name}.json"


def reproduce(
    experiment: Experiment,
    place: Place,
    *,
    workers: Workers,
    quick: bool = False,
    on_progress: Progress = lambda finished, total: None,
) -> dict[str, Any] | Skipped:
    """Make the figure: its cells, its record, its pictures as PNG and SVG; or say why not.

    Settings of the figure, and digests of the data files it reads, go into every cell, so that a change of
    either starts new cells and leaves the old ones alone.
    """
    absent = [package for package in experiment.packages if importlib.util.find_spec(package) is None]
    if absent:
        return Skipped(experiment.name, f"needs {', '.join(absent)}, not installed here")
    settings = experiment.config.chosen(quick)
    files = experiment.files(settings)
    if files:
        missing = _missing(files, place.data)
        if missing is not None:
            return Skipped(experiment.name, missing)
        settings["data"] = {file: _digest(_found(place.data, file)) for file in files}
    start = time.perf_counter()
    cells = [] if experiment.needs_record and place.data is None else experiment.cells(settings)
    swept = sweep(cells, place.cells(experiment), workers=workers, data=place.data, on_progress=on_progress)
    whole = bool(cells) and swept.num_left_out == 0
    if not whole and not experiment.needs_record:
        return Skipped(experiment.name, "its cells need a CUDA device, and no worker has one")
    if not whole and measured(settings["measured"]) is None:
        return Skipped(
            experiment.name, f"no record {settings['measured']} of a GPU run is kept with this package"
        )
    record = made_record(
        experiment,
        settings,
        swept.records if whole else (),  # a part is no table: then all of it is read from the record
        quick=quick,
        num_reused=swept.num_reused,
        wall_seconds=time.perf_counter() - start,
    )
    write_atomically(place.record(experiment.name), json.dumps(record, indent=1, allow_nan=False) + "\n")
    draw(experiment, record, place.out)
    return record


def draw(experiment: Experiment, record: dict[str, Any], folder: Path) -> None:
    """Draw a record's pictures again; the record is all they need."""
    for name, figure in experiment.pictures(record["config"], record["numbers"]).items():
        write_atomically(folder / f"{name}.png", canvas.png(figure))
        write_atomically(folder / f"{name}.svg", canvas.svg(figure))


def _found(data: Path | None, file: str) -> Path:
    return (data or Path()) / file


def _missing(files: tuple[str, ...], data: Path | None) -> str | None:
    if data is None:
        return f"needs data: pass --data DIR, a folder with {', '.join(files)}"
    absent = [file for file in files if not (data / file).is_file()]
    return f"needs {', '.join(absent)} in the folder of --data" if absent else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
