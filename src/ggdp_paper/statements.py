# SPDX-License-Identifier: Apache-2.0
"""The paper, statement by statement: the table `statements.json`, and the page that is made from it.

    python -m ggdp_paper.statements docs/paper-statements.md

A row names what implements a statement (`where`: a Python name or a file of the project) and what decided on
it (`by`: a command of `ggdp`, a test, a script, or a page with a proof). A command that gives a verdict of
its own is named with the key of that verdict, as in "ggdp reproduce fig1: scale"; the page then shows what
its kept record says. Tests check that all of these exist, and that no row contradicts its commands.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from pathlib import Path

from ggdp.atomic_file import write_atomically
from ggdp_paper.experiment import config_of
from ggdp_paper.figures import NAMES
from ggdp_paper.record import measured, read_record

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

This page goes through "Beyond Laplace and Gaussian: Exploring the Generalized Gaussian Mechanism for Private
Machine Learning", the paper that ggdp started from. Each definition, theorem, algorithm, figure, table and
claim has a row: what the paper says, whether it is true, what we found, and how you can check it yourself.
Read it before you rely on a formula or a number of the paper, or to find the function that runs one of its
algorithms.

## The results in short

- **The family is private, and its privacy can be computed.** Every exponent beta >= 1 gives differential
  privacy. Epsilon is bounded from both sides, also for beta > 2 and for vectors of any length.
- **One number does not stand for a vector.** For 1 < beta < 2 the paper accounts for a vector as for one
  number. That understates epsilon; a norm slightly below l_beta repairs it.
- **A sampled accountant gives no upper bound.** The paper's error theorem says nothing at useful sizes, and
  what its accountant calls an upper bound is often below the true epsilon.
- **Some formulas do not work as printed:** the sigma solver does not end, amplification by sampling has the
  wrong form, and the noise of Algorithm 1 does not scale with the sensitivity.
- **The choice of beta matters little in training** with gradients clipped in l_2, and beta = 2 is as good as
  any. Clipped in l_beta, as Algorithm 3 says, smaller exponents lose much accuracy.
- **In PATE it depends on the number of votes.** For one vote beta hardly changes the accuracy, and Laplace
  noise is the smallest. With many votes in one budget the Gaussian wins.

## How to read the tables

Numbers of figures, definitions and theorems are those that the paper's source gets when it is compiled;
theorems and lemmas share one counter. *sigma* is the noise multiplier unless a row says otherwise: the scale
of the noise is sqrt(2) sigma times the sensitivity. What was concluded without a test or a run of our own is
called inferred.

The last column has what implements the statement, then what decided on it. A command such as
`ggdp reproduce fig1` runs an experiment and compares it with the paper; the word after the colon is its own
verdict (*agrees*, *partly*, *differs* or *undecided*) in the record that is kept with the project.

"""

_FOOT = """
## Where this page comes from

It is made from the table `src/ggdp_paper/statements.json` and from the records of the experiments:

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


def verdicts_of_commands(records: Path) -> dict[str, str]:
    """What each command says, by "ggdp reproduce FIGURE: KEY", from the records that are kept."""
    found = {}
    for name in NAMES:
        config = config_of(name)
        path = records / f"{name}.json"
        record = read_record(path) if path.is_file() else measured(config.settings.get("measured", name))
        if record is None:
            continue
        by_statement = {finding["says"]: finding["agreement"] for finding in record["findings"]}
        for key, statement in config.statements.items():
            if statement.says in by_statement:
                found[f"ggdp reproduce {name}: {key}"] = by_statement[statement.says]
    return found


def page(records: Path) -> str:
    """The page, as Markdown.

    Args:
        records: the folder of the records that are kept with the project.
    """
    rows, commands = statements(), verdicts_of_commands(records)
    counts = "".join(
        f"| {verdict} | {meaning} | {sum(row.verdict == verdict for row in rows)} |\n"
        for verdict, meaning in VERDICTS.items()
    )
    parts = [_HEAD, f"| verdict | means | rows |\n|---|---|---|\n{counts}"]
    for part, members in groupby(rows, lambda row: row.part):
        parts.append(f"\n## {part}\n\n| the paper | verdict | what we found | where, and checked by |\n")
        parts.append("|---|---|---|---|\n")
        parts.extend(_line(row, commands) for row in members)
    return "".join([*parts, _FOOT])


def _line(row: Row, commands: Mapping[str, str]) -> str:
    where = ", ".join(map(_shown, row.where))
    by = ", ".join(
        _shown(name.partition(": ")[0]) + (f": *{commands[name]}*" if name in commands else "")
        for name in row.by
    )
    cells = (
        f"**{row.number}.** {_escaped(row.says)}",
        f"**{row.verdict}**",
        _escaped(row.found) or "-",
        " <br> ".join(filter(None, (where, f"checked: {by}" if by else ""))) or "-",
    )
    return "| " + " | ".join(cells) + " |\n"


def _shown(name: str) -> str:
    """A link for a file, named by itself or the test in it; else code."""
    file, _, test = name.partition("::")
    if "/" not in file or file.startswith("ggdp "):
        return f"`{name}`"
    address = file.removeprefix("docs/") if file.startswith("docs/") else f"../{file}"
    claim = test.removeprefix("test_").replace("_", " ")
    return f"[{claim or Path(file).name}]({address})"


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is; code between backticks stays code."""
    pieces = text.replace("|", "\\|").split("`")
    pieces[::2] = [piece.replace("*", "\\*").replace("_", "\\_") for piece in pieces[::2]]
    return "`".join(pieces)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m ggdp_paper.statements PAGE, such as docs/paper-statements.md")
    target = Path(sys.argv[1])
    write_atomically(target, page(target.parent.parent / "papers" / "generalized_gaussian" / "records"))
