# SPDX-License-Identifier: Apache-2.0
"""What all pictures share: blank panels, colours that everyone can tell apart, and the PNG file."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Those of Okabe and Ito, told apart by every kind of colour vision; their black is kept for the Gaussian."""

LINES = ("--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))
GAUSSIAN_COLOUR = "#000000"

_NAMES = {1.0: " (Laplace)", 2.0: " (Gaussian)"}


def panels(count: int) -> tuple["Figure", list[Any]]:
    """A figure with so many empty panels side by side."""
    # A Figure of its own, without pyplot: no global state, no window, any thread.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    found = [figure.add_subplot(1, count, position + 1) for position in range(count)]
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


def png(figure: "Figure") -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()
