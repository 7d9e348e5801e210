# SPDX-License-Identifier: Apache-2.0
"""Draws in JAX by the inverse distribution function: no rejection, so `jit` and `vmap` take it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from ggdp import arguments
from ggdp.distributions import quantile_table as layout
from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.distributions.quantile_table import FLOAT32_DEGREE, FLOAT64_DEGREE, quantile_table

_FIRST_PIECE_32 = (127 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS
_FIRST_PIECE_64 = (1023 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS
_HEADROOM = 128.0  # P(|noise| > 128 scale) < 2^-184 for beta >= 1


def sample(
    key: jax.Array,
    noise: GeneralizedGaussian,
    shape: Sequence[int] = (),
    dtype: DTypeLike = jnp.float32,
) -> jax.Array:
    """Draw independent noise of the given shape; pure, and a function of `key` alone.

    Guarantees:
        * The law is that of `noise`, tails included: nothing is truncated above 2^-95 per side.
        * float64 noise is computed in float64, every other one in float32 and rounded once.
        * `jax.jit` may be applied with `noise`, `shape` and `dtype` held static.

    JAX's default generator is of statistical, not cryptographic, quality: whoever learns the key learns the
    noise.

    Args:
        key: A key of `jax.random`; never use one twice.
        noise: The law.
        shape: Shape of the result.
        dtype: float32, bfloat16 or float16; float64 where `jax_enable_x64` is set.
    """
    wanted = jnp.dtype(dtype)
    arguments.instance("noise", noise, GeneralizedGaussian)
    arguments.one_of(
        "dtype", wanted, _dtypes(), hint="float64 needs jax.config.update('jax_enable_x64', True)"
    )
    span = jnp.finfo(wanted)
    hint = f"{wanted} cannot hold such noise, use a wider dtype"
    arguments.real("scale", noise.scale, least=float(span.tiny), most=float(span.max) / _HEADROOM, hint=hint)
    words = jax.random.bits(key, (3, *shape), dtype=jnp.uint32)
    precision = jnp.float64 if wanted == jnp.float64 else jnp.float32
    return noise_from_words(words, noise, precision).astype(wanted)


def noise_from_words(words: jax.Array, noise: GeneralizedGaussian, precision: DTypeLike) -> jax.Array:
    """Turn the words a, b, c of each element (axis 0) into noise: see `ggdp.distributions.quantile_table`."""
    a, b, c = words[0], words[1], words[2]
    wide = precision == jnp.float64
    table = quantile_table(noise.beta, FLOAT64_DEGREE if wide else FLOAT32_DEGREE).coefficients * noise.scale
    end = ((a >> 30) & 1).astype(jnp.int32)
    q = a & jnp.uint32(0x3FFFFFFF)
    fine = q.astype(precision) + b.astype(precision) * 2.0**-32 + (c.astype(precision) + 0.5) * 2.0**-64
    if wide:
        bits = jnp.minimum(jax.lax.bitcast_convert_type(fine, jnp.int64), layout.LARGEST_FLOAT64)
        piece = ((bits >> 50) - _FIRST_PIECE_64).astype(jnp.int32)
        significand = (bits & (2**50 - 1)) | 0x3FF0000000000000
    else:
        coarse = q.astype(jnp.float32) * layout.SHRINK_FLOAT32 + 0.5
        place = jnp.where((end == 1) & (q < layout.FINE_TAIL), fine, coarse)
        bits = jax.lax.bitcast_convert_type(place, jnp.int32)
        piece = (bits >> 21) - _FIRST_PIECE_32
        significand = (bits & 0x1FFFFF) | 0x3F800000
    t = jax.lax.bitcast_convert_type(significand, precision) - 1.125
    row = 2 * piece + end
    columns = jnp.asarray(table, dtype=precision)
    magnitude = columns[-1][row]
    for column in columns[-2::-1]:
        magnitude = magnitude * t + column[row]
    return jnp.where(a >> 31 == 1, -magnitude, magnitude)


def _dtypes() -> list[jnp.dtype]:
    narrow = [jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)]
    return [jnp.dtype(jnp.float64), *narrow] if jax.config.jax_enable_x64 else narrow
