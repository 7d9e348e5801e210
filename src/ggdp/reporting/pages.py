# SPDX-License-Identifier: Apache-2.0
"""The HTML pages: reports of records, and the page of the demonstration.

A page is one file that needs nothing beside it: pictures are inside it, and it can be read on a phone.
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any

from ggdp import __version__
from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import canvas, figures
from ggdp.reporting.guarantee import FALSE_ALARMS, Guarantee
from ggdp.reporting.records import rounded_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Picture = tuple[Callable[[], "Figure"], str]
"""A function that draws a picture, and its caption."""

SEEDED = (
    "The noise was drawn from a seed: whoever knows or guesses it can take the noise off again. This output "
    "is NOT private; what is proved below is true of a run with fresh noise."
)
NO_BOUND = "No upper bound could be certified."

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title><style>
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; overflow-wrap: normal; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }
section.guarantee { border: 2px solid #0072B2; border-radius: .4rem; padding: 0 1.2rem; background: #f3f8fc; }
section.warning { border: 3px solid #b34700; padding: 0 1.2rem; margin: 0 0 1rem; background: #fff3e8; }
section.private { border: 3px solid #b34700; padding: 0 1.2rem; margin: 1.5rem 0; }
img { max-width: 100%; }
figure { margin: 1.5rem 0; }
figcaption { color: #555; }
.foot { color: #555; font-size: .85rem; }
</style></head>
<body>
$body
<p class="foot">$foot</p>
</body>
</html>
""")
_DETECTION = "What the guarantee leaves to a membership test: no test lies in the shaded region."


@dataclass(frozen=True)
class Report:
    """One result of a record, ready to be shown.

    Attributes:
        title: what was done.
        guarantee: what is promised, or None where nothing is.
        settings: everything the guarantee depends on.
        no_guarantee: why there is no guarantee; empty where none is needed because no data are involved.
        proved: what is certified, and how.
        estimated: what is measured, estimated or not covered.
        warnings: what the reader must not miss.
        pictures: drawn when the page is made. A guarantee has a picture of its own after them.
        private: what must not be published, by name; shown in a box of its own.
        private_note: why it must not.
        private_pictures: shown in the same box.
    """

    title: str
    guarantee: Guarantee | None
    settings: Mapping[str, str]
    no_guarantee: str = NO_BOUND
    proved: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = ()
    private: Mapping[str, str] = field(default_factory=dict)
    private_note: str = ""
    private_pictures: tuple[Picture, ...] = ()


def report_page(reports: Sequence[Report], source: str) -> str:
    """All results of a record on one page; `source` is the name of the record's file."""
    more = f", and {len(reports) - 1} more" if len(reports) > 1 else ""
    foot = f"From {escape(source)}. Made by ggdp {escape(__version__)}."
    return _PAGE.substitute(
        title=escape(reports[0].title + more), body="<hr>".join(map(_article, reports)), foot=foot
    )


def _article(report: Report) -> str:
    pictures = report.pictures
    if report.guarantee is not None:
        pictures = (*pictures, (partial(figures.detection_figure, report.guarantee), _DETECTION))
    return f"""<article>
<h1>{escape(report.title)}</h1>
{_section("warning", report.warnings)}{_guarantee(report)}
<h2>What it depends on</h2>
{_table(report.settings.items())}
{_listed("What is proved", report.proved)}
{_listed("What is measured, estimated or not covered", report.estimated)}
{_drawn(pictures)}
{_private(report)}</article>
"""


def _guarantee(report: Report) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        return _section("warning", [report.no_guarantee] if report.no_guarantee else [], "No guarantee")
    rows = [
        (f"{100.0 * rate:g}%", f"{rounded_up(100.0 * guarantee.most_detection(rate), 3)}%")
        for rate in FALSE_ALARMS
    ]
    table = _table(rows, ("false alarms", f"detections, at most{guarantee.by_all_pairs}"))
    return _section("guarantee", guarantee.sentences(), "The guarantee", table)


def _private(report: Report) -> str:
    if not report.private:
        return ""
    note = (
        f"{report.private_note} The same goes for everything else in this box; cut it out before you pass "
        "the page on."
    )
    inside = _table(report.private.items()) + _drawn(report.private_pictures)
    return _section("private", [note], "PRIVATE: do not publish", inside)


