# SPDX-License-Identifier: Apache-2.0
"""`ggdp.jax.sample`: the law in every dtype, jit, keys, and the tail at chosen words."""

import mpmath
import numpy as np
import pytest

from ggdp import GeneralizedGaussian, Laplace
from laws import BETAS, LEVEL, count_pvalue, ks_pvalue, look_independent, scaled, tail_ks_pvalue
from words import TAIL, places, stacked, tail_words

jnp = pytest.importorskip("jax.numpy")
import jax  # noqa: E402

from ggdp.jax import sample  # noqa: E402
from ggdp.jax.sampling import noise_from_words  # noqa: E402

NUM_DRAWS = 200_000
NOISE = GeneralizedGaussian(1.5, 2.0)


def as_array(draws):
    return np.asarray(draws, dtype=np.float64)


@pytest.fixture
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    ("beta", "dtype"), [*((beta, jnp.float32) for beta in BETAS), (1.5, jnp.bfloat16), (1.5, jnp.float16)]
)
def test_draws_follow_the_law_and_not_one_three_percent_off(beta, dtype):
    noise = GeneralizedGaussian(beta, 2.5)
    draws = sample(jax.random.key(1), noise, (NUM_DRAWS,), dtype)
    assert draws.dtype == dtype
    assert ks_pvalue(as_array(draws), noise) > LEVEL
    assert ks_pvalue(as_array(draws), scaled(noise, 1.03)) < LEVEL


@pytest.mark.usefixtures("_double_precision")
def test_float64_draws_follow_the_law_where_double_precision_is_on():
    draws = sample(jax.random.key(2), NOISE, (NUM_DRAWS,), jnp.float64)
    assert draws.dtype == jnp.float64
    assert ks_pvalue(as_array(draws), NOISE) > LEVEL
    assert ks_pvalue(as_array(draws), scaled(NOISE, 0.97)) < LEVEL


@pytest.mark.usefixtures("_double_precision")
@pytest.mark.parametrize(("precision", "tolerance"), [(jnp.float32, 4e-7), (jnp.float64, 4e-14)])
@pytest.mark.parametrize("beta", [1.0, 1.25, 2.0, 8.0])
def test_every_octave_beyond_2_to_the_minus_14_gives_the_quantile_mpmath_gives(beta, precision, tolerance):
    noise = GeneralizedGaussian(beta, 2.5)
    chosen = [place for place in places(TAIL, 95) if place.number >> 64 < 1 << 17][::3]
    drawn = noise_from_words(jnp.asarray(stacked(chosen)), noise, precision)
    exponent = mpmath.mpf(beta)
    with mpmath.workdps(40):
        for place, x in zip(chosen, as_array(drawn), strict=True):
            near, far = (
                mpmath.gammainc(
                    1 / exponent, (mpmath.mpf(float(x)) * factor / 2.5) ** exponent, regularized=True
                )
                for factor in (1 - mpmath.mpf(tolerance), 1 + mpmath.mpf(tolerance))
            )
            assert far < mpmath.fraction(*place.w) < near


@pytest.mark.parametrize("beta", BETAS)
def test_words_of_the_far_tail_give_the_tail_of_the_law(beta):
    noise = GeneralizedGaussian(beta, 2.5)
    start, far = float(noise.isf(2.0**-15)), float(noise.isf(2.0**-25))
    words = jnp.asarray(tail_words(np.random.default_rng(3), NUM_DRAWS))
    draws = as_array(noise_from_words(words, noise, jnp.float32))
    assert tail_ks_pvalue(draws, noise, start) > LEVEL
    assert tail_ks_pvalue(draws, scaled(noise, 1.03), start) < LEVEL
    assert count_pvalue(draws, noise, far, start) > LEVEL
    assert count_pvalue(draws[np.abs(draws) < far], noise, far, start) < LEVEL


def test_jit_gives_the_draws_it_gives_without():
    jitted = jax.jit(sample, static_argnums=(1, 2, 3))
    key = jax.random.key(4)
    plain, fast = sample(key, NOISE, (50, 20)), jitted(key, NOISE, (50, 20), jnp.float32)
    np.testing.assert_allclose(as_array(plain), as_array(fast), rtol=1e-6)


def test_vmap_over_keys_gives_independent_rows():
    rows = jax.vmap(lambda key: sample(key, NOISE, (NUM_DRAWS,)))(jax.random.split(jax.random.key(5), 2))
    first, second = as_array(rows)
    assert look_independent(first, second)
    assert look_independent(first[1:], first[:-1])
    assert not look_independent(first, first + 50.0 * second)


def test_one_key_gives_one_sample():
    key = jax.random.key(6)
    np.testing.assert_array_equal(sample(key, NOISE, (9,)), sample(key, NOISE, (9,)))


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_a_sample_has_the_shape_asked_for(shape):
    assert sample(jax.random.key(7), NOISE, shape).shape == shape


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.int32])
def test_a_dtype_that_would_be_changed_in_silence_is_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be one of float32, bfloat16, float16"):
        sample(jax.random.key(8), NOISE, (3,), dtype)


def test_noise_that_would_vanish_is_refused():
    with pytest.raises(ValueError, match=r"scale must be a number in .* use a wider dtype"):
        sample(jax.random.key(9), Laplace(1e-60), (3,))
