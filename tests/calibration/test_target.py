# SPDX-License-Identifier: Apache-2.0
"""The search for the border of a target, where questions take long."""

import math
import time
from typing import ClassVar

import pytest

from ggdp import (
    AdditiveNoise,
    CannotCertifyError,
    Composed,
    GeneralizedGaussian,
    PoissonSampled,
    account,
    epsilon,
)
from ggdp.accounting.engines.tilt import planned_epsilon
from ggdp.accounting.steps import steps_of
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


@pytest.mark.parametrize(("beta", "delta"), [(32.0, 0.95), (1.5, 0.6)])
def test_where_delta_is_large_the_plan_lies_near_the_border_and_not_at_an_end(beta, delta):
    aim = target.Target(0.1, delta)

    def at(precision):
        return Composed(AdditiveNoise(GeneralizedGaussian(beta, 1.0 / precision)), times=3)

    start = target.planned_start(LogAxis(0.1, 50.0, 4e-7), at, aim)
    certified = account(at(math.exp(start.log_value))).delta(epsilon=0.1)
    assert 0.85 * delta <= certified.upper <= 1.1 * delta


@pytest.mark.parametrize(("beta", "scale", "rate", "times"), [(4.0, 1.4, 3e-5, 20), (1.5, 11.3, 1e-3, 33)])
def test_plans_are_right_where_one_release_decides_and_where_all_do(beta, scale, rate, times):
    seldom = Composed(PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, scale)), rate), times=times)
    truth = epsilon(seldom, delta=1e-6).estimate
    assert planned_epsilon(steps_of(seldom).pairs()[0], math.log(1e-6)) == pytest.approx(truth, rel=0.01)