def _section(kind: str, paragraphs: Sequence[str], title: str = "", inside: str = "") -> str:
    """A box with paragraphs of text and then HTML inside it; nothing where there are no paragraphs."""
    if not paragraphs:
        return ""
    head = f"<h2>{escape(title)}</h2>" if title else ""
    text = "".join(f"<p>{escape(one)}</p>" for one in paragraphs)
    return f'<section class="{kind}">{head}{text}{inside}</section>'


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(rows: Iterable[Sequence[str]], head: Sequence[str] = ()) -> str:
    """A table whose first column names the rows."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    return f"<table>{f'<tr>{names}</tr>' if head else ''}{body}</table>"


def _drawn(pictures: Sequence[Picture]) -> str:
    """Pictures with their captions, drawn now."""
    parts = []
    for draw, caption in pictures:
        source, text = base64.b64encode(canvas.png(draw())).decode(), escape(caption)
        parts.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{source}">'
            f"<figcaption>{text}</figcaption></figure>\n"
        )
    return "".join(parts)


def demo_page(record: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """The page of the demonstration: a table, three pictures with captions, and what the numbers mean.

    Args:
        record: the record of `demo`.
        counts: the true counts that the noise was added to.
    """
    target, results = record["target"], record["results"]
    goal = f"epsilon = {target['target_epsilon']:g}, delta = {target['delta']:g}"
    run = (
        f"noise of std {target['training_std']:g} for every exponent, gradients clipped to 1 in the l_1 "
        f"norm, sampling rate {target['training_rate']:g}, {target['training_steps'][-1]} steps"
    )
    noises = [GeneralizedGaussian(result["beta"], result["scale"]) for result in results]
    equal = f"three noises of equal privacy ({goal})"
    pictures = (
        (
            partial(figures.density_figure, noises, equal, unit="count"),
            "The densities for one release; right, on a logarithmic axis.",
        ),
        (
            partial(figures.demo_training_figure, record),
            f"Epsilon of a DP-SGD run ({run}), certified upper bounds.",
        ),
        (
            partial(figures.demo_error_figure, record, counts),
            "The noise that each count of the example table received.",
        ),
    )
    rows = demo_rows(record)
    body = f"""<h1>Three noises of equal privacy</h1>
<p>Each row is Generalized Gaussian noise with density proportional to exp(-(|x|/scale)^beta), calibrated to
{escape(goal)} for neighbours that add or remove one record. It was added to twelve counts of a made-up town's
libraries (error: mean absolute error) and to the votes on a bridge's name (right: how often the winner is the
true one). All epsilons are certified upper bounds.</p>
{_table([list(row.values()) for row in rows], list(rows[0]))}
<p>{escape(least_noise(record))} The training run compares at equal noise instead: {escape(run)}.</p>
{_drawn(pictures)}"""
    foot = (
        f"Made by ggdp {escape(__version__)}. The noise is fresh at every run; scales and epsilons are not."
    )
    return _PAGE.substitute(title="ggdp: a first report", body=body, foot=foot)


def demo_rows(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The table of the demonstration: one row of text for each exponent."""
    return [
        {
            "beta": f"{result['beta']:g}",
            "std": f"{result['std']:.4f}",
            "epsilon": rounded_up(result["epsilon"]["upper"], 5),
            f"std, {record['target']['num_releases']}\nreleases": f"{result['std_of_several']:.4f}",
            "DP-SGD\nepsilon": rounded_up(result["training"][-1]["epsilon"]["upper"], 5),
            "error": f"{result['mean_absolute_error']:.2f}",
            "winner": result["winner"],
            "right": f"{100.0 * result['true_winner_prob']:.1f}%",
        }
        for result in record["results"]
    ]


def least_noise(record: Mapping[str, Any]) -> str:
    """A sentence: which exponent needs least noise for one release, and which for several."""
    results = record["results"]
    one = min(results, key=lambda result: result["std"])
    several = min(results, key=lambda result: result["std_of_several"])
    others = ", ".join(
        f"{result['std_of_several']:.2f} at beta = {result['beta']:g}"
        for result in results
        if result is not several
    )
    return (
        f"One release needs least noise at beta = {one['beta']:g} (std {one['std']:.2f}); "
        f"{record['target']['num_releases']} releases that share the budget, at beta = {several['beta']:g} "
        f"(std {several['std_of_several']:.2f}, against {others})."
    )
