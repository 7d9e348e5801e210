# SPDX-License-Identifier: Apache-2.0
"""docs/refutations.md: the attacks by draws, and by sums of losses that share no code with the accountant."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import ggdp

_PATH = Path(__file__).parents[1] / "benchmarks" / "refutations.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("refutations", _PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("dimension", "radius"), [(3, 0.6), (10, 0.8), (100, 0.95)])
def test_draws_of_rank_one_noise_fall_into_the_ball_as_often_as_is_said(script, dimension, radius):
    rng, runs, std = np.random.default_rng(3), 100_000, 1.3
    vectors = rng.standard_normal((runs, dimension))
    noise = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * rng.normal(0.0, std, (runs, 1))
    with_data, line_meets_ball = script.advantage(radius, std, dimension)
    assert abs(np.mean(np.linalg.norm(noise, axis=1) < radius) - with_data) < 4.5 * math.sqrt(0.25 / runs)
    moved = noise + np.eye(1, dimension)
    assert np.mean(np.linalg.norm(moved, axis=1) < radius) <= line_meets_ball + 4.5 * math.sqrt(0.25 / runs)


def test_the_claimed_variance_tends_to_two_over_epsilon_and_its_delta_to_that_of_a_normal_number(script):
    assert script.claimed_variance(0.5, 1e-5, 10**6) == pytest.approx(4.0, rel=1e-3)
    found = script.least_delta(1.0, math.sqrt(2.0), 10**6)
    assert found == pytest.approx(2.0 * stats.norm.cdf(math.sqrt(0.5)) - 1.0, abs=1e-3)


def test_the_delta_of_a_spread_laplace_shift_is_that_of_a_sum_of_losses():
    """Two equal coordinates: the loss of one by its law, u at x < 0, u - 2x on (0, u), -u beyond, squared."""
    u = 1.0 / math.sqrt(2.0)
    n = 4000
    x = (np.arange(n) + 0.5) * u / n
    loss = np.concatenate([[-u], 2.0 * x - u, [u]])
    # under the law about the moved centre u: P(x < 0), the density e^-(u - x) / 2, P(x > u) = 1/2
    mass = np.concatenate([[0.5 * math.exp(-u)], 0.5 * np.exp(x - u) * u / n, [0.5]])
    total = loss[:, None] + loss[None, :]
    truth = float((np.outer(mass, mass) * np.maximum(-np.expm1(1.0 - total), 0.0)).sum())
    found = ggdp.delta(ggdp.AdditiveNoise(ggdp.Laplace(scale=1.0), shift=[(u, 2)]), epsilon=1.0)
    assert found.lower == pytest.approx(truth, rel=1e-3)
    assert found.lower > 0.1


RUN = {"steps": 1, "rate": 0.01, "clip": 1.0, "delta": 1e-5, "k": 33000.0, "theta": 5.0 / 33000.0}


def test_signs_of_draws_are_counted_as_is_said(script):
    rng, dimension, runs = np.random.default_rng(4), 50, 4000
    scale = 1.0 / rng.gamma(RUN["k"], RUN["theta"], (runs, dimension))
    drawn, move = rng.laplace(0.0, scale), RUN["clip"] / math.sqrt(dimension)
    for law, moved in zip(script.signs(RUN, dimension), (move, 0.0), strict=True):
        counts = (drawn + moved > 0.5 * move).sum(axis=1)
        mean = law @ np.arange(dimension + 1)
        assert abs(counts.mean() - mean) < 4.5 * counts.std() / math.sqrt(runs)
        assert abs(counts.mean() - mean - 1.0) > 4.5 * counts.std() / math.sqrt(runs)


def test_the_formula_of_one_coordinate_is_the_moment_of_a_laplace_law(script):
    """Unsampled and of a scale that hardly varies, against the Renyi divergence in closed form."""
    run = RUN | {"rate": 1.0, "k": 1e9, "theta": 1e-9}
    n = np.arange(2.0, 82.0)
    renyi = np.log(n / (2 * n - 1) * np.exp(n - 1) + (n - 1) / (2 * n - 1) * np.exp(-n)) / (n - 1)
    least = np.min(renyi + np.log1p(-1 / n) - np.log(1e-5 * n) / (n - 1))
    assert script.plrv_claim(run, 1) == pytest.approx(least, rel=1e-6)


def test_one_sampled_step_exceeds_what_the_published_formula_says(script):
    """A threshold on the count, by the two Binomial laws alone."""
    with_record, without = script.signs(RUN, 1000)
    claimed = script.plrv_claim(RUN, 1000)
    p, q = (np.cumsum(law[::-1])[::-1] for law in (with_record, without))
    delta = np.max((1.0 - RUN["rate"]) * q + RUN["rate"] * p - math.exp(claimed) * q)
    assert claimed < 3.0
    assert delta > 100.0 * RUN["delta"]
