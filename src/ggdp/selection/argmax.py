# SPDX-License-Identifier: Apache-2.0
"""The winner of a vote with noise on every count (Algorithm GGNMax of the paper), and what it costs.

docs/argmax.md says why the cost is right: publishing an index is post-processing of publishing all noisy
counts, and the loss of moving several counts is the sum of the independent losses of moving each.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import epsilon as epsilon_of
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism
from ggdp.mechanisms.release import generator_or_secure, on_grid
from ggdp.numerics import Array

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
    batch = histograms_from("counts", counts)
    rng = generator_or_secure(rng)
    winners = np.empty(len(batch), dtype=np.int64)
    rows = max(1, _CHUNK // batch.shape[1])
    for start in range(0, len(batch), rows):
        chunk = batch[start : start + rows]
        if exact:
            winners[start : start + rows] = _fair_argmax(on_grid(noise, chunk, rng), rng)
        else:
            winners[start : start + rows] = np.argmax(chunk + noise.sample(chunk.shape, rng=rng), axis=1)
    return int(winners[0]) if np.ndim(counts) == 1 else winners


def _fair_argmax(noisy: NDArray[np.int64], rng: Rng) -> NDArray[np.int64]:
    """The index of the largest number of each row; among several of them each is equally likely."""
    largest = noisy == noisy.max(axis=1, keepdims=True)
    winners = np.asarray(np.argmax(largest, axis=1), dtype=np.int64)
    for row in np.flatnonzero(largest.sum(axis=1) > 1).tolist():
        tied = np.flatnonzero(largest[row])
        winners[row] = tied[int(rng.integers(len(tied)))]
    return winners


def histograms_from(name: str, counts: ArrayLike) -> Array:
    """Counts as an array [queries, classes], checked."""
    histograms = arguments.finite_array(name, counts)
    if histograms.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape [classes] or [queries, classes], got {histograms.shape}")
    return np.atleast_2d(histograms)


@dataclass(frozen=True)
class NoisyArgmax:
    """A mechanism for votes: it publishes the index of the largest count after noise on each (GGNMax).

    Under `REPLACE` a voter changes its vote: one count rises by one and another falls by one, an exact
    composition of two one-coordinate shifts. Otherwise a voter comes or goes, and one count moves by one.

    Guarantees:
        1. The accountant's bounds for `as_mechanism()` hold for the index, and for all noisy counts together.

    >>> from ggdp import GeneralizedGaussian
    >>> round(NoisyArgmax(GeneralizedGaussian(beta=1.5, scale=1.0)).epsilon(delta=1e-6).upper, 3)
    5.589
    """

    noise: GeneralizedGaussian
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    @property
    def counts_moved(self) -> int:
        """How many counts one voter can move, each by one."""
        return 2 if self.adjacency is Adjacency.REPLACE else 1

    def as_mechanism(self, times: int = 1) -> Mechanism:
        """The same privacy loss as additive noise, `times` over; ask about it with the default adjacency.

        Without sampling a shift costs the same in both directions, by symmetry of the noise.
        """
        return Composed(AdditiveNoise(self.noise, sensitivity=1.0, norm=1.0), times=self.counts_moved * times)

    def epsilon(self, *, delta: float, times: int = 1) -> Bounds:
        """Certified epsilon of `times` noisy votes."""
        return epsilon_of(self.as_mechanism(times), delta=delta)


@dataclass(frozen=True)
class NoisyThreshold:
    """A mechanism for votes: it publishes whether the largest count plus noise reaches a threshold.

    One voter moves the largest count by at most one, whether it comes, goes or changes its vote, so this is a
    scalar release of sensitivity 1 under every adjacency, and only one bit of it is shown.
    """

    noise: GeneralizedGaussian

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)

    def as_mechanism(self, times: int = 1) -> Mechanism:
        """The same privacy loss as additive noise, `times` over; ask about it with the default adjacency."""
        return Composed(AdditiveNoise(self.noise, sensitivity=1.0, norm=1.0), times=times)

    def epsilon(self, *, delta: float, times: int = 1) -> Bounds:
        """Certified epsilon of `times` checks."""
        return epsilon_of(self.as_mechanism(times), delta=delta)
