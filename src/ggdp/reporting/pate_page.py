# SPDX-License-Identifier: Apache-2.0
"""A PATE run as one HTML file: a part that may be published, and a part that must stay at home."""

import base64
import math
from html import escape

from ggdp.reporting import canvas, pate_figure
from ggdp.reporting.pate_study import PateStudy

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: left; }
section.private { border: 3px solid #D55E00; padding: 0 1rem; }
img { max-width: 100%; }
figcaption { color: #555; }
"""


def public_rows(study: PateStudy) -> dict[str, str]:
    """What may be published, as names and text."""
    target, labelling = study.target, study.labelling
    rows = {
        "teachers": str(study.num_teachers),
        "queries": str(len(labelling.labels)),
        "answered": str(labelling.num_answered),
        "abstained": str(labelling.num_abstained),
        "most answers": str(labelling.most_answers),
        "threshold": "none" if target.threshold is None else f"{target.threshold:g}",
        "neighbours": "a voter changes its vote"
        if target.adjacency == "replace"
        else "a voter comes or goes",
        "epsilon, certified upper bound": _rounded_up(study.achieved.upper),
        "delta": f"{target.delta:g}",
    }
    for name, noise in study.noises.items():
        rows[f"noise of the {name}"] = (
            f"beta = {noise.beta:g}, scale = {noise.scale:.6g}, std = {noise.std:.6g}"
        )
    return rows


def private_rows(study: PateStudy) -> dict[str, str]:
    """What must not be published."""
    rows = {
        "data-dependent epsilon": _rounded_up(study.data_dependent.value),
        "chance that the plurality wins, mean": f"{100.0 * study.expected_utility:.3f}%",
    }
    if study.accuracy is not None:
        rows["answered labels that are true"] = f"{100.0 * study.accuracy:.3f}%"
    return rows


def page(study: PateStudy, version: str) -> str:
    """The report; it needs nothing beside it."""
    image = base64.b64encode(canvas.png(pate_figure.gap_figure(study))).decode()
    caption = "Votes between the first and the second class, against the chance that noise turns them round."
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>ggdp: labels by private vote</title><style>{_STYLE}</style></head>
<body>
<h1>Labels by private vote</h1>
<section>
<h2>May be published</h2>
{_table(public_rows(study))}
<p>Epsilon holds whatever the votes are: every threshold check is charged, and as many answers as were
allowed.</p>
</section>
<section class="private">
<h2>PRIVATE: do not publish</h2>
<p>{escape(study.data_dependent.caveat)} The same goes for everything else in this box.</p>
{_table(private_rows(study))}
<figure><img alt="{escape(caption)}" src="data:image/png;base64,{image}">
<figcaption>{escape(caption)}</figcaption></figure>
</section>
<p>Made by ggdp {escape(version)}.</p>
</body>
</html>
"""


def _rounded_up(bound: float) -> str:
    """Six decimals, never below the bound."""
    return f"{math.ceil(bound * 1e6) / 1e6:.6f}"


def _table(rows: dict[str, str]) -> str:
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table>{body}</table>"
