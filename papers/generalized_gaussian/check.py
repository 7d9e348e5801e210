# SPDX-License-Identifier: Apache-2.0
"""Compare records with `expected/`; status 1 if a record or a number is missing or off by its tolerance.

    python papers/generalized_gaussian/check.py [DIR [FIGURE]...]

DIR holds records of full runs, as `ggdp reproduce` writes them; the committed ones if left out. All figures
that `expected/` has are compared, or only those named, such as fig1 fig2.
"""

import json
import sys
from pathlib import Path

from ggdp.reproduction.catalogue import NAMES
from ggdp.reproduction.expected import differences
from ggdp.reproduction.record_file import read_record

HERE = Path(__file__).parent
FIGURES = tuple(name for name in NAMES if (HERE / "expected" / f"{name}.json").is_file())


def compared(name: str, folder: Path) -> list[str]:
    """A line for each thing that is wrong with a figure's record."""
    path = folder / f"{name}.json"
    if not path.is_file():
        return [f"no record in {str(folder)!r}; make it by `ggdp reproduce {name} --out DIR`"]
    try:
        record = read_record(path)
    except ValueError as error:
        return [str(error)]
    if record["quick"]:
        return ["the record is of a quick run; make it without --quick, with another --out"]
    expected = json.loads((HERE / "expected" / f"{name}.json").read_text())
    wrong = differences(record["headline"], expected)
    print(f"{name}: {len(expected) - len(wrong)} of {len(expected)} numbers as expected")
    return wrong


def main() -> None:
    folder, *names = [Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "records", *sys.argv[2:]]
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.exit(f"figure must be one of {', '.join(FIGURES)}, got {', '.join(unknown)}")
    if not folder.is_dir():
        sys.exit(f"DIR must be a folder with records, got {str(folder)!r}")
    wrong = [f"{name}: {line}" for name in names or FIGURES for line in compared(name, folder)]
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
