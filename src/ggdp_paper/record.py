# SPDX-License-Identifier: Apache-2.0
"""The record of one figure: its settings, where every number came from, and what it says to the paper."""

import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
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
    found = {"ggdp": version(), "python": platform.python_version()}
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
