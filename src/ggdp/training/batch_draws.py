# SPDX-License-Identifier: Apache-2.0
"""Which examples are in a batch, for every way of drawing batches that the accountant knows.

    poisson              each example with probability `rate`, alone
    truncated-poisson    the same, cut at a largest size; what is left out is chosen at random
    fixed-size           one of all subsets of that size, each equally likely
    with-replacement     so many draws of one example, each alone
    allocation           each example in `times_used` of the steps of an epoch, chosen alone
    shuffled             the examples of an epoch in random order, cut into batches

Draws use the examples' numbers and nothing else of the data. A *draw* is what one mechanism of the ledger
stands for: a batch, or all batches of an epoch.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ggdp.mechanisms.batches import Sampling
from ggdp.training.randomness import Randomness, integers, uniforms, words

Positions = NDArray[np.int64]

# The sampler's own rate is smaller than the accountant's by more than all its rounding (about 2^-50).
CAUTIOUS = 1.0 - 2.0**-40


def draw(sampling: Sampling, count: int, randomness: Randomness) -> Iterator[Positions]:
    """The batches of one draw from examples 0 ... count - 1: one batch, or those of an epoch."""
    numbers = sampling.numbers
    if sampling.kind == "poisson":
        yield poisson_positions(count, numbers[0] * CAUTIOUS, randomness)
    elif sampling.kind == "truncated-poisson":
        chosen = poisson_positions(count, numbers[0] * CAUTIOUS, randomness)
        kept = subset(len(chosen), min(len(chosen), int(numbers[1])), randomness)
        yield chosen[kept]
    elif sampling.kind == "fixed-size":
        yield subset(count, int(numbers[0]), randomness)
    elif sampling.kind == "with-replacement":
        yield integers(randomness.batches, count, int(numbers[0]))
    elif sampling.kind == "allocation":
        yield from _allocated(count, int(numbers[1]), int(numbers[0]), randomness)
    else:
        order = permutation(count, randomness)
        yield from np.array_split(order, int(numbers[0]))


def poisson_positions(count: int, rate: float, randomness: Randomness) -> Positions:
    """Each of 0 ... count - 1 with probability `rate`, independently, in order.

    The gaps between chosen positions are geometric: P(gap > k) = (1 - rate)^k, so that
    gap = 1 + floor(log U / log(1 - rate)). That takes about rate * count uniforms instead of count.
    """
    if rate >= 1.0:
        return np.arange(count)
    log_left_out = math.log1p(-rate)
    found, last = [], -1
    while last < count:
        expected = (count - last) * rate
        draws = int(expected + 6.0 * math.sqrt(expected)) + 8
        gaps = uniforms(randomness.batches, draws)
        np.negative(gaps, out=gaps)
        np.log1p(gaps, out=gaps)  # of 1 - U, in (0, 1]
        gaps /= log_left_out
        positions = np.minimum(gaps, count, out=gaps).astype(np.int64)
        positions += 1
        positions[0] += last
        found.append(np.cumsum(positions, out=positions))
        last = int(positions[-1])
    chosen = found[0] if len(found) == 1 else np.concatenate(found)
    return chosen[: np.searchsorted(chosen, count)]


def subset(count: int, size: int, randomness: Randomness) -> Positions:
    """One of all subsets of 0 ... count - 1 with `size` elements, each equally likely, in order.

    The first `size` different numbers of a sequence of uniform ones; of the smaller of the subset and its
    complement, so that few are drawn in vain.
    """
    if 2 * size > count:
        kept = np.ones(count, bool)
        kept[subset(count, count - size, randomness)] = False
        return np.flatnonzero(kept)
    seen = np.empty(0, np.int64)
    while len(seen) < size:
        more = integers(randomness.batches, count, 2 * (size - len(seen)))
        drawn = np.concatenate([seen, more])
        _, first = np.unique(drawn, return_index=True)
        seen = drawn[np.sort(first)]
    return np.sort(seen[:size])


def permutation(count: int, randomness: Randomness) -> Positions:
    """0 ... count - 1 in an order that is uniform among all: that of different random words."""
    while True:
        keys = words(randomness.batches, count)
        order = np.argsort(keys)
        if not (np.diff(keys[order]) == 0).any():
            return order.astype(np.int64)


def _allocated(count: int, steps: int, times_used: int, randomness: Randomness) -> Iterator[Positions]:
    """Every example in `times_used` of the steps, a uniform subset of them for each (Floyd's algorithm)."""
    chosen = np.empty((count, times_used), np.int64)
    for place, last in enumerate(range(steps - times_used, steps)):
        drawn = integers(randomness.batches, last + 1, count)
        is_new = (chosen[:, :place] != drawn[:, None]).all(axis=1)
        chosen[:, place] = np.where(is_new, drawn, last)
    flat = chosen.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ends = np.searchsorted(flat[order], np.arange(steps + 1))
    for start, stop in pairwise(ends):
        yield order[start:stop] // times_used
