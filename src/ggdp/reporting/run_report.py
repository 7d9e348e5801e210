# SPDX-License-Identifier: Apache-2.0
"""Any record of the command line, read back into what a report needs; what it does not know, it refuses."""

from collections.abc import Callable

from ggdp.reporting.answer_report import answer_report, calibration_report
from ggdp.reporting.audit_report import audit_report
from ggdp.reporting.curve_report import curve_report
from ggdp.reporting.pate_report import pate_report
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Report
from ggdp.reporting.training_report import training_report

KNOWN = "epsilon, delta, curve, calibrate, pate, train or audit"

_READERS: tuple[tuple[frozenset[str], Callable[[Fields], Report]], ...] = (
    (frozenset({"publishable", "private"}), pate_report),
    (frozenset({"plan", "rows"}), training_report),
    (frozenset({"lower_epsilon", "certified"}), audit_report),
    (frozenset({"curve", "adjacency"}), curve_report),
    (frozenset({"target", "achieved"}), calibration_report),
    (frozenset({"epsilon", "delta", "method", "adjacency"}), answer_report),
)


def reports_of(record: object) -> list[Report]:
    """The runs that a record holds.

    Raises:
        ValueError: It is no record of a known command, or a damaged one; the line says which.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a record must be a JSON object of {KNOWN}, got {type(record).__name__}")
    top = Fields(record)
    return [_report_of(one) for one in (top.listed("results") if "results" in top else [top])]


def _report_of(record: Fields) -> Report:
    for names, reader in _READERS:
        if names <= set(record.content):
            return reader(record)
    held = ", ".join(sorted(record.content)[:8]) or "nothing"
    raise ValueError(f"a record must be the --json output of {KNOWN}, got an object with {held}")
