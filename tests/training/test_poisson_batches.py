# SPDX-License-Identifier: Apache-2.0
"""Poisson batches: the law, the parts, the processes, and what is refused."""

import os
import random

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from ggdp import secure_generator
from ggdp.errors import NotPoissonError
from ggdp.training.batch_draws import poisson_positions
from ggdp.training.plan import plan_training
from ggdp.training.poisson_batches import PoissonBatches, StepClock, check_loader
from ggdp.training.randomness import Randomness
from training.models import blobs, generator


def loader(dataset, rate=0.1, physical_batch_size=None, rank=0, world_size=1, stepper=None, **options):
    plan = plan_training(
        beta=2.0,
        clip_norm=1.0,
        num_examples=len(dataset),
        dimension=1,
        delta=1e-6,
        rate=rate,
        steps=10,
        scale=1.0,
    )
    clock = StepClock()
    clock.stepper = stepper
    return PoissonBatches(
        DataLoader(dataset, batch_size=2, **options),
        plan,
        Randomness.of(generator(3)),
        clock,
        physical_batch_size=physical_batch_size,
        rank=rank,
        world_size=world_size,
    )


class Steps:
    """Stands for the optimizer: notes the steps that the loader has it take."""

    def __init__(self):
        self.taken, self.told = 0, []

    def step_without_examples(self):
        self.taken += 1

    def tell_others(self, error):
        self.told.append(error)


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


def test_a_pass_has_one_batch_or_one_step_of_its_own_per_step():
    steps = Steps()
    batches = list(loader(blobs(20), rate=0.02, stepper=steps))
    assert len(batches) + steps.taken == 50
    assert steps.taken > 20
    assert all(inputs.shape[1:] == (6,) and len(labels) == len(inputs) > 0 for inputs, labels in batches)


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
def test_any_dataset_is_batched_by_its_collate_function_and_empty_batches_become_steps(num_workers):
    steps = Steps()
    batches = list(loader(Shapes(), rate=0.05, stepper=steps, num_workers=num_workers))
    assert len(batches) + steps.taken == 20
    assert min(len(batches), steps.taken) > 3
    assert all(batch["x"].shape == (len(batch["y"]), 2) for batch in batches)
    assert all(torch.equal(batch["x"][:, 0], batch["y"].float()) for batch in batches)


def test_steps_of_empty_batches_are_taken_in_their_place():
    """What a loop sees and what the loader has stepped, in order, are the batches as they were drawn."""
    order = []
    steps = Steps()
    steps.step_without_examples = lambda: order.append(0)
    for inputs, _ in loader(blobs(12), rate=0.05, stepper=steps):
        order.append(len(inputs))
    source = Randomness.of(generator(3))
    assert order == [len(poisson_positions(12, 0.05 * (1 - 2**-40), source)) for _ in range(20)]


class Noted(Dataset):
    """Examples that say where they were loaded, and what augmentation drew."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        worker = torch.utils.data.get_worker_info()
        place = -1 if worker is None else worker.id
        mark = -1 if worker is None else getattr(worker.dataset, "mark", -1)
        drawn = torch.tensor([np.random.randint(2**31), random.getrandbits(31)])  # noqa: NPY002
        return os.getpid(), place, mark, torch.cat([drawn, torch.randint(2**31, (1,))])


def mark_dataset(worker_id):
    torch.utils.data.get_worker_info().dataset.mark = 7 + worker_id


def test_settings_of_the_data_loader_reach_its_workers():
    private = loader(
        Noted(),
        rate=0.3,
        num_workers=2,
        worker_init_fn=mark_dataset,
        persistent_workers=True,
        prefetch_factor=1,
        timeout=60,
        multiprocessing_context="fork",
    )
    passes = [list(private) for _ in range(2)]
    places = [{tuple(row[:3]) for batch in one for row in zip(*batch, strict=True)} for one in passes]
    places = [{(int(pid), int(place), int(mark)) for pid, place, mark in one} for one in places]
    assert places[0] == places[1]  # the same two processes in both passes
    assert {(place, mark) for _, place, mark in places[0]} == {(0, 7), (1, 8)}
    made = private._loader
    assert (made.prefetch_factor, made.timeout, made.persistent_workers) == (1, 60, True)


def test_workers_of_all_processes_and_passes_augment_independently():
    draws = []
    for rank in range(2):
        torch.manual_seed(0)  # as many scripts do, in every process
        private = loader(Noted(), rate=0.5, rank=rank, world_size=2, num_workers=2)
        for _ in range(2):
            draws += [row for batch in private for row in batch[3]]
    for column in torch.stack(draws).T:
        assert len(column.unique()) == len(column) > 60


def test_an_error_of_the_dataset_is_told_to_the_other_processes():
    class Broken(Shapes):
        def __getitem__(self, index):
            raise OSError("the disk is gone")

    steps = Steps()
    with pytest.raises(OSError, match="disk"):
        list(loader(Broken(), rate=0.5, stepper=steps))
    assert [str(error) for error in steps.told] == ["the disk is gone"]


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


class OwnIteration(DataLoader):
    def __iter__(self):
        yield from ()


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
        (OwnIteration(blobs(4)), "OwnIteration"),
        (DataLoader(blobs(4), batch_sampler=[[0, 1], [2, 3]]), "the batch_sampler list"),
        (DataLoader(blobs(4), batch_size=None), "batch_size=None"),
        (DataLoader(blobs(4), drop_last=True), "drop_last"),
        (DataLoader(blobs(4), in_order=False), "in_order"),
        (DataLoader(blobs(4), sampler=RandomSampler(blobs(4), num_samples=2)), "RandomSampler"),
        (DataLoader(blobs(4), sampler=SequentialSampler(range(2))), "SequentialSampler"),
    ],
)
def test_a_loader_that_chooses_otherwise_is_refused(wrong, named):
    with pytest.raises(ValueError, match=named):
        check_loader(wrong)
