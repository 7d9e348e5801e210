# SPDX-License-Identifier: Apache-2.0
"""The plan: one object, one meaning, and no two ways of saying different things."""

import json
import math

import pytest

from ggdp import (
    AdditiveNoise,
    Bounds,
    Composed,
    Estimate,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    epsilon,
)
from ggdp.training.plan import plan_training

SIZES = {"clip_norm": 0.5, "num_examples": 10_000, "dimension": 300, "delta": 1e-6}


def test_a_target_gives_the_noise_of_a_run_that_meets_it_and_hardly_more():
    plan = plan_training(beta=2.0, batch_size=100, epochs=5, target_epsilon=2.0, **SIZES)
    assert (plan.rate, plan.steps, plan.expected_batch_size) == (0.01, 500, 100.0)
    step = PoissonSampled(AdditiveNoise(Gaussian(std=0.5 * plan.noise_multiplier), 0.5), 0.01)
    assert 1.99999 < epsilon(Composed(step, 500), delta=1e-6).upper <= 2.0
    assert plan.max_epsilon == 2.0


@pytest.mark.parametrize("beta", [1.33, 1.66, 3.0])
def test_the_certified_epsilon_lies_above_what_one_coordinate_costs(beta):
    plan = plan_training(beta=beta, batch_size=100, steps=500, noise_multiplier=2.0, **SIZES)
    certified, paper = plan.epsilon(), plan.one_coordinate_epsilon()
    assert isinstance(certified, Bounds)
    assert isinstance(paper, Estimate)
    assert certified.upper >= paper.value


def test_the_ledger_holds_what_runs_alongside_and_so_does_the_target():
    other = AdditiveNoise(Gaussian(std=4.0))
    alone = plan_training(beta=2.0, rate=0.01, steps=500, target_epsilon=2.0, **SIZES)
    plan = plan_training(beta=2.0, rate=0.01, steps=500, target_epsilon=2.0, alongside=[(other, 2)], **SIZES)
    assert plan.noise.scale > alone.noise.scale
    ledger = plan.ledger()
    assert len(ledger) == 2
    assert ledger.remaining(plan.step) == 500


def test_three_ways_to_say_how_much_noise_agree():
    by_scale = plan_training(beta=1.5, rate=0.1, steps=1, scale=3.0, **SIZES)
    multiplier = 3.0 / (0.5 * math.sqrt(2))
    by_multiplier = plan_training(beta=1.5, rate=0.1, steps=1, noise_multiplier=multiplier, **SIZES)
    as_it_is = plan_training(noise=GeneralizedGaussian(1.5, 3.0), rate=0.1, steps=1, **SIZES)
    assert by_scale == as_it_is
    assert by_multiplier.noise.scale == pytest.approx(3.0, rel=1e-15)
    assert by_scale.norm == 2.0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"rate": None}, "give rate or batch_size"),
        ({"batch_size": 5}, "give rate or batch_size"),
        ({"rate": None, "batch_size": 10_001}, "batch_size must be"),
        ({"rate": 1.5}, "rate must be"),
        ({"steps": None}, "give steps or epochs"),
        ({"epochs": 2}, "give steps or epochs"),
        ({"steps": 2.5}, "steps must be"),
        ({"scale": None}, "no default amount of noise"),
        ({"noise_multiplier": 1.0}, "noise_multiplier must be left out"),
        ({"target_epsilon": 1.0}, "scale must be left out"),
        ({"beta": None}, "give beta or noise"),
        ({"noise": Gaussian(std=1.0)}, "give beta or noise"),
        ({"beta": None, "noise": 1.5}, "noise must be of type GeneralizedGaussian.*beta=..."),
        ({"clip_norm": 0.0}, "clip_norm must be"),
        ({"delta": -1e-6}, "delta must be"),
        ({"norm": 0.5}, "norm must be"),
        ({"dimension": 0}, "no trainable parameters"),
    ],
)
def test_what_is_missing_doubled_or_out_of_range_is_named(wrong, named):
    good = {**SIZES, "beta": 1.5, "rate": 0.01, "steps": 100, "scale": 2.0}
    with pytest.raises(ValueError, match=named):
        plan_training(**(good | wrong))


def test_a_noise_with_its_scale_wants_no_second_one():
    with pytest.raises(ValueError, match="target_epsilon must be left out"):
        plan_training(noise=Gaussian(std=1.0), rate=0.01, steps=10, target_epsilon=1.0, **SIZES)


@pytest.mark.parametrize("name", ["target_epsilon", "max_epsilon"])
def test_a_budget_out_of_range_is_refused_by_its_own_name(name):
    scale = {"noise_multiplier": 1.0} if name == "max_epsilon" else {}
    with pytest.raises(ValueError, match=f"^{name} must be a number in"):
        plan_training(beta=2.0, rate=0.01, steps=10, **scale, **{name: -1.0}, **SIZES)


def test_a_target_that_cannot_be_met_is_refused():
    with pytest.raises(ValueError, match="cannot be met"):
        plan_training(beta=2.0, rate=1.0, steps=10_000, target_epsilon=1e-5, **SIZES)


def test_a_budget_too_small_for_one_step_is_refused():
    plan = plan_training(beta=2.0, rate=0.5, steps=10, noise_multiplier=0.5, max_epsilon=0.1, **SIZES)
    with pytest.raises(ValueError, match="does not allow one step"):
        plan.ledger()


def test_a_plan_is_plain_data():
    other = AdditiveNoise(Gaussian(1.0))
    plan = plan_training(beta=1.5, rate=0.01, steps=10, scale=1.0, alongside=[(other, 1)], **SIZES)
    record = json.loads(json.dumps(plan.to_dict()))
    assert record["noise"] == {"beta": 1.5, "scale": 1.0}
    assert Composed.from_dict(record["alongside"]) == Composed(other)


def test_whole_epochs_are_not_lengthened_by_rounding():
    assert (
        plan_training(beta=2.0, batch_size=30, epochs=3, scale=1.0, **{**SIZES, "num_examples": 90}).steps
        == 9
    )


def test_pure_privacy_is_planned_with_laplace_noise_in_l_1_and_refused_elsewhere():
    sizes = {**SIZES, "delta": 0.0}
    plan = plan_training(beta=1.0, norm=1.0, rate=0.01, steps=50, target_epsilon=2.0, **sizes)
    assert 1.999 < plan.epsilon().upper <= 2.0
    assert plan.ledger().can_afford(plan.step, 50)
    for beta in (1.5, 2.0):
        with pytest.raises(ValueError, match="delta must be positive for this mechanism, got 0"):
            plan_training(beta=beta, rate=0.01, steps=50, noise_multiplier=1.0, **sizes).ledger()
    with pytest.raises(ValueError, match=r"delta must be a number in \[1e-100, 0.5\].*or 0 for pure privacy"):
        plan_training(beta=1.0, rate=0.01, steps=50, noise_multiplier=1.0, **{**SIZES, "delta": 1e-200})
