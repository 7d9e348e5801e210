# SPDX-License-Identifier: Apache-2.0
"""The report of `curve`: many pairs (epsilon, delta) that hold at once."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggdp.reporting.certified_number import CertifiedNumber, certified_number
from ggdp.reporting.guarantee import Guarantee
from ggdp.reporting.noisy_steps import promise_of, run_in, settings_of
from ggdp.reporting.privacy_records import Run
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Picture, Report, detection_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USUAL_DELTA = 1e-6
"""Of all pairs the one nearest to this delta is quoted: what people ask for, not an end of the grid."""


def curve_report(record: Fields) -> Report:
    """A record of `curve`."""
    run, points = run_in(record), record.listed("curve")
    deltas = [point.real("delta", above=0.0, most=1.0) for point in points]
    bounds = [certified_number("epsilon", point.inside("epsilon")) for point in points]
    methods = [point.text("method") for point in points]
    pairs = [(one.upper, delta) for one, delta in zip(bounds, deltas, strict=True) if one.upper is not None]
    pairs.sort(key=lambda pair: abs(math.log(pair[1] / USUAL_DELTA)))
    promise = Guarantee(tuple(pairs), run.adjacency) if pairs else None
    return Report(
        title=f"Privacy curve of a run of noisy steps, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings=settings_of(run),
        proved=_proved(bounds, methods),
        estimated=(promise_of(run),),
        pictures=(*_curve_picture(run, bounds, deltas), *detection_picture(promise)),
    )


def _proved(bounds: Sequence[CertifiedNumber], methods: Sequence[str]) -> tuple[str, ...]:
    known = [one for one in bounds if one.upper is not None]
    missing = len(bounds) - len(known)
    without = (f"At {missing} of {len(bounds)} deltas no upper bound of epsilon could be certified.",)
    if not known:
        return without
    named = ", ".join(
        sorted({method for one, method in zip(bounds, methods, strict=True) if one.upper is not None})
    )
    widest = max(one.upper - one.lower for one in known if one.upper is not None)
    head = (
        "The pair (epsilon, delta) holds"
        if len(known) == 1
        else f"All {len(known)} pairs (epsilon, delta) hold at once"
    )
    return (
        f"{head}, by certified upper bounds (method: {named}); upper and lower bounds are at most "
        f"{widest:.2g} apart.",
        *(without if missing else ()),
    )


def _curve_picture(
    run: Run, bounds: Sequence[CertifiedNumber], deltas: Sequence[float]
) -> tuple[Picture, ...]:
    if all(one.upper is None for one in bounds):
        return ()
    points = [
        {"epsilon": {"upper": one.upper}, "delta": delta} for one, delta in zip(bounds, deltas, strict=True)
    ]

    def drawn() -> "Figure":
        from ggdp.reporting.curve_figure import curve_figure

        return curve_figure([{"curve": points, **run.to_dict()}])

    return ((drawn, "Certified upper bounds of epsilon at each delta."),)
