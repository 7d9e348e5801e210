# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest

from ggdp import arguments


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int64(3), np.array(3.0)])
def test_numbers_of_every_kind_become_floats(value):
    assert arguments.real("x", value) == 3.0
    assert type(arguments.real("x", value)) is float


@pytest.mark.parametrize(
    "value", ["3", b"3", True, np.True_, None, [3], 3j, math.nan, math.inf, 10**400], ids=repr
)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match=r"^x must be a number in \(-inf, inf\), got "):
        arguments.real("x", value)


@pytest.mark.parametrize(
    ("limits", "interval"),
    [
        ({"least": 1, "most": 64}, "[1, 64]"),
        ({"above": 0}, "(0, inf)"),
        ({"above": 0, "most": 1}, "(0, 1]"),
        ({"above": 0, "below": 1}, "(0, 1)"),
        ({"least": 0}, "[0, inf)"),
    ],
)
def test_the_refusal_states_the_interval(limits, interval):
    with pytest.raises(ValueError) as refusal:
        arguments.real("x", -5.0, **limits)
    assert str(refusal.value) == f"x must be a number in {interval}, got -5.0"


def test_a_long_or_many_lined_value_is_shown_in_one_short_line():
    with pytest.raises(ValueError) as refusal:
        arguments.real("x", np.zeros((50, 50)), hint="pass one number")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 160
    assert str(refusal.value).endswith("...; pass one number")


def test_infinity_is_a_norm_and_nan_is_not():
    assert arguments.extended_real("norm", math.inf, least=1.0) == math.inf
    with pytest.raises(ValueError, match="norm must be a number in"):
        arguments.extended_real("norm", math.nan, least=1.0)


@pytest.mark.parametrize("value", [0, -1, 2.0, "2", True, None])
def test_whole_numbers_are_whole_and_large_enough(value):
    with pytest.raises(ValueError, match=r"^times must be a whole number >= 1, got "):
        arguments.whole("times", value)


def test_whole_numbers_keep_to_their_upper_end():
    assert arguments.whole("n", np.int32(7), most=7) == 7
    with pytest.raises(ValueError, match=r"^n must be a whole number in \[1, 7\], got 8; fewer$"):
        arguments.whole("n", 8, most=7, hint="fewer")


def test_ranges_check_and_name_themselves():
    width = arguments.Range("width", least=1.0, most=2.0, typical=(1.2, 1.4))
    assert width.check(1) == 1.0
    with pytest.raises(ValueError, match=r"^width must be a number in \[1, 2\], got 3$"):
        width.check(3)
