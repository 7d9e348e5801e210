# SPDX-License-Identifier: Apache-2.0
"""The demonstration as one HTML file that needs nothing beside it."""

from html import escape

from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import figures
from ggdp.reporting.demo_study import Study
from ggdp.reporting.density_figure import density_figure
from ggdp.reporting.report_page import figures as drawn
from ggdp.reporting.report_page import html_page
from ggdp.reporting.rounding import rounded_up


def table_rows(study: Study) -> list[dict[str, str]]:
    """One row of text for each exponent."""
    return [
        {
            "beta": f"{case.beta:g}",
            "std": f"{case.std:.4f}",
            "epsilon": rounded_up(case.achieved.upper, 5),
            f"std, {study.target.num_releases}\nreleases": f"{case.std_of_several:.4f}",
            "DP-SGD\nepsilon": rounded_up(case.training[-1].upper, 5),
            "error": f"{case.mean_absolute_error:.2f}",
            "winner": case.winner,
            "right": f"{100.0 * case.true_winner_prob:.1f}%",
        }
        for case in study.cases
    ]


def least_noise(study: Study) -> str:
    """Which exponent needs least noise, for one release and for several: in words made of the numbers."""
    one = min(study.cases, key=lambda case: case.std)
    several = min(study.cases, key=lambda case: case.std_of_several)
    others = ", ".join(
        f"{case.std_of_several:.2f} at beta = {case.beta:g}" for case in study.cases if case is not several
    )
    return (
        f"One release needs least noise at beta = {one.beta:g} (std {one.std:.2f}); "
        f"{study.target.num_releases} releases that share the budget, at beta = {several.beta:g} "
        f"(std {several.std_of_several:.2f}, against {others})."
    )


def page(study: Study, version: str) -> str:
    """The report: the table, three figures with captions, and what the numbers mean."""
    target = study.target
    goal = f"epsilon = {target.epsilon:g}, delta = {target.delta:g}"
    run = (
        f"noise of std {target.training_std:g} for every exponent, gradients clipped to 1 in the l_1 norm, "
        f"sampling rate {target.training_rate:g}, {target.training_steps[-1]} steps"
    )
    noises = [GeneralizedGaussian(case.beta, case.scale) for case in study.cases]
    pictures = [
        (
            lambda: density_figure(noises, f"three noises of equal privacy ({goal})", unit="count"),
            "The densities for one release; right, on a logarithmic axis.",
        ),
        (lambda: figures.training(study), f"Epsilon of a DP-SGD run ({run}), certified upper bounds."),
        (lambda: figures.errors(study), "The noise that each count of the example table received."),
    ]
    body = f"""<h1>Three noises of equal privacy</h1>
<p>Each row is Generalized Gaussian noise with density proportional to exp(-(|x|/scale)^beta), calibrated to
{escape(goal)} for neighbours that add or remove one record. It was added to twelve counts of a made-up town's
libraries (error: mean absolute error) and to the votes on a bridge's name (right: how often the winner is the
true one). All epsilons are certified upper bounds.</p>
{_table(table_rows(study))}
<p>{escape(least_noise(study))} The training run compares at equal noise instead: {escape(run)}.</p>
{drawn(pictures)}
<p class="foot">Made by ggdp {escape(version)}. The noise is fresh at every run; scales and epsilons are not.
</p>"""
    return html_page("ggdp: a first report", body)


def _table(rows: list[dict[str, str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
