# SPDX-License-Identifier: Apache-2.0
"""Read a record from its file, which may be of an earlier version, or of someone else."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ggdp.reproduction.experiment import Agreement

_KINDS: dict[str, type] = {
    "figure": str,
    "title": str,
    "quick": bool,
    "config": dict,
    "seeds": dict,
    "versions": dict,
    "seconds": dict,
    "numbers": dict,
    "headline": dict,
    "findings": list,
    "pictures": list,
}


def read_record(path: Path) -> dict[str, Any]:
    """A record from its file.

    Raises:
        ValueError: The file is not a record of the figure that it is named after.
        OSError: It cannot be read.
    """
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise _stranger(path, "it is not JSON") from None
    if not isinstance(found, dict):
        raise _stranger(path, "it is not one JSON object")
    wrong = [key for key, kind in _KINDS.items() if not isinstance(found.get(key), kind)]
    if not wrong:
        wrong = [key for key, holds in _insides(found).items() if not holds]
    if wrong:
        raise _stranger(path, f"wrong or missing: {', '.join(wrong)}")
    if found["figure"] != path.stem:
        raise _stranger(path, f"it is of {found['figure']!r}")
    return found


def _insides(record: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each part has what the page shows of it."""
    notes = record["numbers"].get("notes", [])
    return {
        "seconds": all(isinstance(record["seconds"].get(key), (int, float)) for key in ("cells", "in cells")),
        "numbers": isinstance(notes, list) and all(isinstance(note, str) for note in notes),
        "findings": bool(record["findings"]) and all(map(_is_answer, record["findings"])),
        "pictures": all(map(_is_file_beside, record["pictures"])),
    }


def _is_file_beside(picture: object) -> bool:
    """Whether it is the plain name of a file: the page links to it, and must not lead anywhere else."""
    return isinstance(picture, str) and re.fullmatch(r"[A-Za-z0-9_-]+", picture) is not None


def _is_answer(finding: object) -> bool:
    return (
        isinstance(finding, dict)
        and {"says", "found", "agreement"} <= set(finding)
        and all(isinstance(text, str) for text in finding.values())
        and finding["agreement"] in set(Agreement)
    )


def _stranger(path: Path, why: str) -> ValueError:
    return ValueError(f"{str(path)!r} must be a record of `ggdp reproduce`: {why}; move it, or make it anew")
