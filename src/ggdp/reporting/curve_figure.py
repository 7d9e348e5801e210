# SPDX-License-Identifier: Apache-2.0
"""The picture of privacy curves: delta against epsilon, one line for each exponent."""

from typing import TYPE_CHECKING, Any

from ggdp.reporting import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve_figure(records: list[dict[str, Any]]) -> "Figure":
    """Draw the records of `curve_record`, by their certified upper bounds, on a logarithmic axis of delta."""
    figure, (axes,) = canvas.panels(1)
    styles = canvas.styles_of([record["beta"] for record in records])
    for record, style in zip(records, styles, strict=True):
        points = [point for point in record["curve"] if point["epsilon"]["upper"] is not None]
        axes.plot(
            [point["epsilon"]["upper"] for point in points], [point["delta"] for point in points], **style
        )
    axes.set_yscale("log")
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epsilon (certified upper bound, nats)")
    axes.set_ylabel("delta (probability)")
    axes.set_title(_title(records[0]), fontsize="medium", loc="left")
    axes.legend(frameon=False)
    return figure


def _title(record: dict[str, Any]) -> str:
    steps = "1 step" if record["steps"] == 1 else f"{record['steps']} steps"
    return f"{steps}, sampling rate {record['rate']:g}, neighbours: {record['adjacency']}"
