# SPDX-License-Identifier: Apache-2.0
"""A sweep: cells that are run, kept as they end, and found again by the run that goes on.

A cell is a function and its settings, plain data, and nothing else decides its result. A `CellStore` keeps
finished cells in a folder, one file each. `sweep` runs those that are not there yet.
"""

import functools
import hashlib
import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ggdp import __version__
from ggdp.atomic_file import write_atomically
from ggdp_paper.workers import Crew, Workers, crew

Task = Callable[[Mapping[str, Any], "Surroundings"], Mapping[str, Any]]


@dataclass(frozen=True)
class Surroundings:
    """What a cell finds where it runs; nothing of it may change the result but by way of the seed.

    Attributes:
        seed: from the cell's own settings, never from the order in which cells run.
        data: the folder of the published data, where one was given.
    """

    seed: np.random.SeedSequence
    data: Path | None = None

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator, always the same."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Cell:
    """A function by its address and its settings.

    Attributes:
        task: "module:function"; it takes the settings and the `Surroundings` and returns plain data.
        config: settings that JSON can hold.
        needs_gpu: the cell runs only where there is a CUDA device. No part of its identity.
        seeded_as: the address that the function had when records were made with it, if it has moved since.
            The seeds come from this address, so that those records can be repeated to the last digit.

    >>> Cell("module:square", {"x": 3, "y": 1}).digest == Cell("module:square", {"y": 1, "x": 3}).digest
    True
    """

    task: str
    config: Mapping[str, Any]
    needs_gpu: bool = field(default=False, compare=False)
    seeded_as: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the task and the settings, in hexadecimal; independent of the order of the settings."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def entropy(self) -> tuple[int, ...]:
        """The digest as eight words of 32 bits, from which every random number of the cell comes."""
        return tuple(int(self.digest[place : place + 8], 16) for place in range(0, 64, 8))

    def to_dict(self) -> dict[str, Any]:
        """What identifies the cell."""
        return {"task": self.seeded_as or self.task, "config": dict(self.config)}

    def result(self, data: Path | None = None) -> dict[str, Any]:
        """Run the function here and now; what it returns, as JSON would give it back."""
        found = _function(self.task)(self.config, Surroundings(np.random.SeedSequence(self.entropy), data))
        plain: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
        return plain


def _function(address: str) -> Task:
    module, _, name = address.partition(":")
    task: Task = getattr(importlib.import_module(module), name)
    return task


_NAME_LENGTH = 20  # hexadecimal digits of the digest: 80 bits, and the file holds the cell itself as well


