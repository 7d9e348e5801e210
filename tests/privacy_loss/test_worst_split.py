# SPDX-License-Identifier: Apache-2.0
"""The bound over all splits: never below a split, monotone in the dimension, and tight where it should be."""

import math

import mpmath as mp
import numpy as np
import pytest

from ggdp.privacy_loss.renyi_divergence import gains
from ggdp.privacy_loss.worst_split import (
    ORDERS,
    _Cells,
    _information,
    equal_split,
    one_coordinate,
    worst_gains,
)

PLACES = [int(np.searchsorted(ORDERS, order)) for order in (1.5, 2.0, 5.0, 20.0, 64.0)]


def split_gains(beta, shifts):
    return np.sum([gains(beta, ORDERS[PLACES], float(shift)) for shift in shifts], axis=0)


def splits(p, dimension, rng):
    """Shares of the p-th power of the norm: equal, geometric, one large and many small, random."""
    count = min(dimension, 40)
    equal = [np.full(k, 1.0 / k) for k in {1, 2, 3, count} if k <= dimension]
    geometric = 0.5 ** np.arange(1, count + 1)
    uneven = np.concatenate([[0.7], np.full(max(count - 1, 1), 0.3 / max(count - 1, 1))])[:count]
    return [*equal, geometric, uneven, *rng.dirichlet(np.full(count, 0.3), size=3)]


@pytest.mark.parametrize("beta", [1.0, 1.25, 1.9, 2.5])
@pytest.mark.parametrize("p", [1.1, 2.0, 3.0])
def test_no_split_exceeds_the_bound(beta, p):
    rng = np.random.default_rng(11)
    for size in (0.3, 1.0):
        for dimension in (2, 40):
            bound = worst_gains(beta, size, p, dimension)[PLACES]
            for shares in splits(p, dimension, rng):
                found = split_gains(beta, size * shares ** (1.0 / p))
                assert np.all((found <= bound * (1 + 1e-9)) | ~np.isfinite(bound))


@pytest.mark.parametrize(("beta", "p"), [(1.5, 1.5), (1.25, 2.0), (1.9, 1.9), (1.0, 1.5), (3.0, 2.0)])
def test_the_bound_grows_with_the_dimension_and_stays_bounded_up_to_the_norm_two(beta, p):
    dimensions = (1, 2, 3, 5, 10, 100, 10**6, 10**9, math.inf)
    bounds = np.array([worst_gains(beta, 0.7, p, dimension)[PLACES] for dimension in dimensions])
    finite = np.isfinite(bounds[0])
    assert np.all(np.diff(bounds[:, finite], axis=0) >= 0.0)
    assert np.all(np.isfinite(bounds[-1][finite]))
    # infinitely many tiny coordinates, or one: the two ends any bound must reach
    information = beta**2 * math.gamma(2.0 - 1.0 / beta) / math.gamma(1.0 / beta)
    orders = ORDERS[PLACES][finite]
    tiny = 0.5 * orders * (orders - 1.0) * information * 0.7**2 if p == 2.0 else np.zeros_like(orders)
    reached = np.maximum(tiny, one_coordinate(beta, 0.7)[PLACES][finite])
    assert np.all(bounds[-1][finite] >= reached * (1 - 1e-12))


@pytest.mark.parametrize(("beta", "p", "dimension"), [(1.5, 2.0, 10), (1.0, 3.0, 1000), (1.25, 2.0, 10**6)])
def test_where_equal_splits_are_the_worst_the_bound_is_tight(beta, p, dimension):
    place = PLACES[1]
    equal = dimension * gains(beta, ORDERS[[place]], 0.7 * dimension ** (-1.0 / p))[0]
    assert equal <= worst_gains(beta, 0.7, p, dimension)[place] <= equal * 1.005


def test_the_largest_coordinate_norm_and_the_sum_norm_are_exact():
    one = one_coordinate(1.5, 0.4)
    assert worst_gains(1.5, 0.4, math.inf, 7)[PLACES] == pytest.approx(7 * one[PLACES], rel=1e-8)
    assert worst_gains(1.5, 0.4, 1.0, math.inf)[PLACES] == pytest.approx(one[PLACES], rel=1e-8)


