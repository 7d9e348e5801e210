# SPDX-License-Identifier: Apache-2.0
"""Add a mechanism's noise to a value: the one place where something private becomes public."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian, SecureGenerator, exact_sampler, secure_generator
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.distributions.numpy_sampler import word_source
from ggdp.mechanisms import tables
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.batches import PoissonSampled
from ggdp.mechanisms.composed import Composed
from ggdp.mechanisms.grid_noise import GridNoise, multiples_below
from ggdp.mechanisms.spherical_noise import SphericalNoise

_CAUTION = 2.0**-52  # by which records are drawn at less than the rate: more than the rounding of a draw


def release(
    mechanism: AdditiveNoise | GridNoise | SphericalNoise | PoissonSampled,
    value: Any,
    query: Callable[[Any], Any] | None = None,
    *,
    rng: Rng | None = None,
    exact: bool = True,
) -> Any:
    """Add noise to a value: return it with independent noise on every number, as the same kind of object.

    It takes a number, a list or tuple, a NumPy array of any shape, or a pandas or polars Series or DataFrame
    of numbers. Integers become floats; float32 stays float32; index, names and columns are kept. Every call
    is a new release, whose epsilon is `ggdp.epsilon(mechanism, delta=...)`.

    You promise that one record moves `value` by at most `mechanism.sensitivity`; this cannot be checked here.
    Index, column names, shape, and the fact that a value was refused are not protected.

    The numbers returned are multiples of a grid: `mechanism.grid`, or if that is left out a power of two
    between 2^-11 and 2^-10 of the scale of the noise. For `AdditiveNoise` their law is exactly that of the
    real number value + noise, rounded to the nearest multiple; since rounding costs no privacy, every bound
    for the mechanism holds for the doubles that are returned. For `GridNoise` the result is the value on its
    own grid plus noise of whole steps, whose law is the one that is accounted. For `SphericalNoise` the noise
    is one vector over all numbers, which must be as many as its dimension; it needs exact=False. The proofs
    are in docs/exact-release.md.

    For a `PoissonSampled` mechanism, `value` holds the records, one entry or row for each person, and `query`
    computes the exact answer from the records that were kept. The sample is drawn here at the mechanism's
    rate, so that it agrees with what `ggdp.epsilon(mechanism)` accounts for. The sample must stay secret, and
    the query must also answer for an empty sample.

    Guarantees:
        1. Every number receives its own draw; nothing is drawn or returned when any number is refused.
        2. Without `rng`, the noise is a ChaCha20 keystream under a fresh key of the operating system.
        3. The law of the result is known exactly. Which doubles can come out does not depend on the value.
        4. A record is kept with a probability of at most `mechanism.rate`, and less by at most 2^-51.

    Args:
        mechanism: What is released. A composed mechanism is refused: release each step by itself.
        value: The exact answer of the query, of at most `mechanism.dimension` numbers. Where the mechanism is
            sampled, the records: a sequence, a NumPy array of rows, or a table of pandas or polars.
        query: Where the mechanism is sampled, and only there: from the records that were kept, in the same
            kind of object (a list for a sequence), to the exact answer.
        rng: A NumPy generator or a `SecureGenerator`. Noise that others can reproduce is not private, and the
            states of NumPy's generators can be recovered from enough of their output: pass one for
            experiments, leave it out for real releases.
        exact: False adds a double to a double, which is faster and NOT private in the strict sense: which
            doubles can come out then depends on the value, and one output can exclude a neighbour with
            certainty, whatever epsilon says (Mironov 2012). For simulations.

    Raises:
        ValueError: The value is empty, masked, not numeric, not finite, of more numbers than the mechanism
            has, or so large that its own rounding would swallow the noise; the message says where.

    >>> from ggdp import Laplace
    >>> counts = AdditiveNoise.histogram(Laplace(scale=1.0), grid=1)
    >>> release(counts, [10, 20], rng=np.random.default_rng(1))
    [10.0, 23.0]
    >>> from ggdp import PoissonSampled
    >>> count = PoissonSampled(AdditiveNoise(Laplace(scale=1.0), grid=1), rate=0.5)
    >>> release(count, ["ann", "bob", "cid", "dee"], len, rng=np.random.default_rng(2))
    3.0
    """
    rng = generator_or_secure(rng)
    if isinstance(mechanism, PoissonSampled):
        return _sampled(mechanism, value, query, rng, exact)
    if query is not None:
        raise ValueError(
            "query must be left out unless the mechanism is PoissonSampled; release adds noise to the value "
            "that you give, so give query(value)"
        )
    _check(mechanism, exact)
    if tables.is_table(value):
        _refuse_coarse(mechanism, tables.float32_numbers(value), np.dtype(np.float32))
        return tables.transform(value, lambda numbers: _noisy(mechanism, numbers, rng, exact))
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            "value must not be a masked array: whether the numbers under the mask are private is not known; "
            "give value.compressed(), or value.filled(...) with a public number"
        )
    numbers = arguments.finite_array("value", value)
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f":
        _refuse_coarse(mechanism, numbers, value.dtype)
    noisy = _noisy(mechanism, numbers, rng, exact)
    if isinstance(value, np.ndarray):
        return np.asarray(noisy, value.dtype if value.dtype == np.float32 else np.float64)
    if isinstance(value, tuple):
        return tuple(noisy.tolist())
    return noisy.tolist()  # a list for a list, a float for a number


def _sampled(
    mechanism: PoissonSampled, records: Any, query: Callable[[Any], Any] | None, rng: Rng, exact: bool
) -> Any:
    """Draw the sample, ask the query of it, release the answer."""
    if not callable(query):
        raise ValueError(
            "query must be given for a PoissonSampled mechanism, a function from the records kept to the "
            f"exact answer, got {query!r}; value holds all records"
        )
    inner: Any = mechanism.mechanism
    _check(inner, exact)
    if not (tables.is_table(records) or isinstance(records, (np.ndarray, Sequence))) or isinstance(
        records, (str, bytes, Mapping)
    ):
        raise ValueError(
            "value must hold the records, a sequence, an array of rows or a table, for a PoissonSampled "
            f"mechanism, got {type(records).__name__}"
        )
    if isinstance(records, np.ndarray) and not records.ndim:
        raise ValueError("value must hold the records, one in each row, got an array of a single number")
    chance = mechanism.rate if mechanism.rate == 1.0 else mechanism.rate - _CAUTION
    kept = np.atleast_1d(rng.random(len(records))) < chance
    return release(inner, query(tables.rows(records, kept)), rng=rng, exact=exact)


def grid_of(noise: GeneralizedGaussian) -> float:
    """The grid on which `release` puts numbers with this noise: the power of two in (2^-11, 2^-10] scales.

    >>> from ggdp import Laplace
    >>> grid_of(Laplace(scale=1.0)) == 2.0**-10
    True
    """
    return 2.0 ** (math.frexp(noise.scale)[1] - 11)


def on_grid(
    noise: GeneralizedGaussian, numbers: NDArray[np.float64], rng: Rng, grid: float | None = None
) -> NDArray[np.int64]:
    """The real numbers + noise, rounded to multiples of the grid, of exactly that law; as multiples.

    Raises:
        ValueError: a number, or the noise, does not fit the grid.
    """
    step = grid_of(noise) if grid is None else grid
    multiples_below(numbers, step)  # refuses what is too large
    exponent = math.frexp(step)[1] - 1
    drawn = exact_sampler.rounded(noise.beta, noise.scale, exponent, numbers.ravel(), word_source(rng))
    return drawn.reshape(numbers.shape)


def generator_or_secure(rng: Rng | None) -> Rng:
    """The caller's generator, checked; or, when there is none, a fresh one nobody can predict."""
    if rng is None:
        return secure_generator()
    kinds = (np.random.Generator, SecureGenerator)
    arguments.instance("rng", rng, kinds, hint="leave it out for noise that nobody can predict")
    return rng


