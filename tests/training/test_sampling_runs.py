# SPDX-License-Identifier: Apache-2.0
"""Runs with batches that are not Poisson samples: what the loader hands out against its law, targets, noise
checks, audits, neighbours, and runs that are killed within an epoch."""

import itertools
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import Accountant, AdditiveNoise, Adjacency, Gaussian, account
from ggdp.torch import audit, check_noise, fit, make_private
from ggdp.training import batch_draws
from ggdp.training.plan import Plan, plan_training
from training.models import generator

LEVEL = 1e-4  # of every test; a near miss is to fail beyond it by far


def parts(size, **settings):
    model = nn.Linear(1, 2)
    dataset = TensorDataset(torch.arange(float(size)).unsqueeze(1), torch.arange(size) % 2)
    options = {"beta": 2.0, "clip_norm": 1.0, "noise_multiplier": 3.0, "delta": 1e-5, "steps": 10}
    return make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(dataset, batch_size=max(1, size // 5)),
        **options | settings,
    )


# The law of what the loader hands out, every outcome of a draw enumerated.


def poisson_law(rate, largest, count):
    law = Counter()
    for size in range(count + 1):
        for chosen in itertools.combinations(range(count), size):
            kept = list(itertools.combinations(chosen, min(size, largest)))
            for batch in kept:
                law[(batch,)] += rate**size * (1 - rate) ** (count - size) / len(kept)
    return law


def fixed_size_law(size, count):
    return Counter(
        {(batch,): 1 / math.comb(count, size) for batch in itertools.combinations(range(count), size)}
    )


def with_replacement_law(size, count):
    law = Counter()
    for draws in itertools.product(range(count), repeat=size):
        law[(tuple(sorted(draws)),)] += count**-size
    return law


def allocation_law(used, steps, count):
    choices = list(itertools.combinations(range(steps), used))
    law = Counter()
    for chosen in itertools.product(choices, repeat=count):
        batches = (tuple(k for k in range(count) if step in chosen[k]) for step in range(steps))
        law[tuple(batches)] += len(choices) ** -count
    return law


def shuffled_law(steps, count):
    law = Counter()
    for order in itertools.permutations(range(count)):
        batches = np.array_split(order, steps)
        law[tuple(tuple(sorted(batch.tolist())) for batch in batches)] += 1 / math.factorial(count)
    return law


class Blanks:
    """Takes the steps of empty batches, and notes them."""

    def __init__(self, seen):
        self.seen = seen

    def step_without_examples(self):
        self.seen.append(())

    def tell_others(self, error):
        raise error


def p_value(sampling, law, size, draws=2500):
    """Of the draws that the loader of `make_private` hands out."""
    loader = parts(size, sampling=sampling, generator=generator(7)).data_loader
    seen = []
    loader.clock.stepper = Blanks(seen)
    per_draw = len(next(iter(law)))
    for inputs, _ in loader.batches(draws * per_draw):
        seen.append(tuple(sorted(inputs.flatten().long().tolist())))
    found = Counter(zip(*[iter(seen)] * per_draw, strict=True))
    assert sum(found.values()) == draws
    assert math.isclose(sum(law.values()), 1.0)
    outcomes = sorted(set(law) | set(found))
    counts = [found[outcome] for outcome in outcomes]
    if any(law[outcome] == 0.0 for outcome in found):
        return 0.0
    return stats.chisquare(counts, [law[outcome] * draws for outcome in outcomes]).pvalue


def the_first_are_kept(sampling, count, randomness):
    yield batch_draws.poisson_positions(count, sampling.numbers[0], randomness)[: int(sampling.numbers[1])]


def neighbours_together(sampling, count, randomness):
    start = int(batch_draws.integers(randomness.batches, count, 1)[0])
    yield np.sort((start + np.arange(int(sampling.numbers[0]))) % count)


def no_example_twice(sampling, count, randomness):
    yield batch_draws.subset(count, int(sampling.numbers[0]), randomness)


def one_choice_for_all(sampling, count, randomness):
    used, steps = map(int, sampling.numbers)
    chosen = batch_draws.subset(steps, used, randomness)
    shifted = [(chosen + k) % steps for k in range(count)]
    for step in range(steps):
        yield np.array([k for k in range(count) if step in shifted[k]], int)


def turned(sampling, count, randomness):
    start = int(batch_draws.integers(randomness.batches, count, 1)[0])
    yield from np.array_split((start + np.arange(count)) % count, int(sampling.numbers[0]))


LAWS = {
    "truncated-poisson": ("truncated-poisson:0.5/3/5", poisson_law(0.5, 3, 5), 5, the_first_are_kept),
    "fixed-size": ("fixed-size:3/6", fixed_size_law(3, 6), 6, neighbours_together),
    "with-replacement": ("with-replacement:3/4", with_replacement_law(3, 4), 4, no_example_twice),
    "allocation, one use": ("allocation:1/3", allocation_law(1, 3, 4), 4, one_choice_for_all),
    "allocation, two uses": ("allocation:2/4", allocation_law(2, 4, 2), 2, one_choice_for_all),
    "shuffled": ("shuffled:2", shuffled_law(2, 5), 5, turned),
}


@pytest.mark.parametrize("kind", LAWS)
def test_the_loader_of_make_private_draws_the_law_that_is_accounted(kind):
    sampling, law, size, _ = LAWS[kind]
    assert p_value(sampling, law, size) > LEVEL


@pytest.mark.parametrize("kind", LAWS)
def test_a_sampler_with_the_right_rate_and_another_law_is_rejected(kind, monkeypatch):
    sampling, law, size, broken = LAWS[kind]
    monkeypatch.setattr(batch_draws, "draw", broken)
    assert p_value(sampling, law, size) < LEVEL


# Targets.

KINDS = ("truncated-poisson", "fixed-size", "with-replacement", "allocation", "shuffled")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_to_a_target_meets_it_closely_after_few_accounts(kind, monkeypatch):
    asked = []
    ask = Plan.epsilon_above
    monkeypatch.setattr(Plan, "epsilon_above", lambda *plan: asked.append(plan) or ask(*plan))
    private = parts(40, sampling=kind, noise_multiplier=None, target_epsilon=2.0, steps=5)
    assert len(asked) <= 5
    report = fit(private, progress=False)
    assert report.last.steps == 5
    assert 1.99 < private.accountant.epsilon(delta=1e-5).upper <= 2.0


def test_a_kind_without_a_proof_for_the_noise_is_refused_before_training():
    with pytest.raises(ValueError, match="beta=2"):
        parts(40, beta=1.5, sampling="allocation")


def test_shuffled_batches_have_an_upper_end_for_every_beta():
    private = parts(40, beta=1.5, sampling="shuffled")
    found = private.plan.epsilon()
    assert (
        0.0 <= found.lower < found.upper < account(private.plan.step.mechanism).epsilon(delta=1e-5).upper * 2
    )


# Neighbours.


def test_ledger_plan_and_epsilon_are_those_of_the_neighbours_asked_for():
    added, replaced = (
        parts(40, sampling="truncated-poisson", adjacency=adjacency, steps=3)
        for adjacency in ("add-remove", "replace")
    )
    assert replaced.accountant.adjacency is Adjacency.REPLACE
    assert replaced.plan.to_dict()["adjacency"] == "replace"
    found = replaced.plan.epsilon()
    assert found == account(replaced.plan.mechanism(), adjacency=Adjacency.REPLACE).epsilon(delta=1e-5)
    assert added.plan.to_dict()["adjacency"] == "add-remove"
    assert found.upper >= added.plan.epsilon().lower


def test_a_target_for_replaced_examples_takes_more_noise_than_one_for_added_ones():
    settings = {"clip_norm": 1.0, "num_examples": 50, "dimension": 2, "delta": 1e-5, "beta": 2.0, "rate": 0.2}
    plans = [
        plan_training(**settings, steps=5, target_epsilon=2.0, adjacency=adjacency)
        for adjacency in ("add-remove", "replace")
    ]
    assert plans[1].noise_multiplier > 1.2 * plans[0].noise_multiplier
    assert all(1.999 < plan.epsilon().upper <= 2.0 for plan in plans)


@pytest.mark.parametrize("kind", ["allocation", "with-replacement"])
def test_replaced_examples_are_refused_where_nothing_is_proved(kind):
    with pytest.raises(ValueError, match="adjacency must be add-remove"):
        parts(40, sampling=kind, adjacency="replace")


# Noise checks and audits.


def plain_parts():
    model = nn.Sequential(nn.Linear(3, 60), nn.Tanh(), nn.Linear(60, 2))
    data = TensorDataset(torch.randn(50, 3, generator=generator(2)), torch.arange(50) % 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=10)


def checked(sampling):
    settings = {"clip_norm": 1.0, "noise_multiplier": 5.0, "steps": 50, "delta": 1e-5, "num_canaries": 500}
    return check_noise(
        *plain_parts(), beta=2.0, sampling=sampling, level=0.01, generator=generator(4), **settings
    )


SAMPLINGS = (*KINDS, "allocation:2/6", "poisson:0.2")


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_steps_of_a_right_run_pass_whatever_its_batches(sampling):
    found = checked(sampling)
    assert found.passed, found.failures
    assert {"sampling rate", "batches drawn anew", "clipped canaries"} <= {test.name for test in found.tests}


DRAW = batch_draws.draw


def the_same_again(sampling, count, randomness, kept=[]):  # noqa: B006
    if not kept or kept[0] != (sampling, count):
        kept[:] = [(sampling, count), list(DRAW(sampling, count, randomness))]
    yield from kept[1]


def a_tenth_missing(sampling, count, randomness):
    for batch in DRAW(sampling, count, randomness):
        yield batch[batch % 10 > 0]


def two_epochs_in_one(sampling, count, randomness):
    first, second = (list(DRAW(sampling, count, randomness)) for _ in range(2))
    yield from (
        one if step % 2 else other for step, (one, other) in enumerate(zip(first, second, strict=True))
    )


@pytest.mark.parametrize(
    ("sampling", "fault"),
    [
        ("fixed-size", the_same_again),
        ("with-replacement", the_same_again),
        ("truncated-poisson", the_same_again),
        ("fixed-size", a_tenth_missing),
        ("allocation", a_tenth_missing),
        ("allocation", two_epochs_in_one),
        ("shuffled", two_epochs_in_one),
    ],
)
def test_a_check_of_the_steps_finds_a_faulty_sampler(sampling, fault, monkeypatch):
    monkeypatch.setattr(batch_draws, "draw", fault)
    names = {test.name for test in checked(sampling).failures}
    assert names & {"sampling rate", "batches drawn anew", "batch sizes"}


def audited(sampling, method="one-run", **more):
    settings = {"clip_norm": 1.0, "steps": 5, "delta": 1e-5, "noise_multiplier": 0.7, "num_canaries": 1500}
    return audit(
        *plain_parts(), beta=2.0, sampling=sampling, method=method, generator=generator(4), **settings | more
    )


@pytest.mark.parametrize("sampling", ["fixed-size", "allocation", "shuffled"])
def test_an_audit_of_a_right_run_shows_something_and_less_than_is_claimed(sampling):
    found = audited(sampling)
    assert found.is_consistent
    assert found.plan.num_examples == 1550  # whatever the coins
    if sampling == "allocation":
        found = audited(sampling, "independent-canaries", audit_delta=0.05)
        assert 0.3 < found.lower_epsilon <= found.certified.upper


def test_canaries_that_take_each_others_place_are_not_counted_as_experiments_of_their_own():
    with pytest.raises(ValueError, match="method must be 'one-run' or 'repeated-runs'"):
        audited("shuffled", "independent-canaries")


# Runs that are killed within an epoch.


class Killed(BaseException):
    pass


def ledger_on_disk(folder):
    return len(Accountant.from_state_dict(json.loads((folder / "ledger.json").read_text())["ledger"]))


@pytest.mark.parametrize("sampling", ["allocation:1/5", "shuffled:5"])
@pytest.mark.parametrize("save_every", [1e-3, 30.0])
@pytest.mark.parametrize("kill_at", [(3,), (3, 7, 14), (4, 4, 12)])
def test_a_run_killed_within_an_epoch_has_paid_for_every_epoch_that_it_began(
    sampling, save_every, kill_at, tmp_path, monkeypatch
):
    epoch = AdditiveNoise(
        Gaussian(std=3.0), 1.0
    )  # in place of what an epoch costs, which is not the point here
    monkeypatch.setattr(Plan, "step", property(lambda plan: epoch))
    begun = set()  # epochs that something was released of, over all attempts
    for attempt, kill in enumerate((*kill_at, None)):
        private = parts(30, sampling=sampling, steps=20)

        def note(*_, private=private, attempt=attempt, kill=kill):
            begun.add((attempt, private.optimizer.draw))
            if kill is not None and private.optimizer.steps + 1 >= kill:
                raise Killed

        private.optimizer.register_step_pre_hook(note)
        try:
            fit(private, checkpoint=tmp_path, resume=attempt > 0, save_every=save_every, progress=False)
        except Killed:
            assert ledger_on_disk(tmp_path) >= len(begun)
    assert private.optimizer.steps == 20
    assert ledger_on_disk(tmp_path) == len(private.accountant) >= len(begun)
    assert len(begun) > 4  # a plan of four epochs, and what the interruptions cost


def test_a_pass_that_ends_within_an_epoch_leaves_nothing_of_it_to_later_steps():
    private = parts(30, sampling="shuffled:5", steps=20)
    ahead = []
    for inputs, labels in private.data_loader.batches(3):
        nn.functional.cross_entropy(private.model(inputs), labels).backward()
        private.optimizer.step()
        ahead.append(private.optimizer.draws_ahead(8))
    # of the eight steps from the present one on, those beyond the pass are of new epochs
    assert ahead == [1, 2, 2]
