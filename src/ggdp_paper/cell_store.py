# SPDX-License-Identifier: Apache-2.0
"""Finished cells in a folder, one file each, written whole or not at all."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggdp import version
from ggdp.atomic_file import write_atomically
from ggdp.reproduction.cell import Cell

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
        identity = {**cell.to_dict(), "ggdp": version()}
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
            "ggdp": version(),
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
