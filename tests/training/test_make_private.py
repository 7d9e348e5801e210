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
from ggdp.errors import BudgetExceededError
from ggdp.torch import add_noise_, make_private
from ggdp.training import NonFiniteGradientError, NotPoissonError, ParameterError, UnsupportedModelError
from ggdp.training.batch_draws import poisson_positions
from ggdp.training.randomness import Randomness
from training.models import blobs, generator, plain_parts, small_net

SETTINGS = {"beta": 1.5, "clip_norm": 0.3, "noise_multiplier": 1.0, "delta": 1e-6, "epochs": 2}


def private_parts(seed=7, parts=None, **settings):
    return make_private(*(parts or plain_parts()), **(SETTINGS | settings), generator=generator(seed))


def train(private, steps):
    model, optimizer, loader, _ = private
    for inputs, labels in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if optimizer.steps == steps:
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
    source.add_noise_(noise, private.plan.noise)
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
        beta=beta,
        clip_norm=0.7,
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
    assert private.optimizer.steps == len(private.accountant) == 10
    assert private.accountant.epsilon(delta=1e-6).upper == private.plan.epsilon(10).upper


@pytest.mark.parametrize("before", [True, False])
def test_a_scheduler_and_any_optimizer_work_as_usual(before):
    model, _, loader = plain_parts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    settings = {"step_size": 1, "gamma": 0.5}
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, **settings) if before else None
    private = private_parts(parts=(model, optimizer, loader))
    scheduler = scheduler or torch.optim.lr_scheduler.StepLR(private.optimizer, **settings)
    train(private, 10)
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert "exp_avg" in next(iter(private.optimizer.state_dict()["state"].values()))


def test_the_run_stops_before_its_budget_and_the_model_stays_as_it_was():
    private = private_parts(beta=2.0, noise_multiplier=None, target_epsilon=1.0)
    for _ in range(2):
        train(private, 99)
    assert private.optimizer.steps == private.plan.steps == 20
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


class Reshaping(nn.Linear):
    """A layer that fails on no examples, as attention in many libraries does."""

    def forward(self, inputs):
        return super().forward(inputs.reshape(len(inputs), -1))


