# SPDX-License-Identifier: Apache-2.0
"""Draws of exactly the law: thresholds by exact arithmetic, paths by statistics with planted faults."""

from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from ggdp import DiscreteGeneralizedGaussian, GeneralizedGaussian
from ggdp.distributions import exact_sampler

DRAWS = 200_000
LEVEL = 1e-5  # of one whole check
LAWS = [(1.0, 0.7), (1.0, 40.0), (1.5, 3.3), (2.0, 2.0), (2.0, 5000.0), (64.0, 6.95), (64.0, 3000.0)]
DEGENERATE = [(1.0, 2.0**-6), (64.0, 6.7), (64.0, 0.02)]  # where weights underflow


def words(seed):
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(-(2**63), 2**63 - 1, count, dtype=np.int64, endpoint=True)


def scripted(*given):
    queue = list(given)
    return lambda count: np.array([queue.pop(0) for _ in range(count)], dtype=np.uint64).view(np.int64)


def doubted(draws, cumulative):
    """Whether exact binomial tests at many places refuse that P(X <= k) is cumulative(k)."""
    places = np.unique(
        np.quantile(draws, [1e-5, 1e-4, 1e-3, *np.linspace(0.01, 0.99, 45), 0.999, 0.9999, 0.99999])
    )
    places = np.floor(np.concatenate([places, [places[0] - 1, places[-1] + 1]]))
    probs = np.clip(cumulative(places), 0.0, 1.0)
    counts = np.searchsorted(np.sort(draws), places, side="right")
    low = stats.binom.cdf(counts, len(draws), probs)
    high = stats.binom.sf(counts - 1, len(draws), probs)
    return bool(np.min(np.minimum(low, high)) < LEVEL / (2 * len(places)))


build = exact_sampler._table


def table(beta, scale):
    return build(beta, scale, False)


def drawn(monkeypatch, chosen, count=DRAWS):
    monkeypatch.setattr(exact_sampler, "_table", lambda *_: chosen)
    return exact_sampler.integers(chosen.beta, chosen.scale, count, words(3))


def f(beta, scale, x):
    return mp.e ** (-((mp.mpf(x) / mp.mpf(scale)) ** mp.mpf(beta)))


@pytest.mark.parametrize(("beta", "scale"), LAWS + DEGENERATE)
def test_each_outcome_has_exactly_its_weight_of_all_words(beta, scale):
    found = table(beta, scale)
    assert min(found.weight) > 0
    capacity = 1 << exact_sampler._COIN_BITS
    weights = [0] * exact_sampler._COLUMNS
    for column, (threshold, alias) in enumerate(
        zip(found.threshold.tolist(), found.alias.tolist(), strict=True)
    ):
        weights[column] += threshold
        weights[alias] += capacity - threshold
    assert sum(weights) == 2**64
    assert tuple(weights[: found.cells + 1]) == found.weight
    assert sum(weights[found.cells + 2 :]) == 0
    assert weights[found.cells + 1] < 2**64 * 1e-8  # drawn again


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize(("beta", "scale"), LAWS + DEGENERATE)
def test_no_chance_exceeds_one_and_no_threshold_exceeds_the_chance_anywhere_in_its_cell(
    beta, scale, continuous
):
    found = build(beta, scale, continuous)
    width = 1 << found.shift
    with mp.workdps(40):
        for cell in range(found.cells):
            last = (cell + 1) * width - (0 if continuous else 1)
            share = mp.mpf(found.unit) / found.weight[cell]
            assert share * f(beta, scale, cell * width) <= 1
            assert int(found.surely[cell]) <= share * f(beta, scale, last) * 2**64
        for block in range(12):  # the tail's blocks
            start = (found.cells * width) << block
            chance = f(beta, scale, start) * found.unit * 2 * found.cells * 4**block / found.weight[-1]
            assert chance <= 1


@pytest.mark.parametrize("digits", [20, 60])
@pytest.mark.parametrize("x", [Fraction(1), Fraction(7, 3), Fraction(100), Fraction(5 * 2**70 + 1, 2**70)])
@pytest.mark.parametrize(("beta", "scale"), LAWS)
def test_decimal_bounds_enclose_the_weight_and_are_close(beta, scale, x, digits):
    low, high = exact_sampler.enclosure(beta, scale, x, digits)
    with mp.workdps(120):
        exact = f(beta, scale, mp.mpf(x.numerator) / x.denominator)
        assert mp.mpf(low.numerator) / low.denominator <= exact <= mp.mpf(high.numerator) / high.denominator
        if exact > mp.mpf(10) ** -100:
            assert high - low <= Fraction(1, 10 ** (digits - 8)) * high


@pytest.mark.parametrize(("beta", "scale", "size"), [(1.0, 40.0, 37), (1.5, 3.3, 5), (2.0, 5000.0, 4321)])
def test_a_chance_is_compared_bit_by_bit_as_far_as_it_takes(beta, scale, size):
    found = table(beta, scale)
    cell = size >> found.shift
    ratio = Fraction(found.unit, found.weight[cell])
    with mp.workdps(100):
        chance = mp.mpf(found.unit) / found.weight[cell] * f(beta, scale, size)
        bits = int(mp.floor(chance * 2**192))
    for bit, kept in ((0, True), (1, False)):  # chance - 2^-192 < V <= chance, or just above
        number = bits - 1 + 2 * bit
        parts = [(number >> shift) & (2**64 - 1) for shift in (128, 64, 0)]
        answer, _ = exact_sampler._decide(found, size, ratio, parts[0], scripted(*parts[1:], 0, 0))
        assert answer is kept


