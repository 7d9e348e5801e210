# SPDX-License-Identifier: Apache-2.0
"""The demonstration as one HTML file that needs nothing beside it."""

import base64
from html import escape

from ggdp.reporting import figures
from ggdp.reporting.demo_study import Study

COLUMNS = (
    "beta",
    "scale",
    "std",
    "epsilon",
    "DP-SGD epsilon",
    "error",
    "winner",
    "right",
)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 54rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: right; }
img { max-width: 100%; }
figcaption { color: #555; }
figure { margin: 1.5rem 0; }
"""


def table_rows(study: Study) -> list[tuple[str, ...]]:
    """One row of text for each exponent, under `COLUMNS`."""
    return [
        (
            f"{case.beta:g}",
            f"{case.scale:.4f}",
            f"{case.std:.4f}",
            f"{case.achieved_epsilon:.4f}",
            f"{case.training_epsilon[-1]:.4f}",
            f"{case.mean_absolute_error:.2f}",
            case.winner,
            f"{100.0 * case.true_winner_prob:.1f}%",
        )
        for case in study.cases
    ]


def page(study: Study, version: str) -> str:
    """The report: the table, three figures with captions, and what the numbers mean."""
    target = study.target
    goal = f"epsilon = {target.epsilon:g}, delta = {target.delta:g}"
    run = (
        f"noise multiplier {target.training_noise_multiplier:g}, sampling rate {target.training_rate:g}, "
        f"{target.training_steps[-1]} steps"
    )
    pictures = [
        (figures.densities(study), f"Three noises of equal privacy ({goal}); right, on a logarithmic axis."),
        (figures.training(study), f"Epsilon of a DP-SGD run ({run}), certified upper bounds."),
        (figures.errors(study), "The noise that each count of the example table received."),
    ]
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>ggdp: a first report</title><style>{_STYLE}</style></head>
<body>
<h1>Three noises of equal privacy</h1>
<p>Each row is Generalized Gaussian noise with density proportional to exp(-(|x|/scale)^beta), calibrated to
{escape(goal)} for neighbours that add or remove one record. It was added to twelve counts of a made-up town's
libraries (error: mean absolute error) and to the votes on a bridge's name (right: how often the winner is the
true one). Both epsilons are certified upper bounds. The training run is
{escape(run)}, with gradients clipped in the l1 norm (beta = 1 and 1.5) or the l2 norm (beta = 2).</p>
{_table(study)}
{"".join(_figure(figures.png(figure), caption) for figure, caption in pictures)}
<p>Made by ggdp {escape(version)}. The noise is fresh at every run; the scales and epsilons are not.</p>
</body>
</html>
"""


def _table(study: Study) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table_rows(study)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _figure(image: bytes, caption: str) -> str:
    source = base64.b64encode(image).decode()
    text = escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{source}">'
        f"<figcaption>{text}</figcaption></figure>\n"
    )
