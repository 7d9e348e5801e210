# SPDX-License-Identifier: Apache-2.0
"""The picture of sampling times: ratios on the CPU with quartiles, and milliseconds on a device."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def speed_figure(
    rows: Sequence[Mapping[str, Any]], device: Mapping[str, Any] | None, *, machine: str, ratio: float
) -> "Figure":
    """Draw rows with `beta`, `ratios` and `quartiles` by sampler; bars of a device's `milliseconds`.

    `machine` is where the rows were timed, and `ratio` what the paper reports.
    """
    figure, panels = canvas.panels(1 if device is None else 2)
    left = panels[0]
    betas = [row["beta"] for row in rows]
    for number, name in enumerate(rows[0]["ratios"]):
        middle = [row["ratios"][name] for row in rows]
        low = [value - row["quartiles"][name][0] for value, row in zip(middle, rows, strict=True)]
        high = [row["quartiles"][name][1] - value for value, row in zip(middle, rows, strict=True)]
        marker = canvas.MARKERS[number]
        style = canvas.style_number(number)
        left.errorbar(betas, middle, yerr=[low, high], marker=marker, capsize=3, label=name, **style)
    left.axhline(1.0, color=canvas.GAUSSIAN_COLOUR, linewidth=1.2, label="NumPy's Gaussian")
    left.axhline(ratio, color="#7f7f7f", linestyle=":", label=f"the paper: {ratio:g}")
    left.set_yscale("log")
    left.set_yticks([0.5, 1.0, 2.0, 4.0, 8.0], labels=["0.5", "1", "2", "4", "8"])
    left.set_yticks([], minor=True)
    left.set_xlabel("beta, the exponent of the noise (no unit)")
    left.set_ylabel("time / time of NumPy's Gaussian")
    left.set_title(machine, fontsize="medium", loc="left")
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}
    left.legend(frameon=False, fontsize="small", **below)
    figure.set_figheight(4.0)
    if device is not None:
        _bars(panels[1], device["milliseconds"])
    return figure


def _bars(axes: Any, milliseconds: Mapping[str, float]) -> None:
    names = list(milliseconds)[::-1]
    values = [milliseconds[name] for name in names]
    colours = [
        canvas.GAUSSIAN_COLOUR if "randn" in name else canvas.COLOURS["ggdp" not in name] for name in names
    ]
    axes.tick_params(axis="y", labelsize="small")
    axes.barh(names, values, color=colours)
    axes.set_xscale("log")
    axes.set_xlim(0.2, 40.0)
    axes.set_xticks([0.2, 0.5, 1.0, 2.0, 5.0, 10.0], labels=["0.2", "0.5", "1", "2", "5", "10"])
    axes.set_xticks([], minor=True)
    for name, value in zip(names, values, strict=True):
        axes.annotate(f" {value:g}", (value, name), va="center", fontsize="small")
    axes.set_xlabel("milliseconds for 2^28 numbers")
    axes.set_title("one H200, from its record", fontsize="medium", loc="left")
