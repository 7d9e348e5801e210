import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggdp.privacy_loss.shift_pair import ShiftPair
from pair_oracle import DIGITS, ExactPair

PAIRS = [
    ShiftPair(1.0, 0.4, 0.0, 1.0),
    ShiftPair(1.0, 0.0, -0.4, 0.02),
    ShiftPair(1.5, 7e-4, 0.0, 1e-6),
    ShiftPair(1.5, 0.4, -0.4, 0.3),
    ShiftPair(2.0, 0.7, 0.0, 0.01),
    ShiftPair(8.0, 2.0, 0.0, 0.5),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_loss_is_right_to_twelve_digits_however_small_the_shift_or_the_rate(pair):
    for z in (-3.0, -0.31, 0.05, 0.2, 0.9, 1.7):
        with mpmath.workdps(DIGITS):
            truth = ExactPair(pair).loss(mpmath.mpf(z))
        assert float(pair.loss(np.array(z))) == pytest.approx(float(truth), rel=1e-12, abs=1e-300)


@given(
    beta=st.floats(1.0, 8.0),
    up=st.floats(0.0, 3.0),
    down=st.floats(-3.0, 0.0),
    rate=st.floats(1e-7, 1.0),
)
def test_loss_never_falls_with_the_noise(beta, up, down, rate):
    pair = ShiftPair(beta, up, down, rate)
    loss = pair.loss(np.linspace(-4.0, 5.0, 301))
    assert np.all(np.diff(loss) >= -1e-9 * (1.0 + np.abs(loss[1:])))


@pytest.mark.parametrize("pair", PAIRS)
def test_slope_is_the_derivative_of_the_loss(pair):
    z = np.array([-1.3, 0.11, 0.77, 1.9])
    numeric = (pair.loss(z + 1e-6) - pair.loss(z - 1e-6)) / 2e-6
    assert pair.loss_slope(z) == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_supremum_and_infimum_are_the_limits_of_the_loss():
    for pair in PAIRS:
        ends = pair.loss(np.array([-1e12, 1e12]))
        for end, limit in zip(ends, (pair.infimum, pair.supremum), strict=True):
            if np.isfinite(limit):
                assert end == pytest.approx(limit, rel=1e-9)
            else:
                assert end * np.sign(limit) > 100.0


def test_reversing_twice_gives_the_pair_back():
    for pair in PAIRS:
        assert pair.reverse.reverse == pair
        z = np.array([-0.7, 0.3, 1.2])
        assert pair.reverse.loss(-z) == pytest.approx(-pair.loss(z), rel=1e-12, abs=1e-300)
