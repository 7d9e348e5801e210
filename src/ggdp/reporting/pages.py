# SPDX-License-Identifier: Apache-2.0
"""The pages of reports: HTML files that need nothing beside them, from a phone's width up."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from ggdp.reporting import canvas
from ggdp.reporting.guarantee import FALSE_ALARMS
from ggdp.reporting.report import Picture, Report
from ggdp.reporting.rounding import rounded_up

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; overflow-wrap: normal; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }
section.guarantee { border: 2px solid #0072B2; border-radius: .4rem; padding: 0 1.2rem; background: #f3f8fc; }
section.warning { border: 3px solid #b34700; padding: 0 1.2rem; margin: 0 0 1rem; background: #fff3e8; }
section.private { border: 3px solid #b34700; padding: 0 1.2rem; margin: 1.5rem 0; }
.numbers { font-size: 1.5rem; margin: .6rem 0; }
img { max-width: 100%; }
figure { margin: 1.5rem 0; }
figcaption { color: #555; }
.foot { color: #555; font-size: .85rem; }
"""


def report_page(reports: Sequence[Report], source: str, version: str) -> str:
    """All runs of a record on one page; `source` is the name of the record's file."""
    more = f", and {len(reports) - 1} more" if len(reports) > 1 else ""
    body = f"""{"<hr>".join(map(_run, reports))}
<p class="foot">From {escape(source)}. Made by ggdp {escape(version)}.</p>"""
    return html_page(f"{reports[0].title}{more}", body)


def html_page(title: str, body: str) -> str:
    """A whole page around this HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head>
<body>
{body}
</body>
</html>
"""


def _run(report: Report) -> str:
    return f"""<article>
<h1>{escape(report.title)}</h1>
{_warnings(report.warnings)}{_guarantee(report)}
<h2>What it depends on</h2>
{_table(report.settings)}
{_listed("What is proved", report.proved)}
{_listed("What is measured, estimated or not covered", report.estimated)}
{figures(report.pictures)}
{_private(report)}</article>
"""


def _guarantee(report: Report) -> str:
    guarantee = report.guarantee
    if guarantee is None:
        why = escape(report.no_guarantee)
        if not why:
            return ""
        return f'<section class="warning"><h2>No guarantee</h2><p>{why}</p></section>'
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in guarantee.sentences())
    rows = {
        f"{100.0 * rate:g}%": f"{rounded_up(100.0 * guarantee.most_detection(rate), 3)}%"
        for rate in FALSE_ALARMS
    }
    head = f"<tr><th>false alarms</th><th>detections, at most{guarantee.by_all_pairs}</th></tr>"
    return f'<section class="guarantee"><h2>The guarantee</h2>{sentences}{_table(rows, head)}</section>'


def _warnings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f'<section class="warning">{"".join(f"<p>{escape(line)}</p>" for line in lines)}</section>'


def _private(report: Report) -> str:
    if not report.private:
        return ""
    return (
        '<section class="private"><h2>PRIVATE: do not publish</h2>'
        f"<p>{escape(report.private_note)} The same goes for everything else in this box; cut it out before "
        f"the page leaves the house.</p>{_table(report.private)}{figures(report.private_pictures)}</section>"
    )


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _table(rows: Mapping[str, str], head: str = "") -> str:
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table>{head}{body}</table>"


def figures(pictures: Sequence[Picture]) -> str:
    """Pictures with their captions, drawn now."""
    return "".join(_figure(canvas.png(draw()), caption) for draw, caption in pictures)


def _figure(image: bytes, caption: str) -> str:
    source, text = base64.b64encode(image).decode(), escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{source}">'
        f"<figcaption>{text}</figcaption></figure>\n"
    )
