# SPDX-License-Identifier: Apache-2.0
"""Batches against the law that is accounted for them: subsets, counts, pairs; near misses are rejected."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import Sampling, secure_generator
from ggdp.mechanisms import AdditiveNoise, FixedSizeSampled, TruncatedPoisson
from ggdp.training import batch_draws, fit, make_private
from ggdp.training.plan import Plan, plan_training
from ggdp.training.randomness import Randomness, integers
from training.models import generator

LEVEL = 1e-4  # of every test; a near miss is to fail beyond it by far
SOURCES = {"seeded": lambda: generator(5), "secure": lambda: secure_generator(key=bytes(range(32)))}


@pytest.fixture(params=SOURCES)
def randomness(request):
    return Randomness.of(SOURCES[request.param]())


def fits(counts, probs):
    """The p-value of counts of outcomes with these probabilities (Pearson)."""
    counts, expected = np.asarray(counts), np.asarray(probs) * np.sum(counts)
    return stats.chisquare(counts, expected).pvalue


def subsets_seen(batches, count, size):
    cells = dict.fromkeys(itertools.combinations(range(count), size), 0)
    for batch in batches:
        cells[tuple(sorted(batch.tolist()))] += 1
    return list(cells.values())


def drawn(sampling, count, randomness, times):
    return [batch for _ in range(times) for batch in batch_draws.draw(sampling, count, randomness)]


@pytest.mark.parametrize("size", [2, 4])
def test_fixed_size_batches_are_every_subset_equally_often(randomness, size):
    batches = drawn(Sampling.fixed_size(size, 6), 6, randomness, 3000)
    cells = math.comb(6, size)
    assert fits(subsets_seen(batches, 6, size), np.full(cells, 1 / cells)) > LEVEL


def test_systematic_batches_which_hold_every_example_equally_often_are_rejected(randomness):
    starts = integers(
        randomness.batches, 3, 3000
    )  # each example with probability 1/3, but only with one other
    batches = [np.array([start, start + 3]) for start in starts]
    counts = np.bincount(np.concatenate(batches), minlength=6)
    assert stats.binomtest(int(counts[0]), 3000, 1 / 3).pvalue > LEVEL
    assert fits(subsets_seen(batches, 6, 2), np.full(15, 1 / 15)) < LEVEL


def joint(batches, count, one, other):
    held = np.zeros((len(batches), count), bool)
    for row, batch in zip(held, batches, strict=True):
        row[batch] = True
    return int((held[:, one] & held[:, other]).sum())


def test_two_examples_meet_in_fixed_size_batches_as_often_as_hypergeometric_and_not_as_poisson(randomness):
    batches = drawn(Sampling.fixed_size(20, 40), 40, randomness, 4000)
    assert {len(set(batch.tolist())) for batch in batches} == {20}
    together = sum(joint(batches, 40, one, one + 20) for one in range(20))
    assert stats.binomtest(together, 20 * 4000, 20 * 19 / (40 * 39)).pvalue > LEVEL
    assert stats.binomtest(together, 20 * 4000, 0.25).pvalue < LEVEL


def test_a_cut_poisson_batch_has_the_size_of_the_smaller_and_leaves_out_any_example_alike(randomness):
    sampling = Sampling.truncated_poisson(0.5, 5, 10)
    batches = drawn(sampling, 10, randomness, 4000)
    law = stats.binom(10, 0.5)
    sizes = np.bincount([len(batch) for batch in batches], minlength=6)
    assert fits(sizes, [*law.pmf(range(5)), law.sf(4)]) > LEVEL
    often = np.bincount(np.concatenate(batches), minlength=10)
    cut = np.bincount(
        np.concatenate([batch_draws.poisson_positions(10, 0.5, randomness)[:5] for _ in range(4000)]),
        minlength=10,
    )
    assert fits(often, np.full(10, 0.1)) > LEVEL
    assert fits(cut, np.full(10, 0.1)) < LEVEL  # the last ones are left out more often


def steps_of(batches, count):
    """The steps in which every example is."""
    return [tuple(step for step, batch in enumerate(batches) if example in batch) for example in range(count)]


@pytest.mark.parametrize("times_used", [1, 2, 3])
def test_allocation_puts_every_example_alone_into_a_uniform_subset_of_the_steps(randomness, times_used):
    sampling = Sampling.random_allocation(4, times_used)
    epochs = [list(batch_draws.draw(sampling, 30, randomness)) for _ in range(60)]
    chosen = [steps for batches in epochs for steps in steps_of(batches, 30)]
    cells = list(itertools.combinations(range(4), times_used))
    assert set(chosen) <= set(cells)
    counts = [chosen.count(cell) for cell in cells]
    assert fits(counts, np.full(len(cells), 1 / len(cells))) > LEVEL
    same = sum(first == second for first, second in zip(chosen[::2], chosen[1::2], strict=True))
    assert stats.binomtest(same, len(chosen) // 2, 1 / len(cells)).pvalue > LEVEL
    assert len({len(batch) for batches in epochs for batch in batches}) > 1


def test_shuffled_batches_are_a_permutation_in_which_two_meet_less_often_than_in_allocation(randomness):
    def meetings(sampling):
        epochs = [list(batch_draws.draw(sampling, 12, randomness)) for _ in range(3000)]
        for batches in epochs[:50]:
            assert sorted(np.concatenate(batches).tolist()) == list(range(12))
        return sum(steps_of(batches, 2)[0] == steps_of(batches, 2)[1] for batches in epochs)

    shuffled, allocated = meetings(Sampling.shuffled(3)), meetings(Sampling.random_allocation(3))
    assert stats.binomtest(shuffled, 3000, 3 / 11).pvalue > LEVEL
    assert stats.binomtest(allocated, 3000, 1 / 3).pvalue > LEVEL
    assert stats.binomtest(allocated, 3000, 3 / 11).pvalue < LEVEL


def test_permutations_are_uniform(randomness):
    orders = [tuple(batch_draws.permutation(3, randomness).tolist()) for _ in range(3000)]
    assert fits([orders.count(each) for each in itertools.permutations(range(3))], np.full(6, 1 / 6)) > LEVEL


def test_batches_with_replacement_are_draws_of_one_example_each(randomness):
    (batch,) = batch_draws.draw(Sampling.fixed_size(6000, 7, replacement=True), 7, randomness)
    assert fits(np.bincount(batch, minlength=7), np.full(7, 1 / 7)) > LEVEL


def parts(**settings):
    model = nn.Linear(1, 1)
    dataset = TensorDataset(torch.arange(30.0).unsqueeze(1), torch.zeros(30))
    loader = DataLoader(dataset, batch_size=6)
    options = {"beta": 2.0, "clip_norm": 1.0, "noise_multiplier": 3.0, "delta": 1e-5, "steps": 10}
    return make_private(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, **options | settings)


@pytest.mark.parametrize(
    ("sampling", "kind", "text"),
    [
        ("fixed-size", FixedSizeSampled, "fixed-size:6/30"),
        ("truncated-poisson:0.2/9/30", TruncatedPoisson, "truncated-poisson:0.2/9/30"),
        (Sampling.fixed_size(5, 30), FixedSizeSampled, "fixed-size:5/30"),
    ],
)
def test_the_loader_draws_what_the_ledger_records(sampling, kind, text):
    private = parts(sampling=sampling, generator=generator(3))
    seen = []
    for inputs, _ in private.data_loader.batches(10):
        private.backward(private.model(inputs).square().flatten())
        private.optimizer.step()
        seen.append(inputs.flatten().long().tolist())
    ((step, count),) = private.accountant.mechanism.parts
    assert (type(step), count, str(private.plan.batches)) == (kind, 10, text)
    expected = drawn(private.plan.batches, 30, Randomness.of(generator(3)), 10)
    assert seen == [batch.tolist() for batch in expected if len(batch)]


def test_fit_trains_on_fixed_size_batches_within_its_budget():
    private = parts(noise_multiplier=None, target_epsilon=2.0, sampling="fixed-size", steps=6)
    report = fit(
        private, loss=lambda output, target: (output - target[:, None]).square().flatten(), progress=False
    )
    assert 1.9 < report.last.epsilon <= 2.0
    assert report.last.steps == 6
    assert report.plan.to_dict()["sampling"] == "fixed-size:6/30"


def test_an_epoch_that_is_one_draw_is_charged_once_when_it_begins_and_again_when_it_is_begun_anew(
    monkeypatch,
):
    noise = plan_training(
        clip_norm=1.0,
        num_examples=30,
        dimension=2,
        delta=1e-5,
        beta=2.0,
        noise_multiplier=3.0,
        rate=0.2,
        steps=1,
    ).noise
    epoch = AdditiveNoise(noise, 1.0, 2.0, 2)  # in place of what an epoch costs, which is not the point here
    monkeypatch.setattr(Plan, "step", property(lambda plan: epoch))
    private = parts(sampling=Sampling.random_allocation(5), steps=10)
    charged = []
    for stop in (5, 2, 5):
        for number, (inputs, _) in enumerate(private.data_loader):
            private.backward(private.model(inputs).square().flatten())
            private.optimizer.step()
            charged.append(len(private.accountant))
            if number + 1 == stop:
                break
    assert charged[0] == 1
    assert len(private.accountant) == 3
    assert private.plan.mechanism().parts[0][1] == 2
    assert [private.plan.draws(steps) for steps in (0, 1, 5, 6)] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampling": "fixed-size:6/31"}, "sampling must be of the 30 examples"),
        ({"sampling": "fixed-size:6/30", "rate": 0.2}, "rate and batch_size must be left out"),
        ({"sampling": "fixed-size", "num_examples": 40}, "num_examples must be the size of the data set, 30"),
        ({"sampling": "sorted"}, "sampling must be one of"),
        ({"sampling": "fixed-size:40/30"}, "sample_size must be"),
    ],
)
def test_a_sampling_that_the_loader_cannot_draw_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        parts(**settings)
