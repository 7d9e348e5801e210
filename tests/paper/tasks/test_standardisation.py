# SPDX-License-Identifier: Apache-2.0
"""The charged release of feature means and variances: its sensitivity, its noise, its accuracy, its cost."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from ggdp import epsilon
from ggdp_paper.tasks.images import PIXEL_MEAN, PIXEL_STD
from ggdp_paper.tasks.scattering import Scattering
from ggdp_paper.tasks.standardisation import (
    Standardisation,
    contributions,
    mechanism,
    photograph_guess,
    private_standardisation,
)

CHANNELS = 6
GUESS = Standardisation(torch.zeros(CHANNELS), torch.ones(CHANNELS))


def features(number, *, spread=1.0, seed=1):
    return spread * torch.randn(number, CHANNELS, 4, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1.0, 1e3, 1e15])
def test_one_image_moves_the_sum_by_at_most_one(spread):
    rows = contributions(features(50, spread=spread), GUESS)
    assert torch.linalg.vector_norm(rows, dim=1).max() <= 1.0
    both = contributions(features(50, spread=spread)[:7], GUESS)
    torch.testing.assert_close(both, rows[:7])  # a row depends on its own image alone


def test_large_images_reach_the_sensitivity():
    rows = contributions(features(50, spread=1e6) + 1e6, GUESS)
    assert torch.linalg.vector_norm(rows, dim=1).min() > 1.0 - 1e-9


def test_many_images_are_brought_to_mean_zero_and_variance_one():
    values = 0.4 + 0.8 * features(20_000)
    found = private_standardisation(values, GUESS, 2.0, rng=np.random.default_rng(5))
    standard = found.apply_(values.clone()).transpose(0, 1).flatten(1)
    assert standard.mean(dim=1).abs().max() < 0.02
    assert (standard.std(dim=1) - 1.0).abs().max() < 0.02


def test_with_few_images_the_guess_stands():
    found = private_standardisation(3.0 + features(4), GUESS, 32.0, rng=np.random.default_rng(5))
    assert found.mean.abs().max() < 0.2
    assert (found.std - 1.0).abs().max() < 0.2


def released_means(noise_multiplier, draws):
    """Noise of the released mean of one channel, in units of what `mechanism` says it is."""
    values = torch.zeros(1000, CHANNELS, 2, 2)
    unit = 1.25 * math.sqrt(2.0 * CHANNELS) / 1000
    claimed = 2.0 * unit
    rng = np.random.default_rng(11)
    found = [
        private_standardisation(values, GUESS, noise_multiplier, rng=rng).mean.numpy() for _ in range(draws)
    ]
    return np.concatenate(found) * (1.0 + (noise_multiplier * unit) ** 2) / claimed


def test_the_noise_is_the_one_that_is_charged():
    assert mechanism(CHANNELS, 2.0).noise.std == pytest.approx(2.0)
    assert stats.kstest(released_means(2.0, 300), "norm").pvalue > 1e-3
    assert stats.kstest(released_means(1.5, 300), "norm").pvalue < 1e-6


def test_the_charge_is_one_gaussian_release_whatever_the_channels():
    few, many = (epsilon(mechanism(channels, 32.0), delta=1e-6) for channels in (3, 243))
    assert few.upper == pytest.approx(many.upper, rel=1e-9)
    assert 0.09 < many.upper < 0.15


def test_without_a_generator_the_noise_cannot_be_repeated():
    first, second = (private_standardisation(features(10), GUESS, 1.0) for _ in range(2))
    assert not torch.equal(first.mean, second.mean)


def test_the_first_guess_is_near_pictures_with_edges():
    """Pictures of random rectangles, which the guess knows nothing about."""
    rng = np.random.default_rng(2)
    images = np.full((60, 3, 32, 32), 0.45)
    for image in images:
        for _ in range(12):
            top, left = rng.integers(0, 28, 2)
            high, wide = rng.integers(4, 24, 2)
            image[:, top : top + high, left : left + wide] = rng.uniform(0.1, 0.9, (3, 1, 1))
    scattering = Scattering(size=32)
    guess = photograph_guess(scattering, PIXEL_MEAN, PIXEL_STD)
    mean, std = (torch.tensor(of).view(3, 1, 1) for of in (PIXEL_MEAN, PIXEL_STD))
    found = guess.apply_(scattering((torch.from_numpy(images).float() - mean) / std))
    spread = found.transpose(0, 1).flatten(1).std(dim=1)
    assert guess.mean.shape == guess.std.shape == (243,)
    assert 0.3 < spread.min() < spread.max() < 4.0
