# SPDX-License-Identifier: Apache-2.0
"""The ziggurat: layers of equal area, the whole law, its tail beyond the last layer, and every dtype."""

from functools import lru_cache

import mpmath
import numpy as np
import pytest

from ggdp import GeneralizedGaussian, Laplace
from ggdp.distributions.numpy_sampler import fill, sample, word_source
from ggdp.distributions.secure import secure_generator
from ggdp.distributions.ziggurat import NUM_LAYERS, PLACE_BITS, ziggurat
from laws import BETAS, LEVEL, count_pvalue, ks_pvalue, look_independent, scaled, tail_ks_pvalue

NUM_DRAWS = 200_000
PLACE_MASK = np.int64(-(1 << (64 - PLACE_BITS)))

NOISES = [GeneralizedGaussian(beta, 2.5) for beta in BETAS]
noises = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"beta={noise.beta:g}")


class ForcedTail:
    """A source whose first words choose layer 0 and a place outside the graph; the others are random."""

    def __init__(self, rng, count):
        self.random = word_source(rng)
        self.left = count

    def __call__(self, count):
        words = self.random(count)
        if self.left > 0:
            self.left -= count
            outermost = np.where(words < 0, np.iinfo(np.int64).min, np.iinfo(np.int64).max)
            words = outermost & ~np.int64(NUM_LAYERS - 1)
        return words


def tail_draws(noise, count, rng):
    out = np.empty(count)
    fill(out, noise, ForcedTail(rng, count))
    return out, noise.scale * ziggurat(noise.beta).tail_start


@pytest.mark.parametrize("beta", [*BETAS, 1.0 + 1e-9, 17.3, 64.0])
def test_layers_have_equal_areas_and_cover_the_density_with_little_to_spare(beta):
    table = ziggurat(beta)
    width = table.unit * 2.0 ** (PLACE_BITS - 1)
    areas = width[1:] * np.diff(table.height[1:])
    with mpmath.workdps(30):
        start = mpmath.mpf(table.tail_start)
        tail = mpmath.gammainc(1 / mpmath.mpf(beta), start**beta) / beta
        base = float(start * mpmath.exp(-(start**beta)) + tail)
        whole = float(mpmath.gamma(1 + 1 / mpmath.mpf(beta)))
    np.testing.assert_allclose(areas, base, rtol=1e-9)
    np.testing.assert_allclose(width[0] * table.height[1], base, rtol=1e-12)
    assert whole < NUM_LAYERS * base < 1.01 * whole


@noises
def test_draws_follow_the_law_and_not_one_three_percent_off(noise):
    draws = sample(noise, NUM_DRAWS, rng=np.random.default_rng(11))
    assert ks_pvalue(draws, noise) > LEVEL
    assert ks_pvalue(draws, scaled(noise, 1.03)) < LEVEL
    assert ks_pvalue(draws, scaled(noise, 0.97)) < LEVEL


@noises
def test_draws_beyond_the_last_layer_follow_the_tail_of_the_law(noise):
    draws, start = tail_draws(noise, NUM_DRAWS, np.random.default_rng(12))
    assert np.all(np.abs(draws) > start)
    assert tail_ks_pvalue(draws, noise, start) > LEVEL
    assert tail_ks_pvalue(draws, scaled(noise, 1.03), start) < LEVEL
    assert tail_ks_pvalue(draws, scaled(noise, 0.97), start) < LEVEL


@lru_cache
def many_draws(noise, where):
    """Two million draws and what |x| is known to exceed; `where` is body or tail."""
    if where == "tail":
        return tail_draws(noise, 10 * NUM_DRAWS, np.random.default_rng(13))
    return sample(noise, 10 * NUM_DRAWS, rng=np.random.default_rng(14)), 0.0


@noises
@pytest.mark.parametrize("num_stds", [4, 5, 6])
def test_as_many_draws_as_there_should_be_lie_beyond_four_five_and_six_deviations(noise, num_stds):
    beyond = num_stds * noise.std
    inside_the_layers = beyond < noise.scale * ziggurat(noise.beta).tail_start
    draws, start = many_draws(noise, "body" if inside_the_layers else "tail")
    assert count_pvalue(draws, noise, beyond, start) > LEVEL
    if noise.beta <= 2.0:  # Lighter tails have no draws so far out, under this scale or a near one.
        assert count_pvalue(draws, scaled(noise, 1.03), beyond, start) < LEVEL
        assert count_pvalue(draws, scaled(noise, 0.97), beyond, start) < LEVEL
        truncated = draws[np.abs(draws) < beyond]
        assert count_pvalue(truncated, noise, beyond, start) < LEVEL


