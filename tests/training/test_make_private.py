# SPDX-License-Identifier: Apache-2.0
"""make_private: the loop of a user, what a step does to the last digit, and what is refused."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp import GeneralizedGaussian
from ggdp.accounting.budget import BudgetExceededError
from ggdp.torch import add_noise_, make_private
from ggdp.training import NonFiniteGradientError, NotPoissonError, UnsupportedModelError
from ggdp.training.poisson_batches import poisson_positions
from ggdp.training.randomness import Randomness
from training.models import blobs, generator, plain_parts, small_net

SETTINGS = {"noise": 1.5, "clip_norm": 0.3, "noise_multiplier": 1.0, "delta": 1e-6, "epochs": 2}


def private_parts(seed=7, parts=None, **settings):
    return make_private(*(parts or plain_parts()), **(SETTINGS | settings), generator=generator(seed))


def train(private, steps):
    model, optimizer, loader, _ = private
    for inputs, labels in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if optimizer.num_steps == steps:
            return


def example_gradient(model, inputs, label):
    loss = functional.cross_entropy(model(inputs[None]), label[None])
    return torch.cat(
        [gradient.reshape(-1) for gradient in torch.autograd.grad(loss, list(model.parameters()))]
    )


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("physical_batch_size", [None, 7])
def test_a_step_is_the_noisy_sum_of_clipped_gradients_over_the_expected_batch(norm, physical_batch_size):
    private = private_parts(norm=norm, physical_batch_size=physical_batch_size)
    twin, dataset = small_net().double(), private.data_loader.dataset
    source = Randomness.of(generator(7))
    chosen = poisson_positions(len(dataset), private.plan.rate * (1 - 2**-40), source)
    total = torch.zeros(private.plan.dimension, dtype=torch.float64)
    for index in chosen:
        inputs, label = dataset[index]
        one = example_gradient(twin, inputs.double(), label)
        total += one * min(1.0, 0.3 / torch.linalg.vector_norm(one, norm).item())
    noise = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in twin.parameters()]
    add_noise_(noise, private.plan.noise, generator=source.noise)
    expected = (
        total + torch.cat([tensor.reshape(-1) for tensor in noise])
    ) / private.plan.expected_batch_size

    train(private, 1)
    found = torch.cat([parameter.grad.reshape(-1) for parameter in private.model.parameters()])
    torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=1e-6)
    before = torch.cat([parameter.reshape(-1) for parameter in small_net().parameters()])
    after = torch.cat([parameter.reshape(-1) for parameter in private.model.parameters()])
    torch.testing.assert_close(after, before - 0.5 * found, rtol=1e-4, atol=1e-6)


def noise_of_a_model_without_gradients(beta, multiplier):
    """Steps of a model whose loss is constant: what moves the parameters is noise alone."""
    model = nn.Linear(50, 40)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    data = DataLoader(TensorDataset(torch.zeros(20, 50)), batch_size=5)
    private = make_private(
        model,
        optimizer,
        data,
        beta,
        0.7,
        noise_multiplier=multiplier,
        delta=1e-6,
        steps=10,
        generator=generator(2),
    )
    drawn = []
    for (inputs,) in private.data_loader:
        (0.0 * model(inputs).sum(dim=1)).mean().backward()
        private.optimizer.step()
        drawn += [parameter.grad.reshape(-1) * 5.0 for parameter in model.parameters()]
    return torch.cat(drawn).double().numpy()


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
def test_without_gradients_what_is_left_is_the_noise_promised_and_not_three_percent_less(beta):
    drawn = noise_of_a_model_without_gradients(beta, 1.3)
    promised = GeneralizedGaussian(beta, math.sqrt(2) * 1.3 * 0.7)
    law = stats.gennorm(beta, scale=promised.scale)
    assert stats.kstest(drawn, law.cdf).pvalue > 1e-4
    ratio = drawn.var() / promised.std**2
    error = math.sqrt((law.stats("k") + 2) / len(drawn))
    assert abs(ratio - 1) < 4 * error
    less = noise_of_a_model_without_gradients(beta, 1.3 * 0.9)
    assert stats.kstest(less, law.cdf).pvalue < 1e-4


def test_every_logical_step_is_in_the_ledger_whatever_its_parts():
    private = private_parts(physical_batch_size=3)
    train(private, 10)
    assert private.optimizer.num_steps == len(private.accountant) == 10
    assert private.accountant.epsilon(delta=1e-6).upper == private.plan.epsilon(10).upper


def test_a_scheduler_and_any_optimizer_work_as_usual():
    model, _, loader = plain_parts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    private = private_parts(parts=(model, optimizer, loader))
    scheduler = torch.optim.lr_scheduler.StepLR(private.optimizer, step_size=1, gamma=0.5)
    train(private, 10)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert "exp_avg" in next(iter(private.optimizer.state_dict()["state"].values()))


def test_the_run_stops_before_its_budget_and_the_model_stays_as_it_was():
    private = private_parts(noise_multiplier=None, target_epsilon=1.0)
    for _ in range(2):
        train(private, 99)
    assert private.optimizer.num_steps == private.plan.steps == 20
    before = [parameter.clone() for parameter in private.model.parameters()]
    with pytest.raises(BudgetExceededError):
        train(private, 99)
    assert all(torch.equal(old, new) for old, new in zip(before, private.model.parameters(), strict=True))
    assert private.accountant.epsilon(delta=1e-6).upper <= 1.0


def test_frozen_parameters_are_neither_moved_nor_counted():
    model = small_net()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trainable, lr=0.5)
    private = private_parts(parts=(model, optimizer, DataLoader(blobs(), batch_size=40)))
    frozen = model[0].weight.clone()
    train(private, 3)
    assert torch.equal(model[0].weight, frozen)
    assert model[0].weight.grad is None
    assert private.plan.dimension == 8 * 2 + 2


def test_an_empty_batch_still_releases_noise():
    private = private_parts(rate=1e-4, epochs=None, steps=3)
    before = [parameter.clone() for parameter in private.model.parameters()]
    train(private, 3)
    assert private.optimizer.num_steps == 3
    moved = [not torch.equal(old, new) for old, new in zip(before, private.model.parameters(), strict=True)]
    assert all(moved)
    assert all(torch.isfinite(parameter).all() for parameter in private.model.parameters())


def test_runs_differ_without_a_seed_and_agree_with_one():
    ends = []
    for source in (None, None, generator(4), generator(4)):
        private = make_private(*plain_parts(), **SETTINGS, generator=source)
        train(private, 3)
        ends.append(private.model[0].weight.detach().clone())
    assert not torch.equal(ends[0], ends[1])
    assert torch.equal(ends[2], ends[3])


def test_a_step_without_a_batch_of_the_private_loader_is_refused():
    private = private_parts()
    inputs, labels = blobs(10)[:]
    functional.cross_entropy(private.model(inputs), labels).backward()
    with pytest.raises(NotPoissonError, match="private data loader"):
        private.optimizer.step()
    assert len(private.accountant) == 0


def test_a_second_step_on_one_batch_is_refused():
    private = private_parts()
    train(private, 1)
    with pytest.raises(NotPoissonError):
        private.optimizer.step()


def test_a_model_that_saw_other_examples_than_the_loader_gave_is_refused():
    private = private_parts()
    for inputs, labels in private.data_loader:
        functional.cross_entropy(private.model(inputs[1:]), labels[1:]).backward()
        with pytest.raises(ValueError, match="each batch whole"):
            private.optimizer.step()
        break
    assert len(private.accountant) == 0


def test_a_gradient_that_is_not_finite_is_refused_before_anything_is_released():
    model, optimizer, _ = plain_parts()
    inputs, labels = blobs()[:]
    inputs[::3, 2] = math.nan
    private = private_parts(
        parts=(model, optimizer, DataLoader(TensorDataset(inputs, labels), batch_size=100))
    )
    before = model[0].weight.clone()
    with pytest.raises(NonFiniteGradientError):
        train(private, 1)
    assert torch.equal(model[0].weight, before)
    assert len(private.accountant) == 0


def test_layers_that_mix_examples_are_refused_with_what_to_use_instead():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedModelError, match="GroupNorm"):
        private_parts(parts=(model, optimizer, DataLoader(blobs(), batch_size=10)))


def test_parameters_from_elsewhere_and_parameters_forgotten_are_refused():
    model, _, loader = plain_parts()
    foreign = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(3))], lr=0.1)
    with pytest.raises(ValueError, match=r"of the model only.*\(3,\)"):
        private_parts(parts=(model, foreign, loader))
    partial = torch.optim.SGD(model[0].parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"'2.weight' is missing; freeze it"):
        private_parts(parts=(model, partial, loader))


def test_a_closure_and_new_parameters_are_refused():
    private = private_parts()
    with pytest.raises(ValueError, match="closure"):
        private.optimizer.step(lambda: 0.0)
    with pytest.raises(ValueError, match="cannot be added"):
        private.optimizer.add_param_group({"params": []})


def test_a_batch_given_up_half_way_does_not_leak_into_the_next_one():
    private = private_parts(physical_batch_size=5, rate=0.2)
    iterator = iter(private.data_loader)
    inputs, labels = next(iterator)
    functional.cross_entropy(private.model(1e3 * inputs), labels).backward()
    private.optimizer.step()  # the first part of a logical batch, whose other parts never come
    again = private_parts(physical_batch_size=5, rate=0.2, seed=7)
    private.data_loader._randomness = again.randomness
    private.optimizer._randomness = again.randomness
    train(private, 1)
    reference = private_parts(physical_batch_size=5, rate=0.2, seed=7)
    train(reference, 1)
    np.testing.assert_allclose(
        private.model[0].weight.detach().numpy(), reference.model[0].weight.detach().numpy(), rtol=1e-5
    )


def test_a_batch_with_a_part_left_out_is_not_released():
    private = private_parts(physical_batch_size=5, rate=0.2)
    released = 0
    for place, (inputs, labels) in enumerate(private.data_loader):
        if place == 1:
            continue  # a part that the loop left out
        functional.cross_entropy(private.model(inputs), labels).backward()
        if private.data_loader.clock.open.batch == 1 and place > 1:
            with pytest.raises(NotPoissonError, match="left out"):
                private.optimizer.step()
        else:
            private.optimizer.step()
            released = private.optimizer.num_steps
    assert released == len(private.accountant) == len(private.data_loader) - 1


def test_a_batch_with_a_part_refused_is_not_released():
    model, optimizer, _ = plain_parts()
    inputs, labels = blobs()[:]
    inputs[3] = math.nan
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=400)
    private = private_parts(parts=(model, optimizer, loader), physical_batch_size=50, steps=1, epochs=None)
    for batch, target in private.data_loader:
        functional.cross_entropy(model(batch), target).backward()
        refusal = NonFiniteGradientError if private.data_loader.clock.open.is_first else NotPoissonError
        with pytest.raises(refusal):
            private.optimizer.step()
    assert len(private.accountant) == 0


def test_detached_the_model_is_an_ordinary_one():
    private = private_parts()
    train(private, 2)
    model = private.detach()
    inputs, labels = blobs(10)[:]
    model.zero_grad()
    functional.cross_entropy(model(inputs), labels).backward()
    assert model[0].weight.grad.abs().sum() > 0
