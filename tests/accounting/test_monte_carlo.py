# SPDX-License-Identifier: Apache-2.0
"""The sampled accountant: right within its own error, near misses rejected; streams, theorem, interrupts."""

import math

import numpy as np
import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    delta,
    epsilon,
)
from ggdp.accounting import loss_histogram
from ggdp.accounting.bounds import Bounds, Estimate
from ggdp.accounting.loss_histogram import LossHistogram
from ggdp.accounting.loss_law import loss_sampler
from ggdp.accounting.monte_carlo import (
    FAILURE_PROB,
    monte_carlo_delta,
    monte_carlo_epsilon,
    printed_theorem,
)


def noise(scale):
    return AdditiveNoise(GeneralizedGaussian(beta=1.5, scale=scale))


CASES = {
    "composed": (lambda scale: noise(2.5 * scale), 100, 1e-5, Adjacency.REMOVE),
    "sampled": (lambda scale: PoissonSampled(noise(scale), 0.01), 1000, 1e-6, Adjacency.REMOVE),
    "sampled, other way": (lambda scale: PoissonSampled(noise(scale), 0.05), 300, 1e-5, Adjacency.ADD),
    "one release": (lambda scale: noise(0.5 * scale), 1, 1e-2, Adjacency.REMOVE),
}


@pytest.mark.parametrize("name", CASES)
def test_the_right_epsilon_is_within_the_error_and_a_near_miss_is_not(name):
    mechanism, times, target, direction = CASES[name]
    found = monte_carlo_epsilon(
        loss_sampler(mechanism(2.83), direction), times, target, 6_000_000, rng=np.random.default_rng(11)
    )
    truth = epsilon(Composed(mechanism(2.83), times=times), delta=target, adjacency=direction).estimate
    miss = epsilon(Composed(mechanism(2.83 * 1.03), times=times), delta=target, adjacency=direction).estimate
    assert abs(found.value - truth) < 4.0 * found.standard_error
    assert abs(found.value - miss) > 5.0 * found.standard_error


def test_the_standard_error_is_the_spread_over_repetitions():
    step = PoissonSampled(noise(2.83), 0.01)
    truth = epsilon(Composed(step, times=200), delta=1e-6, adjacency=Adjacency.REMOVE).estimate
    scores = []
    for seed in range(40):
        rng = np.random.default_rng(1000 + seed)
        found = monte_carlo_epsilon(loss_sampler(step), 200, 1e-6, 100_000, rng=rng)
        scores.append((found.value - truth) / found.standard_error)
    # with 40 scores the mean has deviation 0.16, and the spread 0.11, if they are standard
    assert abs(np.mean(scores)) < 0.65
    assert 0.6 < np.std(scores) < 1.4


def test_delta_agrees_with_the_exact_accountant_too():
    step = noise(7.0)
    found = monte_carlo_delta(loss_sampler(step), 50, 5.0, 2_000_000, rng=np.random.default_rng(5))
    truth = delta(Composed(step, times=50), epsilon=5.0, adjacency=Adjacency.REMOVE).estimate
    miss = delta(Composed(noise(7.2), times=50), epsilon=5.0, adjacency=Adjacency.REMOVE).estimate
    assert abs(found.value - truth) < 4.0 * found.standard_error
    assert abs(found.value - miss) > 5.0 * found.standard_error


def test_the_answer_does_not_depend_on_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(loss_histogram, "_CHUNK", 4096)
    sampler = loss_sampler(noise(7.0))
    one, many = (
        monte_carlo_epsilon(sampler, 10, 1e-4, 50_001, rng=np.random.default_rng(2), workers=workers)
        for workers in (1, 5)
    )
    assert one == many
    assert one.num_samples == 50_001


def test_no_more_losses_are_asked_for_at_once_than_a_chunk_holds():
    asked = []

    def sampler(count, rng):
        asked.append(count)
        return rng.normal(0.02, 0.2, count)

    monte_carlo_epsilon(sampler, 10, 1e-4, 5_000_000, rng=np.random.default_rng(3), workers=1)
    assert max(asked) <= 2**20
    assert sum(asked[1:]) == 5_000_000


def test_the_estimate_is_no_bound_and_says_when_the_theorem_is_vacuous():
    found = monte_carlo_epsilon(loss_sampler(noise(7.0)), 100, 1e-5, 100_000, rng=np.random.default_rng(4))
    assert isinstance(found, Estimate)
    assert not isinstance(found, Bounds)
    assert found.eta > 1e-5
    assert "vacuous" in found.caveat
    assert f"{found.eta:.3g}" in found.caveat


