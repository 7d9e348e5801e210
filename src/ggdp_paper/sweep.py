# SPDX-License-Identifier: Apache-2.0
"""Run cells, keep each as it ends, and go on where an earlier run was stopped."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggdp.reproduction.backends import Crew, Workers, crew
from ggdp.reproduction.cell import Cell
from ggdp.reproduction.cell_store import CellStore


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