@dataclass(frozen=True)
class CellStore:
    """The results of a sweep, kept where a later run finds them.

    Guarantees:
        1. A file is a finished cell: it appears by one rename.
        2. A file is used only for the very cell it was written for, by the same version of ggdp; any other,
           and any that cannot be read or whose result is not the one that was written, counts as not there.
    """

    folder: Path

    def path(self, cell: Cell) -> Path:
        """Where this cell's result is or will be."""
        return self.folder / f"{cell.digest[:_NAME_LENGTH]}.json"

    def make_folder(self) -> None:
        """Make the folder, or refuse: better before any work than after the first cell."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ValueError(
                f"{str(self.folder)!r} must be a folder, for finished cells, and a file is in its way; "
                "move the file, or give another --out"
            ) from None

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """The cell's record, or None if it has not been finished."""
        try:
            record = json.loads(self.path(cell).read_text())
        except (OSError, ValueError, RecursionError):
            return None
        identity = {**cell.to_dict(), "ggdp": __version__}
        if not isinstance(record, dict) or "result" not in record:
            return None
        if record.get("digest", _digest(record["result"])) != _digest(record["result"]):
            return None
        return record if {name: record.get(name) for name in identity} == identity else None

    def write(self, cell: Cell, result: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Keep a result; returns the record as `read` will."""
        self.make_folder()
        record = {
            **cell.to_dict(),
            "ggdp": __version__,
            "entropy": list(cell.entropy),
            "seconds": round(seconds, 3),
            "digest": _digest(result),
            "result": result,
        }
        write_atomically(self.path(cell), json.dumps(record, indent=1, allow_nan=False) + "\n")
        return record


def _digest(result: Any) -> str:
    text = json.dumps(json.loads(json.dumps(result)), sort_keys=True)  # with names as the file has them
    return hashlib.sha256(text.encode()).hexdigest()[:_NAME_LENGTH]


class SweepError(ValueError):
    """Some cells failed or their workers were lost; the others are kept and will not be run again."""


@dataclass(frozen=True)
class Swept:
    """A finished sweep.

    Attributes:
        records: one for each cell, in the order of the cells; None where the cell was left out.
        num_reused: how many were finished before.
        num_left_out: how many need a GPU that is not there.
    """

    records: tuple[dict[str, Any] | None, ...]
    num_reused: int
    num_left_out: int

    @property
    def results(self) -> list[dict[str, Any]]:
        """The results of the cells that ran, in the order of the cells."""
        return [record["result"] for record in self.records if record is not None]


@dataclass(frozen=True)
class _Outcome:
    place: int
    seconds: float
    result: dict[str, Any] | None
    error: str = ""


def sweep(
    cells: Sequence[Cell],
    folder: Path,
    *,
    workers: Workers,
    data: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda finished, total: None,
) -> Swept:
    """The result of every cell: read where it is there already, else computed and written as it ends.

    Guarantees:
        1. Killed at any moment and started again, it ends with the numbers of a run that was not killed:
           a cell's result depends on its settings alone, and its file appears whole.
        2. A cell that fails does not stop the others.

    Args:
        cells: what to run; no two alike.
        folder: where results are kept, one file for each cell.
        workers: where to run.
        data: the folder of the published data, as the workers see it.
        on_progress: hears how many cells are finished, and of how many.

    Raises:
        SweepError: Some cell failed. All others have been run and kept.
    """
    store = CellStore(folder)
    kept = {place: record for place, cell in enumerate(cells) if (record := store.read(cell)) is not None}
    num_reused = len(kept)
    on_progress(num_reused, len(cells))
    open_places = [place for place in range(len(cells)) if place not in kept]
    left_out: list[int] = []
    if open_places:
        store.make_folder()
        with crew(workers, with_gpu=any(cells[place].needs_gpu for place in open_places)) as ready:
            if not ready.has_gpu:
                left_out = [place for place in open_places if cells[place].needs_gpu]
            errors: list[str] = []
            for outcome in _outcomes(ready, cells, [p for p in open_places if p not in left_out], data):
                if outcome.result is None:
                    errors.append(outcome.error)
                    continue
                kept[outcome.place] = store.write(cells[outcome.place], outcome.result, outcome.seconds)
                on_progress(len(kept), len(cells))
        if errors:
            raise SweepError(f"{len(errors)} of {len(cells)} cells failed, the first with {errors[0]}")
    return Swept(tuple(kept.get(place) for place in range(len(cells))), num_reused, len(left_out))


def _outcomes(
    ready: Crew, cells: Sequence[Cell], places: Sequence[int], data: Path | None
) -> Iterable[_Outcome]:
    for gpu in (False, True):
        calls = [(place, cells[place], data) for place in places if cells[place].needs_gpu is gpu]
        if not calls:
            continue
        done: set[int] = set()
        try:
            for outcome in ready.results(_outcome, calls, gpu=gpu):
                done.add(outcome.place)
                yield outcome
        except Exception as error:  # of the workers: the cells' own are outcomes
            raise SweepError(
                f"the workers were lost after {len(done)} of {len(calls)} cells, which are kept "
                f"({type(error).__name__}: {str(error).partition(chr(10))[0]}); start again to go on"
            ) from error


def _outcome(place: int, cell: Cell, data: Path | None) -> _Outcome:
    start = time.perf_counter()
    try:
        result = cell.result(data)
    except Exception as error:
        return _Outcome(place, time.perf_counter() - start, None, f"{type(error).__name__}: {error}")
    return _Outcome(place, time.perf_counter() - start, result)
