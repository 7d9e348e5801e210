# SPDX-License-Identifier: Apache-2.0
"""One page with every figure: our picture, what the paper says, what we found, and whether the two agree."""

from collections.abc import Collection, Mapping, Sequence
from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 2px solid #ddd; padding: 1rem 0 2rem; }
.side { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.5rem; }
@media (max-width: 60rem) { .side { grid-template-columns: 1fr; } }
img { max-width: 100%; }
figure { margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
blockquote { margin: 0; padding-left: .8rem; border-left: 3px solid #bbb; color: #444; font-style: italic; }
.finding { margin-bottom: 1.2rem; }
.finding p { margin: .4rem 0; }
.mark { display: inline-block; padding: 0 .5rem; border-radius: .3rem; color: #fff; font-size: .85rem; }
.agrees { background: #00705a; } .partly { background: #7a5c00; }
.differs { background: #b34700; } .undecided { background: #555; }
.facts { color: #555; font-size: .85rem; }
.note { background: #fff6e0; padding: .4rem .8rem; }
"""

_WORDS = {
    "agrees": "agrees with the paper",
    "partly": "agrees in part",
    "differs": "differs from the paper",
    "undecided": "undecided",
}


def index_page(
    records: Sequence[Mapping[str, Any]],
    skipped: Mapping[str, str],
    version: str,
    *,
    earlier: Collection[str] = (),
) -> str:
    """The page of these records, and a line for each figure that was left out; pictures lie beside it.

    Args:
        records: as `read_record` gives them.
        skipped: why a figure was left out, by its name.
        version: of ggdp.
        earlier: the figures whose records an earlier run made.
    """
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Beyond Laplace and Gaussian, reproduced</title><style>{_STYLE}</style></head>
<body>
<h1>Beyond Laplace and Gaussian, reproduced</h1>
<p>Figures and tables of the paper on the Generalized Gaussian mechanism, made again. To the left our picture;
to the right what the paper says, what we found, and whether the two agree. The verdicts are computed from the
numbers of each record. Epsilons are certified upper bounds wherever nothing else is said. What this run did
not compute itself, or computed at a smaller size, is marked.</p>
{_summary(records, earlier)}
{"".join(_section(record, record["figure"] in earlier) for record in records)}
{_skipped(skipped)}
<p class="facts">Made by ggdp {escape(version)}.</p>
</body>
</html>
"""


def _summary(records: Sequence[Mapping[str, Any]], earlier: Collection[str]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{escape(record["figure"])}">{escape(record["figure"])}</a></td>'
        f"<td>{escape(record['title'])}{_kind(record, record['figure'] in earlier)}</td><td>"
        + " ".join(_mark(finding["agreement"], finding["agreement"]) for finding in record["findings"])
        + "</td></tr>"
        for record in records
    )
    head = "<tr><th>figure</th><th>shows</th><th>statements</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _kind(record: Mapping[str, Any], is_earlier: bool) -> str:
    """What kind of run it was, where it was not a full one of this command."""
    kinds = {
        "quick run": record["quick"],
        "kept record": "read from" in record,
        "from an earlier run": is_earlier,
    }
    told = ", ".join(kind for kind, holds in kinds.items() if holds)
    return f" ({told})" if told else ""


def _section(record: Mapping[str, Any], is_earlier: bool) -> str:
    name = escape(record["figure"])
    pictures = "".join(
        f'<figure><a href="{escape(picture)}.svg"><img alt="{escape(record["title"])}" '
        f'src="{escape(picture)}.png"></a></figure>'
        for picture in record["pictures"]
    )
    caption = f"<p>{escape(record['title'])}. The paper: {escape(record['findings'][0]['says'])}</p>"
    kind = '<p class="note">From an earlier run; the last one did not make it.</p>' if is_earlier else ""
    kind += '<p class="note">A quick run: smaller than the paper\'s.</p>' if record["quick"] else ""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in record["numbers"].get("notes", []))
    return f"""<section id="{name}">
<h2>{name}: {escape(record["title"])}</h2>
{kind}{notes}<div class="side"><div>{pictures}{caption}{_facts(record)}</div>
<div>{"".join(map(_finding, record["findings"]))}</div></div>
</section>
"""


def _finding(finding: Mapping[str, str]) -> str:
    because = f"<p>Why: {escape(finding['because'])}</p>" if "because" in finding else ""
    return (
        f'<div class="finding"><blockquote>{escape(finding["says"])}</blockquote>'
        f"<p>{_mark(finding['agreement'], _WORDS[finding['agreement']])} {escape(finding['found'])}</p>"
        f"{because}</div>"
    )


def _mark(agreement: str, words: str) -> str:
    return f'<span class="mark {escape(agreement)}">{escape(words)}</span>'


def _facts(record: Mapping[str, Any]) -> str:
    made_with = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
    seconds = record["seconds"]
    name = escape(record["figure"])
    return (
        f'<p class="facts">Record: <a href="{name}.json">{name}.json</a> (settings, seeds, numbers). '
        f"{seconds['cells']} cells, {seconds['in cells']:g} s of computing. {escape(made_with)}.</p>"
    )


def _skipped(skipped: Mapping[str, str]) -> str:
    if not skipped:
        return ""
    lines = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in skipped.items())
    return f"<section><h2>Left out</h2><ul>{lines}</ul></section>"
