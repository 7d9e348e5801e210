# SPDX-License-Identifier: Apache-2.0
"""Compare records with `expected/`; status 1 if a record or a number is missing or off by its tolerance.

    python papers/generalized_gaussian/check.py [DIR [FIGURE]...]

DIR holds records of full runs, as `ggdp reproduce` writes them; the committed ones if left out. All figures
that `expected/` has are compared, or only those named, such as fig1 fig2. The scripts beside this one, whose
results are no figures of `ggdp reproduce`, write and compare them by `write_record` and `compare`.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ggdp import __version__
from ggdp.atomic_file import write_atomically
from ggdp_paper.figures import NAMES, experiment_named
from ggdp_paper.record import differences, measured, read_record

HERE = Path(__file__).parent
RECORDS = HERE / "records"
FIGURES = tuple(name for name in NAMES if (HERE / "expected" / f"{name}.json").is_file())


def write_record(path: Path, config: dict[str, Any], results: Any, seconds: float) -> None:
    """The result of a script beside everything it came from."""
    made_by = {"ggdp": __version__, "numpy": np.__version__, "python": platform.python_version()}
    record = {"config": config, "results": results, "seconds": round(seconds, 1), "versions": made_by}
    write_atomically(path, json.dumps(record, indent=1) + "\n")


def compare(results: dict[str, float], expected_file: str) -> None:
    """Leave with status 1 if a number of a script is not what `expected/` says, within its tolerance."""
    for name, value in results.items():
        print(f"{name}: {value:.6f}")
    wrong = differences(results, json.loads((HERE / "expected" / expected_file).read_text()))
    if wrong:
        sys.exit("\n".join(["not as expected:", *wrong]))


def found(name: str, folder: Path) -> dict[str, Any]:
    """A figure's record in the folder; among the committed ones, those of a GPU are kept with the package."""
    experiment = experiment_named(name)
    kept = measured(experiment.config.settings["measured"]) if experiment.needs_record else None
    return kept if folder == RECORDS and kept is not None else read_record(folder / f"{name}.json")


def compared(name: str, folder: Path) -> list[str]:
    """A line for each thing that is wrong with a figure's record."""
    try:
        record = found(name, folder)
    except FileNotFoundError:
        return [f"no record in {str(folder)!r}; make it by `ggdp reproduce {name} --out DIR`"]
    except ValueError as error:
        return [str(error)]
    if record["quick"]:
        return ["the record is of a quick run; make it without --quick, with another --out"]
    expected = json.loads((HERE / "expected" / f"{name}.json").read_text())
    wrong = differences(record["headline"], expected)
    print(f"{name}: {len(expected) - len(wrong)} of {len(expected)} numbers as expected")
    return wrong


def main() -> None:
    folder, *names = [Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDS, *sys.argv[2:]]
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.exit(f"figure must be one of {', '.join(FIGURES)}, got {', '.join(unknown)}")
    if not folder.is_dir():
        sys.exit(f"DIR must be a folder with records, got {str(folder)!r}")
    wrong = [f"{name}: {line}" for name in names or FIGURES for line in compared(name, folder)]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
