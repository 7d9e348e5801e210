# SPDX-License-Identifier: Apache-2.0
"""Run one figure from its configuration and its published data to its record and pictures."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggdp.atomic_file import write_atomically
from ggdp.cli.output import lacking
from ggdp.reporting import canvas
from ggdp_paper.experiment import Experiment
from ggdp_paper.record import made_record, measured, read_record, record_read
from ggdp_paper.sweep import sweep
from ggdp_paper.workers import Workers

Progress = Callable[[int, int], None]

_DATA_NAME_LENGTH = 12  # hexadecimal digits of a digest in the name of a folder


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

    def cells(self, experiment: Experiment, data_digest: str = "") -> Path:
        """The folder of a figure's finished cells; where cells do not say what data they read, it does."""
        folder = self.out / "cells" / (experiment.kept_with or experiment.name)
        return folder / data_digest[:_DATA_NAME_LENGTH]

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

    Guarantees:
        1. Cells of other settings or other data are not used: the settings, with digests of the data files,
           are the cell's own; digests of data folders name the folder of the cells.
        2. A record of a full run is not replaced by one of a quick run, nor by one that was only read.
    """
    settings = experiment.config.chosen(quick)
    is_smaller = quick and experiment.config.has_quick_run
    files = experiment.files(settings)
    why = lacking(experiment.packages) or missing_files(files, place.data)
    if why is None and is_smaller and _holds_a_full_run(place, experiment):
        why = f"a quick run would replace the full one of {_shown(place, experiment)}; give another --out"
    if why is not None:
        return Skipped(experiment.name, why)
    if place.data is not None and files:
        settings["data"] = {file: file_digest(place.data / file) for file in files}
    found = _computed(experiment, settings, place, workers, is_smaller, on_progress)
    record = _read(experiment, place, why=found) if isinstance(found, str) else found
    if isinstance(record, Skipped):
        return record
    place.out.mkdir(parents=True, exist_ok=True)
    write_atomically(place.record(experiment.name), json.dumps(record, indent=1, allow_nan=False) + "\n")
    draw(experiment, record, place.out)
    return record


def _computed(
    experiment: Experiment,
    settings: dict[str, Any],
    place: Place,
    workers: Workers,
    quick: bool,
    on_progress: Progress,
) -> dict[str, Any] | str:
    """The record of a run, or why there can be none."""
    start = time.perf_counter()
    cells = experiment.cells(settings)
    if not cells:
        return f"a quick run leaves its training out; without --quick it needs {_needs(experiment)}"
    found = _data_digests(experiment, place, workers)
    if isinstance(found, str):
        return found
    folder = place.cells(experiment, *found.values())
    swept = sweep(cells, folder, workers=workers, data=place.data, on_progress=on_progress)
    if swept.num_left_out:  # a part is no table
        return f"{swept.num_left_out} of its {len(cells)} cells need a CUDA device, and no worker has one"
    record = made_record(
        experiment,
        settings,
        swept.records,
        quick=quick,
        on_gpu=any(cell.needs_gpu for cell in cells),
        num_reused=swept.num_reused,
        wall_seconds=time.perf_counter() - start,
    )
    return {**record, "data": found} if found else record


def _data_digests(experiment: Experiment, place: Place, workers: Workers) -> dict[str, str] | str:
    """The digest of the data folder that the cells read, by its name, or why no cell could be run or read."""
    if not experiment.folders:
        return {}
    if place.data is None:
        return f"it needs {_needs(experiment)}"
    folder = first_folder(experiment.folders, place.data)
    if folder is None:
        return f"it needs {' or '.join(experiment.folders)} in the folder of --data, which has none"
    if not place.cells(experiment).is_dir() and not workers.may_have_gpu:
        return "its cells need a CUDA device, and no worker has one"
    return {folder.name: folder_digest(folder)}


def _needs(experiment: Experiment) -> str:
    data = " or ".join(experiment.folders) or " and ".join(experiment.files(experiment.config.settings))
    return f"a GPU and --data DIR, a folder with {data}"


def _read(experiment: Experiment, place: Place, *, why: str) -> dict[str, Any] | Skipped:
    """The record that is kept with the package, where the figure has one."""
    if not experiment.needs_record:
        return Skipped(experiment.name, why)
    name = experiment.config.settings["measured"]
    kept = measured(name)
    if kept is None:
        return Skipped(experiment.name, f"{why}; and no record {name} of a GPU run is kept with this package")
    if _holds_a_full_run(place, experiment):
        return Skipped(
            experiment.name,
            f"{why}; and the record kept with the package would replace the run of "
            f"{_shown(place, experiment)}: give another --out",
        )
    return record_read(kept, name, why)


def _holds_a_full_run(place: Place, experiment: Experiment) -> bool:
    """Whether there is a record of a full run that was not just read."""
    try:
        record = read_record(place.record(experiment.name))
    except (OSError, ValueError):
        return False
    return not record["quick"] and "read from" not in record


def _shown(place: Place, experiment: Experiment) -> str:
    return repr(str(place.record(experiment.name)))


def draw(experiment: Experiment, record: dict[str, Any], folder: Path) -> None:
    """Draw a record's pictures again; the record is all they need."""
    for name, figure in experiment.pictures(record["config"], record["numbers"]).items():
        write_atomically(folder / f"{name}.png", canvas.png(figure))
        write_atomically(folder / f"{name}.svg", canvas.svg(figure))


def missing_files(files: tuple[str, ...], data: Path | None) -> str | None:
    """A line that says which files to pass; None if all are in the folder `data`."""
    if not files:
        return None
    if data is None:
        return f"needs data: pass --data DIR, a folder with {', '.join(files)}"
    absent = [file for file in files if not (data / file).is_file()]
    return f"needs {', '.join(absent)} in the folder of --data" if absent else None


def first_folder(folders: tuple[str, ...], data: Path) -> Path | None:
    """The first of these folders that is in the folder `data` and not empty."""
    return next((data / name for name in folders if _files_below(data / name)), None)


def file_digest(path: Path) -> str:
    """SHA-256 of the content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of all files below the folder, wherever the folder lies."""
    whole = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in _files_below(folder)):
        whole.update(f"{file_digest(path)} {name}\0".encode())
    return whole.hexdigest()


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
