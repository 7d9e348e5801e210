# SPDX-License-Identifier: Apache-2.0
"""Batches other than Poisson samples: held against every batch of a tiny data set, exact sums and sampling.

The truths here enumerate batches and integrate mixtures by plain sums; they share no code with the engines.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    EpsilonTooLargeError,
    FixedSizeSampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoDominatingPairError,
    OutcomeProbabilities,
    PoissonSampled,
    RandomAllocation,
    Sampling,
    Shuffled,
    TruncatedPoisson,
    account,
    epsilon,
)

NOISES = [Laplace(scale=1.3), GeneralizedGaussian(beta=1.5, scale=1.6), Gaussian(std=1.1)]
EPSILONS = [0.1, 0.7, 1.5]
GRID = np.linspace(-25.0, 25.0, 20_001)


def density(noise, centre):
    return stats.gennorm.pdf(GRID, noise.beta, loc=centre, scale=noise.scale)


def mixture(noise, sums):
    """The law of a sum with probabilities, plus noise."""
    return sum(weight * density(noise, centre) for centre, weight in sums.items())


def counted(batches):
    """Sums of batches with their probabilities, equal ones together."""
    sums = {}
    for batch, weight in batches:
        total = round(math.fsum(batch), 12)
        sums[total] = sums.get(total, 0.0) + weight
    return sums


def subsets(data, size):
    every = list(itertools.combinations(data, size))
    return counted((batch, 1.0 / len(every)) for batch in every)


def draws(data, size):
    every = list(itertools.product(data, repeat=size))
    return counted((batch, 1.0 / len(every)) for batch in every)


def truncated(data, rate, most):
    """Every Poisson batch, and of one that is too large its first records."""
    batches = []
    for kept in itertools.product((False, True), repeat=len(data)):
        weight = math.prod(rate if one else 1.0 - rate for one in kept)
        batches.append(([value for value, one in zip(data, kept, strict=True) if one][:most], weight))
    return counted(batches)


def delta_of(noise, sums, others, at):
    """The hockey-stick divergence of two mixtures, by a plain sum."""
    difference = mixture(noise, sums) - math.exp(at) * mixture(noise, others)
    return float(np.maximum(difference, 0.0).sum() * (GRID[1] - GRID[0]))


def data_sets(count):
    """Random records, and the ones that are worst: one record against all others."""
    rng = np.random.default_rng(5)
    yield [1.0] + [-1.0] * (count - 1)
    yield [1.0] + [0.0] * (count - 1)
    for _ in range(2):
        yield rng.uniform(-1.0, 1.0, count).tolist()


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"beta={noise.beta:g}")
@pytest.mark.parametrize("replacement", [False, True], ids=["without", "with"])
def test_no_data_set_costs_more_than_fixed_size_batches_and_the_worst_costs_as_much(noise, replacement):
    drawn = draws if replacement else subsets
    mechanism = FixedSizeSampled(AdditiveNoise(noise), 2, 5, replacement=replacement)
    for direction in (Adjacency.REMOVE, Adjacency.ADD):
        profile = account(mechanism, adjacency=direction)
        for at in EPSILONS:
            found = profile.delta(epsilon=at)
            truths = []
            for data in data_sets(5):
                pair = [drawn(data, 2), drawn(data[1:], 2)]
                truths.append(delta_of(noise, *(pair if direction is Adjacency.REMOVE else pair[::-1]), at))
            assert max(truths) <= found.upper + 1e-5
            assert truths[0] == pytest.approx(found.upper, abs=1e-5)
            assert found.width <= 1e-5


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"beta={noise.beta:g}")
def test_no_replacement_costs_more_than_fixed_size_batches_and_one_release_is_exact(noise):
    profile = account(FixedSizeSampled(AdditiveNoise(noise), 2, 5), adjacency=Adjacency.REPLACE)
    for at in EPSILONS:
        found = profile.delta(epsilon=at)
        truths = []
        for data in data_sets(5):
            for other in (-1.0, 0.0, 1.0):
                truths.append(delta_of(noise, subsets(data, 2), subsets([other, *data[1:]], 2), at))
        assert max(truths) <= found.upper + 1e-5
        assert max(truths) == pytest.approx(found.lower, abs=1e-5)
        assert found.width <= 1e-4 * found.upper + 1e-14  # next to the largest loss, which is rounded


def test_two_replacements_in_fixed_size_batches_lie_between_the_two_ends():
    noise = Gaussian(std=1.1)
    found = account(
        Composed(FixedSizeSampled(AdditiveNoise(noise), 2, 5), times=2), adjacency=Adjacency.REPLACE
    )
    step = np.linspace(-9.0, 9.0, 901)
    laws = []
    for first in (1.0, -1.0):
        sums = subsets([first, -1.0, -1.0, -1.0, -1.0], 2)
        laws.append(sum(w * stats.norm.pdf(step, c, 1.1) for c, w in sums.items()) * (step[1] - step[0]))
    for at in EPSILONS[1:2]:
        pairs = [np.multiply.outer(law, law) for law in laws]
        truth = np.maximum(pairs[0] - math.exp(at) * pairs[1], 0.0).sum()
        bounds = found.delta(epsilon=at)
        assert bounds.lower - 1e-5 <= truth <= bounds.upper + 1e-5


@pytest.mark.parametrize("noise", NOISES[::2], ids=lambda noise: f"beta={noise.beta:g}")
def test_truncated_poisson_batches_stay_within_their_charge(noise):
    mechanism = TruncatedPoisson(AdditiveNoise(noise), rate=0.1, largest_batch=5, population=6)
    for direction in (Adjacency.REMOVE, Adjacency.ADD):
        profile = account(mechanism, adjacency=direction)
        for at in EPSILONS:
            found = profile.delta(epsilon=at)
            truths = []
            for data in data_sets(6):
                pair = [truncated(data, 0.1, 5), truncated(data[1:], 0.1, 5)]
                truths.append(delta_of(noise, *(pair if direction is Adjacency.REMOVE else pair[::-1]), at))
            assert found.lower - 1e-5 <= max(truths) <= found.upper + 1e-5
            assert found.width <= 3e-3


def test_a_batch_that_is_cut_often_is_refused_or_charged():
    mechanism = TruncatedPoisson(AdditiveNoise(Gaussian(std=1.0)), 0.5, 10, 20)
    assert account(mechanism).delta(epsilon=1.0).upper == 1.0
    with pytest.raises(EpsilonTooLargeError, match="largest_batch must be so large"):
        epsilon(mechanism, delta=1e-6)
    rarely = TruncatedPoisson(AdditiveNoise(Gaussian(std=1.0)), 0.01, 300, 10_000)
    plain = PoissonSampled(AdditiveNoise(Gaussian(std=1.0)), 0.01)
    found, exact = (epsilon(Composed(one, times=1000), delta=1e-6) for one in (rarely, plain))
    assert found.lower <= exact.upper
    assert found.upper >= exact.lower
    assert found.width <= 1e-6 * found.upper


@pytest.mark.parametrize("noise", [Gaussian(std=1.0), Laplace(scale=1.0)])
@pytest.mark.parametrize(("largest", "at_most"), [(50, 1e-13), (300, 1e-250)])
def test_delta_of_batches_that_may_be_cut_does_not_rise_with_epsilon(noise, largest, at_most):
    """(1 + e^epsilon) times a probability of 1e-300 was charged, which at epsilon = 2000 is everything."""
    profile = account(TruncatedPoisson(AdditiveNoise(noise), 0.01, largest, 1000))
    uppers = [profile.delta(epsilon=at).upper for at in (1.0, 20.0, 60.0, 700.0, 5000.0)]
    assert uppers == sorted(uppers, reverse=True)
    assert uppers[-1] < at_most


def allocation(p, q, steps, used):
    """Both laws of all outcomes of coin flips of which some, chosen at random, hold the record."""
    chosen = list(itertools.combinations(range(steps), used))
    laws = []
    for outcome in itertools.product((0, 1), repeat=steps):
        without = math.prod(q[value] for value in outcome)
        with_record = sum(
            math.prod((p if place in held else q)[value] for place, value in enumerate(outcome))
            for held in chosen
        )
        laws.append((with_record / len(chosen), without))
    return np.array(laws).T


@pytest.mark.parametrize(("steps", "used"), [(4, 1), (7, 1), (6, 2), (7, 3), (5, 5)])
def test_allocated_coin_flips_lie_between_the_bounds(steps, used):
    p, q = (0.7, 0.3), (0.4, 0.6)
    mechanism = RandomAllocation(OutcomeProbabilities(p, q), steps, used)
    with_record, without = allocation(p, q, steps, used)
    for direction in (Adjacency.REMOVE, Adjacency.ADD):
        profile = account(mechanism, adjacency=direction)
        first, second = (with_record, without) if direction is Adjacency.REMOVE else (without, with_record)
        for at in (0.02, 0.1, 0.25):
            truth = np.maximum(first - math.exp(at) * second, 0.0).sum()
            found = profile.delta(epsilon=at)
            assert found.lower - 1e-12 <= truth <= found.upper + 1e-12
            if used == 1:
                assert found.width <= 1e-2 * (truth + 1e-3)


@pytest.mark.parametrize("noise", [Gaussian(std=1.0), Laplace(scale=1.5), GeneralizedGaussian(1.5, 1.5)])
def test_two_allocated_steps_agree_with_a_double_integral(noise):
    points = np.linspace(-14.0, 15.0, 2901)
    law = stats.gennorm.pdf(points, noise.beta, scale=noise.scale) * (points[1] - points[0])
    moved = stats.gennorm.pdf(points, noise.beta, loc=1.0, scale=noise.scale) * (points[1] - points[0])
    with_record = 0.5 * (np.multiply.outer(moved, law) + np.multiply.outer(law, moved))
    without = np.multiply.outer(law, law)
    profile = account(RandomAllocation(AdditiveNoise(noise), steps=2), adjacency=Adjacency.REMOVE)
    for at in (0.1, 0.5):
        truth = np.maximum(with_record - math.exp(at) * without, 0.0).sum()
        found = profile.delta(epsilon=at)
        assert found.lower - 2e-5 <= truth <= found.upper + 2e-5
        assert found.width <= 1e-3 * found.upper


def test_sampled_ratios_agree_with_random_allocation_and_not_with_poisson():
    """Level: five standard errors; the near miss is Poisson sampling at the same rate."""
    rng = np.random.default_rng(11)
    steps, at = 20, 0.3
    noise = rng.standard_normal((200_000, steps))
    ratio = np.exp(noise - 0.5).mean(axis=1)
    draws = np.maximum(ratio - math.exp(at), 0.0), np.maximum(1.0 - math.exp(at) * ratio, 0.0)
    inner = AdditiveNoise(Gaussian(std=1.0))
    for sample, direction in zip(draws, (Adjacency.REMOVE, Adjacency.ADD), strict=True):
        error = 5.0 * sample.std() / math.sqrt(len(sample))
        found = account(RandomAllocation(inner, steps), adjacency=direction).delta(epsilon=at)
        assert found.lower - error <= sample.mean() <= found.upper + error
        assert found.width <= 1e-3 * found.upper
        poisson = account(Composed(PoissonSampled(inner, 1.0 / steps), times=steps), adjacency=direction)
        assert (
            not poisson.delta(epsilon=at).lower - error
            <= sample.mean()
            <= poisson.delta(epsilon=at).upper + error
        )


def test_allocation_costs_what_its_epochs_cost_together_with_anything():
    inner = AdditiveNoise(Gaussian(std=2.0))
    epochs = Composed(RandomAllocation(inner, 50), times=5)
    alone, more = (
        epsilon(one, delta=1e-6)
        for one in (epochs, Composed([(epochs, 1), (AdditiveNoise(Gaussian(std=5.0)), 1)]))
    )
    assert alone.upper < more.lower
    assert alone.width <= 2e-4 * alone.upper


def test_shuffling_costs_more_than_poisson_batches_and_no_more_than_a_release_an_epoch():
    inner = AdditiveNoise(Gaussian(std=1.0))
    shuffled = epsilon(Shuffled(inner, steps=100), delta=1e-6)
    poisson = epsilon(Composed(PoissonSampled(inner, 0.01), times=100), delta=1e-6)
    once = epsilon(inner, delta=1e-6)
    assert shuffled.upper == once.upper
    assert shuffled.lower > 2.0 * poisson.upper
    replaced = epsilon(Shuffled(inner, steps=100), delta=1e-6, adjacency=Adjacency.REPLACE)
    assert replaced.upper == epsilon(inner, delta=1e-6, adjacency=Adjacency.REPLACE).upper


def test_the_shuffled_lower_bound_is_what_one_threshold_tells():
    """Chua et al. (2024): the probability that any step exceeds a threshold, by the normal law."""
    inner, steps, at = AdditiveNoise(Gaussian(std=1.0)), 100, 2.0
    thresholds = np.linspace(1.0, 6.0, 200)
    rest = stats.norm.cdf(thresholds) ** (steps - 1)
    told = (1.0 - stats.norm.cdf(thresholds - 2.0) * rest) - math.exp(at) * (
        1.0 - stats.norm.cdf(thresholds - 1.0) * rest
    )
    found = account(Shuffled(inner, steps)).delta(epsilon=at)
    assert 0.3 * told.max() <= found.lower <= found.upper
    assert told.max() <= found.upper


@pytest.mark.parametrize(
    ("mechanism", "adjacency", "match"),
    [
        (RandomAllocation(AdditiveNoise(Gaussian(std=1.0)), 10), "replace", "adjacency must be add-remove"),
        (
            FixedSizeSampled(AdditiveNoise(Gaussian(std=1.0)), 2, 5, True),
            "replace",
            "adjacency must be add-remove",
        ),
        (FixedSizeSampled(AdditiveNoise(Gaussian(std=1.0)), 5, 5), "add", "sample_size must be less than"),
        (FixedSizeSampled(AdditiveNoise(Gaussian(std=1.0), shift=(1, 2)), 2, 5), "add", "known shift"),
        (FixedSizeSampled(OutcomeProbabilities((0.7, 0.3), (0.4, 0.6)), 2, 5), "add", "replacement"),
        (
            FixedSizeSampled(AdditiveNoise(Laplace(scale=1.0), norm=1.0, dimension=3), 2, 5, True),
            "add",
            "dimension must be 1",
        ),
    ],
)
def test_what_has_no_proof_is_refused_with_its_reason(mechanism, adjacency, match):
    with pytest.raises(ValueError, match=match):
        account(mechanism, adjacency=Adjacency(adjacency))


def test_allocation_of_a_vector_without_a_dominating_pair_is_refused():
    vector = AdditiveNoise(GeneralizedGaussian(1.5, 3.0), norm=2.0, dimension=10)
    with pytest.raises(NoDominatingPairError, match="where batches are allocated, drawn"):
        account(RandomAllocation(vector, 10))


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling.poisson(0.01),
        Sampling.truncated_poisson(0.01, 20, 1000),
        Sampling.fixed_size(10, 1000),
        Sampling.fixed_size(10, 1000, replacement=True),
        Sampling.random_allocation(100, 2),
        Sampling.shuffled(100),
    ],
)
def test_a_sampling_is_what_its_text_says(sampling):
    assert Sampling.parse(str(sampling)) == sampling
    inner = AdditiveNoise(Gaussian(std=1.0))
    assert sampling.of(inner) == Sampling.parse(str(sampling)).of(inner)


@pytest.mark.parametrize("text", ["fixed-size", "fixed-size:1", "lottery:3", "poisson:x", "allocation:1/2/3"])
def test_a_text_that_names_no_sampling_is_refused(text):
    with pytest.raises(ValueError, match="must be"):
        Sampling.parse(text)


def test_a_replacement_with_little_noise_has_a_delta_and_an_epsilon_or_a_refusal():
    """Losses above 709 had exponentials that overflowed: an OverflowError at 0.05, bounds of nan at 0.08."""
    less, more = (
        account(FixedSizeSampled(AdditiveNoise(Gaussian(std)), 2, 5), adjacency=Adjacency.REPLACE)
        for std in (0.05, 0.08)
    )
    assert less.delta(epsilon=1.0).upper == pytest.approx(0.4, abs=1e-9)
    assert 424.0 < more.epsilon(delta=1e-6).lower < more.epsilon(delta=1e-6).upper < 426.0
    with pytest.raises(EpsilonTooLargeError, match="at least 98"):
        less.epsilon(delta=1e-6)
