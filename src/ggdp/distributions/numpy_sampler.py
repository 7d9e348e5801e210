# SPDX-License-Identifier: Apache-2.0
"""Draws of Generalized Gaussian noise on the CPU, exact in law, by a vectorised ziggurat.

One 64-bit word makes one draw more than 99 times in 100: ten bits choose a layer, 53 choose the place in it.
The words that fall on the rim of a layer are put aside and settled together afterwards. A draw costs less
than one of `numpy.random.Generator.standard_normal`; numerical inversion (SciPy's UNU.RAN) costs more than
twice as much, and would have to be cut off in the tail.

Any source of words will do, so that PyTorch's generator and the ChaCha20 keystream share this code.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ggdp import arguments
from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.distributions.secure import SecureGenerator
from ggdp.distributions.ziggurat import NUM_LAYERS, PLACE_BITS, Ziggurat, ziggurat

WordSource = Callable[[int], NDArray[np.int64]]
Rng = np.random.Generator | SecureGenerator

_CHUNK = 1 << 15  # Draws per pass: few enough for the cache, enough to hide the cost of NumPy's calls.
_INT64 = np.iinfo(np.int64)
_DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))
_HEADROOM = 128.0  # P(|noise| > 128 scale) < 2^-184 for beta >= 1: such noise never overflows.


def sample(
    noise: GeneralizedGaussian,
    shape: int | tuple[int, ...] = (),
    *,
    rng: Rng,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    """Draw independent noise of the given shape.

    Guarantees:
        * The law is that of `noise` to the rounding of float64 arithmetic, tails included: the deepest draw
          has a probability below 2^-130 per side. Nothing is truncated at 2^-32 or 2^-53.
        * The law is symmetric: x and -x come from words of equal number.
        * Draws are odd multiples of 2^-53 of a layer's width (at most 10 scales) before the scale is applied;
          in a narrower `dtype` the float64 draw is rounded once, so float32 noise has 24 significant bits.

    Args:
        noise: The law.
        shape: Shape of the result.
        rng: A `numpy.random.Generator`, or a `SecureGenerator`.
        dtype: float64, float32 or float16.

    >>> sample(GeneralizedGaussian(beta=1.5, scale=2.0), (2, 3), rng=np.random.default_rng(7)).shape
    (2, 3)
    """
    out = np.empty(shape, dtype=_float_dtype(dtype, noise))
    fill(out.reshape(-1), noise, word_source(rng))
    return out


def word_source(rng: Rng) -> WordSource:
    """Return the function that draws 64-bit words from `rng`."""
    hint = "secure_generator() or numpy.random.default_rng(seed) makes one"
    arguments.instance("rng", rng, (np.random.Generator, SecureGenerator), hint=hint)
    if isinstance(rng, SecureGenerator):
        return rng.words
    return lambda count: rng.integers(_INT64.min, _INT64.max, count, dtype=np.int64, endpoint=True)


def fill(out: NDArray[Any], noise: GeneralizedGaussian, words: WordSource) -> None:
    """Fill the one-dimensional `out` with draws of `noise` made from `words`."""
    table = ziggurat(noise.beta)
    doubtful = _settle_inside(out, table, noise.scale, words)
    while doubtful.where.size:
        doubtful = _settle_rim(out, table, noise.scale, words, doubtful)


class _Doubtful(NamedTuple):
    """Draws that may lie above the graph: where they go, their signed abscissa and their layer."""

    where: NDArray[np.int64]
    abscissa: NDArray[np.float64]
    layer: NDArray[np.int64]


def _settle_inside(out: NDArray[Any], table: Ziggurat, scale: float, words: WordSource) -> _Doubtful:
    """Write a draw everywhere; return those that do not lie well inside their layer."""
    rims = []
    for start in range(0, out.size, _CHUNK):
        part = out[start : start + _CHUNK]
        abscissa, layer, rim = _throw(table, words(part.size))
        np.multiply(abscissa, scale, out=part, casting="same_kind")
        rims.append(_Doubtful(rim + start, abscissa[rim], layer[rim]))
    if not rims:
        return _Doubtful(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
    if len(rims) == 1:
        return rims[0]
    return _Doubtful(*(np.concatenate(column) for column in zip(*rims, strict=True)))


def _throw(
    table: Ziggurat, words: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Turn words into signed places in layers; say which of them may lie above the graph."""
    layer = words & (NUM_LAYERS - 1)
    # A signed integer of 53 bits plus a half: symmetric about zero and exact in float64.
    place = (words >> (64 - PLACE_BITS)).astype(np.float64)
    place += 0.5
    place *= table.unit.take(layer)
    rim = np.flatnonzero(np.abs(place) >= table.inner.take(layer)).astype(np.int64, copy=False)
    return place, layer, rim


def _settle_rim(
    out: NDArray[Any], table: Ziggurat, scale: float, words: WordSource, doubtful: _Doubtful
) -> _Doubtful:
    """Decide the doubtful draws and throw the refused ones again; return those doubtful once more."""
    index, abscissa, layer = doubtful
    in_tail = layer == 0
    abscissa[in_tail] = np.copysign(_tail(table, words, int(in_tail.sum())), abscissa[in_tail])
    low, high = table.height[layer], table.height[layer + 1]
    under = low + _uniform(words, index.size) * (high - low) < np.exp(-(np.abs(abscissa) ** table.beta))
    accepted = in_tail | under
    out[index[accepted]] = scale * abscissa[accepted]
    again = index[~accepted]
    fresh, fresh_layer, rim = _throw(table, words(again.size))
    out[again] = scale * fresh
    return _Doubtful(again[rim], fresh[rim], fresh_layer[rim])


def _tail(table: Ziggurat, words: WordSource, count: int) -> NDArray[np.float64]:
    """Draw from the density proportional to exp(-x^beta) on x > r, by rejection from an exponential.

    x^beta is convex, so it lies above its tangent at r: r^beta + slope (x - r), slope = beta r^(beta - 1).
    The excess over the tangent is the exponent of the acceptance probability.
    """
    beta, start = table.beta, table.tail_start
    slope = beta * start ** (beta - 1.0)
    drawn = np.empty(0)
    while drawn.size < count:
        num_tries = 2 * (count - drawn.size) + 8
        step = -np.log(_uniform(words, num_tries))
        x = start + step / slope
        excess = x**beta - start**beta - step
        drawn = np.concatenate([drawn, x[-np.log(_uniform(words, num_tries)) > excess]])
    return drawn[:count]


def uniforms(rng: Rng, count: int) -> NDArray[np.float64]:
    """Draw uniforms in (0, 1], as fine near zero as doubles are down to 2^-65."""
    return _uniform(word_source(rng), count)


def _uniform(words: WordSource, count: int) -> NDArray[np.float64]:
    """Draw uniforms in (0, 1] with all 53 significant bits down to 2^-65, and never below 2^-129."""
    high, low = words(2 * count).view(np.uint64).reshape(2, count).astype(np.float64)
    return np.asarray(high * 2.0**-64 + (low + 0.5) * 2.0**-128)


def _float_dtype(dtype: DTypeLike, noise: GeneralizedGaussian) -> np.dtype[Any]:
    wanted = np.dtype(dtype)
    arguments.one_of("dtype", wanted, _DTYPES)
    span = np.finfo(wanted)
    hint = f"{wanted} cannot hold such noise, use a wider dtype"
    arguments.real("scale", noise.scale, least=float(span.tiny), most=float(span.max) / _HEADROOM, hint=hint)
    return wanted
