# SPDX-License-Identifier: Apache-2.0
"""The record of one figure: its settings, where every number came from, and what it says to the paper.

`made_record` makes it from finished cells. `read_record` reads it from a file, which may be of an earlier
version or of someone else. `measured` gives a record of a run that needs a GPU, kept with the package.
`differences` holds its main numbers against what is expected of them.
"""

import json
import math
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from ggdp import __version__
from ggdp_paper.experiment import Agreement, Experiment, Finding, Settings

_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "joblib", "matplotlib")


def made_record(
    experiment: Experiment,
    settings: Settings,
    cell_records: Sequence[Mapping[str, Any] | None],
    *,
    quick: bool,
    on_gpu: bool,
    num_reused: int,
    wall_seconds: float,
) -> dict[str, Any]:
    """Plain data with everything that the page and the check need.

    Args:
        experiment: the figure.
        settings: of the run.
        cell_records: one for each cell, None where it was left out.
        quick: whether the settings are smaller than those of the full run.
        on_gpu: whether some cell needs a GPU, which is then named.
        num_reused: how many cells were finished before.
        wall_seconds: what this run took.
    """
    ran = [record for record in cell_records if record is not None]
    numbers = experiment.numbers(settings, [record["result"] for record in ran])
    findings = experiment.findings(settings, numbers)
    return {
        "figure": experiment.name,
        "title": experiment.config.title,
        "quick": quick,
        "config": dict(settings),
        "seeds": _seeds(ran),
        "versions": versions(on_gpu=on_gpu),
        "seconds": {
            "wall": round(wall_seconds, 2),
            "in cells": round(sum(record["seconds"] for record in ran), 2),
            "cells": len(cell_records),
            "cells read from earlier runs": num_reused,
        },
        "numbers": numbers,
        "headline": experiment.headline(numbers),
        "findings": _answered(experiment, findings),
        "pictures": list(experiment.pictures(settings, numbers)),
    }


def _seeds(ran: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The entropy of each cell, by the settings that tell it from the other cells, eight words of 32 bits."""
    return {_told(record, ran): " ".join(f"{word:08x}" for word in record["entropy"]) for record in ran}


def _told(record: Mapping[str, Any], ran: Sequence[Mapping[str, Any]]) -> str:
    differing = {"task": record["task"].partition(":")[2]} if len({one["task"] for one in ran}) > 1 else {}
    differing |= {
        name: value
        for name, value in record["config"].items()
        if any(other["config"].get(name) != value for other in ran)
    }
    return ", ".join(f"{name} = {json.dumps(value)}" for name, value in differing.items())


def record_read(kept: Mapping[str, Any], name: str, why: str) -> dict[str, Any]:
    """The record that is kept under this name, as it is: its own settings, versions, seeds, time; and a note.

    Args:
        kept: a whole record of an earlier run.
        name: under which `measured` has it.
        why: nothing was run.
    """
    note = (
        "Read from the record of a run on a GPU that is kept with the package; this command trained nothing, "
        f"since {why}."
    )
    numbers = {**kept["numbers"], "notes": [note, *kept["numbers"].get("notes", [])]}
    return {**kept, "read from": name, "numbers": numbers}


def versions(*, on_gpu: bool) -> dict[str, str]:
    """What the numbers were made with; packages that are not installed are left out."""
    found = {"ggdp": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**found, **(_gpu() if on_gpu else {})}


def _gpu() -> dict[str, str]:
    try:
        import torch
    except ModuleNotFoundError:
        return {}
    return {"GPU": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}


def _answered(experiment: Experiment, findings: Mapping[str, Finding]) -> list[dict[str, str]]:
    statements = experiment.config.statements
    strangers = set(findings) ^ set(statements)
    if strangers:
        raise ValueError(f"{experiment.name}: statements without finding or the reverse: {sorted(strangers)}")
    answers = []
    for key, finding in findings.items():
        answer = {"says": statements[key].says, "found": finding.found, "agreement": str(finding.agreement)}
        if finding.agreement != "agrees" and statements[key].because:
            answer["because"] = statements[key].because
        answers.append(answer)
    return answers


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


def differences(found: Mapping[str, float], expected: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A line for each number that is missing or farther from its `value` than its `tolerance`.

    >>> one = {"value": 1.1, "tolerance": 0.2}
    >>> differences({"a": 1.0, "b": 2.0}, {"a": one, "c": one})
    ['c is missing']
    """
    wrong = []
    for name, entry in expected.items():
        value = found.get(name, math.nan)
        if math.isnan(value):
            wrong.append(f"{name} is missing")
        elif not abs(value - entry["value"]) <= entry["tolerance"]:
            wrong.append(f"{name} is {value:.6g}, expected {entry['value']:.6g} +- {entry['tolerance']:g}")
    return wrong


def measured(name: str) -> dict[str, Any] | None:
    """The record of this name that is kept with the package, or None if there is none."""
    source = resources.files("ggdp_paper") / "measured" / f"{name}.json"
    if not source.is_file():
        return None
    found: dict[str, Any] = json.loads(source.read_text())
    return found
