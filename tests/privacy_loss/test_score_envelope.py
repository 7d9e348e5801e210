# SPDX-License-Identifier: Apache-2.0
"""Noise on one number that dominates a vector: its score above every shift's, its cells, its cost."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gennorm

from ggdp import (
    AdditiveNoise,
    Composed,
    GeneralizedGaussian,
    NoDominatingPairError,
    OutcomeProbabilities,
    PoissonSampled,
    delta,
    epsilon,
)
from ggdp.accounting.engines.atoms import AtomCurve
from ggdp.privacy_loss.envelope_noise import PiecewiseExponential, dominating_cells, noise_of
from ggdp.privacy_loss.score_envelope import envelope
from vector_noise import noise

BETAS = (1.33, 1.66, 2.5, 4.0)


def stop_loss(beta, t):
    """E(s - t)_+ of one score from SciPy's noise, also below zero."""
    size = np.abs(t)
    x = (size / beta) ** (1.0 / (beta - 1.0))
    return gennorm.pdf(x, beta) - size * gennorm.sf(x, beta) + np.maximum(-t, 0.0)


def two_coordinates(beta, one, other, t):
    """E(one s_1 + other s_2 - t)_+ as an integral over the first coordinate's noise."""
    x = np.linspace(-9.0, 9.0, 6001)
    score = beta * np.sign(x) * np.abs(x) ** (beta - 1.0)
    inner = other * stop_loss(beta, (t[:, None] - one * score) / other)
    return np.trapezoid(gennorm.pdf(x, beta) * inner, x, axis=1)


def curve_above(cells, at):
    atoms = cells.above()
    return math.exp(AtomCurve(atoms).log_delta(at).upper) + atoms.infinite


@pytest.mark.parametrize("beta", [1.05, 2.5, 8.0])
def test_of_one_coordinate_it_is_the_stop_loss_itself_far_into_the_tail(beta):
    table = envelope(beta, 2.0, 1, 75.0)
    for index in np.linspace(0, len(table.value) - 1, 7).astype(int):
        with mpmath.workdps(40):
            t, b = mpmath.mpf(table.spacing) * int(index), mpmath.mpf(beta)
            y = (t / b) ** (b / (b - 1))
            survival = mpmath.gammainc(1 / b, y, mpmath.inf, regularized=True) / 2
            exact = b / (2 * mpmath.gamma(1 / b)) * mpmath.exp(-y) - t * survival
            assert exact <= table.value[index] <= exact * (1 + 1e-6) + 2e-290


