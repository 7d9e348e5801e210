# SPDX-License-Identifier: Apache-2.0
"""Runs of built-in tasks: what preprocessing costs is in the budget, and a seed repeats everything."""

import functools
import math

import numpy as np
import pytest
import torch

from ggdp import Composed, PoissonSampled, epsilon
from ggdp_paper.task_run import RunSettings, accuracy_with_mirror, prepare, training_cell
from ggdp_paper.tasks import load_task


@functools.cache
def made_up(name):
    return load_task(
        name, synthetic=True, generator=torch.Generator().manual_seed(1), rng=np.random.default_rng(1)
    )


def cell(seed, **more):
    return training_cell(
        made_up("adult"), beta=2.0, epsilon=2.0, clip_norm=0.25, learning_rate=2.0, seed=seed, **more
    )


def test_a_seed_repeats_the_run_and_another_does_not():
    first, again, other = cell(1), cell(1), cell(2)
    assert {**first, "seconds": 0.0} == {**again, "seconds": 0.0}
    assert first["epochs"] != other["epochs"]


def test_the_budget_is_spent_and_not_exceeded():
    found = cell(1, epochs=4)
    assert 1.99 < found["epsilon"] <= 2.0
    assert [row["epoch"] for row in found["epochs"]] == [1, 2, 3, 4]
    assert found["epochs"][-1]["epsilon"] == found["epsilon"]
    assert found["best_accuracy"] == max(row["accuracy"] for row in found["epochs"])
    assert found["stopped_by"] == "plan"


def test_averages_are_scored_beside_each_other():
    plain, averaged = cell(1, averages=(0.0,)), cell(1, averages=(0.9, 0.0))
    assert [row["other_averages"][0] for row in averaged["epochs"]] == [
        row["accuracy"] for row in plain["epochs"]
    ]
    assert plain["accuracy"] == cell(1)["accuracy"]


def test_preprocessing_shares_the_budget():
    task = made_up("cifar10")
    settings = RunSettings(beta=2.0, target_epsilon=2.0, steps=20)
    run = prepare(task, settings, generator=None, weights=torch.Generator().manual_seed(1))
    plan = run.private.plan
    assert plan.alongside == tuple((mechanism, 1) for mechanism in task.charged)
    together = Composed([(plan.step, 20), (task.charged[0], 1)])
    assert isinstance(plan.step, PoissonSampled)
    assert epsilon(together, delta=1e-6).upper <= 2.0
    assert epsilon(Composed(plan.step, 20), delta=1e-6).upper < 1.9999
    spent = run.private.accountant.epsilon(delta=1e-6)
    assert spent.upper == pytest.approx(epsilon(task.charged[0], delta=1e-6).upper)


def test_what_is_left_out_follows_from_the_task():
    task = made_up("digits")
    run = prepare(
        task,
        RunSettings(beta=1.5, noise_multiplier=2.0, norm="matched"),
        generator=None,
        weights=torch.Generator().manual_seed(1),
    )
    plan, defaults = run.private.plan, task.defaults
    assert plan.rate == pytest.approx(defaults.batch_size / task.num_examples)
    assert plan.steps == math.ceil(defaults.epochs / plan.rate)
    assert (plan.clip_norm, plan.delta) == (defaults.clip_norm, 1e-6)
    assert plan.p == pytest.approx(1.5 - 0.5 * 0.5 / 6.0)
    assert run.private.optimizer.param_groups[0]["lr"] == defaults.learning_rate


def test_a_falling_learning_rate_ends_where_it_should():
    task = made_up("adult")
    settings = RunSettings(beta=2.0, noise_multiplier=4.0, epochs=3, learning_rate=2.0, learning_rate_end=0.5)
    run = prepare(task, settings, generator=None, weights=torch.Generator().manual_seed(1))
    rates = []
    seen = run.private.optimizer.inner
    seen.register_step_post_hook(lambda *_: rates.append(seen.param_groups[0]["lr"]))
    run.fit()
    assert sorted(set(rates), reverse=True) == pytest.approx([2.0, 1.25, 0.5])
    assert rates == sorted(rates, reverse=True)
    wrong = RunSettings(beta=2.0, noise_multiplier=4.0, learning_rate=1.0, learning_rate_end=2.0)
    with pytest.raises(ValueError, match="learning_rate_end must be a number in"):
        prepare(task, wrong, generator=None, weights=torch.Generator().manual_seed(1))


def test_mirror_images_are_scored_where_they_keep_their_labels():
    assert made_up("svhn").mirrored is None
    task = made_up("cifar10")
    mirrored, labels = task.mirrored.tensors
    assert torch.equal(labels, task.test.tensors[1])
    assert mirrored.shape == task.test.tensors[0].shape

    class Fixed(torch.nn.Module):
        """Says the first class for one view, surely, and the second for the other, less surely."""

        def forward(self, inputs):
            surely = inputs.flatten(1)[:, :1] == mirrored.flatten(1)[: len(inputs), :1]
            scores = torch.zeros(len(inputs), 10)
            scores[:, 0] = torch.where(surely[:, 0], 9.0, 0.0)
            scores[:, 1] = torch.where(surely[:, 0], 0.0, 5.0)
            return scores

    expected = (labels == 0).double().mean().item()
    assert accuracy_with_mirror(Fixed(), task) == pytest.approx(expected)
