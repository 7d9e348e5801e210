# SPDX-License-Identifier: Apache-2.0
"""The paper's algorithms by their names, against integrals, closed forms and the exact accountant."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    PrivacyLoss,
    delta,
    epsilon,
    loss_sampler,
)
from ggdp_paper.algorithms import gg, ggnmax, printed_error, sample, sampled_compose, sgg, sigma_solver

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("std", [0.7, 3.0])
def test_the_loss_of_gaussian_noise_is_gaussian(std):
    loss, t, mean = PrivacyLoss(AdditiveNoise(Gaussian(std=std))), np.linspace(-4.0, 4.0, 9), 0.5 / std**2
    y, x = stats.norm(mean, 1.0 / std), stats.norm(-mean, 1.0 / std)
    np.testing.assert_allclose(loss.y_cdf(t), y.cdf(t), atol=1e-11)
    np.testing.assert_allclose(loss.x_sf(t), x.sf(t), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(loss.y_pdf(t), y.pdf(t), rtol=1e-9)
    np.testing.assert_allclose(loss.x_pdf(t), x.pdf(t), rtol=1e-9)


@pytest.mark.parametrize("direction", [Adjacency.REMOVE, Adjacency.ADD, Adjacency.REPLACE])
@pytest.mark.parametrize(("beta", "rate"), [(1.5, 1.0), (1.5, 0.2), (3.0, 0.2)])
def test_densities_are_the_slopes_of_distribution_functions_and_delta_is_their_mean(beta, rate, direction):
    mechanism = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 1.5)), rate)
    loss = PrivacyLoss(mechanism, direction)
    for t in (-0.1, 0.05, 0.2):
        slope = (loss.y_cdf(t + 1e-5) - loss.y_cdf(t - 1e-5)) / 2e-5
        assert loss.y_pdf(t) == pytest.approx(float(slope), rel=1e-5)
        assert loss.x_pdf(t) == pytest.approx(math.exp(-t) * float(loss.y_pdf(t)), rel=1e-12)
    found = float(loss.y_sf(0.1)) - math.exp(0.1) * float(loss.x_sf(0.1))
    assert found == pytest.approx(delta(mechanism, epsilon=0.1, adjacency=direction).estimate, rel=1e-8)


def test_x_is_minus_y_in_law_without_sampling_and_not_with_it():
    plain = PrivacyLoss(AdditiveNoise(GeneralizedGaussian(1.5, 1.5)))
    sampled = PrivacyLoss(PoissonSampled(plain.mechanism, 0.2))
    t = np.linspace(-1.0, 1.0, 9)
    np.testing.assert_allclose(plain.x_cdf(-t), plain.y_sf(t), atol=1e-10)
    assert np.max(np.abs(sampled.x_cdf(-t) - sampled.y_sf(t))) > 0.01


def test_the_loss_of_laplace_noise_ends_in_atoms():
    loss = PrivacyLoss(AdditiveNoise(Laplace(2.0)))
    assert float(loss.y_cdf(0.5 - 1e-9)) == pytest.approx(
        0.5, abs=1e-6
    )  # half of the mass is at the largest loss
    assert (float(loss.y_sf(0.6)), float(loss.y_sf(-0.6))) == (0.0, 1.0)
    inside, _ = integrate.quad(lambda t: float(loss.y_pdf(t)), -0.5 + 1e-9, 0.5 - 1e-9)
    assert inside == pytest.approx(0.5 - 0.5 * math.exp(-0.5), rel=1e-6)


def test_algorithm_5_keeps_mean_and_law_of_the_losses_also_where_the_shift_is_negative():
    loss = loss_sampler(AdditiveNoise(Gaussian(std=2.0)))  # N(0.125, 0.25)
    law = sample(loss, 200_000, 4.0, 0.05, rng=np.random.default_rng(7))
    assert law.masses.sum() == pytest.approx(1.0, abs=1e-12)
    assert float(np.sum(law.masses * law.points)) == pytest.approx(0.125, abs=4.0 * 0.5 / math.sqrt(200_000))
    assert np.cumsum(law.masses)[80 + 10] == pytest.approx(stats.norm.cdf(0.525, 0.125, 0.5), abs=0.005)
    shifts = [sample(loss, 1000, 4.0, 0.05, rng=np.random.default_rng(seed)).shift for seed in range(20)]
    assert min(shifts) < 0.0 < max(shifts)
    with pytest.raises(ValueError, match="L must be so large that most losses lie in"):
        sample(lambda count, rng: np.full(count, 9.0), 10, 4.0, 0.05, rng=np.random.default_rng(7))


def test_algorithm_6_composes_different_losses_as_the_exact_accountant_does():
    steps = [
        AdditiveNoise(Gaussian(std=4.0)),
        AdditiveNoise(Laplace(6.0)),
        AdditiveNoise(GeneralizedGaussian(1.5, 5.0)),
    ]
    counts = (8, 5, 1)
    exact = Composed([(step, times) for step, times in zip(steps, counts, strict=True)])
    losses = [(loss_sampler(step), times) for step, times in zip(steps, counts, strict=True)]
    found = sampled_compose(losses, 400_000, 16.0, 1.0 / 128.0, rng=np.random.default_rng(3))
    truth = epsilon(exact, delta=1e-3, adjacency=Adjacency.REMOVE).estimate
    assert found.epsilon(1e-3).value == pytest.approx(truth, rel=0.01)
    assert found.delta(truth).value == pytest.approx(1e-3, rel=0.05)
    assert "says nothing" in found.epsilon(1e-3).caveat
    without = sampled_compose(losses[:2], 400_000, 16.0, 1.0 / 128.0, rng=np.random.default_rng(3))
    assert without.epsilon(1e-3).value < 0.99 * truth


def test_algorithm_6_samples_each_distinct_loss_once():
    drawn = []

    def counted(place):
        def losses(count, rng):
            drawn.append((place, count))
            return rng.uniform(-0.1, 0.1, count)

        return losses

    sampled_compose([(counted(0), 1000), counted(1)], 500, 16.0, 0.125, rng=np.random.default_rng(1))
    assert drawn == [(0, 1000), (1, 1000)]  # 2 n losses each: 1000 releases of the first cost one sample


def test_the_printed_error_falls_with_the_samples_and_is_vacuous_at_the_size_of_training():
    few, many = (printed_error(k=1, n=n, L=10.0, h=0.1, s=0.5, t=1e-2) for n in (10**8, 10**12))
    assert many < few
    assert printed_error(k=1000, n=15_000_000, L=10.0, h=1e-4, s=0.1, t=1e-3)[0] > 100.0
    losses = [loss_sampler(AdditiveNoise(Gaussian(std=1.0)))]
    law = sampled_compose(losses, 1000, 8.0, 0.1, s=0.5, t=1e-2, rng=RNG)
    assert law.error == printed_error(k=1, n=1000, L=8.0, h=0.1, s=0.5, t=1e-2)
    with pytest.raises(ValueError, match="s and t must be given together"):
        sampled_compose(losses, 1000, 8.0, 0.1, s=0.5, rng=RNG)


@pytest.mark.parametrize(("beta", "target"), [(1.0, 0.25), (1.5, 4.0), (3.0, 1.0)])
def test_algorithm_7_repaired_ends_within_its_tolerance_on_the_private_side(beta, target):
    for tolerance in (0.1, 1e-4):
        sigma = sigma_solver(beta, target, 1e-5, tolerance)
        noise = GeneralizedGaussian.from_noise_multiplier(beta, sigma)
        assert target - tolerance <= epsilon(AdditiveNoise(noise), delta=1e-5).upper <= target


def test_algorithms_1_and_4_add_noise_whose_scale_is_sqrt_2_sigma_times_the_sensitivity():
    rng, law = np.random.default_rng(3), stats.gennorm(1.5, scale=math.sqrt(2.0) * 0.5 * 3.0)
    once = gg(1.5, 0.5, np.sum, np.ones(4), sensitivity=3.0, rng=rng)
    assert law.cdf(-abs(once - 4.0)) > 1e-9
    drawn = gg(1.5, 0.5, lambda rows: np.full(2000, rows.sum()), np.ones(4), sensitivity=3.0, rng=rng)
    assert stats.kstest(drawn - 4.0, law.cdf).pvalue > 1e-3
    by_definition_8 = stats.gennorm(1.5, scale=(0.5 * 3.0) ** (1.0 / 1.5))
    assert stats.kstest(drawn - 4.0, by_definition_8.cdf).pvalue < 1e-9
    sampled = sgg(
        1.5,
        0.5,
        1.0,
        lambda rows: np.full(2000, rows.sum()),
        np.ones(4),
        sensitivity=3.0,
        dimension=2000,
        rng=rng,
    )
    assert stats.kstest(sampled - 4.0, law.cdf).pvalue > 1e-3
    kept = [sgg(2.0, 1e-3, 0.3, len, range(200), rng=rng) for _ in range(100)]
    assert np.mean(kept) == pytest.approx(60.0, abs=4.0 * math.sqrt(42.0 / 100.0))


def test_algorithm_2_takes_functions_of_a_database_and_names_the_largest_as_often_as_two_noises_say():
    rng, votes = np.random.default_rng(5), [0] * 3 + [1] * 5
    counts = [lambda rows, c=c: rows.count(c) for c in (0, 1)]
    wins = sum(ggnmax(2.0, 2.0, counts, votes, rng=rng) for _ in range(600))
    chance = stats.norm.cdf(
        2.0 / (2.0 * math.sqrt(2.0))
    )  # a gap of two votes under two noises of deviation 2
    assert abs(wins / 600 - chance) < 4.0 * math.sqrt(chance * (1.0 - chance) / 600)
    with pytest.raises(ValueError, match="functions must hold at least one"):
        ggnmax(2.0, 1.0, [], votes)
