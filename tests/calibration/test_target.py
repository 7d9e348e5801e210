# SPDX-License-Identifier: Apache-2.0
"""The search for the border of a target, where questions take long."""

import time
from typing import ClassVar

from ggdp import CannotCertifyError
from ggdp.calibration import target
from ggdp.search import LogAxis


class Slow(target.Target):
    """A target of which each question takes two seconds and tells little but whether a number is below 3."""

    asked: ClassVar[list[float]] = []

    def achieved(self, mechanism, verdict):
        return verdict

    def judge(self, mechanism):
        self.asked.append(mechanism)
        return target.Verdict(-1.0, -1.0 if mechanism <= 3.0 else 1.0)

    def judge_roughly(self, mechanism):
        return target._UNKNOWN

    def estimated_excess(self, mechanism, *, only_cheap=False):
        raise CannotCertifyError("nothing is cheap")


def test_a_search_out_of_time_goes_on_to_two_percent_and_no_further(monkeypatch):
    monkeypatch.setattr(time, "thread_time", lambda: 2.0 * len(Slow.asked))
    start = target.Start(log_value=0.0, slope=1.0)
    found = target.solve(LogAxis(1e-3, 1e3, 4e-7), lambda value: value, Slow(1.0, 1e-6), start)
    assert 3.0 / 1.02 <= found.value <= 3.0
    assert not found.sharp
    assert len(Slow.asked) <= 15
