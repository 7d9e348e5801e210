# SPDX-License-Identifier: Apache-2.0
"""Draws follow the law: a Kolmogorov-Smirnov test that accepts the right one and rejects near misses.

False alarms: every accepting test runs at level 1e-4 on one fixed seed, so a change of the sampler's stream
fails a right sampler with probability below 1 in 1000 over the whole file.
"""

import numpy as np
import pytest
from scipy import stats

from ggdp import GeneralizedGaussian, Laplace

BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0, 64.0]
NUM_DRAWS = 160_000
LEVEL = 1e-4


def ks_pvalue(draws, noise):
    return stats.kstest(draws, noise.cdf).pvalue


@pytest.fixture(scope="module", params=BETAS, ids=lambda beta: f"beta={beta:g}")
def noise_and_draws(request):
    noise = GeneralizedGaussian(request.param, scale=2.5)
    return noise, noise.sample(NUM_DRAWS, rng=np.random.default_rng(20_240_601))


def test_draws_are_accepted_as_their_own_law(noise_and_draws):
    noise, draws = noise_and_draws
    assert ks_pvalue(draws, noise) > LEVEL


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_draws_are_rejected_as_a_scale_three_percent_off(noise_and_draws, factor):
    noise, draws = noise_and_draws
    assert ks_pvalue(draws, GeneralizedGaussian(noise.beta, factor * noise.scale)) < LEVEL


@pytest.mark.parametrize("beta", [1.0, 1.25, 1.5, 2.0])
def test_draws_are_rejected_as_a_beta_one_tenth_off(beta):
    noise = GeneralizedGaussian(beta, scale=2.5)
    draws = noise.sample(4 * NUM_DRAWS, rng=np.random.default_rng(7))
    assert ks_pvalue(draws, GeneralizedGaussian(beta + 0.1, noise.scale)) < LEVEL
    assert ks_pvalue(draws, noise) > LEVEL


def test_draws_of_equal_deviation_but_another_beta_are_rejected():
    noise = GeneralizedGaussian(1.5, scale=1.0)
    draws = noise.sample(4 * NUM_DRAWS, rng=np.random.default_rng(8))
    assert ks_pvalue(draws, GeneralizedGaussian.from_std(1.6, noise.std)) < LEVEL


def test_the_tail_holds_as_many_draws_as_it_should(noise_and_draws):
    noise, draws = noise_and_draws
    for prob in (1e-2, 1e-3, 1e-4):
        beyond = int(np.sum(np.abs(draws) > noise.isf(prob / 2.0)))
        assert stats.binomtest(beyond, draws.size, prob).pvalue > LEVEL


def test_neighbouring_draws_are_uncorrelated(noise_and_draws):
    _, draws = noise_and_draws
    standard_error = 1.0 / np.sqrt(draws.size - 1)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4.5 * standard_error
    sizes = np.abs(draws)
    assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 4.5 * standard_error


def test_one_seed_gives_one_sample_and_another_gives_another():
    noise = Laplace(1.0)
    first = noise.sample((3, 4), rng=np.random.default_rng(5))
    np.testing.assert_array_equal(first, noise.sample((3, 4), rng=np.random.default_rng(5)))
    assert np.all(first != noise.sample((3, 4), rng=np.random.default_rng(6)))


def test_the_generator_is_never_implied():
    with pytest.raises(TypeError, match="rng"):
        Laplace(1.0).sample(3)


@pytest.mark.parametrize("shape", [0, 1, (), (2, 0), (2, 3, 5)])
def test_a_sample_has_the_shape_asked_for(shape):
    assert np.shape(Laplace(1.0).sample(shape, rng=np.random.default_rng(1))) == np.empty(shape).shape