@pytest.mark.parametrize(("beta", "scale"), LAWS)
def test_draws_follow_the_law_and_a_wrong_division_is_caught(beta, scale, monkeypatch):
    cumulative = DiscreteGeneralizedGaussian(beta, scale).cdf
    assert not doubted(drawn(monkeypatch, table(beta, scale)), cumulative)
    assert doubted(drawn(monkeypatch, table(beta, scale * 1.03)), cumulative)


def test_an_off_by_one_in_a_threshold_is_caught(monkeypatch):
    cumulative = DiscreteGeneralizedGaussian(1.5, 3.3).cdf
    right = table(1.5, 3.3)
    assert not doubted(drawn(monkeypatch, right), cumulative)
    assert doubted(drawn(monkeypatch, replace(right, threshold=np.roll(right.threshold, 1))), cumulative)
    assert doubted(drawn(monkeypatch, replace(right, alias=np.roll(right.alias, 1))), cumulative)


@pytest.mark.parametrize(("beta", "scale"), [(1.0, 40.0), (1.5, 3.3), (2.0, 900.0)])
def test_the_tail_has_its_law_and_a_truncated_one_is_caught(beta, scale, monkeypatch):
    cumulative = DiscreteGeneralizedGaussian(beta, scale).cdf
    near = build(beta, scale, False, 4.0)  # the tail begins at e^-4, and is drawn often
    assert not doubted(drawn(monkeypatch, near, 30_000), cumulative)
    weights = [*near.weight[:-1], 0, 2**64 - sum(near.weight[:-1])]
    threshold, alias = exact_sampler._alias(weights)
    cut_off = replace(near, threshold=threshold, alias=alias)
    assert doubted(drawn(monkeypatch, cut_off, 30_000), cumulative)


def test_where_floats_are_distrusted_decimals_give_the_same_law(monkeypatch):
    monkeypatch.setattr(exact_sampler, "_DOUBT", 0.02)
    right = table(2.0, 5000.0)
    assert not doubted(drawn(monkeypatch, right, 60_000), DiscreteGeneralizedGaussian(2.0, 5000.0).cdf)


def rounded_law(beta, scale, exponent, value):
    noise, grid = GeneralizedGaussian(beta, scale), 2.0**exponent
    return lambda n: noise.cdf((n + 0.5) * grid - value)


@pytest.mark.parametrize("value", [0.0, 0.3, -17.123456789, 0.5, 3.0])
@pytest.mark.parametrize(
    ("beta", "scale", "exponent"), [(1.0, 1.0, -10), (1.5, 2.7, 0), (2.0, 0.8, 1), (3.0, 100.0, 0)]
)
def test_rounded_draws_are_the_rounded_sum_of_value_and_continuous_noise(beta, scale, exponent, value):
    found = exact_sampler.rounded(beta, scale, exponent, np.full(DRAWS, value), words(7))
    assert not doubted(found, rounded_law(beta, scale, exponent, value))
    assert doubted(found, rounded_law(beta, scale, exponent, value + 0.03 * scale))


def test_rounded_draws_keep_their_law_where_every_rare_path_is_common(monkeypatch):
    monkeypatch.setattr(exact_sampler, "_FINE_BITS", 3)
    monkeypatch.setattr(exact_sampler, "_LEAST_FINE_BITS", 1)
    found = exact_sampler.rounded(1.5, 2.7, 0, np.full(20_000, 0.3), words(11))
    assert not doubted(found, rounded_law(1.5, 2.7, 0, 0.3))
    assert doubted(found, rounded_law(1.5, 2.7, 0, 0.15))


@pytest.mark.parametrize(
    ("value", "bits", "rounds_up"),
    [
        (-(2.0**-120), (0, 0, 0), False),  # u lies below 2^-79, the edge, by its first 128 bits
        (-(2.0**-120), (0, 1 << 49, 0), True),  # and here at it, or above
        (-(2.0**-1074), (0,) * 17, False),
        (2.0**-120, (2**64 - 1, 2**64 - 1), True),  # the edge is 1 - 2^-79
        (2.0**-120, (2**64 - 1, 0), False),
        (0.25, (1 << 62,), None),  # no edge lies inside a cell
    ],
)
def test_an_edge_inside_a_cell_is_compared_with_the_exact_value(value, bits, rounds_up, monkeypatch):
    fine = exact_sampler._FINE_BITS - 1  # of scale 1 on the grid of whole numbers

    def at_the_edge(out, table, words):
        below = int(np.floor(np.ldexp(value, fine)))
        out[:] = (1 << (fine - 1)) - 1 - below if rounds_up is not None else 0
        return {}

    monkeypatch.setattr(exact_sampler, "_fill", at_the_edge)
    found = exact_sampler.rounded(2.0, 1.0, 0, np.array([value]), scripted(*bits))
    assert found.tolist() == [0 if not rounds_up else 1]


def test_halves_are_rounded_as_the_real_number_demands():
    # cell 0 and a value whose rest lies inside a cell: the fraction of the draw decides
    value = 0.5 - 2.0**-45
    found = exact_sampler.rounded(2.0, 1.0, 0, np.full(2000, value), words(5))
    assert set(found.tolist()) <= set(range(-4, 6))
    assert 0.45 < np.mean(found >= 1) < 0.55
