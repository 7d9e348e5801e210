# SPDX-License-Identifier: Apache-2.0
"""What all pictures share: blank panels, colours that everyone can tell apart, PNG and SVG files."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, told apart by every kind of colour vision; their black is kept for the Gaussian."""

MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
GAUSSIAN_COLOUR = "#000000"

_NAMES = {1.0: " (Laplace)", 2.0: " (Gaussian)"}


def panels(count: int, *, rows: int = 1) -> tuple["Figure", list[Any]]:
    """A figure with so many empty panels, side by side in so many rows."""
    # A Figure of its own, without pyplot: no global state, no window, any thread.
    from matplotlib.figure import Figure

    columns = -(-count // rows)
    figure = Figure(figsize=(8.0 if columns < 3 else 10.0, 0.4 + 3.0 * rows), layout="constrained")
    found = [figure.add_subplot(rows, columns, position + 1) for position in range(count)]
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure, found


def styles_of(betas: list[float]) -> list[dict[str, Any]]:
    """A label and a line for each exponent: the Gaussian black and solid, every other one different."""
    styles, others = [], 0
    for beta in betas:
        label = f"beta = {beta:g}{_NAMES.get(beta, '')}"
        if beta == 2.0:
            styles.append({"label": label, "color": GAUSSIAN_COLOUR, "linestyle": "-", "linewidth": 2.0})
        else:
            colour, line = COLOURS[others % len(COLOURS)], LINES[others % len(LINES)]
            styles.append({"label": label, "color": colour, "linestyle": line, "linewidth": 1.6})
            others += 1
    return styles


def style_number(number: int) -> dict[str, Any]:
    """A line for the curve of this number, where curves are not exponents: never the Gaussian's black."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": ("-", *LINES)[number % (1 + len(LINES))],
        "linewidth": 1.6,
    }


def mark_exponents(axes: Any, least: float, most: float) -> None:
    """Thin lines, named above the panel, where an axis of exponents meets Laplace and Gaussian."""
    for beta, name in ((1.0, "Laplace"), (2.0, "Gaussian")):
        if least <= beta <= most:
            line = "--" if beta == 2.0 else ":"
            axes.axvline(beta, color=GAUSSIAN_COLOUR, linewidth=0.9, linestyle=line, zorder=0)
            axes.annotate(
                name,
                (beta, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize="small",
            )


def svg(figure: "Figure") -> bytes:
    """The figure as an SVG file, the same bytes for the same figure."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "ggdp", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def png(figure: "Figure") -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()
