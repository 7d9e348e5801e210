# SPDX-License-Identifier: Apache-2.0
"""The pictures of reports and of `--plot`, drawn from records and other finished results.

What they share, such as colours and blank panels, is in `canvas`. Line styles and markers differ as well as
colours, so that a picture can be read in black and white.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import canvas
from ggdp.reporting.guarantee import Guarantee
from ggdp.selection import Votes, win_probabilities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BETA = "beta, the exponent of the noise (no unit)"
_LEAST_DENSITY = 1e-9
_LEAST_LOG = -600.0  # a smaller logarithm of a weight is below what a logarithmic axis of doubles can show


def density_figure(
    noises: Sequence[GeneralizedGaussian], title: str, *, unit: str = "sensitivity"
) -> "Figure":
    """Draw the densities of noises, on the left on a linear axis and on the right on a logarithmic one."""
    figure, (linear, logarithmic) = canvas.panels(2)
    styles = canvas.styles_of([noise.beta for noise in noises])
    # As far as the widest of them falls to one in a thousand, and to one in a hundred million.
    for axes, prob in ((linear, 1e-3), (logarithmic, 1e-8)):
        end = max(float(noise.isf(prob / 2.0)) for noise in noises)
        x = np.linspace(-end, end, 1201)
        for noise, style in zip(noises, styles, strict=True):
            axes.plot(x, noise.pdf(x), **style)
        axes.set_xlabel(f"noise (in units of the {unit})")
        axes.set_ylabel(f"density (per unit of the {unit})")
        axes.set_xlim(-end, end)
    linear.set_ylim(bottom=0.0)
    linear.legend(frameon=False, fontsize="small", loc="upper left", handlelength=1.7)
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(bottom=_LEAST_DENSITY)
    figure.suptitle(title, fontsize="medium")
    return figure


def detection_figure(guarantee: Guarantee) -> "Figure":
    """Draw the largest true-positive rate of any membership test against its false-positive rate."""
    figure, (linear, logarithmic) = canvas.panels(2)
    for axes, rates in ((linear, np.linspace(0.0, 1.0, 401)), (logarithmic, np.geomspace(1e-6, 1.0, 401))):
        most = np.array([guarantee.most_detection(float(rate)) for rate in rates])
        axes.plot(rates, most, label="most that any test detects", **canvas.style_number(0))
        axes.fill_between(rates, most, 1.0, color=canvas.COLOURS[0], alpha=0.12, label="ruled out")
        axes.plot(rates, rates, color="#7f7f7f", linestyle=":", label="blind guessing")
        axes.set_xlabel("false-positive rate (probability)")
        axes.set_ylabel("true-positive rate (probability)")
    logarithmic.set_xscale("log")
    logarithmic.set_yscale("log")
    logarithmic.set_ylim(1e-6, 1.3)
    linear.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def curve_figure(results: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw delta against the certified upper bound of epsilon, a line for each result of `curve_record`."""
    figure, (axes,) = canvas.panels(1)
    for result, style in zip(results, canvas.styles_of([one["beta"] for one in results]), strict=True):
        points = [point for point in result["curve"] if point["epsilon"]["upper"] is not None]
        uppers = [point["epsilon"]["upper"] for point in points]
        axes.plot(uppers, [point["delta"] for point in points], **style)
    axes.set_yscale("log")
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epsilon (certified upper bound, nats)")
    axes.set_ylabel("delta (probability)")
    first = results[0]
    steps = "1 step" if first["steps"] == 1 else f"{first['steps']} steps"
    _name(axes, f"{steps}, sampling rate {first['rate']:g}, neighbours: {first['adjacency']}")
    axes.legend(frameon=False)
    return figure