@noises
def test_both_signs_are_equally_likely_in_the_body_and_in_the_tail(noise):
    body = sample(noise, NUM_DRAWS, rng=np.random.default_rng(15))
    tail, _ = tail_draws(noise, NUM_DRAWS, np.random.default_rng(16))
    for draws in (body, tail):
        assert abs(np.sum(draws > 0) - draws.size / 2) < 4.5 * np.sqrt(draws.size) / 2


@noises
def test_complementing_the_place_of_every_word_flips_every_sign(noise):
    def mirrored(source):
        calls = iter(range(10**6))
        return lambda count: source(count) ^ (PLACE_MASK if next(calls) == 0 else np.int64(0))

    out, mirror = np.empty(20_000), np.empty(20_000)
    fill(out, noise, word_source(np.random.default_rng(17)))
    fill(mirror, noise, mirrored(word_source(np.random.default_rng(17))))
    same_size = np.abs(out) == np.abs(mirror)
    # Only points thrown again, fewer than one in a hundred, come from later words, which were left alone.
    assert np.mean(same_size) > 0.99
    np.testing.assert_array_equal(out[same_size] == -mirror[same_size], out[same_size] != mirror[same_size])
    assert np.mean(out == -mirror) > 0.99


@noises
def test_the_deepest_draw_lies_beyond_probability_2_to_the_minus_80(noise):
    """Words of zeros make the smallest uniforms: the longest step into the tail, surely accepted."""

    def words(count):
        if count == 1:
            return np.array([np.iinfo(np.int64).max & ~(NUM_LAYERS - 1)])
        return np.full(count, 1 << 44, dtype=np.int64)  # uniforms of 2^-20

    out = np.empty(1)
    fill(out, Laplace(1.0), words)
    np.testing.assert_allclose(out[0], ziggurat(1.0).tail_start + 20.0 * np.log(2.0), rtol=1e-12)
    table = ziggurat(noise.beta)
    slope = noise.beta * table.tail_start ** (noise.beta - 1.0)
    deepest = noise.scale * (table.tail_start + 129.0 * np.log(2.0) / slope)
    assert noise.logsf(deepest) < -130.0 * np.log(2.0)


@pytest.mark.parametrize("beta", [1.0, 3.0])  # words are words: the other exponents are tried with seeds
def test_a_secure_generator_gives_the_same_law(beta):
    noise = GeneralizedGaussian(beta, 2.5)
    draws = sample(noise, NUM_DRAWS, rng=secure_generator(key=bytes(range(32))))
    assert ks_pvalue(draws, noise) > LEVEL
    assert ks_pvalue(draws, scaled(noise, 1.03)) < LEVEL


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_narrow_draws_are_float64_draws_rounded_once(dtype):
    noise = GeneralizedGaussian(1.5, 2.0)
    wide = sample(noise, 50_000, rng=np.random.default_rng(18))
    narrow = sample(noise, 50_000, rng=np.random.default_rng(18), dtype=dtype)
    assert narrow.dtype == dtype
    np.testing.assert_array_equal(narrow, wide.astype(dtype))


def test_coordinates_and_calls_are_independent():
    rng = np.random.default_rng(19)
    first, second = (sample(Laplace(1.0), (NUM_DRAWS,), rng=rng) for _ in range(2))
    assert look_independent(first, second)
    assert look_independent(first[1:], first[:-1])
    assert not look_independent(first, first + 50.0 * second)


@pytest.mark.parametrize("rng", [None, 7, np.random.RandomState(3)])
def test_anything_but_a_generator_is_refused(rng):
    with pytest.raises(ValueError, match="rng must be of type Generator or SecureGenerator"):
        sample(Laplace(1.0), 3, rng=rng)


@pytest.mark.parametrize("dtype", [np.int64, np.complex128])
def test_a_dtype_that_cannot_hold_noise_is_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be one of float64, float32, float16"):
        sample(Laplace(1.0), 3, rng=np.random.default_rng(1), dtype=dtype)


@pytest.mark.parametrize(("scale", "dtype"), [(1e-60, np.float32), (1e38, np.float32), (1e3, np.float16)])
def test_noise_that_would_vanish_or_overflow_in_a_dtype_is_refused(scale, dtype):
    with pytest.raises(ValueError, match=r"scale must be a number in .* use a wider dtype"):
        sample(Laplace(scale), 3, rng=np.random.default_rng(1), dtype=dtype)
