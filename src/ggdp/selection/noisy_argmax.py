# SPDX-License-Identifier: Apache-2.0
"""The winner of a vote, with noise on every count (Algorithm GGNMax of the paper)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms.release import generator_or_secure, on_grid

_CHUNK = 1 << 20
"""Most noisy counts held at once, whatever the number of queries."""


def noisy_argmax(
    counts: ArrayLike, noise: GeneralizedGaussian, *, rng: Rng | None = None, exact: bool = True
) -> int | NDArray[np.int64]:
    """The index of the largest count after noise: an int for one histogram, an array for [queries, classes].

    Only the index is meant to be published. Its privacy is that of releasing the noisy counts
    (post-processing): when neighbours add or remove one voter, one count moves by one, a one-coordinate
    shift; when a voter changes its vote, two counts move by one, which costs as much as two such releases.

    The noisy counts are rounded to the grid of `release`, 2^-10 of the noise's scale or finer, and have
    exactly the law of real numbers so rounded. Those that tie for the largest are equally likely to win. Both
    are post-processing, so that what is said of real noisy counts holds. With a single class the answer is 0
    and says nothing.

    Args:
        counts: Votes for each class, shape [classes] or [queries, classes]; finite.
        noise: The law of the noise on each count.
        rng: A NumPy generator or a `SecureGenerator`; when omitted, a fresh one that nobody can predict.
        exact: False adds doubles to doubles, which is faster, for simulations; see `release`.

    >>> from ggdp import Laplace
    >>> noisy_argmax([3, 1000, 5], Laplace(scale=1.0), rng=np.random.default_rng(1))
    1
    """
    arguments.instance("noise", noise, GeneralizedGaussian)
    arguments.instance("exact", exact, bool)
    histograms = arguments.finite_array("counts", counts)
    if histograms.ndim not in (1, 2):
        raise ValueError(f"counts must have shape [classes] or [queries, classes], got {histograms.shape}")
    rng = generator_or_secure(rng)
    batch = np.atleast_2d(histograms)
    winners = np.empty(len(batch), dtype=np.int64)
    rows = max(1, _CHUNK // batch.shape[1])
    for start in range(0, len(batch), rows):
        chunk = batch[start : start + rows]
        if exact:
            winners[start : start + rows] = _fair_argmax(on_grid(noise, chunk, rng), rng)
        else:
            winners[start : start + rows] = np.argmax(chunk + noise.sample(chunk.shape, rng=rng), axis=1)
    return int(winners[0]) if histograms.ndim == 1 else winners


def _fair_argmax(noisy: NDArray[np.int64], rng: Rng) -> NDArray[np.int64]:
    """The index of the largest number of each row; among several of them each is equally likely."""
    largest = noisy == noisy.max(axis=1, keepdims=True)
    winners = np.asarray(np.argmax(largest, axis=1), dtype=np.int64)
    for row in np.flatnonzero(largest.sum(axis=1) > 1).tolist():
        tied = np.flatnonzero(largest[row])
        winners[row] = tied[int(rng.integers(len(tied)))]
    return winners
