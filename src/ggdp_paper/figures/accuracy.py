# SPDX-License-Identifier: Apache-2.0
"""Mean accuracies of a few runs, what they can tell, and their picture.

A row has the `accuracy`, its deviation `std` over the `runs`, None for a single run, and the exponent `beta`.
A verdict is True, False, or None where the runs cannot tell: a lead within two standard errors is a tie.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
Curve = Mapping[str, Any]
USUAL_STD = 0.003
"""What the paper calls its usual deviation; means that differ by less are as good as each other."""


def row_of(accuracies: Sequence[float]) -> dict[str, Any]:
    """Mean and deviation of some runs.

    >>> row_of([0.5])
    {'accuracy': 0.5, 'std': None, 'runs': 1}
    """
    std = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else None
    return {"accuracy": float(np.mean(accuracies)), "std": std, "runs": len(accuracies)}


def error_of_difference(row: Row, other: Row) -> float | None:
    """Standard error of the difference of two means; None if one of them is a single run."""
    if row["std"] is None or other["std"] is None:
        return None
    return float(np.hypot(row["std"] / np.sqrt(row["runs"]), other["std"] / np.sqrt(other["runs"])))


def leads(row: Row, other: Row) -> bool | None:
    """Whether the first mean is above the second by more than two standard errors; False if below by more."""
    error = error_of_difference(row, other)
    apart = row["accuracy"] - other["accuracy"]
    if error is None or abs(apart) <= 2.0 * error:
        return None
    return bool(apart > 0.0)


def is_as_good(row: Row, other: Row) -> bool | None:
    """Whether the first mean is surely not below the second by a usual deviation; False if it trails."""
    if leads(other, row):
        return False
    error = error_of_difference(row, other)
    sure = error is not None and other["accuracy"] - row["accuracy"] + 2.0 * error <= USUAL_STD
    return True if sure else None


def gaussian_and_others(rows: Sequence[Row]) -> tuple[Row, list[Row]] | None:
    """The best row of beta = 2 and those of beta in [1, 2); None without both."""
    gaussian = [row for row in rows if row["beta"] == 2.0]
    others = [row for row in rows if 1.0 <= row["beta"] < 2.0]
    return (max(gaussian, key=lambda row: float(row["accuracy"])), others) if gaussian and others else None


def over_all(verdicts: Iterable[bool | None]) -> bool | None:
    """One verdict over several: True if all are, False if one is, otherwise None."""
    found = set(verdicts)
    if False in found:
        return False
    return True if found == {True} else None


def told(row: Row) -> str:
    """The accuracy in percent, with its deviation where there is one."""
    spread = "" if row["std"] is None else f" +- {100 * row['std']:.2f}"
    return f"{100 * row['accuracy']:.2f}{spread}%"


def error_bars(rows: Sequence[Row]) -> list[float]:
    """Half-lengths of error bars; nothing is drawn for a single run."""
    return [float("nan") if row["std"] is None else row["std"] for row in rows]


def curve_of(rows: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    """Rows as a curve of `accuracy_figure`."""
    return {
        "label": label,
        "betas": [row["beta"] for row in rows],
        "values": [row["accuracy"] for row in rows],
        "errors": error_bars(rows),
    }


def accuracy_figure(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    label: str,
    *,
    rows: int = 1,
    title: str = "",
    same_scale: bool = False,
) -> "Figure":
    """Draw, in each panel, curves with a `label`, `betas` and `values` in [0, 1].

    `errors` are half-lengths of error bars: of the curve itself, or, if the curve has them, of `points` that
    were measured beside it and are drawn without a line. `reference` is a point of someone else's, drawn as a
    cross. With `same_scale` the panels have one scale and one legend.
    """
    figure, found = canvas.panels(len(panels), rows=rows)
    for axes, (name, curves) in zip(found, panels, strict=True):
        for number, curve in enumerate(curves):
            _draw(axes, curve, number)
        betas = [beta for curve in curves for beta in curve["betas"]]
        if betas:
            canvas.mark_exponents(axes, min(betas), max(betas))
        axes.set_title(name, fontsize="medium", loc="left", pad=18)
        axes.set_xlabel("beta, the exponent of the noise (no unit)")
        axes.set_ylabel(label)
        if not same_scale:
            axes.legend(frameon=False, fontsize="small")
    if same_scale:
        fullest = max(found, key=lambda axes: len(axes.containers))
        handles, labels = fullest.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize="small", loc="outside lower center", ncols=6)
        ends = [axes.get_ylim() for axes in found]
        for axes in found:
            axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    if title:
        figure.suptitle(title, fontsize="medium")
    return figure


def _draw(axes: Any, curve: Curve, number: int) -> None:
    style = canvas.style_number(number)
    if "reference" in curve:
        beta, value = curve["reference"]
        axes.plot([beta], [100.0 * value], "x", color=style["color"], markersize=9, markeredgewidth=2)
    marker = canvas.MARKERS[number % len(canvas.MARKERS)]
    values = 100.0 * np.asarray(curve["values"])
    bars = 100.0 * np.asarray(curve["errors"]) if "errors" in curve else None
    if "points" in curve:
        # errorbar throughout: the legend lists plain lines first, whatever the order of drawing.
        axes.errorbar(curve["betas"], values, label=curve["label"], **style)
        points = 100.0 * np.asarray(curve["points"])
        beside = {"color": style["color"], "markersize": 4, "capsize": 2, "linestyle": "none"}
        axes.errorbar(curve["betas"], points, yerr=bars, marker=marker, label="mean of trials", **beside)
    else:
        axes.errorbar(
            curve["betas"],
            values,
            yerr=bars,
            marker=marker,
            markersize=4,
            capsize=3,
            label=curve["label"],
            **style,
        )