@pytest.mark.parametrize("beta", BETAS)
def test_it_is_never_below_a_shift_of_two_coordinates_and_close_to_the_worst(beta):
    table = envelope(beta, 2.0, 2, 75.0)
    index = np.linspace(0, len(table.value) // 4, 9).astype(int)
    t, claimed = table.spacing * index, table.value[index]
    angles = [0.003, *np.random.default_rng(7).uniform(0.0, 0.25 * math.pi, 12), 0.25 * math.pi]
    found = [two_coordinates(beta, math.cos(angle), math.sin(angle), t) for angle in angles]
    assert np.all(found <= claimed * (1 + 1e-7))
    assert np.all(np.max(found, axis=0) >= claimed * 0.98)


@pytest.mark.parametrize(("beta", "p", "dimension"), [(1.33, 2.0, 10), (3.0, 2.0, 3), (4.0, 3.0, 20)])
def test_it_is_never_below_shifts_of_many_coordinates(beta, p, dimension):
    """Sampled scores, with a margin of five standard errors."""
    rng = np.random.default_rng(5)
    x = gennorm.rvs(beta, size=(20_000, dimension), random_state=rng)
    score = beta * np.sign(x) * np.abs(x) ** (beta - 1.0)
    table = envelope(beta, p, dimension, 75.0)
    shares = [np.full(dimension, 1.0 / dimension), *rng.dirichlet(np.full(dimension, 0.5), size=4)]
    for share in shares:
        total = score @ share ** (1.0 / p)
        for index in (0, 20, 60):
            excess = np.maximum(total - table.spacing * index, 0.0)
            assert excess.mean() - 5.0 * excess.std() / 141.0 <= table.value[index]


def test_its_noise_has_that_score_and_its_cells_are_its_laws():
    """Three pieces, integrated by SciPy from the density as it is written."""
    places, moved = (0.0, 0.5, 1.25, 2.0), 0.375
    own = PiecewiseExponential(np.array([0.0, 1.0, 3.0]), np.array(places))
    kinks = sorted({sign * place + shift for place in places for sign in (-1, 1) for shift in (0.0, moved)})

    def density(z):
        return math.exp(-float(np.interp(abs(z), places, (0.0, 0.0, 0.75, 3.0)))) if abs(z) <= 2.0 else 0.0

    def integral(function):
        return sum(quad(function, a, b)[0] for a, b in pairwise(kinks))

    total = integral(density)
    for t, claimed in zip((0.0, 1.0, 3.0), own.stop_loss(), strict=True):
        over = [
            max(slope - t, 0.0) * quad(density, *ends)[0]
            for slope, ends in ((1.0, places[1:3]), (3.0, places[2:]))
        ]
        assert claimed == pytest.approx((sum(over) + math.exp(-3.0)) / total, rel=1e-12)
    cells = own.cells(moved)
    for at in (0.0, 0.375, 1.125):  # losses at the ends of cells, where chords touch the curve
        factor = math.exp(at)

        def excess(z, factor=factor):
            return max(density(z - moved) - factor * density(z), 0.0)

        assert curve_above(cells, at) == pytest.approx(integral(excess) / total, rel=1e-9)
    assert cells.p_low.sum() == pytest.approx(1.0, rel=1e-12)
    assert cells.q_low.sum() == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_what_rounding_takes_from_the_score_is_given_back(beta):
    table = envelope(beta, 2.0, 3, 75.0)
    own = noise_of(table)
    assert np.all(own.stop_loss() >= table.value * (1 - 1e-9))
    assert np.all(own.place == np.round(own.place * 2.0**42) * 2.0**-42)


@pytest.mark.parametrize(("beta", "target"), [(1.33, 1e-2), (2.5, 1e-6), (4.0, 1e-2)])
def test_a_vector_of_few_coordinates_costs_what_its_worst_direction_does(beta, target):
    """The lower end is an explicit shift; any direction between the two extremes lies below the upper end."""
    found = epsilon(AdditiveNoise(noise(beta), norm=2, dimension=2), delta=target)
    assert found.method == "certified score envelope"
    assert found.upper <= 1.002 * found.lower
    angle = np.random.default_rng(2).uniform(0.0, 0.25 * math.pi)
    split = AdditiveNoise(noise(beta), shift=(math.cos(angle), math.sin(angle)))
    assert delta(split, epsilon=found.upper).lower <= target
    # a near miss: one hundredth less, and the worst shift costs more
    assert curve_above(dominating_cells(beta, 2.0, 2, 0.99 / noise(beta).scale), found.lower) < target


def test_an_adversary_that_turns_from_step_to_step_gains_nothing():
    step = AdditiveNoise(noise(3.0, 3.0), norm=2, dimension=2)
    claimed = epsilon(Composed(step, 8), delta=1e-2)
    assert claimed.method == "certified score envelope"
    half = math.sqrt(0.5) * (1 - 1e-12)
    one, spread = (AdditiveNoise(noise(3.0, 3.0), shift=shift) for shift in ((1.0,), (half, half)))
    for count in (0, 4, 8):
        parts = [(one, count), (spread, 8 - count)]
        turned = Composed([(part, times) for part, times in parts if times])
        assert epsilon(turned, delta=1e-2).lower <= claimed.upper


def test_a_vector_without_a_worst_shift_is_composed_with_a_release_known_by_its_laws():
    vector, other = (
        AdditiveNoise(noise(3.0), norm=2, dimension=3),
        OutcomeProbabilities((0.6, 0.4), (0.4, 0.6)),
    )
    found = epsilon(Composed([(vector, 2), (other, 1)]), delta=1e-3)
    assert found.method == "certified score envelope"
    assert found.lower <= found.upper <= 1.05 * found.lower
    even = AdditiveNoise(noise(3.0), shift=((math.sqrt(1.0 / 3.0) * (1 - 1e-12), 3),))
    assert epsilon(Composed([(even, 2), (other, 1)]), delta=1e-3).lower <= found.upper
    with pytest.raises(NoDominatingPairError, match="no single shift is known"):
        epsilon(Composed([(AdditiveNoise(noise(3.0, 0.03), norm=2, dimension=3), 2), (other, 1)]), delta=1e-3)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_sampled_it_covers_shifts_of_the_plane(adjacency):
    """Brute force: hockey sticks of mixtures as plain sums over a grid."""
    rate, beta = 0.3, 2.5
    z = np.linspace(-5.0, 5.0, 401)
    x, y = np.meshgrid(z, z)
    area = (z[1] - z[0]) ** 2

    def law(*centre):
        return gennorm.pdf(x - centre[0], beta) * gennorm.pdf(y - centre[1], beta)

    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 1.0), norm=2, dimension=2), rate)
    still = law(0.0, 0.0)
    for at in (0.1, 0.4):
        claimed = delta(step, epsilon=at, adjacency=adjacency)
        assert claimed.method == "certified score envelope"
        found = []
        for angle in (0.0, 0.5, 0.25 * math.pi):
            centre = np.array([math.cos(angle), math.sin(angle)])
            up, down = ((1.0 - rate) * still + rate * law(*side) for side in (centre, -centre))
            for one, other in [(up, down)] if adjacency == "replace" else [(up, still), (still, up)]:
                found.append(float(np.maximum(one - math.exp(at) * other, 0.0).sum()) * area)
        assert max(found) <= claimed.upper * (1 + 1e-3)
        assert claimed.upper <= 1.05 * max(found)