@pytest.mark.parametrize("seed", range(5))
def test_where_the_theorem_speaks_it_holds(seed):
    # one release, a large delta and a coarse grid: eta = 0.0097 + delta / 100 is worth something
    at, width, mesh = 0.3, 9.0, 0.05
    sampler = loss_sampler(AdditiveNoise(Gaussian(std=1.0)))
    sharp = {"mesh": mesh, "half_width": width}
    found = monte_carlo_delta(sampler, 1, at, 2_000_000, rng=np.random.default_rng(seed), **sharp)
    assert found.eta < 0.1 * found.value
    assert "off by at most" in found.caveat
    left, right = (
        monte_carlo_delta(sampler, 1, where, 2_000_000, rng=np.random.default_rng(seed), **sharp).value
        for where in (at - found.tau, at + found.tau)
    )
    truth = delta(AdditiveNoise(Gaussian(std=1.0)), epsilon=at, adjacency=Adjacency.REMOVE).estimate
    assert right - found.eta <= truth <= left + found.eta
    assert found.failure_prob == FAILURE_PROB


def test_eta_as_published_is_above_one_hundred_at_the_size_it_is_quoted_for():
    # 1000 releases, 3e7 samples for the histogram, half width / mesh = 1e5
    counted = LossHistogram(1e-4, 100_000, np.zeros(1, dtype=np.int64), 0, 0, 0.0, 60_000_000)
    eta, _ = printed_theorem(counted, 1000, 1e-6)
    assert eta > 2000.0 * math.sqrt(1e5 / 3e7) > 115.0


def test_rounding_to_the_grid_is_undone_by_the_mean_residual():
    # all losses at 0.3 of a spacing: without the correction ten releases would lose 3 spacings
    found = monte_carlo_epsilon(
        lambda count, rng: np.full(count, 1.03),
        10,
        1e-3,
        10_000,
        rng=np.random.default_rng(1),
        mesh=0.1,
        half_width=2.0,
    )
    assert found.value == pytest.approx(10.3 + math.log1p(-1e-3), abs=1e-9)


def test_infinite_losses_are_charged_in_full():
    def sampler(count, rng):
        return np.where(rng.random(count) < 0.01, np.inf, 0.1)

    found = monte_carlo_delta(sampler, 3, 1.0, 400_000, rng=np.random.default_rng(6))
    assert abs(found.value - (1.0 - 0.99**3)) < 4.0 * math.sqrt(3 * 0.0297 * 0.97 / 400_000)
    with pytest.raises(ValueError, match="delta must exceed the sampled probability"):
        monte_carlo_epsilon(sampler, 3, 0.02, 400_000, rng=np.random.default_rng(6))


def test_an_interrupt_ends_the_drawing_and_keeps_what_was_drawn(monkeypatch):
    monkeypatch.setattr(loss_histogram, "_CHUNK", 4096)
    calls = []

    def sampler(count, rng):
        calls.append(count)
        if len(calls) > 12:
            raise KeyboardInterrupt
        return rng.normal(0.02, 0.2, count)

    found = monte_carlo_epsilon(sampler, 10, 1e-4, 10**6, rng=np.random.default_rng(8), workers=1)
    assert 4096 <= found.num_samples <= 12 * 4096
    assert f"from {found.num_samples} samples" in found.caveat


def test_the_bar_is_shown_only_when_asked_for(capsys):
    sampler = loss_sampler(noise(7.0))
    monte_carlo_epsilon(sampler, 10, 1e-4, 20_000, rng=np.random.default_rng(9))
    assert capsys.readouterr() == ("", "")
    monte_carlo_epsilon(sampler, 10, 1e-4, 20_000, rng=np.random.default_rng(9), progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "100%" in shown.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"times": 0}, "times must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"num_samples": 10}, "num_samples must be"),
        ({"rng": 3}, "rng must be"),
        ({"mesh": -1.0}, "mesh must be"),
        ({"workers": 0}, "workers must be"),
        ({"sampler": lambda count, rng: np.zeros(3)}, "sampler must return"),
        ({"sampler": lambda count, rng: np.full(count, np.nan)}, "none of them NaN"),
    ],
)
def test_a_bad_argument_is_named(change, says):
    good = {
        "sampler": loss_sampler(noise(7.0)),
        "times": 3,
        "delta": 1e-3,
        "num_samples": 5000,
        "rng": np.random.default_rng(1),
    }
    with pytest.raises(ValueError, match=says):
        monte_carlo_epsilon(**{**good, **change})


def test_only_one_direction_of_one_release_can_be_sampled():
    with pytest.raises(ValueError, match="direction must be one of"):
        loss_sampler(noise(1.0), Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match="mechanism must be of type AdditiveNoise"):
        loss_sampler(Composed(noise(1.0), times=2))