def trade_off_figure(results: Sequence[Mapping[str, Any]]) -> "Figure":
    """Draw the smallest false-negative rate against the false-positive rate, a line for each `risk_record`.

    On the right the same as detections, on logarithmic axes, where attacks with few false alarms are seen.
    """
    figure, (linear, logarithmic) = canvas.panels(2)
    for result, style in zip(results, canvas.styles_of([one["beta"] for one in results]), strict=True):
        rates = [point["false_positive_rate"] for point in result["trade_off"]]
        missed = [point["false_negative_rate"]["lower"] for point in result["trade_off"]]
        linear.plot([0.0, *rates, 1.0], [missed[0], *missed, 0.0], **style)
        logarithmic.plot(rates, [1.0 - one for one in missed], **style)
    linear.plot([0.0, 1.0], [1.0, 0.0], color="#7f7f7f", linestyle=":", label="blind guessing")
    logarithmic.plot([1e-6, 1.0], [1e-6, 1.0], color="#7f7f7f", linestyle=":")
    logarithmic.set_xscale("log")
    logarithmic.set_yscale("log")
    for axes in (linear, logarithmic):
        axes.set_xlabel("false-positive rate (probability)")
    linear.set_ylabel("least false-negative rate (probability)")
    logarithmic.set_ylabel("most true positives (probability)")
    linear.legend(frameon=False, fontsize="small")
    first = results[0]
    steps = "1 step" if first["steps"] == 1 else f"{first['steps']} steps"
    _name(linear, f"{steps}, sampling rate {first['rate']:g}, neighbours: {first['adjacency']}")
    return figure


LOSSES = {
    "std": "standard deviation of the noise",
    "mean-absolute": "mean of |noise|",
    "outside": "P(|noise| > threshold)",
    "interval": "width of the interval",
    "wrong-winner": "chance of a wrong winner",
}
"""What is to be small, by the names of `ggdp choose --loss`."""


def choice_figure(records: Sequence[tuple[str, Mapping[str, Any]]]) -> "Figure":
    """Draw loss against beta; a dot marks the least, thin lines mark Laplace and Gaussian.

    One panel for each name and record of `choose`, side by side. Probabilities are drawn as they are, other
    losses as shares of the Gaussian's, where there is one, so that runs of different lengths can be compared.
    """
    figure, panels = canvas.panels(len(records))
    figure.set_figheight(4.2)
    for axes, (name, record) in zip(panels, records, strict=True):
        _losses(axes, record["loss"], record["results"])
        _name(axes, name, pad=18)
        axes.legend(frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=1)
    return figure


def _losses(axes: Any, loss: str, results: Sequence[Mapping[str, Any]]) -> None:
    """One line for each result."""
    is_probability = loss == "outside"
    drawn = [sorted([*result["tried"], result["best"]], key=lambda row: row["beta"]) for result in results]
    lines = [np.array([row["log_loss"] for row in rows]) for rows in drawn]
    in_logs = is_probability and min(float(line.min()) for line in lines) < _LEAST_LOG
    relative = not is_probability and all(result.get("gaussian") for result in results)

    def shown(log_losses: NDArray[np.float64], result: Mapping[str, Any]) -> NDArray[np.float64]:
        if in_logs:
            return log_losses / math.log(10.0)
        return np.exp(log_losses - (result["gaussian"]["log_loss"] if relative else 0.0))

    for number, (result, line) in enumerate(zip(results, lines, strict=True)):
        style, best = canvas.style_number(number), result["best"]
        far = f", threshold {result['threshold']:g}" if is_probability else ""
        many = "1 release" if result["steps"] == 1 else f"{result['steps']} releases"
        label = f"{many}{far}: least at beta = {best['beta']:.3g}"
        betas = [row["beta"] for row in drawn[number]]
        axes.plot(betas, shown(line, result), label=label, **style)
        lowest = shown(np.array([best["log_loss"]]), result)
        axes.plot([best["beta"]], lowest, "o", color=style["color"], clip_on=False)
    if is_probability and not in_logs:
        axes.set_yscale("log")
    canvas.mark_exponents(axes, drawn[0][0]["beta"], drawn[0][-1]["beta"])
    axes.set_xlabel(_BETA)
    axes.set_ylabel(f"{'log10 ' * in_logs}{LOSSES[loss]}{', Gaussian = 1' * relative}")


