# SPDX-License-Identifier: Apache-2.0
"""The record of one figure: its settings, where every number came from, and what it says to the paper."""

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ggdp import version
from ggdp.reproduction.experiment import Experiment, Finding, Settings

_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "joblib", "matplotlib")


def made_record(
    experiment: Experiment,
    settings: Settings,
    cell_records: Sequence[Mapping[str, Any] | None],
    *,
    quick: bool,
    num_reused: int,
    wall_seconds: float,
) -> dict[str, Any]:
    """Plain data with everything that the page and the check need."""
    ran = [record for record in cell_records if record is not None]
    numbers = experiment.numbers(settings, [record["result"] for record in ran])
    findings = experiment.findings(settings, numbers)
    return {
        "figure": experiment.name,
        "title": experiment.config.title,
        "quick": quick,
        "config": dict(settings),
        "seeds": _seeds(ran),
        "versions": versions(),
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


def versions() -> dict[str, str]:
    """What the numbers were made with; packages that are not installed are left out."""
    found = {"ggdp": version(), "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    torch = sys.modules.get("torch")  # where no figure needed it, nor do its numbers
    if torch is not None and torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
    return found


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


def read_record(path: Path) -> dict[str, Any]:
    """A record from its file."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
