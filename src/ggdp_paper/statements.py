# SPDX-License-Identifier: Apache-2.0
"""The paper, statement by statement: the table `statements.json`, and the page that is made from it.

    python -m ggdp_paper.statements docs/paper-statements.md

A row names what implements a statement (`where`: a Python name or a file of the project) and what decided on
it (`by`: a command of `ggdp`, a test, a script, or a page with a proof). Tests check that all of these exist.
"""

import json
import sys
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from ggdp.atomic_file import write_atomically

VERDICTS = {
    "verified": "true, as far as the row says",
    "in part": "true in some of its settings, or with a correction that the row gives",
    "refuted": "false as printed",
    "undecided": "tried, and what was found does not decide",
    "not tried": "nothing here speaks to it",
    "definition": "a definition, an algorithm or a setting: nothing to decide",
}

_HEAD = """\
# The paper, statement by statement

"Beyond Laplace and Gaussian: Exploring the Generalized Gaussian Mechanism for Private Machine Learning": its
definitions, theorems, algorithms, figures, tables and claims, where this project implements them, and what
became of them. Numbers are those that the paper's source gets when it is compiled; theorems and lemmas share
one counter. What was concluded without a test or a run of our own is called inferred.

This page is made from `src/ggdp_paper/statements.json`:

    python -m ggdp_paper.statements docs/paper-statements.md

"""


@dataclass(frozen=True)
class Row:
    """One statement of the paper.

    Attributes:
        part: the part of the paper.
        number: the paper's own number, or its section.
        says: the statement, in short.
        where: Python names and files that implement it.
        verdict: one of `VERDICTS`.
        found: what we found, and what is missing.
        by: commands, tests, scripts and pages that decided it.
    """

    part: str
    number: str
    says: str
    where: tuple[str, ...]
    verdict: str
    found: str
    by: tuple[str, ...]


def statements() -> tuple[Row, ...]:
    """All rows, in the order of the paper."""
    rows = json.loads((resources.files("ggdp_paper") / "statements.json").read_text(encoding="utf-8"))
    return tuple(Row(**{**row, "where": tuple(row["where"]), "by": tuple(row["by"])}) for row in rows)


def page() -> str:
    """The page, as Markdown."""
    rows = statements()
    counts = "".join(
        f"| {verdict} | {meaning} | {sum(row.verdict == verdict for row in rows)} |\n"
        for verdict, meaning in VERDICTS.items()
    )
    parts = [_HEAD, f"| verdict | means | rows |\n|---|---|---|\n{counts}"]
    for part, members in groupby(rows, lambda row: row.part):
        parts.append(
            f"\n## {part}\n\n| number | says | verdict | found | where | by |\n|---|---|---|---|---|---|\n"
        )
        parts.extend(map(_line, members))
    return "".join(parts)


def _line(row: Row) -> str:
    where, by = (" <br> ".join(map(_shown, names)) or "-" for names in (row.where, row.by))
    cells = (row.number, _escaped(row.says), f"**{row.verdict}**", _escaped(row.found) or "-", where, by)
    return "| " + " | ".join(cells) + " |\n"


def _shown(name: str) -> str:
    """A link for a file, else code; of a test in a file, the file and the test."""
    file, _, test = name.partition("::")
    if "/" not in file or file.startswith("ggdp "):
        return f"`{name}`"
    link = (
        f"[{file}](../{file})" if not file.startswith("docs/") else f"[{file}]({file.removeprefix('docs/')})"
    )
    return f"{link}, `{test}`" if test else link


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is; code between backticks stays code."""
    pieces = text.replace("|", "\\|").split("`")
    pieces[::2] = [piece.replace("*", "\\*").replace("_", "\\_") for piece in pieces[::2]]
    return "`".join(pieces)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ggdp_paper.statements PAGE, such as docs/paper-statements.md")
    write_atomically(Path(sys.argv[1]), page())