def simulation_figure(record: Mapping[str, Any]) -> "Figure":
    """Draw a record of `ArgmaxSimulation.to_dict`.

    On the left, utility against gap at the first epsilon, for four exponents; on the right, the area under
    such curves against the exponent, a line for each epsilon.
    """
    figure, (curves, areas) = canvas.panels(2)
    first = record["results"][0]
    places = sorted({round(place) for place in np.linspace(0, len(first["noises"]) - 1, 4)})
    drawn = [first["noises"][place] for place in places]
    for noise, style in zip(drawn, canvas.styles_of([noise["beta"] for noise in drawn]), strict=True):
        curves.plot(100.0 * np.asarray(record["gaps"]), noise["utility"], **style)
    curves.set_xlabel("runner-up gap (% of the largest count)")
    curves.set_ylabel("chance that the true winner wins")
    curves.set_title(f"epsilon = {first['target_epsilon']:g}, delta = {record['delta']:g}", fontsize="medium")
    curves.legend(frameon=False, fontsize="small")
    for number, result in enumerate(record["results"]):
        style, noises = canvas.style_number(number), result["noises"]
        label = f"epsilon = {result['target_epsilon']:g}"
        betas = [noise["beta"] for noise in noises]
        areas.plot(betas, [noise["area"] for noise in noises], label=label, **style)
        best = max(noises, key=lambda noise: noise["area"])
        areas.plot([best["beta"]], [best["area"]], "o", color=style["color"], clip_on=False)
    areas.set_xlabel(_BETA)
    areas.set_ylabel("area under the curve (1 is the most)")
    above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
    areas.legend(frameon=False, fontsize="small", columnspacing=1.0, **above)
    return figure


def gap_figure(votes: Votes, noise: GeneralizedGaussian) -> "Figure":
    """Draw how many queries have which runner-up gap, and how often noise turns a gap round. Private.

    The runner-up gap of a query is the number of votes between its first and its second class.
    """
    ranked = -np.sort(-votes.counts, axis=1)
    gaps = ranked[:, 0] - ranked[:, 1] if votes.num_classes > 1 else ranked[:, 0]
    figure, (axes,) = canvas.panels(1)
    axes.hist(gaps, bins=min(50, votes.num_teachers + 1), color=canvas.COLOURS[5])
    axes.set_xlabel("runner-up gap (votes)")
    axes.set_ylabel("queries (count)")
    chance = axes.twinx()
    possible = np.linspace(0.0, float(votes.num_teachers), 101)
    turned = win_probabilities(np.stack([possible, np.zeros_like(possible)], axis=1), noise)[:, 1]
    chance.plot(possible, turned, color=canvas.COLOURS[1], linewidth=2.0)
    chance.set_ylim(0.0, 0.5)
    chance.set_ylabel("chance that noise turns the gap round", color=canvas.COLOURS[1])
    return figure


def training_figure(result: Mapping[str, Any]) -> "Figure":
    """Draw a result of `training_record`: the score on the left, the certified epsilon on the right."""
    figure, (score, cost) = canvas.panels(2)
    rows = result["rows"]
    epochs = [row["epoch"] for row in rows]
    marker = "o" if len(rows) < 2 else ""
    (style,) = canvas.styles_of([result["beta"]])
    score.plot(epochs, [100.0 * row["score"] for row in rows], marker=marker, **style)
    best = result["best"]
    percent = 100.0 * best["accuracy"]
    label = f"best epoch, {percent:.1f} %"
    score.plot([best["epoch"]], [percent], "o", color=canvas.COLOURS[1], zorder=3, label=label)
    score.legend(frameon=False, loc="lower right")
    score.set_ylabel("test accuracy (%)")
    spent = [row["epsilon"]["upper"] for row in rows]
    cost.plot(epochs, [math.nan if upper is None else upper for upper in spent], marker=marker, **style)
    if result["target_epsilon"] is not None:
        cost.axhline(result["target_epsilon"], color=canvas.COLOURS[1], linewidth=1.0, label="budget")
    cost.set_ylim(bottom=0.0)
    cost.set_ylabel(f"certified epsilon, delta = {result['delta']:g}")
    cost.legend(frameon=False, loc="lower right")
    for axes in (score, cost):
        axes.set_xlabel("epoch (expected passes over the data)")
    _name(score, f"{result['task']}{', made-up data' if result['synthetic'] else ''}")
    norm = result["norm"] if isinstance(result["norm"], str) else f"{result['norm']:.4g}"
    _name(cost, f"rate {result['rate']:.3g}, clip {result['clip_norm']:g} in l_{norm}")
    return figure


