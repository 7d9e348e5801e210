# SPDX-License-Identifier: Apache-2.0
"""What a few runs can tell: leads, ties, and statements about several settings."""

import math

import pytest

from ggdp_paper.experiment import Agreement
from ggdp_paper.figures.accuracy import (
    error_bars,
    error_of_difference,
    gaussian_and_others,
    is_as_good,
    leads,
    over_all,
    row_of,
    told,
)


def row(accuracy, std=0.001, runs=4, beta=2.0):
    return {"accuracy": accuracy, "std": std, "runs": runs, "beta": beta}


def test_mean_and_deviation_and_none_for_a_single_run():
    assert row_of([0.8, 0.82]) == {
        "accuracy": pytest.approx(0.81),
        "std": pytest.approx(0.01 * 2**0.5),
        "runs": 2,
    }
    assert row_of([0.8])["std"] is None
    assert told(row(0.8123)) == "81.23 +- 0.10%"
    assert told(row(0.8123, std=None)) == "81.23%"
    assert [math.isnan(bar) for bar in error_bars([row(0.8), row(0.8, std=None)])] == [False, True]


def test_the_error_of_a_difference_is_that_of_independent_means():
    assert error_of_difference(row(0.8, 0.003, 9), row(0.7, 0.004, 4)) == pytest.approx(
        (0.001**2 + 0.002**2) ** 0.5
    )


def test_a_lead_within_two_standard_errors_is_a_tie():
    error = error_of_difference(row(0.8), row(0.8))
    assert leads(row(0.8 + 2.1 * error), row(0.8)) is True
    assert leads(row(0.8), row(0.8 + 2.1 * error)) is False
    assert leads(row(0.8 + 1.9 * error), row(0.8)) is None
    assert leads(row(0.9, std=None), row(0.8)) is None


def test_as_good_needs_runs_enough_to_rule_out_a_usual_deviation():
    assert is_as_good(row(0.8), row(0.8)) is True
    assert is_as_good(row(0.8), row(0.801)) is True
    assert is_as_good(row(0.8), row(0.804)) is False
    assert is_as_good(row(0.8, std=0.01), row(0.8, std=0.01)) is None
    assert is_as_good(row(0.9), row(0.8, std=None)) is None


def test_the_gaussian_is_compared_with_the_exponents_below_it():
    rows = [row(0.8, beta=1.0), row(0.7), row(0.75), row(0.9, beta=3.0)]
    assert gaussian_and_others(rows) == (rows[2], rows[:1])
    assert gaussian_and_others(rows[1:]) is None


def test_statements_about_several_settings():
    assert over_all([True, True]) is True
    assert over_all([True, None]) is None
    assert over_all([True, None, False]) is False
    assert over_all([]) is None
    assert Agreement.of_all([True, True]) is Agreement.AGREES
    assert Agreement.of_all([True, False]) is Agreement.PARTLY
    assert Agreement.of_all([False, None]) is Agreement.DIFFERS
    assert Agreement.of_all([]) is Agreement.UNDECIDED
