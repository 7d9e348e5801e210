# SPDX-License-Identifier: Apache-2.0
"""Any record of the command line, read back into what a report needs; what it does not know, it refuses."""

from collections.abc import Callable

from ggdp.reporting.answer_report import calibration_report, delta_report, epsilon_report, release_report
from ggdp.reporting.audit_report import audit_report
from ggdp.reporting.curve_report import curve_report
from ggdp.reporting.noise_report import demo_report, noise_report, outlier_report, simulation_report
from ggdp.reporting.pate_report import pate_report
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Report
from ggdp.reporting.training_report import training_report

_READERS: dict[str, Callable[[Fields], Report]] = {
    "noise": noise_report,
    "release": release_report,
    "epsilon": epsilon_report,
    "delta": delta_report,
    "calibrate": calibration_report,
    "curve": curve_report,
    "pate": pate_report,
    "train": training_report,
    "audit": audit_report,
}
_READERS_OF_SHARED: dict[str, Callable[[Fields, Fields], Report]] = {
    "outliers": outlier_report,
    "simulate-argmax": simulation_report,
    "demo": demo_report,
}
KNOWN = (*_READERS, *_READERS_OF_SHARED)


def reports_of(record: object) -> list[Report]:
    """One report for each result of a record.

    Raises:
        ValueError: It is no record of a known command, or a damaged one; the line says which.
    """
    if not isinstance(record, dict) or "kind" not in record or "results" not in record:
        held = ", ".join(sorted(map(str, record))[:8]) if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"a record must be a JSON object with kind and results, got {held or 'nothing'}")
    top = Fields(record)
    kind = top.text("kind")
    if kind in _READERS:
        return [_READERS[kind](result) for result in top.listed("results")]
    if kind in _READERS_OF_SHARED:
        return [_READERS_OF_SHARED[kind](result, top) for result in top.listed("results")]
    raise ValueError(f"kind must be one of {', '.join(KNOWN)}, got {kind!r}")
