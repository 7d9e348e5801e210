# SPDX-License-Identifier: Apache-2.0
"""Compare records with `expected/`; status 1 if a number is missing or off by more than its tolerance.

    python papers/generalized_gaussian/check.py [DIR]

DIR holds records of full runs, as `ggdp reproduce` writes them; the committed ones if left out.
"""

import json
import sys
from pathlib import Path

from ggdp.reproduction.expected import differences

HERE = Path(__file__).parent


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "records"
    wrong, num_checked = [], 0
    for path in sorted(folder.glob("*.json")):
        record, expected = json.loads(path.read_text()), HERE / "expected" / path.name
        if "headline" not in record or record["quick"] or not expected.exists():
            print(f"{path.stem}: nothing to compare")
            continue
        entries = json.loads(expected.read_text())
        found = differences(record["headline"], entries)
        num_checked += len(entries)
        print(f"{path.stem}: {len(entries) - len(found)} of {len(entries)} numbers as expected")
        wrong += [f"{path.stem}: {line}" for line in found]
    sys.exit("\n".join(wrong) if wrong or not num_checked else 0)


if __name__ == "__main__":
    main()
