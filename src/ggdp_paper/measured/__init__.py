# SPDX-License-Identifier: Apache-2.0
"""Records of runs that need a machine with a GPU, kept with the package; each says what it was made with."""

import json
from importlib import resources
from typing import Any


def measured(name: str) -> dict[str, Any] | None:
    """The record of this name, or None if there is none."""
    source = resources.files(__name__) / f"{name}.json"
    if not source.is_file():
        return None
    found: dict[str, Any] = json.loads(source.read_text())
    return found
