# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch turns words into noise: right at chosen words of the tail, right in law at random ones."""

import mpmath
import numpy as np
import pytest

from ggdp import GeneralizedGaussian
from laws import BETAS, LEVEL, count_pvalue, ks_pvalue, scaled, tail_ks_pvalue
from words import CENTER, TAIL, Place, places, stacked, tail_words

torch = pytest.importorskip("torch")

from ggdp.distributions.pytorch.quantile import coefficients, noise_from_words  # noqa: E402

NUM_DRAWS = 200_000
CPU = torch.device("cpu")
DTYPES = {torch.float32: 4e-7, torch.float64: 4e-14}
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def noise_of(words, noise, dtype):
    triples = torch.from_numpy(words.view(np.int32))
    return noise_from_words(triples, coefficients(noise, dtype, CPU)).double().numpy()


def tail_weight(noise, x):
    beta = mpmath.mpf(noise.beta)
    return mpmath.gammainc(1 / beta, (abs(x) / mpmath.mpf(noise.scale)) ** beta, regularized=True)


@dtypes
@pytest.mark.parametrize("beta", [1.0, 1.25, 2.0, 8.0])
def test_every_octave_down_to_2_to_the_minus_95_gives_the_quantile_mpmath_gives(beta, dtype):
    noise = GeneralizedGaussian(beta, 2.5)
    chosen = places(TAIL, 95)[::2]
    drawn = noise_of(stacked(chosen), noise, dtype)
    tolerance = DTYPES[dtype]
    with mpmath.workdps(40):
        for place, x in zip(chosen, drawn, strict=True):
            coarse = dtype == torch.float32 and place.number >> 64 >= 1 << 17
            u = mpmath.fraction(*(place.coarse_w if coarse else place.w))
            x = mpmath.mpf(float(x))
            assert tail_weight(noise, x * (1 + tolerance)) < u < tail_weight(noise, x * (1 - tolerance))


@dtypes
@pytest.mark.parametrize("beta", [1.0, 1.25, 2.0, 8.0])
def test_small_noise_has_the_quantile_mpmath_gives(beta, dtype):
    noise = GeneralizedGaussian(beta, 2.5)
    chosen = places(CENTER, 31)
    drawn = noise_of(stacked(chosen), noise, dtype)
    tolerance = DTYPES[dtype]
    with mpmath.workdps(40):
        for place, x in zip(chosen, drawn, strict=True):
            v = mpmath.fraction(*(place.coarse_w if dtype == torch.float32 else place.w))
            x = mpmath.mpf(float(x))
            assert (
                1 - tail_weight(noise, x * (1 - tolerance)) < v < 1 - tail_weight(noise, x * (1 + tolerance))
            )


@dtypes
def test_the_smallest_and_largest_words_stay_inside_the_table(dtype):
    noise = GeneralizedGaussian(1.0, 1.0)
    extremes = stacked([Place(end, number) for end in (CENTER, TAIL) for number in (0, 2**94 - 1)])
    center_zero, center_half, tail_end, tail_half = noise_of(extremes, noise, dtype)
    assert 0.0 <= center_zero < 1e-9
    np.testing.assert_allclose([center_half, tail_half], np.log(2.0), rtol=3e-7)
    np.testing.assert_allclose(tail_end, 96 * np.log(2.0), rtol=3e-7)


@dtypes
def test_the_sign_bit_flips_the_sign_and_nothing_else(dtype):
    words = np.random.default_rng(1).integers(0, 2**32, size=(3, 1000), dtype=np.uint32)
    flipped = words.copy()
    flipped[0] ^= np.uint32(1 << 31)
    noise = GeneralizedGaussian(1.5, 2.0)
    np.testing.assert_array_equal(noise_of(words, noise, dtype), -noise_of(flipped, noise, dtype))


@dtypes
@pytest.mark.parametrize("beta", BETAS)
def test_random_words_give_the_law_and_not_one_three_percent_off(beta, dtype):
    noise = GeneralizedGaussian(beta, 2.5)
    words = np.random.default_rng(2).integers(0, 2**32, size=(3, NUM_DRAWS), dtype=np.uint32)
    draws = noise_of(words, noise, dtype)
    assert ks_pvalue(draws, noise) > LEVEL
    assert ks_pvalue(draws, scaled(noise, 1.03)) < LEVEL


@dtypes
@pytest.mark.parametrize("beta", BETAS)
def test_words_of_the_far_tail_give_the_tail_of_the_law(beta, dtype):
    noise = GeneralizedGaussian(beta, 2.5)
    start = float(noise.isf(2.0**-15))
    draws = noise_of(tail_words(np.random.default_rng(3), NUM_DRAWS), noise, dtype)
    assert tail_ks_pvalue(draws, noise, start) > LEVEL
    assert tail_ks_pvalue(draws, scaled(noise, 1.03), start) < LEVEL
    far = float(noise.isf(2.0**-25))
    assert count_pvalue(draws, noise, far, start) > LEVEL
    assert count_pvalue(draws[np.abs(draws) < far], noise, far, start) < LEVEL


@dtypes
@pytest.mark.parametrize("num_stds", [4.5, 5, 6])
def test_as_many_gaussian_draws_as_there_should_be_lie_far_out(num_stds, dtype):
    noise = GeneralizedGaussian(2.0, 2.5)
    start, beyond = float(noise.isf(2.0**-15)), num_stds * noise.std
    draws = noise_of(tail_words(np.random.default_rng(4), 20 * NUM_DRAWS), noise, dtype)
    assert count_pvalue(draws, noise, beyond, start) > LEVEL
    assert count_pvalue(draws, scaled(noise, 1.03), beyond, start) < LEVEL
    assert count_pvalue(draws[np.abs(draws) < beyond], noise, beyond, start) < LEVEL
