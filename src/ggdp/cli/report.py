# SPDX-License-Identifier: Apache-2.0
"""`ggdp report`: the record of a run as one page that people can read."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp.cli.numbers_file import read_limited
from ggdp.reporting.pages import report_page
from ggdp.reporting.run_report import reports_of

Source = Annotated[
    Path,
    typer.Argument(
        help="What --json printed, of any command; or what train or demo wrote.", metavar="RECORD"
    ),
]
Html = Annotated[
    Path,
    typer.Option("--html", help="The HTML file to write.", parser=options.new_file("--html"), metavar="FILE"),
]


def report(record: Source, html: Html) -> None:
    """Turn the record of a run into a page to read.

    The page states the guarantee in words, says what is proved, and shows pictures. A record is the JSON that
    a command prints with --json.
    What must not be published, such as an epsilon that depends on the data, is in a box marked PRIVATE.
    Needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp report run.json --html run.html
    """
    output.need("matplotlib")
    options.check_apart({"the record": record, "--html": html})
    write_atomically(html, _page_of(record))
    typer.echo(f"Wrote {html}")


def _page_of(record: Path) -> bytes:
    try:
        content = read_limited(record)
        if not content.strip():
            raise ValueError("it is empty")
        found = json.loads(content)
        return report_page(reports_of(found), record.name).encode()
    except json.JSONDecodeError as error:
        trouble = f"is not JSON: {error}"
    except UnicodeDecodeError as error:
        trouble = f"is not UTF-8 text: byte {error.start} is undecodable"
    except RecursionError:
        trouble = "cannot be reported: it is nested too deeply"
    except (ValueError, ArithmeticError) as error:
        # Whatever a damaged record does to the arithmetic or to a picture, its reader gets one line.
        long = "integer string conversion" in str(error)  # Python's advice is not for readers
        trouble = f"cannot be reported: {'it holds a number of too many digits' if long else error}"
    raise ValueError(f"{str(record)!r} {trouble}; give what --json printed")
