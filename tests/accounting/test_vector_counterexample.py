# SPDX-License-Identifier: Apache-2.0
"""One coordinate is not the worst case: the numbers of docs/one-coordinate-is-not-the-worst-case.md, twice.

Each number is computed by the library (a known shift, composed by its engines) and by code written here that
shares nothing with it: for two coordinates an integral over one of the closed form of the other, for more a
plain convolution of the loss.
"""

import math

import numpy as np
import pytest
from scipy import stats

from ggdp import AdditiveNoise, GeneralizedGaussian, delta, epsilon


def losses(beta, shift, z):
    """log of density at 0 over density at `shift`, falling in z."""
    return np.abs(z - shift) ** beta - np.abs(z) ** beta


def hockey_stick(beta, shift, t):
    """P(L > t) - e^t Q(L > t) of one coordinate for an array of t, by inverting the loss on a table."""
    table = np.linspace(-60.0, 60.0, 1_200_001)
    known = losses(beta, shift, table)
    place = np.interp(-t, -known, table)
    law = stats.gennorm(beta)
    return law.cdf(place) - np.exp(t) * law.cdf(place - shift)


def two_coordinates(beta, shifts, at):
    """delta of a shift of two coordinates: the closed form of one, averaged over the noise of the other."""
    z = np.linspace(-30.0, 30.0, 60_001)
    spent = losses(beta, shifts[0], z)
    inner = hockey_stick(beta, shifts[1], at - spent)
    return float(np.trapezoid(stats.gennorm(beta).pdf(z) * inner, z))


def convolved(beta, shift, times, at, spacing=2e-4):
    """delta of `times` equal coordinates: bin the loss, convolve, sum."""
    reach = 6.0
    edges = spacing * (np.arange(-round(reach / spacing), round(reach / spacing) + 1) + 0.5)
    table = np.linspace(-200.0, 200.0, 4_000_001)
    place = np.interp(-edges, -losses(beta, shift, table), table)
    mass = -np.diff(stats.gennorm(beta).cdf(place))
    size = 1 << math.ceil(math.log2(times * len(mass)))
    total = np.fft.irfft(np.fft.rfft(mass, size) ** times, size)[: times * (len(mass) - 1) + 1]
    loss = times * (edges[0] + 0.5 * spacing) + spacing * np.arange(len(total))
    return float(np.sum(total * np.maximum(-np.expm1(at - loss), 0.0)))


def split(beta, scale, parts):
    return AdditiveNoise(GeneralizedGaussian(beta, scale), shift=((parts ** (-1.0 / beta), parts),))


TWO = [(1.25, 1.7, 4.099e-4, 5.501e-4), (1.25, 2.0, 6.907e-7, 1.147e-6), (1.5, 2.0, 1.266e-2, 1.354e-2)]


@pytest.mark.parametrize(("beta", "at", "one", "two"), TWO)
def test_two_coordinates_cost_more_than_one(beta, at, one, two):
    each = 2.0 ** (-1.0 / beta)
    alone = delta(split(beta, 1.0, 1), epsilon=at)
    together = delta(split(beta, 1.0, 2), epsilon=at)
    assert alone.upper < together.lower
    assert alone.estimate == pytest.approx(one, rel=5e-4)
    assert together.estimate == pytest.approx(two, rel=5e-4)
    assert hockey_stick(beta, 1.0, np.array([at]))[0] == pytest.approx(alone.estimate, rel=1e-6)
    assert two_coordinates(beta, (each, each), at) == pytest.approx(together.estimate, rel=1e-5)


def test_five_coordinates_cost_more_than_two():
    ours = delta(split(1.25, 1.0, 5), epsilon=2.0)
    assert ours.estimate == pytest.approx(2.3e-6, rel=0.02)
    assert convolved(1.25, 5 ** (-0.8), 5, 2.0) == pytest.approx(ours.estimate, rel=2e-3)


def test_ten_coordinates_cost_more_than_one_in_epsilon():
    one, ten = epsilon(split(1.5, 0.5, 1), delta=1e-6), epsilon(split(1.5, 0.5, 10), delta=1e-6)
    assert one.estimate == pytest.approx(7.144, abs=1e-3)
    assert ten.estimate == pytest.approx(7.306, abs=1e-3)
    each = 2.0 * 10 ** (-1 / 1.5)
    assert convolved(1.5, each, 10, ten.estimate) == pytest.approx(1e-6, rel=5e-3)


def test_a_vote_that_changes_costs_what_two_coordinates_cost():
    changed = AdditiveNoise(GeneralizedGaussian(1.5, 1.0), shift=(1, -1))
    found = epsilon(changed, delta=1e-6)
    assert found.estimate == pytest.approx(5.589, abs=1e-3)
    assert two_coordinates(1.5, (1.0, 1.0), found.estimate) == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("beta", [1.0, 2.0])
@pytest.mark.parametrize("at", [0.3, 0.9])
def test_at_beta_one_and_two_no_split_costs_more(beta, at):
    alone = delta(split(beta, 1.0, 1), epsilon=at)
    for parts in (2, 3, 10):
        assert delta(split(beta, 1.0, parts), epsilon=at).lower <= alone.upper * (1 + 1e-6)
