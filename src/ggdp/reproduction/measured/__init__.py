# SPDX-License-Identifier: Apache-2.0
"""Records of runs that need a machine with a GPU, kept with the package; each says what it was made with."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any


def measured(name: str) -> dict[str, Any] | None:
    """The record of this name, or None if there is none."""
    source = resources.files(__name__) / f"{name}.json"
    if not source.is_file():
        return None
    found: dict[str, Any] = json.loads(source.read_text())
    return found


def measured_numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the record that the settings name, with a note that says so.

    The record is that of a run, as `ggdp reproduce` writes it.
    """
    record = measured(settings["measured"])
    if record is None:
        raise ValueError(f"no record {settings['measured']} is kept with this package")
    made_with = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
    note = (
        "Read from the record of a run on a GPU that is kept with the package; this command trained nothing. "
        f"With a GPU and --data, it does. That run had {made_with}."
    )
    return {**record["numbers"], "notes": [note, *record["numbers"]["notes"]]}
