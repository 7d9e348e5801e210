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


@pytest.mark.parametrize("rate", [0.7, 1.0 - 1e-4, 1.0 - 1e-8, 1.0 - 1e-11])
@pytest.mark.parametrize(("beta", "shift"), [(2.2, 1.7), (3.0, 1.4), (18.9, 1.18)])
def test_rates_next_to_one_keep_the_digits_of_one_minus_the_rate(beta, shift, rate):
    """rate (e^l - 1) is next to -1 where the record is all but surely not the one that was drawn."""
    pair = ShiftPair(beta, 0.0, -shift, rate)
    points = pair.supremum * (1.0 - np.array([0.3, 1e-2, 1e-4]))
    found = hockey_stick(pair, points)
    for t, value, error in zip(points, found.value, found.error, strict=True):
        with mpmath.workdps(DIGITS):
            truth = ExactPair(pair).delta(mpmath.mpf(float(t)))
        assert abs(value - truth) <= error
        assert error <= 1e-3 * truth


@pytest.mark.parametrize(
    "pair",
    [
        ShiftPair(1.0, 1.0 / 0.06848948977202775, 0.0, 1.0),
        ShiftPair(1.0, 1.0 / 12.377529115289915, -1.0 / 12.377529115289915, 1.0),
        ShiftPair(29.29076077627586, 0.0, -1.0 / 2.217193310506654, 0.9999469684211815),
    ],
)
def test_next_to_the_largest_loss_its_rounding_is_charged(pair):
    """The largest loss is a rounded number: at it, and at its neighbours, delta need not be zero."""
    end = pair.supremum
    points = np.array([end, np.nextafter(end, 0.0), np.nextafter(end, 1e9)])
    found = hockey_stick(pair, points)
    with mpmath.workdps(DIGITS):
        exact = ExactPair(pair)
        largest = exact.loss(mpmath.mpf(200))
        for t, value, error in zip(points, found.value, found.error, strict=True):
            truth = max(largest - mpmath.mpf(float(t)), 0)  # no less than delta there
            assert value + error >= min(truth, exact.mixture_survival(mpmath.mpf(0), exact.up) * truth)
            assert error <= 1e-13


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


def _random_pair(rng):
    """One release with little noise: any beta, any rate, any adjacency."""
    beta = float(rng.choice([1.0, 2.0, 4.0])) if rng.random() < 0.4 else float(np.exp(rng.uniform(0.0, 2.08)))
    shift = float(np.exp(rng.uniform(np.log(0.1), np.log(35.0))))
    rate = 1.0 if rng.random() < 0.5 else float(np.exp(rng.uniform(np.log(1e-7), 0.0)))
    up, down = [(shift, 0.0), (0.0, -shift), (shift, -shift)][rng.integers(3)]
    return ShiftPair(beta, up, down, rate)


def test_profile_is_right_at_every_epsilon_up_to_3000_and_delta_down_to_1e_300():
    """A large e^t meets a Q below the smallest double: random settings, against mpmath."""
    rng = np.random.default_rng(7)
    judged = deep = 0
    while judged < 40:
        pair, t = _random_pair(rng), float(np.exp(rng.uniform(0.0, np.log(3000.0))))
        with mpmath.workdps(DIGITS):
            truth = ExactPair(pair).delta_far_out(mpmath.mpf(t))
            if truth is None:
                continue
            stick = hockey_stick(pair, np.array([t]))
            assert abs(stick.value[0] - truth) <= stick.error[0], (pair, t)
        assert stick.error[0] <= 1e-8 * stick.value[0], (pair, t)
        judged, deep = judged + 1, deep + (t > 40.0 and stick.value[0] < 1e-10)
    assert deep >= 3  # the corner itself


@pytest.mark.parametrize(
    ("pair", "t"),
    [
        (ShiftPair(2.0, 1.0 / (0.05 * np.sqrt(2.0)), 0.0, 1.0), 575.0),
        (ShiftPair(2.0, 1.0 / (0.08 * np.sqrt(2.0)), 0.0, 1.0), 402.625),
        (ShiftPair(6.0, 1.0 / (1.163 * np.sqrt(2.0)), 0.0, 1.0), 565.25),
    ],
)
def test_profile_where_the_second_factor_underflows(pair, t):
    stick = hockey_stick(pair, np.array([t]))
    with mpmath.workdps(DIGITS):
        truth = ExactPair(pair).delta_far_out(mpmath.mpf(t))
        assert abs(stick.value[0] - truth) <= stick.error[0]
    assert stick.error[0] <= 1e-9 * stick.value[0]


def test_sampled_laplace_profile_far_from_its_largest_loss_is_within_its_error():
    rng = np.random.default_rng(8)
    for _ in range(40):
        shift, rate = float(np.exp(rng.uniform(np.log(0.1), np.log(35.0)))), 10.0 ** rng.uniform(-7.0, 0.0)
        pair = ShiftPair(1.0, *[(shift, 0.0), (0.0, -shift)][rng.integers(2)], rate)
        t = pair.supremum * float(rng.uniform(0.0, 1.0))
        stick = hockey_stick(pair, np.array([t]))
        with mpmath.workdps(DIGITS):
            truth = ExactPair(pair).delta(mpmath.mpf(t))
            assert abs(stick.value[0] - truth) <= stick.error[0], (pair, t)


def test_far_side_keeps_its_digits_at_losses_far_below_zero():
    pair = ShiftPair(6.0, 0.7, 0.0, 1.0)
    points = np.array([-5.0, -20.0, -60.0])
    far = far_side(pair, points)
    for i, t in enumerate(points):
        with mpmath.workdps(DIGITS):
            exact = ExactPair(pair)
            z = exact.threshold(mpmath.mpf(t))
            truth = mpmath.exp(t) * exact.survival(-z) - exact.survival(pair.up - z)
            assert abs(far.value[i] - truth) <= far.error[i]
        assert far.error[i] <= 1e-10 * far.value[i]