def audit_figure(result: Mapping[str, Any]) -> "Figure":
    """Draw a result of `audit_record`: the evidence on canaries, and the two bounds on epsilon."""
    figure, (evidence, bounds) = canvas.panels(2)
    scores = result["scores"]
    for number, (name, label) in enumerate((("included", "in the training set"), ("left_out", "left out"))):
        total = sum(scores[name]) or 1.0
        shares = [count / total for count in scores[name]]
        evidence.stairs(shares, scores["edges"], label=label, **canvas.style_number(number))
    evidence.set_xlabel("evidence that the canary is in (log likelihood ratio)")
    evidence.set_ylabel("share of the canaries")
    evidence.legend(frameon=False, fontsize="small")
    _name(evidence, f"{result['num_correct']} of {result['num_guesses']} guesses right")
    lower, upper = result["lower_epsilon"], result["epsilon"]["upper"]
    shown = canvas.COLOURS[2] if result["is_consistent"] else canvas.COLOURS[1]
    bars = [(f"shown, {100.0 * result['confidence']:g}% confidence", lower, shown)]
    if upper is not None:
        bars.append(("certified, at most", upper, canvas.COLOURS[0]))
    for place, (_, value, colour) in enumerate(bars):
        bounds.bar([place], [value], width=0.5, color=colour)
        bounds.annotate(f"{value:.3g}", (place, value), ha="center", va="bottom")
    bounds.set_xticks(range(len(bars)), [name for name, _, _ in bars])
    bounds.set_ylabel(f"epsilon, delta = {result['delta']:g}")
    bounds.margins(y=0.15)
    _name(bounds, "consistent" if result["is_consistent"] else "CONTRADICTION")
    return figure


def demo_training_figure(record: Mapping[str, Any]) -> "Figure":
    """Draw, of the record of `demo`, epsilon of the training run as its steps go by."""
    figure, (axes,) = canvas.panels(1)
    for result, style, marker in _demo_results(record):
        steps = [row["steps"] for row in result["training"]]
        spent = [row["epsilon"]["upper"] for row in result["training"]]
        # The solid line below and hollow markers, so that curves which nearly meet are all seen.
        below = {"zorder": 1.0} if style["linestyle"] == "-" else {}
        axes.plot(steps, spent, marker=marker, markersize=8, fillstyle="none", **below, **style)
    axes.set_xlabel("steps of DP-SGD")
    axes.set_ylabel(f"epsilon at delta = {record['target']['delta']:g}")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)
    return figure


def demo_error_figure(record: Mapping[str, Any], counts: Mapping[str, int]) -> "Figure":
    """Draw, of the record of `demo`, the noise that each of the true counts received."""
    figure, (axes,) = canvas.panels(1)
    exact = np.array(list(counts.values()), dtype=np.float64)
    places = np.arange(len(exact))
    for shift, (result, style, marker) in zip((-0.2, 0.0, 0.2), _demo_results(record), strict=True):
        noise, look = np.array(result["released"]) - exact, {"color": style["color"]}
        axes.vlines(places + shift, 0.0, noise, linewidth=1.0, **look)
        axes.plot(places + shift, noise, marker, markersize=5, label=style["label"], **look)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.set_xticks(places, list(counts), rotation=30, ha="right")
    axes.set_ylabel("released count minus true count")
    figure.legend(frameon=False, ncols=3, loc="outside upper center")
    return figure


def _demo_results(record: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], dict[str, Any], str]]:
    """Each result with the look that its exponent has in every picture of the page."""
    results = record["results"]
    styles = canvas.styles_of([result["beta"] for result in results])
    return list(zip(results, styles, canvas.MARKERS, strict=False))


def _name(axes: Any, text: str, **more: float) -> None:
    """Name a panel, above it and on the left."""
    axes.set_title(text, fontsize="medium", loc="left", **more)