@pytest.mark.parametrize("beta", [1.0, 1.3, 1.9, 2.0, 2.2, 3.0, 4.5, 8.0])
def test_the_quadratic_bound_is_its_integral_rounded_up(beta):
    """F of the docstring by mpmath, straight from its definition."""
    with mp.workdps(25):
        half, power = mp.mpf("0.005"), mp.mpf(beta)

        def worth(y):
            if beta <= 2.0:
                pull = power * y ** (power - 1)
            elif y < half:
                pull = power * (2 * half) ** (power - 1)
            else:
                pull = ((y + half) ** power - (y - half) ** power) / (2 * half)
            return (mp.sinh(half * pull) / half) ** 2 * mp.exp(-(y**power)) / mp.gamma(1 + 1 / power)

        points = [0, half, 0.1, 0.5, 1, 2, 4, 10, 30, 90] if beta < 2.5 else [0, half, 0.3, 1, 2, 4]
        exact = mp.quad(worth, points)
    assert exact <= _information(beta) <= exact * (1 + 2e-6)


@pytest.mark.parametrize("beta", [1.0, 1.2, 1.7, 2.0, 2.5, 4.0])
def test_the_loss_per_shift_is_below_its_bound_for_small_shifts(beta):
    """|l(y)| / m <= beta |y|^(beta-1) up to beta = 2; beyond, the mean slope grows with the interval."""
    y = np.geomspace(1e-6, 10.0, 400)
    for shift in (1e-3, 0.1, 1.0):
        half = 0.5 * shift
        slope = (np.abs(y + half) ** beta - np.abs(y - half) ** beta) / shift
        if beta <= 2.0:
            assert np.all(slope <= beta * y ** (beta - 1.0) * (1 + 1e-9))
        else:
            wide = 2.0 * half
            outside = y >= wide
            wider = ((y + wide) ** beta - np.abs(y - wide) ** beta) / (2.0 * wide)
            assert np.all(slope[outside] <= wider[outside] * (1 + 1e-9))


@pytest.mark.parametrize(("beta", "each", "count"), [(1.33, 0.05, 100), (1.66, 0.3, 10), (3.0, 0.1, 40)])
def test_an_equal_split_reveals_no_less_than_the_sums_kept_of_it_and_little_more(beta, each, count):
    cells = equal_split(beta, each, count)
    assert cells.p_low.sum() <= 1.0 <= cells.p_high.sum() + 1e-9
    assert cells.q_low.sum() <= 1.0 <= cells.q_high.sum() + 1e-9
    # brute force: the loss is a sum of independent coordinates' losses; delta of a million draws
    rng = np.random.default_rng(4)
    draws = 4_000_000 // count
    noise = rng.gamma(1.0 / beta, size=(draws, count)) ** (1.0 / beta) * rng.choice(
        [-1.0, 1.0], (draws, count)
    )
    loss = (np.abs(noise + each) ** beta - np.abs(noise) ** beta).sum(axis=1)
    atoms = cells.below()
    for epsilon in (0.0, 0.3, 0.6):
        kept = np.where(atoms.loss > epsilon, -np.expm1(epsilon - atoms.loss), 0.0) @ atoms.mass
        each_draw = np.where(loss > epsilon, -np.expm1(np.minimum(epsilon - loss, 0.0)), 0.0)
        error = each_draw.std() / np.sqrt(draws)
        assert kept <= each_draw.mean() + 5.0 * error
        assert kept >= each_draw.mean() * 0.995 - 5.0 * error


@pytest.mark.parametrize("p", [3.0, 40.0, 400.0])
def test_the_surplus_of_the_quadratic_part_is_its_largest_value_where_powers_underflow(p):
    largest, quadratic = 0.1, 2.0
    cells = _Cells(np.array([largest]), np.array([quadratic * largest**2]), quadratic)
    prices = np.array([0.0, 2.0 * quadratic * largest**2 / p, 1.0])
    share = np.linspace(0.0, 1.0, 20_001)
    truth = [np.max(quadratic * (share * largest) ** 2 - price * share**p) for price in prices]
    np.testing.assert_allclose(cells.surplus(prices, p), truth, rtol=1e-4)
