# SPDX-License-Identifier: Apache-2.0
"""Poisson batches: the law, the parts, the processes, and what is refused."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from ggdp import secure_generator
from ggdp.training.plan import plan_training
from ggdp.training.poisson_batches import (
    NotPoissonError,
    PoissonBatches,
    StepClock,
    check_loader,
    poisson_positions,
)
from ggdp.training.randomness import Randomness
from training.models import blobs, generator


def loader(dataset, rate=0.1, **options):
    plan = plan_training(
        2.0, clip_norm=1.0, num_examples=len(dataset), dimension=1, delta=1e-6, rate=rate, steps=10, scale=1.0
    )
    return PoissonBatches(dataset, plan, Randomness.of(generator(3)), StepClock(), **options)


def counts(rate, num=200, draws=4000, seed=5):
    source = Randomness.of(generator(seed))
    chosen = [poisson_positions(num, rate, source) for _ in range(draws)]
    return np.bincount(np.concatenate(chosen), minlength=num), np.array([len(one) for one in chosen])


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.5, 0.97])
def test_every_example_is_chosen_at_the_rate_and_not_at_one_some_percent_off(rate):
    per_example, _ = counts(rate)
    total, trials = int(per_example.sum()), 200 * 4000
    assert stats.binomtest(total, trials, rate).pvalue > 1e-4
    off = rate * (1.2 if rate < 0.5 else 0.99)
    assert stats.binomtest(total, trials, off).pvalue < 1e-4
    chi2 = float(((per_example - 4000 * rate) ** 2 / (4000 * rate * (1 - rate))).sum())
    assert 1e-4 < stats.chi2.sf(chi2, 200) < 1 - 1e-4  # neither uneven nor too even: no shuffling


@pytest.mark.parametrize("rate", [0.003, 0.05, 0.5])
def test_batch_sizes_are_binomial_and_not_constant(rate):
    _, sizes = counts(rate)
    edges = np.unique(stats.binom.ppf(np.linspace(0.05, 0.95, 10), 200, rate))
    observed = np.histogram(sizes, np.concatenate([[-1], edges, [201]]) + 0.5)[0]
    expected = 4000 * np.diff(np.concatenate([[0], stats.binom.cdf(edges, 200, rate), [1]]))
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_neighbouring_examples_are_chosen_independently():
    source = Randomness.of(generator(8))
    chosen = np.zeros((20_000, 2), dtype=int)
    for row in chosen:
        row[poisson_positions(2, 0.3, source)] = 1
    table = np.array([[np.sum((chosen == (i, j)).all(axis=1)) for j in (0, 1)] for i in (0, 1)])
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_rate_one_takes_everything_and_a_secure_generator_will_do():
    source = Randomness.of(secure_generator(key=bytes(32)))
    assert poisson_positions(5, 1.0, source).tolist() == [0, 1, 2, 3, 4]
    assert 300 < len(poisson_positions(10_000, 0.05, source)) < 700


def test_a_pass_has_one_batch_per_step_and_empty_ones_are_among_them():
    batches = list(loader(blobs(20), rate=0.02))
    assert len(batches) == 50
    sizes = [len(inputs) for inputs, _ in batches]
    assert 0 in sizes
    assert all(inputs.shape[1:] == (6,) and len(labels) == len(inputs) for inputs, labels in batches)


def test_large_batches_come_in_parts_of_bounded_size_that_know_their_place():
    batches = loader(blobs(400), rate=0.25, physical_batch_size=30)
    parts, sizes = [], []
    for inputs, _ in batches:
        parts.append(batches.clock.open)
        sizes.append(len(inputs))
    assert max(sizes) == 30
    assert [part.size for part in parts] == sizes
    assert sum(part.is_first for part in parts) == sum(part.is_last for part in parts) == 4


class Shapes(Dataset):
    """Examples as dictionaries, which only a collate function can batch."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": torch.full((2,), float(index)), "y": index}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_any_dataset_is_batched_by_its_collate_function_and_empty_batches_have_its_shapes(num_workers):
    batches = list(loader(Shapes(), rate=0.05, num_workers=num_workers))
    assert len(batches) == 20
    assert any(len(batch["x"]) == 0 for batch in batches)
    assert all(batch["x"].shape == (len(batch["y"]), 2) for batch in batches)
    assert all(torch.equal(batch["x"][:, 0], batch["y"].float()) for batch in batches)


def test_processes_sample_disjoint_parts_whose_union_is_the_whole():
    dataset = TensorDataset(torch.arange(11))
    seen = [
        {int(value) for (batch,) in loader(dataset, rate=1.0, rank=rank, world_size=3) for value in batch}
        for rank in range(3)
    ]
    assert sorted(value for part in seen for value in part) == list(range(11))


def test_processes_with_one_seed_choose_independently():
    draws = [poisson_positions(1000, 0.5, Randomness.of(generator(1), rank=rank)) for rank in range(2)]
    both = len(np.intersect1d(*draws))
    assert 200 < both < 300
    assert len(draws[0]) != both


def test_a_clock_gives_a_batch_once():
    clock = StepClock()
    with pytest.raises(NotPoissonError, match="private data loader"):
        clock.take()


class Stream(IterableDataset):
    def __iter__(self):
        yield 1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (DataLoader(Stream()), "IterableDataset"),
        (DataLoader(blobs(4), sampler=WeightedRandomSampler([1.0] * 4, 4)), "WeightedRandomSampler"),
        (DataLoader(TensorDataset(torch.empty(0))), "empty dataset"),
        ([1, 2], "DataLoader"),
    ],
)
def test_a_loader_that_chooses_otherwise_is_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        check_loader(wrong)
