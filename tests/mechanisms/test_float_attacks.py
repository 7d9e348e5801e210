# SPDX-License-Identifier: Apache-2.0
"""Attacks on the low bits of a release: they succeed on the float path, on the exact one they are at chance.

The games are played with neighbours 0 and 1 and Laplace noise of scale 1, of pure privacy epsilon = 1, so
that no attack may exclude a neighbour with certainty, ever.
"""

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, Laplace, noisy_argmax, release
from ggdp.distributions.ziggurat import NUM_LAYERS, PLACE_BITS, ziggurat

GAMES = 20_000
SCALE = 1.0
MECHANISM = AdditiveNoise.histogram(Laplace(SCALE))


def releases(value, exact, seed):
    return release(MECHANISM, np.full(GAMES, value), rng=np.random.default_rng(seed), exact=exact)


def precision_excludes_one(output):
    """Haney et al. 2022: 1 + noise is a multiple of 2^-53 where it is below 1/2 in size; finer bits say 0."""
    finer = output / 2.0**-53
    return (np.abs(output) < 0.5) & (finer != np.rint(finer))


def not_reachable(noise, scale):
    """Mironov 2012: whether no word of the sampler makes this noise, (place + 1/2) * unit[layer]."""
    unit = ziggurat(1.0).unit
    excluded = np.ones(len(noise), dtype=bool)
    for layer in range(NUM_LAYERS):
        nearest = np.rint(noise / scale / unit[layer] - 0.5)
        for place in (nearest - 1.0, nearest, nearest + 1.0):
            fits = np.abs(place + 0.5) <= 2.0 ** (PLACE_BITS - 1)
            excluded &= ~(fits & ((place + 0.5) * unit[layer] * scale == noise))
    return excluded


def test_the_precision_attack_excludes_a_neighbour_on_the_float_path_and_never_on_the_exact_one():
    floats = precision_excludes_one(releases(0.0, False, 1))
    assert np.mean(floats) > 0.2
    assert not precision_excludes_one(releases(1.0, False, 2)).any()  # it is never wrong
    assert not precision_excludes_one(releases(0.0, True, 3)).any()
    assert not precision_excludes_one(releases(1.0, True, 4)).any()


def test_the_reachability_attack_excludes_a_neighbour_on_the_float_path_and_none_on_the_exact_one():
    scale = 100.0

    def near_zero(value, exact, seed):
        mechanism, rng = AdditiveNoise.histogram(Laplace(scale)), np.random.default_rng(seed)
        outputs = release(mechanism, np.full(20 * GAMES, value), rng=rng, exact=exact)
        return outputs[np.abs(outputs) < 0.5]  # where the sampler leaves most doubles out

    assert not not_reachable(near_zero(0.0, False, 5), scale).any()  # the truth is never excluded
    outputs = near_zero(1.0, False, 5)
    assert len(outputs) > 1000
    assert np.mean(not_reachable(outputs, scale)) > 0.25
    # On the exact path every output near zero that comes from 1 comes from 0 as well.
    assert np.all(np.isin(near_zero(1.0, True, 6), near_zero(0.0, True, 7)))


@pytest.mark.parametrize("neighbour", [1.0, 1.0 / 3.0, 0.1234567890123456789])
def test_low_bits_of_an_exact_release_do_not_tell_neighbours_apart_and_those_of_floats_do(neighbour):
    def low_bits(value, exact):
        outputs = releases(value, exact, 7 if value else 8)
        mantissa = outputs[np.abs(outputs) < 0.4] / 2.0 ** (-10 if exact else -56)
        return np.bincount(np.rint(mantissa).astype(np.int64) & 7, minlength=8)

    exact = stats.chi2_contingency(np.stack([low_bits(0.0, True), low_bits(neighbour, True)])).pvalue
    floats = stats.chi2_contingency(np.stack([low_bits(0.0, False), low_bits(neighbour, False)]) + 1).pvalue
    assert exact > 1e-4
    assert floats < 1e-9


def test_the_winner_of_a_noisy_vote_says_no_more_than_its_epsilon():
    """The share of votes won by a class, on neighbours, stays within e^epsilon, epsilon = 2 / scale."""
    won = []
    for seed, counts in enumerate(([0.0, 0.0], [1.0, 0.0])):
        winners = noisy_argmax(np.tile(counts, (GAMES, 1)), Laplace(SCALE), rng=np.random.default_rng(seed))
        won.append(int(np.sum(winners == 0)))
    high = stats.binomtest(won[1], GAMES).proportion_ci(1 - 1e-6).low
    low = stats.binomtest(won[0], GAMES).proportion_ci(1 - 1e-6).high
    assert won[1] > won[0]
    assert high <= np.exp(2.0 / SCALE) * low
