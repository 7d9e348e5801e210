# SPDX-License-Identifier: Apache-2.0
"""Add a mechanism's noise to a value: the one place where something private becomes public."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian, SecureGenerator, secure_generator
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import tables
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.composed import Composed
from ggdp.mechanisms.poisson_sampled import PoissonSampled
from ggdp.mechanisms.spherical_noise import SphericalNoise


def release(mechanism: AdditiveNoise | SphericalNoise, value: Any, *, rng: Rng | None = None) -> Any:
    """Return `value` plus independent noise on every number in it, as the same kind of object.

    Takes a number, a list or tuple, a NumPy array of any shape, or a pandas or polars Series or DataFrame of
    numbers. Integers become floats; float32 stays float32; index, names and columns are kept.

    The noise is that of `mechanism.noise`. That of `SphericalNoise` is one vector over all numbers of the
    value, which must be as many as its dimension, drawn in doubles like all other noise here. That one record
    moves `value` by at most `mechanism.sensitivity` is the caller's promise: nothing here can check it.
    Index, column names, shape and the fact that a value was refused are not protected.

    Guarantees:
        1. Every number receives its own draw; nothing is returned when any number is refused.
        2. Without `rng`, the noise is a ChaCha20 keystream under a fresh key of the operating system.

    What floating point means for privacy: the guarantee of an accountant is about real numbers. Noise
    computed in doubles does not reach every double, and which ones it reaches depends on the value, so an
    adversary who sees all 53 bits of the output can sometimes exclude a neighbour (Mironov 2012, "On
    significance of the least significant bits for differential privacy"). No mechanism here closes that gap.
    Rounding the output to a grid that is coarse beside the spacing of doubles (say, scale / 1000) is
    post-processing, costs nothing in the guarantee and hides the low bits, but is no proof either.

    Args:
        mechanism: What is released. A sampled or composed mechanism is refused: release each step by itself.
        value: The exact answer of the query.
        rng: A NumPy generator or a `SecureGenerator`. Noise that others can reproduce is not private, and the
            states of NumPy's generators can be recovered from enough of their output: pass one for
            experiments, leave it out for real releases.

    Raises:
        ValueError: The value is empty, not numeric, or not finite; the message says where.

    >>> from ggdp import Laplace
    >>> release(AdditiveNoise(Laplace(scale=1.0)), [10, 20], rng=np.random.default_rng(1)) != [10, 20]
    True
    """
    draw = mechanism.noise.sample_as if isinstance(mechanism, SphericalNoise) else _noise_of(mechanism).sample
    rng = generator_or_secure(rng)

    def add_noise(exact: NDArray[np.float64]) -> NDArray[np.float64]:
        return exact + draw(exact.shape, rng=rng)

    if tables.is_table(value):
        return tables.transform(value, add_noise)
    exact = arguments.finite_array("value", value)
    noisy = add_noise(exact)
    if isinstance(value, np.ndarray):
        return np.asarray(noisy, value.dtype if value.dtype == np.float32 else np.float64)
    if isinstance(value, tuple):
        return tuple(noisy.tolist())
    return noisy.tolist()  # a list for a list, a float for a number


def generator_or_secure(rng: Rng | None) -> Rng:
    """The caller's generator, checked; or, when there is none, a fresh one nobody can predict."""
    if rng is None:
        return secure_generator()
    kinds = (np.random.Generator, SecureGenerator)
    arguments.instance("rng", rng, kinds, hint="leave it out for noise that nobody can predict")
    return rng


def _noise_of(mechanism: AdditiveNoise) -> GeneralizedGaussian:
    if isinstance(mechanism, PoissonSampled):
        raise ValueError(
            "mechanism must be of type AdditiveNoise, got PoissonSampled; draw the sample of records "
            "yourself, answer the query on it, and release that with the inner mechanism"
        )
    if isinstance(mechanism, Composed):
        raise ValueError(
            "mechanism must be of type AdditiveNoise, got Composed; release adds the noise of one step, so "
            "call it once for each step of the composition"
        )
    arguments.instance("mechanism", mechanism, AdditiveNoise)
    return mechanism.noise
