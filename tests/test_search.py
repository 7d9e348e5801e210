# SPDX-License-Identifier: Apache-2.0
"""Searches, on functions whose border is known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggdp.search import (
    CountAxis,
    LogAxis,
    arithmetic,
    border,
    geometric,
    halve,
    largest_that_fits,
    whole,
)

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


@pytest.mark.parametrize("root", [0, 1, 2, 3, 7, 100, 4095, 4096, 123_456, 9_999_999, 10**7])
@pytest.mark.parametrize("power", [0.05, 0.5, 1.0, 20.0])
def test_the_largest_count_is_found_whatever_it_is(root, power):
    asked = []

    def excess(k):
        asked.append(k)
        return power * math.log(k / (root + 0.5)) if k < 3 * root + 9 else math.inf

    assert largest_that_fits(excess, most=10**7) == root
    assert len(asked) == len(set(asked)) <= 60


@pytest.mark.parametrize("root", [0, 1, 2, 14, 1000, 123_456, 9_999_999])
@pytest.mark.parametrize(("steepness", "bias"), [(0.5, 0.0), (0.5, -2.0), (0.1, 0.6), (2.0, 0.6)])
def test_a_poor_plan_makes_the_search_say_less_and_not_ask_more(root, steepness, bias):
    asked = []

    def excess(k):
        asked.append(k)
        return 0.5 * math.log(k / (root + 0.5))

    found = largest_that_fits(excess, 10**7, lambda k: steepness * math.log(k / (root + 0.5)) + bias)
    assert 0.7 * root - 1 <= found <= root
    assert len(asked) <= 5
    if (steepness, bias) == (0.5, 0.0):
        assert found == root


def test_a_search_in_which_nothing_fits_ends():
    asked = []

    def excess(k):
        asked.append(k)
        return math.inf

    assert largest_that_fits(excess, 10**7, lambda k: 0.5 * math.log(k / 1e5)) == 0
    assert len(asked) <= 7


def test_the_search_of_counts_ends_on_a_cliff():
    assert largest_that_fits(lambda k: -math.inf if k <= 54_321 else math.inf, most=10**7) == 54_321


@given(root=st.floats(1e-300, 1e300), inside_is_low=st.booleans())
@settings(max_examples=100)
def test_halving_ends_at_neighbouring_doubles_on_either_side_of_the_root(root, inside_is_low):
    asked = []

    def holds(x):
        asked.append(x)
        return (x <= root) == inside_is_low

    ends = (0.0, 2.0 * root) if inside_is_low else (2.0 * root, 0.0)
    inside, outside = halve(holds, *ends, middle=arithmetic)
    assert (inside <= root) == inside_is_low != (outside <= root)
    assert math.nextafter(inside, outside) == outside
    assert {inside, outside} <= {*asked, *ends}


@given(log_root=st.floats(-690.0, 690.0), relative=st.floats(1e-12, 0.5))
@settings(max_examples=100)
def test_halving_by_ratios_stops_as_close_as_asked_and_not_much_closer(log_root, relative):
    root = math.exp(log_root)
    inside, outside = halve(lambda x: x >= root, 1e300, 1e-300, middle=geometric, relative=relative)
    assert outside < root <= inside <= outside * (1.0 + relative)
    assert inside > outside * (1.0 + 0.4 * relative)


@given(root=st.integers(0, 10**7 - 1))
@settings(max_examples=100)
def test_halving_counts_finds_every_one_of_them(root):
    asked = []
    found = halve(lambda k: asked.append(k) or k <= root, 0, 10**7, middle=whole)
    assert found == (root, root + 1)
    assert len(asked) <= 40


def test_halving_asks_no_more_often_than_allowed():
    asked = []
    halve(lambda x: asked.append(x) or True, 0.0, 1.0, middle=arithmetic, halvings=12)
    assert len(asked) == 12
