import mpmath
import numpy as np
import pytest

from ggdp.privacy_loss.hockey_stick import far_side, hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair
from pair_oracle import DIGITS, ExactPair

CASES = [
    (ShiftPair(2.0, 1.0, 0.0, 1.0), [-2.0, 0.0, 1.0, 5.0, 20.0]),
    (ShiftPair(1.5, 0.35, 0.0, 0.01), [-0.005, 0.0, 0.001, 0.1]),
    (ShiftPair(1.5, 0.5, -0.5, 0.3), [-1.0, 0.1, 1.0, 1.5]),
    (ShiftPair(1.0, 0.35, 0.0, 0.01), [-0.002, 0.001, 0.004]),
    (ShiftPair(1.0, 0.0, -0.35, 0.01), [-0.002, 0.001, 0.0029]),
    (ShiftPair(1.0, 0.5, -0.5, 0.2), [-0.1, 0.05, 0.15]),
    (ShiftPair(4.0, 0.0, -1.0, 0.1), [-1.0, 0.01, 0.1]),
    (ShiftPair(2.0, 0.7, 0.0, 1e-7), [1e-9, 1e-7, 1e-5, 1e-3]),
    (ShiftPair(1.01, 0.7, 0.0, 1.0), [0.1, 0.7]),
]


@pytest.mark.parametrize(("pair", "points"), CASES)
def test_profile_lies_within_its_claimed_error_of_mpmath(pair, points):
    near, far = hockey_stick(pair, np.array(points)), far_side(pair, np.array(points))
    for i, t in enumerate(points):
        with mpmath.workdps(DIGITS):
            truth = ExactPair(pair).delta(mpmath.mpf(t))
            other = truth - (1 - mpmath.exp(mpmath.mpf(t)))
            assert abs(near.value[i] - truth) <= near.error[i] + mpmath.mpf("1e-320")
            assert abs(far.value[i] - other) <= far.error[i] + mpmath.mpf("1e-320")
        assert near.error[i] <= 1e-10 * near.value[i]


def test_profile_beyond_the_ends_of_a_bounded_loss_is_exact():
    pair = ShiftPair(1.0, 0.5, 0.0, 1.0)
    assert hockey_stick(pair, np.array([0.5, 0.7])).value.tolist() == [0.0, 0.0]
    assert hockey_stick(pair, np.array([-0.5, -0.7])).value == pytest.approx(
        -np.expm1([-0.5, -0.7]), rel=1e-15
    )


def test_profile_at_losses_whose_exponential_overflows():
    pair = ShiftPair(8.0, 2.3, 0.0, 1.0)
    value = hockey_stick(pair, np.array([500.0, 1000.0, 1900.0]))
    for t, delta, error in zip((500.0, 1000.0, 1900.0), value.value, value.error, strict=True):
        with mpmath.workdps(DIGITS):
            assert abs(delta - ExactPair(pair).delta(mpmath.mpf(t))) <= error
