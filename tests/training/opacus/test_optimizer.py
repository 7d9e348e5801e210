# SPDX-License-Identifier: Apache-2.0
"""The optimizer: precision of sums and noise, and what must not go past clipping, noise and accountant."""

import copy
import pickle
from fractions import Fraction

import pytest
import torch
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp.opacus import GGPrivacyEngine
from training.opacus.models import image_loader, private, small_net, train

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def rows_run(rows, *, dtype=torch.float32, clip=1.0, multiplier=0.0, engine=None, batch_size=None):
    """A run whose per-example gradients are these rows, on batches of everything."""
    net = nn.Linear(rows.shape[1], 1, bias=False).to(dtype)
    data = DataLoader(
        TensorDataset(rows.to(dtype), torch.zeros(len(rows))), batch_size=batch_size or len(rows)
    )
    engine = GGPrivacyEngine() if engine is None else engine
    run = private(
        engine, net=net, loader=data, noise_multiplier=multiplier, max_grad_norm=clip, loss_reduction="sum"
    )
    return engine, *run


def summed(rows, **options):
    _, model, optimizer, loader = rows_run(rows, **options)
    train(model, optimizer, loader, loss=lambda out, _: out.sum(), steps=1)
    return optimizer.params[0].summed_grad.double().flatten()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_example_more_moves_the_sum_by_at_most_the_clip_norm_in_every_precision(dtype):
    """4096 gradients near (1, 1) / sqrt(2): their sum has 12 bits, and in bfloat16 steps of 16 to 32."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.ones(4097, 2) + 0.2 * torch.rand(4097, 2, generator=generator)
    with_it, without = summed(rows, dtype=dtype), summed(rows[:-1], dtype=dtype)
    moved = [Fraction(a) - Fraction(b) for a, b in zip(with_it.tolist(), without.tolist(), strict=True)]
    assert Fraction(999, 1000) ** 2 <= sum(part**2 for part in moved) <= 1


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, float("inf")])
def test_so_it_does_where_the_other_examples_cancel_or_are_of_other_sizes(p):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(3000, 3, generator=generator) * 10.0 ** torch.randint(
        -4, 5, (3000, 1), generator=generator
    )
    engine = {"engine": GGPrivacyEngine(norm=p)}
    with_it, without = summed(rows, **engine), summed(rows[:-1], engine=GGPrivacyEngine(norm=p))
    moved = [abs(Fraction(a) - Fraction(b)) for a, b in zip(with_it.tolist(), without.tolist(), strict=True)]
    if p == 1.5:
        assert sum(float(part) ** 1.5 for part in moved) <= 1.0
    else:
        assert {1.0: sum(moved), 2.0: sum(part**2 for part in moved)}.get(p, max(moved)) <= 1


def test_parts_of_a_bfloat16_batch_are_added_without_rounding_to_bfloat16():
    rows = torch.full((512, 1), 1.0)
    _, model, optimizer, loader = rows_run(rows, dtype=torch.bfloat16)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=1, optimizer=optimizer) as parts:
        train(model, optimizer, parts, loss=lambda out, _: out.sum())
    assert optimizer.params[0].summed_grad.item() == pytest.approx(512.0, rel=2e-6)


def test_noise_on_bfloat16_parameters_is_added_before_the_sum_is_rounded():
    """A sum of 4096 and noise of 1: rounded first, bfloat16 would see the noise in 1 of 10^4 draws."""
    rows = torch.ones(4096, 1).repeat(1, 400) / 20.0
    _, model, optimizer, loader = rows_run(rows, dtype=torch.bfloat16, multiplier=8.0)
    train(model, optimizer, loader, loss=lambda out, _: out.sum(), steps=1)
    grad = optimizer.params[0].grad
    assert grad.dtype == torch.bfloat16
    assert 6.0 < (grad.double() - grad.double().mean()).std() < 10.0  # each around 4096 / 20, spaced by 1


def test_under_autocast_the_sum_of_bfloat16_gradients_has_no_steps():
    net = nn.Linear(2, 1, bias=False)
    rows = torch.ones(1025, 2) + 0.2 * torch.rand(1025, 2, generator=torch.Generator().manual_seed(0))

    def moved(rows):
        data = DataLoader(TensorDataset(rows, torch.zeros(len(rows))), batch_size=len(rows))
        model, optimizer, loader = private(
            GGPrivacyEngine(), net=copy.deepcopy(net), loader=data, noise_multiplier=0.0, max_grad_norm=1.0,
            loss_reduction="sum",
        )  # fmt: skip
        for x, _ in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(x)
            out.float().sum().backward()
            optimizer.step()
        return optimizer.params[0].summed_grad.flatten()

    difference = moved(rows) - moved(rows[:-1])
    assert difference.dtype == torch.float64
    assert 0.999 <= difference.norm() <= 1.0


def test_no_gradient_without_noise_is_left_for_another_optimizer_to_step_on():
    net = small_net()
    other = torch.optim.SGD(net.parameters(), lr=0.1)
    model, _, loader = private(GGPrivacyEngine(), net=net)
    before = [parameter.clone() for parameter in net.parameters()]
    x, y = next(iter(loader))
    nn.functional.cross_entropy(model(x), y).backward()
    other.step()
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    plain = model.to_standard_module()  # which trains as it did before
    nn.functional.cross_entropy(plain(x), y).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_a_layer_unfrozen_after_make_private_is_refused_by_name():
    net = small_net()
    net[0].requires_grad_(False)
    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine, net=net)
    train(model, optimizer, loader, steps=1)
    net[0].bias.requires_grad_(True)
    with pytest.raises((ValueError, AttributeError)) as raised:
        train(model, optimizer, loader, steps=1)
    assert isinstance(raised.value, AttributeError) or "0.bias" in str(raised.value)
    assert len(engine.accountant) == 1


def test_a_layer_that_opacus_has_no_hooks_on_is_refused_by_name_when_unfrozen():
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.Linear(5, 4))
    net[1].requires_grad_(False)
    model, optimizer, loader = private(GGPrivacyEngine(), net=net)
    net[1].requires_grad_(True)
    before = net[1].weight.clone()
    with pytest.raises(ValueError, match=r"got '1\.weight' besides.*call make_private again"):
        train(model, optimizer, loader, steps=1)
    assert torch.equal(before, net[1].weight)


def test_a_layer_frozen_later_is_not_stepped_and_not_counted():
    net = small_net()
    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine, net=net)
    x, y = next(iter(loader))
    nn.functional.cross_entropy(model(x), y).backward()
    net[0].weight.requires_grad_(False)
    net[0].weight.grad = torch.ones_like(net[0].weight)  # as a gradient without noise would be
    before = net[0].weight.clone()
    optimizer.step()
    assert torch.equal(before, net[0].weight)
    assert engine.accountant.history[0].dimension == sum(p.numel() for p in net.parameters()) - 27


def test_parameters_cannot_be_added():
    _, optimizer, _ = private(GGPrivacyEngine())
    with pytest.raises(ValueError, match="cannot be added"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_the_optimizer_cannot_be_copied(attempt):
    _, optimizer, _ = private(GGPrivacyEngine())
    with pytest.raises(TypeError, match="cannot be copied"):
        attempt(optimizer)


def test_a_gradient_scaler_is_refused_and_a_disabled_one_is_not():
    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine)
    for scaler in (torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu", init_scale=4.0)):
        x, y = next(iter(loader))
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        if scaler.is_enabled():
            with pytest.raises(ValueError, match="GradScaler cannot be used"):
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
    assert len(engine.accountant) == 1


def test_a_hook_that_is_attached_does_not_replace_the_accountant():
    engine, seen = GGPrivacyEngine(), []
    model, optimizer, loader = private(engine)
    optimizer.attach_step_hook(seen.append)
    train(model, optimizer, loader)
    assert len(engine.accountant) == len(seen) == 4


def test_a_clip_norm_that_changes_within_a_logical_batch_is_refused():
    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine)
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=optimizer) as parts:
        parts = iter(parts)
        train(model, optimizer, parts, steps=1)
        optimizer.max_grad_norm *= 0.5
        with pytest.raises(ValueError, match="must stay the same within a logical batch"):
            train(model, optimizer, parts, steps=1)
    assert len(engine.accountant) == 0


def test_a_scheduled_clip_norm_scales_the_noise_and_costs_the_same():
    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine)
    scheduler = ExponentialGradClip(optimizer, gamma=0.1)
    train(model, optimizer, loader)
    scheduler.step()
    assert optimizer.sensitivity == pytest.approx(0.03)
    train(model, optimizer, loader)
    (entry,) = engine.accountant.history
    assert entry.num_steps == 8
    with pytest.raises(ValueError, match="max_grad_norm must be"):
        optimizer.max_grad_norm = -1.0
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        optimizer.noise_multiplier = float("nan")


def test_bounds_of_single_parameters_cannot_be_scheduled():
    _, optimizer, _ = private(GGPrivacyEngine(), clipping="per_layer", max_grad_norm=[0.1] * 6)
    ExponentialNoise(optimizer, gamma=0.5).step()
    with pytest.raises(ValueError, match="every parameter has its own bound"):
        ExponentialGradClip(optimizer, gamma=0.5).step()


def test_rows_that_are_not_examples_are_refused_by_the_name_of_the_parameter():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.table = nn.Linear(6, 4), nn.Embedding(6, 4)

        def forward(self, x):
            return (self.layer(x.flatten(1, 2)) + self.table(torch.arange(6)[None])).sum(1)

    with pytest.raises(ValueError, match=r"gradients of 'table\.weight' must have the shape"):
        train(*private(GGPrivacyEngine(), net=Positions()))


def test_two_optimizers_of_one_engine_are_both_counted():
    first, second = small_net(1), small_net(2)
    engine = GGPrivacyEngine()
    loader = image_loader()
    train(*private(engine, net=first, loader=loader), steps=3)
    train(*private(engine, net=second, loader=loader, noise_multiplier=2.0), steps=2)
    assert [entry.num_steps for entry in engine.accountant.history] == [3, 2]


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_batches_that_are_not_poisson_are_trained_on_and_cost_everything(multiplier):
    engine = GGPrivacyEngine()
    with pytest.warns(UserWarning, match="get_epsilon will be infinite"):
        run = private(engine, poisson_sampling=False, noise_multiplier=multiplier)
    train(*run)
    assert len(engine.accountant) == 4
    assert engine.get_epsilon(1e-5) == float("inf")
    other = GGPrivacyEngine()
    other.accountant.load_state_dict(engine.accountant.state_dict())
    assert other.accountant.history == engine.accountant.history == [(multiplier, 0.0, 4, 2.0, 2.0, 1, None)]
    model = small_net()
    with pytest.raises(ValueError, match="poisson_sampling must be True for a target"):
        engine.make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=image_loader(),
            target_epsilon=3.0,
            target_delta=1e-5,
            epochs=2,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 4.0])
def test_clipping_is_in_l_2_unless_asked_otherwise(beta):
    assert private(GGPrivacyEngine(beta=beta))[1].norm == 2.0
    assert private(GGPrivacyEngine(), beta=beta)[1].norm == 2.0
    assert private(GGPrivacyEngine(beta=beta), norm=beta)[1].norm == beta
