# SPDX-License-Identifier: Apache-2.0
"""The walk to the border, on functions whose border is known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggdp.calibration.search import CountAxis, LogAxis, border

GRID = LogAxis(1e-3, 1e3, 1e-6)


class Asked:
    """A rising function that remembers where it was asked."""

    def __init__(self, axis, function):
        self.axis = axis
        self.function = function
        self.places = []

    def __call__(self, place):
        assert self.axis.least <= place <= self.axis.most
        self.places.append(place)
        return self.function(self.axis.value(place))


def assert_is_border(found, asked):
    assert found.lost == found.private + 1
    assert {found.private, found.lost} <= set(asked.places)
    assert (
        asked.function(asked.axis.value(found.private)) <= 0.0 < asked.function(asked.axis.value(found.lost))
    )


@given(
    root=st.floats(2e-3, 5e2),
    power=st.floats(0.2, 30.0),
    start=st.one_of(st.none(), st.integers(GRID.least, GRID.most)),
    slope=st.floats(0.05, 50.0),
)
@settings(max_examples=200)
def test_the_border_of_a_power_law_is_found_from_anywhere_with_any_slope(root, power, start, slope):
    asked = Asked(GRID, lambda value: power * math.log(value / root))
    found = border(GRID, asked, start=start, slope=slope)
    assert_is_border(found, asked)
    assert GRID.value(found.private) == pytest.approx(root, rel=2e-6)
    assert len(asked.places) <= 60


def test_a_good_start_and_slope_need_few_questions():
    asked = Asked(GRID, lambda value: 1.2 * math.log(value / 0.7) + 0.3 * math.log(value / 0.7) ** 2)
    found = border(GRID, asked, start=GRID.place(math.log(0.7001)), slope=1.2)
    assert_is_border(found, asked)
    assert len(asked.places) <= 4
    assert found.log_value == pytest.approx(math.log(0.7), abs=1e-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda value: math.inf if value > 0.37 else -math.inf,
        lambda value: 1e-9 if value > 0.37 else -50.0,
        lambda value: (
            1e4 * math.log(value / 0.37) if value < 0.37 else 1e-7 * math.log(value / 0.37) + 1e-300
        ),
        lambda value: -math.inf if value < 0.3 else math.log(value / 0.37),
        lambda value: math.expm1(min(200.0 * (value - 0.37), 300.0)),
    ],
    ids=["step", "lopsided-step", "kink", "infinite-below", "explosive"],
)
@pytest.mark.parametrize("start", [None, GRID.least, GRID.most, GRID.place(math.log(0.37))])
def test_jumps_kinks_and_infinities_do_not_stop_the_walk(function, start):
    asked = Asked(GRID, function)
    found = border(GRID, asked, start=start)
    assert_is_border(found, asked)
    assert len(asked.places) <= 100


@given(answer=st.integers(1, 10**7 - 1), power=st.floats(0.3, 2.0))
@settings(max_examples=100)
def test_counts_are_found_exactly(answer, power):
    axis = CountAxis(10**7)
    asked = Asked(axis, lambda value: power * math.log(value / (answer + 0.5)))
    assert border(axis, asked).private == answer
    assert len(asked.places) <= 60


@pytest.mark.parametrize("axis", [GRID, CountAxis(1000)], ids=["grid", "counts"])
def test_an_axis_all_on_one_side_is_told_after_its_end_was_asked(axis):
    private = Asked(axis, lambda value: math.log(value) - 100.0)
    found = border(axis, private)
    assert (found.private, found.lost) == (axis.most, None)
    assert axis.most in private.places
    lost = Asked(axis, lambda value: math.log(value) + 100.0)
    found = border(axis, lost)
    assert (found.private, found.lost) == (None, axis.least)
    assert axis.least in lost.places


def test_noise_below_the_resolution_still_leaves_neighbours():
    asked = Asked(GRID, lambda value: math.log(value / 0.5) + 3e-6 * math.sin(1e7 * value))
    assert_is_border(border(GRID, asked), asked)


def test_grid_values_stay_inside_and_contain_one():
    assert GRID.low <= GRID.value(GRID.least) < GRID.value(GRID.most) <= GRID.high
    assert GRID.value(0) == 1.0
    assert GRID.value(GRID.place(math.log(0.123))) == pytest.approx(0.123, rel=2e-6)