def _noisy(
    mechanism: AdditiveNoise | GridNoise | SphericalNoise,
    numbers: NDArray[np.float64],
    rng: Rng,
    exact: bool,
) -> NDArray[np.float64]:
    if isinstance(mechanism, SphericalNoise):
        multiples_below(
            numbers, grid_of(GeneralizedGaussian(2.0, mechanism.noise.scale))
        )  # refuses the large
        return numbers + mechanism.noise.sample_as(numbers.shape, rng=rng)
    if numbers.size > mechanism.dimension:
        raise ValueError(
            f"value must hold at most {mechanism.dimension} numbers, the dimension of the mechanism, got "
            f"{numbers.size}; say dimension={numbers.size} and in which norm the sensitivity is, or for "
            "counts of which one record moves one take AdditiveNoise.histogram(noise)"
        )
    if isinstance(mechanism, GridNoise):
        multiples = mechanism.multiples(numbers)
        multiples += mechanism.noise.sample(numbers.shape, rng=rng)
        step = mechanism.grid
    elif exact:
        step = grid_of(mechanism.noise) if mechanism.grid is None else mechanism.grid
        multiples = on_grid(mechanism.noise, numbers, rng, step)
    else:
        multiples_below(numbers, grid_of(mechanism.noise))  # refuses what is too large here too
        return numbers + mechanism.noise.sample(numbers.shape, rng=rng)
    # Exact: a whole number of at most 53 bits, times a power of two.
    return np.asarray(np.clip(multiples, -(2**53), 2**53) * step)


def _check(mechanism: AdditiveNoise | GridNoise | SphericalNoise, exact: bool) -> None:
    if isinstance(mechanism, Composed):
        raise ValueError(
            "mechanism must be of type AdditiveNoise, got Composed; release adds the noise of one step, so "
            "call it once for each step of the composition"
        )
    arguments.instance("mechanism", mechanism, (AdditiveNoise, GridNoise, SphericalNoise))
    arguments.instance("exact", exact, bool)
    if isinstance(mechanism, SphericalNoise):
        if exact:
            raise ValueError(
                "exact must be False for SphericalNoise: its noise is added in doubles alone, which is not "
                "private in the strict sense; AdditiveNoise with Gaussian noise is released exactly"
            )
        return
    if not exact and (isinstance(mechanism, GridNoise) or mechanism.grid is not None):
        raise ValueError("exact must not be False for a mechanism with a grid: floats keep to none")


def _refuse_coarse(
    mechanism: AdditiveNoise | GridNoise | SphericalNoise, numbers: NDArray[np.float64], dtype: np.dtype[Any]
) -> None:
    """Refuse numbers of a narrow type where its own steps are as long as the noise."""
    if dtype.itemsize > 8:
        raise ValueError(f"value must hold numbers of at most 64 bits, got {dtype}; round them to float64")
    if dtype.itemsize == 8 or not numbers.size:
        return
    length = mechanism.noise.scale * (mechanism.grid if isinstance(mechanism, GridNoise) else 1.0)
    largest = float(np.abs(numbers).max())
    if float(np.spacing(np.asarray(largest, dtype=dtype))) > 0.5 * length:
        raise ValueError(
            f"value must lie where {dtype} numbers are closer than half the scale of the noise, {length:g}, "
            f"got {largest:g}: the noise would be lost in their rounding; compute the query in float64"
        )
