# SPDX-License-Identifier: Apache-2.0
"""Poisson batches that are cut by a random choice: held against every batch of a tiny data set, closed forms
at 30 digits, and Google's implementation.

The truths here enumerate what is drawn and what is kept; they share no code with the accountant.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from tests.accounting.test_batches import EPSILONS, GRID, NOISES, data_sets, mixture

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    EpsilonTooLargeError,
    FixedSizeSampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    OutcomeProbabilities,
    PoissonSampled,
    RandomlyTruncatedPoisson,
    TruncatedPoisson,
    account,
    epsilon,
)
from ggdp.accounting.steps import steps_of
from ggdp.accounting.truncated import Binomial, Chances

SAMPLINGS = [(0.5, 2, 4), (0.9, 1, 4), (0.3, 3, 5)]  # rate, largest batch, records


def kept(records, rate, largest):
    """Every batch that may be released on, by the numbers of its records, with its probability."""
    found = {}
    for drawn in itertools.product((False, True), repeat=records):
        weight = math.prod(rate if one else 1.0 - rate for one in drawn)
        batch = [number for number, one in enumerate(drawn) if one]
        ways = list(itertools.combinations(batch, min(len(batch), largest)))
        for way in ways:
            found[way] = found.get(way, 0.0) + weight / len(ways)
    return found


def values(batches, query):
    """The values of a query on batches, with their probabilities."""
    found = {}
    for batch, weight in batches.items():
        value = round(query(batch), 12)
        found[value] = found.get(value, 0.0) + weight
    return found


def deltas_of(noise, sums, others):
    """The hockey-stick divergences of two mixtures at `EPSILONS`, by plain sums."""
    laws = mixture(noise, sums), mixture(noise, others)
    step = GRID[1] - GRID[0]
    return [float(np.maximum(laws[0] - math.exp(at) * laws[1], 0.0).sum() * step) for at in EPSILONS]


def laws(rate, largest, data, direction):
    """The sums of batches of two neighbours, in the order of the direction."""

    def sums(of):
        return values(kept(len(of), rate, largest), lambda batch: math.fsum(of[i] for i in batch))

    if direction is Adjacency.REPLACE:
        for other in (-1.0, 0.0, 1.0):
            pair = sums(data), sums([other, *data[1:]])
            yield from (pair, pair[::-1])
    else:
        pair = sums(data), sums(data[1:])
        yield pair if direction is Adjacency.REMOVE else pair[::-1]


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"beta={noise.beta:g}")
def test_no_data_set_costs_more(noise, direction):
    for rate, largest, records in SAMPLINGS:
        mechanism = RandomlyTruncatedPoisson(AdditiveNoise(noise), rate, largest, records)
        profile = account(mechanism, adjacency=Adjacency(direction))
        found = [profile.delta(epsilon=at) for at in EPSILONS]
        for data in data_sets(records):
            for pair in laws(rate, largest, data, Adjacency(direction)):
                for truth, bounds in zip(deltas_of(noise, *pair), found, strict=True):
                    assert truth <= bounds.upper + 1e-5


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
def test_no_data_set_costs_more_at_any_order(direction):
    """Orders below 1 too, which composition needs and delta at an epsilon of at least 0 does not show."""
    noise, direction = Gaussian(std=1.1), Adjacency(direction)
    for rate, largest, records in SAMPLINGS:
        mechanism = RandomlyTruncatedPoisson(AdditiveNoise(noise), rate, largest, records)
        (step,) = steps_of(mechanism, direction).custom
        above = step.enclosed(direction).above
        data = [1.0] + [-1.0] * (records - 1)
        for sums, others in laws(rate, largest, data, direction):
            with_record, without = mixture(noise, sums), mixture(noise, others)
            for order in (0.1, 0.3, 0.6, 0.8, 0.95, 1.1, 3.0):
                truth = np.maximum(with_record - order * without, 0.0).sum() * (GRID[1] - GRID[0])
                bound = above.mass @ np.maximum(1.0 - order * np.exp(-above.loss), 0.0) + above.infinite
                assert truth <= bound + 1e-9


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize("noise", NOISES[::2], ids=lambda noise: f"beta={noise.beta:g}")
def test_one_query_costs_as_much_as_the_lower_end(noise, direction):
    """The queries are those that docs/batches.md names; the more costly one is met."""
    rate, largest, records = 0.5, 2, 4
    batches = kept(records, rate, largest)

    def alone(batch):
        return 1.0 if 0 in batch else 0.0

    def counting(batch):
        return alone(batch) - abs(largest - 1 - len([i for i in batch if i]))

    truths = []
    for query in (alone, counting):
        with_record = values(batches, query)
        if direction == "replace":
            # the other record, number 0 in its place, pulls the other way
            without = values(batches, lambda batch, query=query: query(batch) - 2.0 * alone(batch))
            pairs = [(with_record, without), (without, with_record)]
        else:
            without = values(
                kept(records - 1, rate, largest), lambda b, query=query: query([i + 1 for i in b])
            )
            pairs = [(with_record, without) if direction == "remove" else (without, with_record)]
        truths += [deltas_of(noise, *pair) for pair in pairs]
    profile = account(
        RandomlyTruncatedPoisson(AdditiveNoise(noise), rate, largest, records), adjacency=Adjacency(direction)
    )
    for at, truth in zip(EPSILONS, np.max(truths, axis=0), strict=True):
        found = profile.delta(epsilon=at)
        assert found.lower == pytest.approx(truth, abs=2e-5)
        assert found.lower <= found.upper


def closed_forms(rate, largest, records, std, at):
    """What the two pairs of docs/batches.md add to delta when the record is removed, at 30 digits; and the
    probability of the first one."""
    with mpmath.workdps(30):
        q = mpmath.mpf(rate)

        def drawn(count, of):
            return mpmath.binomial(of, count) * q**count * (1 - q) ** (of - count)

        full = mpmath.fsum(drawn(k, records - 1) for k in range(largest, records))
        joins = mpmath.fsum(drawn(k, records - 1) * q * largest / (k + 1) for k in range(largest, records))
        found = []
        for share, chance, shift in ((1 - full, q, 1), (full, joins / full, 2)):
            # the sampled pair's loss exceeds `at` beyond the place where 1 - chance + chance e^l = e^at
            log_odds = mpmath.log((mpmath.exp(at) - 1 + chance) / chance)
            place = log_odds * std**2 / shift + mpmath.mpf(shift) / 2
            beyond, moved = mpmath.ncdf(-place / std), mpmath.ncdf(-(place - shift) / std)
            delta = (1 - chance) * beyond + chance * moved - mpmath.exp(at) * beyond
            found.append(float(share * delta))
        return *found, float(1 - full)


@pytest.mark.parametrize(("rate", "largest", "records"), [*SAMPLINGS, (0.05, 60, 300), (0.2, 4, 40)])
@pytest.mark.parametrize("std", [0.5, 3.0])
def test_the_upper_end_is_the_mixture_of_the_two_pairs(rate, largest, records, std):
    mechanism = RandomlyTruncatedPoisson(AdditiveNoise(Gaussian(std)), rate, largest, records)
    removed, replaced = (account(mechanism, adjacency=Adjacency(kind)) for kind in ("remove", "replace"))
    poisson = account(PoissonSampled(mechanism.mechanism, rate), adjacency=Adjacency.REPLACE)
    for at in (0.01, 0.3, 1.0, 3.0):
        uncut, cut, share = closed_forms(rate, largest, records, std, at)
        truths = uncut + cut, share * poisson.delta(epsilon=at).estimate + cut
        for truth, profile, close in zip(truths, (removed, replaced), (1e-4, 5e-3), strict=True):
            assert truth * (1.0 - 1e-11) <= profile.delta(epsilon=at).upper <= truth * (1.0 + close) + 1e-16


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
@pytest.mark.parametrize("noise", [Gaussian(std=1.1), Laplace(scale=2.0)])
def test_where_nothing_is_cut_or_everything_it_is_what_it_is_called(noise, adjacency):
    release, adjacency = AdditiveNoise(noise), Adjacency(adjacency)
    for at in (0.2, 1.0):
        for cut, plain in (
            (RandomlyTruncatedPoisson(release, 0.1, 50, 50), PoissonSampled(release, 0.1)),
            (RandomlyTruncatedPoisson(release, 1.0, 20, 50), FixedSizeSampled(release, 20, 50)),
        ):
            one, other = (account(kind, adjacency=adjacency).delta(epsilon=at) for kind in (cut, plain))
            assert (one.lower, one.upper) == (other.lower, other.upper)


def test_batches_that_are_hardly_ever_cut_cost_what_poisson_batches_do():
    release = AdditiveNoise(Gaussian(std=1.0))
    plain = epsilon(Composed(PoissonSampled(release, 0.005), times=1000), delta=1e-6)
    cut = RandomlyTruncatedPoisson(release, 0.005, 400, 50_000)
    found = epsilon(Composed(cut, times=1000), delta=1e-6)
    assert found.width <= 1e-6 * found.upper
    assert found.lower <= plain.upper
    assert plain.lower <= found.upper


def test_batches_that_are_often_cut_have_an_epsilon_and_any_choice_of_records_has_none():
    release = AdditiveNoise(Gaussian(std=3.0))
    found = account(
        Composed(RandomlyTruncatedPoisson(release, 0.05, 50, 1000), times=20), adjacency=Adjacency.REMOVE
    ).epsilon(delta=1e-6)
    assert 0.64 < found.lower < found.upper < 0.78
    any_choice = Composed(TruncatedPoisson(release, 0.05, 50, 1000), times=20)
    with pytest.raises(EpsilonTooLargeError):
        epsilon(any_choice, delta=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_google_answers_what_its_two_pairs_cost_which_is_more(seed):
    """Of a full batch Google takes the pair of a sampled replacement, with the same chances as here."""
    google = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rng = np.random.default_rng(seed)
    for _ in range(3):
        records = int(rng.integers(3, 300))
        largest = int(rng.integers(1, records))
        rate = float(min(rng.uniform(0.4, 1.2) * largest / records, 0.95))
        std, at = float(rng.uniform(0.7, 3.0)), float(rng.uniform(0.05, 2.0))
        theirs = google.from_truncated_subsampled_gaussian_mechanism(
            records, rate, largest, std, value_discretization_interval=0.005
        ).get_delta_for_epsilon(at)
        mechanism = RandomlyTruncatedPoisson(AdditiveNoise(Gaussian(std)), rate, largest, records)
        chances = Chances.of(mechanism)
        pairs = [
            account(PoissonSampled(AdditiveNoise(Gaussian(noise)), chance), adjacency=Adjacency(direction))
            for noise, chance, direction in ((std, rate, "remove"), (std / 2.0, chances.joins, "replace"))
        ]
        shares = (chances.uncut, chances.cut)
        told = sum(share * pair.delta(epsilon=at).upper for share, pair in zip(shares, pairs, strict=True))
        assert told * (1.0 - 1e-9) <= theirs <= told * 1.02
        found = account(mechanism).delta(epsilon=at)
        assert found.lower <= found.upper <= told * (1.0 + 1e-9)


def test_the_law_of_a_count_is_certified():
    exact = [Fraction(math.comb(30, k)) * Fraction(3, 8) ** k * Fraction(5, 8) ** (30 - k) for k in range(31)]
    law = Binomial.of(30, 0.375)
    for number in range(33):
        for (low, high), truth in (
            (law.least(number), sum(exact[number:])),
            (law.below(number), sum(exact[:number])),
        ):
            assert low <= truth <= high
            assert high - low <= 1e-12 * truth
    far = Binomial.of(10**9, 1e-5)
    low, high = far.least(10_500)
    assert low == pytest.approx(3.59912405e-07, rel=1e-8)
    assert high == pytest.approx(low, rel=1e-9)
    assert 0.0 < far.least(10**6)[1] < 1e-250  # beyond all terms
    assert Binomial.of(10**12, 0.5) is None


@pytest.mark.parametrize(
    "release",
    [
        AdditiveNoise(Gaussian(std=1.0), shift=(1, 2)),
        AdditiveNoise(GeneralizedGaussian(1.5, 3.0), norm=2.0, dimension=10),
        OutcomeProbabilities((0.7, 0.3), (0.4, 0.6)),
    ],
    ids=["known shift", "no dominating pair", "two laws"],
)
def test_a_release_whose_replacement_is_not_known_is_charged_for_cuts(release):
    found = steps_of(RandomlyTruncatedPoisson(release, 0.01, 30, 1000))
    other = steps_of(TruncatedPoisson(release, 0.01, 30, 999))  # whose neighbour may have one record more
    assert 0.0 < found.charge < 1e-6
    assert found == other


def test_a_record_that_hardly_ever_takes_part_is_charged_for_cuts():
    """Below 1e-7 of the batches the accountant covers no pair that could be a lower end."""
    rarely = RandomlyTruncatedPoisson(AdditiveNoise(Gaussian(std=1.0)), 1e-3, 10, 10**9)
    steps = steps_of(rarely)
    assert (steps.custom, steps.below, steps.charge) == ((), (), 1.0)
    assert account(rarely).delta(epsilon=1.0).lower == 0.0


def test_an_epsilon_that_is_too_large_has_a_least_value_of_the_mechanism_itself():
    """What bounds a cost from above says nothing about how small it is."""
    cut = RandomlyTruncatedPoisson(AdditiveNoise(Gaussian(std=0.3)), 0.5, 2, 4)
    profile = account(Composed(cut, times=400), adjacency=Adjacency.REMOVE)
    with pytest.raises(EpsilonTooLargeError) as caught:
        profile.epsilon(delta=1e-6)
    assert 1000.0 < caught.value.at_least < 1100.0  # what bounds it from above is at least 2000
