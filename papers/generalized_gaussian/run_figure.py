# SPDX-License-Identifier: Apache-2.0
"""What the scripts of single figures share: run, write, compare with `expected/`."""

import argparse
import json
import sys
from pathlib import Path

from ggdp.reproduction.backends import Workers
from ggdp.reproduction.catalogue import experiment_named
from ggdp.reproduction.expected import differences
from ggdp.reproduction.reproduce import Place, Skipped, reproduce

EXPECTED = Path(__file__).parent / "expected"


def run_figure(name: str, about: str | None) -> None:
    """Make the figure of this name; leave with status 1 if a number of the full run is not as expected."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the record and the pictures")
    parser.add_argument("--data", type=Path, help="folder of the published data")
    parser.add_argument("--quick", action="store_true", help="small settings; nothing is compared")
    parser.add_argument("--jobs", type=int, default=2, help="processes, at least 1")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs must be a whole number >= 1, got {options.jobs}")
    if options.out.exists() and not options.out.is_dir():
        parser.error(f"--out must be a folder, or the name of a new one, got the file {str(options.out)!r}")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"--data must be a folder, got {str(options.data)!r}")
    try:
        record = reproduce(
            experiment_named(name),
            Place(options.out, options.data),
            workers=Workers("loky", options.jobs),
            quick=options.quick,
            on_progress=lambda finished, total: print(f"\r{finished} of {total} cells", end="", flush=True),
        )
    except (ValueError, OSError) as error:
        sys.exit(f"\n{name} was not made: {error}")
    print()
    if isinstance(record, Skipped):
        sys.exit(f"{name} was not made: {record.why}")
    if "read from" in record:
        print(record["numbers"]["notes"][0])
    for finding in record["findings"]:
        print(f"{finding['agreement']}: {finding['found']}")
    expected = EXPECTED / f"{name}.json"
    if record["quick"] or not expected.exists():
        return
    wrong = differences(record["headline"], json.loads(expected.read_text()))
    sys.exit("\n".join(["not as expected:", *wrong]) if wrong else 0)
