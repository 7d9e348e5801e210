# SPDX-License-Identifier: Apache-2.0
"""Vectors that one number dominates by the order of scores: exact where verified, bounded elsewhere."""

import math
from dataclasses import replace

import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Bounds,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    account,
    delta,
    epsilon,
)
from vector_noise import DELTA, noise


@pytest.mark.parametrize("beta", [1.05, 1.33, 1.5])
def test_in_the_matched_norm_a_vector_costs_what_one_number_costs(beta):
    number, vector = (AdditiveNoise(noise(beta), norm="matched", dimension=d) for d in (1, 10**6))
    for run in (lambda s: s, lambda s: Composed(PoissonSampled(s, 0.01), 500)):
        one, many = (epsilon(run(step), delta=DELTA) for step in (number, vector))
        assert one.lower <= many.upper <= one.upper * (1 + 1e-9)
        assert many.method.startswith("score order, ")
        assert delta(run(vector), epsilon=1.0).upper == pytest.approx(
            delta(run(number), epsilon=1.0).upper, rel=1e-6
        )
    replaced = epsilon(vector, delta=DELTA, adjacency=Adjacency.REPLACE)
    assert replaced.upper == pytest.approx(epsilon(number, delta=DELTA, adjacency="replace").upper, rel=1e-9)
    sampled = [PoissonSampled(step, 0.05) for step in (number, vector)]
    one, many = (epsilon(step, delta=DELTA, adjacency=Adjacency.REPLACE) for step in sampled)
    assert many.upper == pytest.approx(one.upper, rel=1e-9)
    smaller = replace(vector, norm=0.5 * (1.0 + vector.p))
    assert epsilon(smaller, delta=DELTA).upper <= epsilon(number, delta=DELTA).upper * (1 + 1e-9)


def test_exact_steps_of_all_kinds_compose_exactly():
    matched = AdditiveNoise(noise(1.5, 2.0), norm="matched", dimension=1000)
    wide = AdditiveNoise(noise(1.5, 9.0), norm=math.inf, dimension=10)
    turned = AdditiveNoise(Gaussian(4.0), norm=2.0, dimension=100)
    found = epsilon(Composed([(matched, 2), (wide, 1), (turned, 3)]), delta=DELTA)
    assert found.method.startswith("score order, every coordinate, rotation, ")
    assert found.lower <= found.estimate <= found.upper <= found.lower * (1 + 1e-6)


@pytest.mark.parametrize("beta", [1.0, 1.6])
def test_gaussian_noise_of_the_same_density_at_its_centre_is_no_more_private_in_the_norm_two(beta):
    """Exact profiles of splits against a Gaussian of std scale sqrt(2/pi) Gamma(1 + 1/beta)."""
    std, own = math.sqrt(2.0 / math.pi) * math.gamma(1.0 + 1.0 / beta), GeneralizedGaussian(beta, 1.0)
    assert Gaussian(std).pdf(0.0) == pytest.approx(own.pdf(0.0))
    for count in (1, 2, 30):
        split = account(AdditiveNoise(own, shift=((count**-0.5, count),)))
        for at in (0.0, 0.8):
            assert split.delta(epsilon=at).lower <= delta(AdditiveNoise(Gaussian(std)), epsilon=at).upper
    almost = AdditiveNoise(Gaussian(1.01 * std), 0.01)  # a near miss: too much noise does not dominate
    assert delta(almost, epsilon=0.0).upper < delta(AdditiveNoise(own, 0.01), epsilon=0.0).lower


def test_in_the_norm_two_noise_next_to_gaussian_is_bounded_by_gaussian_noise():
    step = AdditiveNoise(noise(1.9), norm=2.0, dimension=math.inf)
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
        for run in (step, Composed(PoissonSampled(step, 0.02), times=100)):
            found = epsilon(run, delta=DELTA, adjacency=adjacency)
            assert found.method == "certified gaussian"
            assert found.upper < 1.15 * found.lower


@pytest.mark.parametrize(("beta", "dimension"), [(1.01, 100), (1.99, 100), (1.9, math.inf)])
def test_where_the_matched_norm_is_not_verified_the_answer_is_a_bound_all_the_same(beta, dimension):
    found = epsilon(AdditiveNoise(noise(beta), norm="matched", dimension=dimension), delta=DELTA)
    assert isinstance(found, Bounds)
    assert found.method.startswith("certified ")
    assert found.lower < found.upper < 1.1 * found.lower


def test_the_slack_of_the_score_order_is_charged_or_the_route_is_left():
    """At delta = 1e-60 what the verification leaves out would be seen, so Renyi divergences answer."""
    step = AdditiveNoise(noise(1.5), norm="matched", dimension=1000)
    assert epsilon(step, delta=1e-60).method == "certified renyi"
    assert delta(step, epsilon=60.0).upper >= delta(AdditiveNoise(noise(1.5)), epsilon=60.0).lower
