# SPDX-License-Identifier: Apache-2.0
"""The law on the whole numbers against sums at 40 digits."""

import math

import mpmath as mp
import numpy as np
import pytest

import ggdp.distributions.discrete as discrete
from ggdp import DiscreteGeneralizedGaussian, secure_generator

TOLERANCE = 1e-12
LAWS = [
    (1.0, 2.0**-6), (1.0, 0.7), (1.0, 50.0), (1.2, 0.5), (1.5, 3.3), (2.0, 1.0), (2.0, 60.0), (3.7, 20.0),
    (17.3, 12.3), (64.0, 1.5), (64.0, 100.0),
]  # fmt: skip


class Reference:
    def __init__(self, beta, scale):
        self.beta, self.scale = mp.mpf(beta), mp.mpf(scale)
        reach = int(max(3.0 * scale, scale * 400.0 ** (1.0 / beta))) + 4
        self.weights = [mp.e ** (-((k / self.scale) ** self.beta)) for k in range(reach)]
        self.total = 2 * mp.fsum(self.weights) - 1

    def pmf(self, k):
        return self.weights[abs(k)] / self.total

    def sf(self, k):
        return mp.fsum(self.weights[k + 1 :]) / self.total

    def moment(self, order):
        return 2 * mp.fsum(mp.mpf(k) ** order * weight for k, weight in enumerate(self.weights)) / self.total


def misses(found, exact):
    return float(abs(mp.mpf(float(found)) / exact - 1)) if exact > 1e-290 else 0.0


@pytest.mark.parametrize(("beta", "scale"), LAWS)
def test_probabilities_tails_and_moments_are_those_of_the_sum(beta, scale):
    noise = DiscreteGeneralizedGaussian(beta, scale)
    with mp.workdps(40):
        exact = Reference(beta, scale)
        for k in sorted({0, 1, 2, int(scale), int(3 * scale) + 1, int(scale * 300 ** (1 / beta))}):
            assert misses(noise.pmf(k), exact.pmf(k)) < TOLERANCE
            assert misses(np.exp(noise.logpmf(-k)), exact.pmf(k)) < TOLERANCE
            assert misses(noise.sf(k), exact.sf(k)) < TOLERANCE
            assert misses(noise.cdf(-k - 1), exact.sf(k)) < TOLERANCE
            assert misses(noise.cdf(k), 1 - exact.sf(k)) < TOLERANCE
            assert misses(noise.tail_weight(k), 2 * exact.sf(k)) < TOLERANCE
        assert misses(noise.normaliser, exact.total) < TOLERANCE
        if exact.moment(2) > 1e-250:
            assert misses(noise.variance, exact.moment(2)) < TOLERANCE
            assert misses(noise.kurtosis, exact.moment(4) / exact.moment(2) ** 2) < TOLERANCE


@pytest.mark.parametrize(("beta", "scale"), [(1.05, 2500.0), (1.5, 2e4), (2.0, 6e4), (64.0, 1e6)])
def test_the_formula_for_large_scales_meets_the_sum_term_by_term(beta, scale, monkeypatch):
    formula = discrete._Sums(beta, scale)
    assert not formula.listed
    monkeypatch.setattr(discrete, "_MOST_SUMMED", 1 << 24)
    summed = discrete._Sums(beta, scale)
    assert summed.listed
    reach = scale * 600.0 ** (1.0 / beta)
    places = np.floor(np.array([1.0, 2.0, 63.0, 64.0, 65.0, 1000.0, scale, 1.05 * scale, reach]))
    np.testing.assert_allclose(formula.beyond(places), summed.beyond(places), rtol=TOLERANCE)
    for order in (2, 4):
        assert formula.moment(order) == pytest.approx(summed.moment(order), rel=TOLERANCE)


def test_the_largest_scale_has_the_sum_of_euler_and_maclaurin_in_mpmath():
    beta, scale = 1.5, 2.0**40
    with mp.workdps(40):
        power, size = mp.mpf(beta), mp.mpf(scale)
        integral = size * mp.gamma(1 + 1 / power)
        total = (
            2 * (integral - size**-power * mp.zeta(-power)) - 0
        )  # zeta(0) = -1/2 takes the place of f(0)/2
        assert misses(DiscreteGeneralizedGaussian(beta, scale).normaliser, total) < TOLERANCE


def test_between_the_whole_numbers_there_is_nothing():
    noise = DiscreteGeneralizedGaussian(1.5, 2.0)
    assert noise.pmf(0.5) == 0.0
    assert noise.logpmf(0.5) == -math.inf
    np.testing.assert_array_equal(noise.cdf([0.3, -0.3]), noise.cdf([0.0, -1.0]))
    assert noise.tail_weight(0.9) == noise.tail_weight(0.0)


def test_the_discrete_gaussian_is_named_by_its_sigma():
    noise = DiscreteGeneralizedGaussian.gaussian(sigma=3.0)
    assert float(noise.pmf(2) / noise.pmf(0)) == pytest.approx(math.exp(-4 / 18), rel=1e-15)


@pytest.mark.parametrize(
    ("beta", "scale", "name"),
    [(0.9, 1.0, "beta"), (65.0, 1.0, "beta"), (2.0, 0.01, "scale"), (2.0, 2e12, "scale")],
)
def test_parameters_outside_their_range_are_refused(beta, scale, name):
    with pytest.raises(ValueError, match=f"{name} must be a number in"):
        DiscreteGeneralizedGaussian(beta, scale)


def test_draws_have_the_shape_asked_for():
    noise = DiscreteGeneralizedGaussian(1.5, 2.0)
    drawn = noise.sample((3, 4), rng=secure_generator())
    assert drawn.shape == (3, 4)
    assert drawn.dtype == np.int64
    assert noise.sample((), rng=np.random.default_rng(1)).shape == ()
