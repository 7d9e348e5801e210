# SPDX-License-Identifier: Apache-2.0
"""Which examples a step is made of: parts, empty batches, bad gradients, and what is no Poisson batch."""

import math

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import Accountant
from ggdp.opacus import GGPrivacyEngine
from ggdp.training import NonFiniteGradientError, NotPoissonError
from training.opacus.models import gradients_of, image_loader, private, train

# What torch warns of, every time, on account of Opacus's hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


def test_secure_mode_draws_other_batches_under_the_same_seed():
    def sizes(secure_mode):
        engine = GGPrivacyEngine(secure_mode=secure_mode)
        loader = private(engine, seed=None, loader=image_loader(num=400))[2]
        return [len(x) for _ in range(10) for x, _ in loader]

    assert sizes(False) == sizes(False)
    assert sizes(True) != sizes(True)


def test_physical_batches_give_the_steps_that_whole_batches_give():
    whole = gradients_of(private(GGPrivacyEngine(beta=1.5)))
    run = private(engine := GGPrivacyEngine(beta=1.5))
    with BatchMemoryManager(data_loader=run[2], max_physical_batch_size=5, optimizer=run[1]) as parts:
        split = gradients_of(run, parts)
    assert len(engine.accountant) == len(split) == len(whole) == 4
    for a, b in zip(split, whole, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


def test_empty_batches_are_steps_of_noise_alone():
    engine = GGPrivacyEngine(beta=1.5)
    run = private(engine, loader=image_loader(num=8, batch_size=1))
    torch.manual_seed(3)
    sizes = []
    model, optimizer, loader = run
    for x, y in loader:
        sizes.append(len(x))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        assert all(torch.isfinite(parameter.grad).all() for parameter in optimizer.params)
    assert 0 in sizes
    assert len(engine.accountant) == len(sizes) == 8


def test_a_gradient_that_is_not_finite_changes_nothing():
    engine = GGPrivacyEngine(beta=1.5)
    model, optimizer, loader = private(engine)
    train(model, optimizer, loader, steps=1)
    before = [parameter.clone() for parameter in model.parameters()]
    state = optimizer.generator.get_state()
    x, y = next(iter(loader))
    x[2] = math.nan
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(NonFiniteGradientError, match=r"from 1 of .* number 2 of its batch"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(state, optimizer.generator.get_state())
    assert len(engine.accountant) == 1
    train(model, optimizer, loader, steps=2)
    assert len(engine.accountant) == 3


def test_a_batch_in_parts_is_dropped_whole_if_one_part_is_not_finite():
    engine = GGPrivacyEngine(beta=1.5)
    model, optimizer, loader = private(engine, loader=image_loader(batch_size=32), noise_multiplier=0.0)
    before = [parameter.clone() for parameter in model.parameters()]
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=8, optimizer=optimizer) as parts:
        for index, (x, y) in enumerate(parts):
            x = x + math.nan if index == 0 else x
            last = not optimizer._step_skip_queue[0]
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            if index == 0:
                with pytest.raises(NonFiniteGradientError):
                    optimizer.step()
            else:
                optimizer.step()
            if last:
                break
        assert index > 1
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        assert len(engine.accountant) == 0


def linear_run():
    """A model whose gradient is the example itself, never clipped, without noise."""
    net = nn.Linear(3, 1, bias=False)
    data = DataLoader(TensorDataset(torch.randn(60, 3), torch.zeros(60)), batch_size=30)
    engine = GGPrivacyEngine()
    run = private(engine, net=net, loader=data, noise_multiplier=0.0, max_grad_norm=1e6, loss_reduction="sum")
    return engine, *run


def test_parts_left_over_from_a_loop_that_was_left_are_not_added_to_the_next_batch():
    _, model, optimizer, loader = linear_run()
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=4, optimizer=optimizer) as parts:
        for x, _ in parts:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            break
        seen = torch.zeros(3)
        for x, _ in parts:
            seen += x.sum(dim=0)
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            if not optimizer._is_last_step_skipped:
                break
    assert torch.allclose(optimizer.params[0].grad, seen, atol=1e-4)


def test_a_step_without_a_new_batch_of_the_private_loader_is_refused():
    engine, model, optimizer, loader = linear_run()
    used = list(loader)
    train(model, optimizer, used, loss=lambda out, _: out.sum())
    before = model._module.weight.clone()
    with pytest.raises(NotPoissonError, match="used before"):
        train(model, optimizer, used, loss=lambda out, _: out.sum())
    assert torch.equal(before, model._module.weight)
    assert len(engine.accountant) == len(used) == 2


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_step_on_less_or_more_than_a_whole_batch_is_refused(in_parts):
    engine, model, optimizer, loader = linear_run()
    before = model._module.weight.clone()
    if in_parts:  # two logical batches joined by hand
        for x, _ in loader:
            optimizer.signal_skip_step(
                len(engine.accountant) == 0 and optimizer.params[0].summed_grad is None
            )
            optimizer.zero_grad()
            model(x).sum().backward()
            if optimizer.params[0].summed_grad is None:
                optimizer.step()
            else:
                with pytest.raises(NotPoissonError, match="several batches"):
                    optimizer.step()
    else:
        x, _ = next(iter(loader))
        model(x[1:]).sum().backward()
        with pytest.raises(NotPoissonError, match="a part of a batch"):
            optimizer.step()
    assert torch.equal(before, model._module.weight)
    assert len(engine.accountant) == 0


@pytest.mark.parametrize("clear", [lambda model: None, lambda model: model.zero_grad()])
def test_sums_of_an_earlier_step_that_were_not_cleared_are_refused(clear):
    """`model.zero_grad()` leaves them; Opacus refuses them as well."""
    engine, model, optimizer, loader = linear_run()
    batches = iter(loader)
    model(next(batches)[0]).sum().backward()
    optimizer.step()
    clear(model)
    model.allow_grad_accumulation()
    model(next(batches)[0]).sum().backward()
    before = model._module.weight.clone()
    with pytest.raises(ValueError, match=r"must call optimizer\.zero_grad"):
        optimizer.step()
    assert torch.equal(before, model._module.weight)
    assert len(engine.accountant) == 1


def test_a_loop_may_leave_batches_out():
    engine, model, optimizer, loader = linear_run()
    for index, (x, _) in enumerate(loader):
        if index == 1:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    assert len(engine.accountant) == 1


def test_accumulated_batches_are_refused():
    model, optimizer, loader = private(GGPrivacyEngine())
    model.allow_grad_accumulation()
    for x, y in list(loader)[:2]:
        nn.functional.cross_entropy(model(x), y).backward()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(NotPoissonError, match="several batches"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_the_rate_that_is_charged_is_the_samplers_and_not_below_it():
    engine = GGPrivacyEngine()
    loader = image_loader(num=640, batch_size=7)
    train(*private(engine, loader=loader), steps=1)
    charged = engine.accountant.history[0].sample_rate
    assert 1 / 92 <= charged <= 1 / 92 + 2**-24
    assert isinstance(engine.accountant.ledger, Accountant)
