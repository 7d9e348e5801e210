"""Ten digits, against values found by two independent methods at higher precision."""

import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    GeneralizedGaussian,
    PoissonSampled,
    account,
    delta,
    epsilon,
)

# beta, scale, rate, times, delta, epsilon (density exp(-(|x|/scale)^beta), sensitivity 1, ADD_REMOVE)
REFERENCE = [
    (2.0, 1.1313708498984762, 0.004, 2000, 1e-5, 1.663179277),
    (2.0, 1.4142135623730951, 0.01, 10000, 1e-6, 6.907384495),
    (2.0, 1.5556349186104048, 0.001, 100000, 1e-7, 1.759338814),
    (2.0, 1.4142135623730951, 0.01, 1000, 1e-14, 4.543701989),
    (1.0, 2.8284271247461903, 0.01, 5000, 1e-6, 1.011494405),
    (1.5, 2.8284271247461903, 0.01, 5000, 1e-6, 1.349261426),
    # by mpmath at 30 digits, trapezoid in the noise and on the contour, period 220: 9.8736612457305
    (4.0, 2.8284271247461903, 0.01, 5000, 1e-6, 9.8736612457305),
    (1.25, 3.0, 1.0, 50, 1e-6, 14.097776777),
    (2.0, 5.0, 1.0, 30, 1e-5, 7.329372827),
]


def _mechanism(beta, scale, rate, times):
    step = AdditiveNoise(GeneralizedGaussian(beta, scale))
    return Composed(PoissonSampled(step, rate) if rate < 1.0 else step, times=times)


@pytest.mark.parametrize("row", REFERENCE, ids=str)
def test_epsilon_has_ten_digits_and_a_certified_width_below_one_in_a_million(row):
    beta, scale, rate, times, asked, truth = row
    answer = epsilon(_mechanism(beta, scale, rate, times), delta=asked)
    assert answer.estimate == pytest.approx(truth, rel=3e-10)
    assert answer.lower <= truth * (1.0 + 1e-9)
    assert answer.upper >= truth * (1.0 - 1e-9)
    assert answer.width <= 1e-6 * answer.upper
    assert answer.ledger.total > 0.0


@pytest.mark.parametrize("row", REFERENCE[:6:2], ids=str)
def test_delta_at_that_epsilon_is_the_delta_asked_for(row):
    beta, scale, rate, times, asked, _ = row
    mechanism = _mechanism(beta, scale, rate, times)
    there = epsilon(mechanism, delta=asked)
    back = delta(mechanism, epsilon=there.upper)
    assert back.lower <= asked
    assert back.estimate == pytest.approx(asked, rel=1e-6)
    assert delta(mechanism, epsilon=there.lower).upper >= asked


def test_published_value_of_a_vote_that_changes():
    """Two one-coordinate losses, beta 1.5, scale 1, delta 1e-6: epsilon 5.589."""
    step = AdditiveNoise(GeneralizedGaussian(1.5, 1.0))
    answer = epsilon(Composed(step, times=2), delta=1e-6, adjacency=Adjacency.ADD_REMOVE)
    assert answer.estimate == pytest.approx(5.589, abs=5e-4)


# parts (beta, noise multiplier, rate, times), delta, adjacency: answers that were up to 100% wide
ONCE_WIDE = [
    # a jump beside 32 bulks: above and below were of 33 and of 32
    (((4.3203, 32.983, 1.2834e-5, 33),), 7.11e-73, Adjacency.REMOVE),
    # almost Laplace, many releases: all values were raised by the error of the last
    (((1.0515, 958.25, 0.011656, 17473),), 2.4e-28, Adjacency.ADD),
    # one kind is far too small for the grid of the other
    (((17.494, 3.824, 3.781e-7, 1483), (1.2253, 17.29, 9.518e-6, 1866)), 9.94e-49, Adjacency.ADD_REMOVE),
]


@pytest.mark.parametrize(("parts", "asked", "adjacency"), ONCE_WIDE)
def test_what_was_wide_is_narrow_and_comes_back(parts, asked, adjacency):
    mechanism = Composed(
        [
            (PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 2**0.5 * multiplier)), rate), times)
            for beta, multiplier, rate, times in parts
        ]
    )
    profile = account(mechanism, adjacency=adjacency)
    answer = profile.epsilon(delta=asked)
    assert answer.width <= 1e-5 * answer.upper
    assert profile.delta(epsilon=answer.upper).lower <= asked
    assert profile.delta(epsilon=answer.lower).upper >= asked
