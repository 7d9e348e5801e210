# SPDX-License-Identifier: Apache-2.0
"""How a script without a figure writes its result and compares it with what is expected."""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ggdp import version
from ggdp.atomic_file import write_atomically
from ggdp.reproduction.expected import differences

HERE = Path(__file__).parent


def write_record(path: Path, config: dict[str, Any], results: Any, seconds: float) -> None:
    """The result beside everything it came from."""
    made_by = {"ggdp": version(), "numpy": np.__version__, "python": platform.python_version()}
    record = {"config": config, "results": results, "seconds": round(seconds, 1), "versions": made_by}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def compare(results: dict[str, float], expected_file: str) -> None:
    """Leave with status 1 if a number is not what `expected/` says, within its tolerance."""
    for name, value in results.items():
        print(f"{name}: {value:.6f}")
    wrong = differences(results, json.loads((HERE / "expected" / expected_file).read_text()))
    if wrong:
        sys.exit("\n".join(["not as expected:", *wrong]))
