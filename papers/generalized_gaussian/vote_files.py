# SPDX-License-Identifier: Apache-2.0
"""Where the published vote histograms lie, and how a result is written and compared with what is expected."""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ggdp import version
from ggdp.reporting.atomic_file import write_atomically
from ggdp.selection.votes import Votes, read_labels, read_votes

HERE = Path(__file__).parent


def published_votes(folder: Path, name: str, num_queries: int | None) -> tuple[Votes, np.ndarray]:
    """Votes of 250 teachers and the true labels, the first queries of them."""
    votes = read_votes(folder / f"{name}_250_teachers.npz")
    votes = votes if num_queries is None else votes.first(num_queries)
    return votes, read_labels(folder / f"{name}_test_labels.npy", votes.num_queries)


def write_record(path: Path, config: dict[str, Any], results: Any, seconds: float) -> None:
    """The result beside everything it came from."""
    made_by = {"ggdp": version(), "numpy": np.__version__, "python": platform.python_version()}
    record = {"config": config, "results": results, "seconds": round(seconds, 1), "versions": made_by}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def compare(results: dict[str, float], expected_file: str) -> None:
    """Leave with status 1 if a number is not what `expected/` says, within its tolerance."""
    expected = json.loads((HERE / "expected" / expected_file).read_text())
    wrong = []
    for name, entry in expected.items():
        off = abs(results[name] - entry["value"])
        print(f"{name}: {results[name]:.6f}, expected {entry['value']:.6f} +- {entry['tolerance']:g}")
        if not off <= entry["tolerance"]:
            wrong.append(name)
    if wrong:
        sys.exit(f"not as expected: {', '.join(wrong)}")