def test_an_empty_batch_releases_noise_and_the_model_is_not_called():
    model = Reshaping(6, 2)
    with pytest.raises(RuntimeError, match="0 elements"):
        model(torch.empty(0, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(blobs(), batch_size=40)
    settings = {"rate": 0.002, "epochs": None, "steps": 40, "parts": (model, optimizer, loader)}
    settings |= {"beta": 2.0, "noise_multiplier": 5.0}
    unlimited = private_parts(**settings)
    unlimited.detach()
    budget = unlimited.plan.epsilon(35).upper
    private = private_parts(max_epsilon=budget, **settings)
    moved, sizes = [], []
    private.optimizer.register_step_post_hook(lambda *_: moved.append(model.weight.grad.clone()))
    for inputs, labels in private.data_loader.batches(30):
        sizes.append(len(inputs))
        private.optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        private.optimizer.step()
    assert min(sizes) >= 1
    assert len(sizes) < private.optimizer.steps == len(private.accountant) == len(moved) == 30
    assert all(each.abs().min() > 0 for each in moved)
    with pytest.raises(BudgetExceededError):  # raised by the loader, on whose way the step is taken
        train(private, math.inf)
    assert len(private.accountant) == 35
    assert private.accountant.epsilon(delta=1e-6).upper <= budget


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


def test_an_example_whose_gradient_is_not_finite_counts_as_none_and_raises_nothing():
    ends = []
    for spoiled in (math.nan, math.inf, None):
        model, optimizer, _ = plain_parts()
        inputs, labels = blobs()[:]
        if spoiled is None:  # examples whose gradient is zero in every layer: the same sum
            inputs[::10], loss = 0.0, lambda output, target: masked(output, target)
        else:
            inputs[::10, 2], loss = spoiled, functional.cross_entropy
        loader = DataLoader(TensorDataset(inputs, labels), batch_size=400)
        private = private_parts(parts=(model, optimizer, loader), steps=1, epochs=None)
        for batch, target in private.data_loader:
            loss(model(batch), target).backward()
            private.optimizer.step()
        assert private.optimizer.num_zeroed == (0 if spoiled is None else 40)
        assert len(private.accountant) == 1
        ends.append(model[0].weight.detach().clone())
    torch.testing.assert_close(ends[0], ends[2], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ends[1], ends[2], rtol=1e-4, atol=1e-6)


def masked(output, target):
    """The mean loss in which every tenth example has no part."""
    losses = functional.cross_entropy(output, target, reduction="none")
    return (losses * (torch.arange(len(losses)) % 10 != 0)).mean()


@pytest.mark.parametrize("size", [math.nan, -math.inf, 1e19])
def test_a_run_whose_parameters_are_no_longer_of_use_spends_nothing_more(size):
    private = private_parts()
    train(private, 2)
    with torch.no_grad():
        private.model[2].bias[1] = size
    with pytest.raises(ParameterError, match=r"'2\.bias' is NaN or infinite"):
        train(private, 4)
    assert len(private.accountant) == 2


def test_a_gradient_that_is_not_finite_is_refused_before_anything_is_released():
    model, optimizer, _ = plain_parts()
    inputs, labels = blobs()[:]
    inputs[::3, 2] = math.nan
    private = private_parts(
        parts=(model, optimizer, DataLoader(TensorDataset(inputs, labels), batch_size=100)),
        non_finite="refuse",
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


def test_an_optimizer_that_needs_a_closure_is_refused():
    model, _, loader = plain_parts()
    with pytest.raises(ValueError, match="closure, got LBFGS"):
        private_parts(parts=(model, torch.optim.LBFGS(model.parameters()), loader))


def test_a_closure_and_new_parameters_are_refused():
    private = private_parts()
    with pytest.raises(ValueError, match="closure"):
        private.optimizer.step(lambda: 0.0)
    with pytest.raises(ValueError, match="cannot be added"):
        private.optimizer.add_param_group({"params": []})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_and_noise_are_in_float32_whatever_the_dtype_of_the_parameters(dtype):
    """4096 gradients of 1 each, 64 at a time: a sum in bfloat16 stays at 256 for ever."""
    model = nn.Linear(1, 1, bias=False).to(dtype)
    nn.init.zeros_(model.weight)
    data = DataLoader(TensorDataset(torch.ones(4096, 1, dtype=dtype)), batch_size=4096)
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        data,
        beta=2.0,
        clip_norm=2.0,
        noise_multiplier=0.02,
        delta=1e-6,
        steps=1,
        physical_batch_size=64,
        generator=generator(1),
    )
    drawn = []

    def noisy(own, tensors, noise):
        drawn.extend((tensor.dtype, tensor.clone()) for tensor in tensors)
        add_noise_(tensors, noise, generator=own.noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomness, "add_noise_", noisy)
        for (inputs,) in private.data_loader:
            (-model(inputs)).mean().backward()
            private.optimizer.step()
    ((precision, total),) = drawn
    assert precision == torch.float32
    assert total.item() == pytest.approx(-4096, rel=1e-2)
    assert model.weight.grad.dtype == dtype
    assert model.weight.item() == pytest.approx(1.0, rel=1e-2)


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
            released = private.optimizer.steps
    assert released == len(private.accountant) == len(private.data_loader) - 1


def test_a_batch_with_a_part_refused_is_not_released():
    model, optimizer, _ = plain_parts()
    inputs, labels = blobs()[:]
    inputs[3] = math.nan
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=400)
    settings = {"physical_batch_size": 50, "steps": 1, "epochs": None, "non_finite": "refuse"}
    private = private_parts(parts=(model, optimizer, loader), **settings)
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
