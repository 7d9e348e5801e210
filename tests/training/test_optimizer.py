# SPDX-License-Identifier: Apache-2.0
"""The private optimizer: what it refuses to move, and what others may do around its steps."""

import copy
import os
import pickle

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from ggdp import GeneralizedGaussian, secure_generator
from ggdp.distributions.pytorch.sampling import Piece
from ggdp.torch import make_private
from ggdp.training import ParameterError
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


def unfreeze(private):
    private.model[0].weight.requires_grad_(True)


def add_a_group(private):
    private.optimizer.inner.add_param_group({"params": [with_a_gradient()]})


def append_to_a_group(private):
    private.optimizer.param_groups[0]["params"].append(with_a_gradient())


def append_a_frozen_one_with_a_gradient(private):
    private.optimizer.param_groups[0]["params"].append(with_a_gradient().requires_grad_(False))


def with_a_gradient():
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.ones(3)
    return parameter


def freeze(private):
    private.model[2].bias.requires_grad_(False)


def replace_a_layer(private):
    private.model[2] = nn.Linear(8, 2)


def add_a_layer(private):
    private.model.append(nn.Linear(2, 2))


def take_out_of_its_group(private):
    private.optimizer.param_groups[0]["params"].pop()


def change_a_shape(private):
    private.model[2].bias.data = torch.zeros(1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (unfreeze, "'0.weight' is trainable and was not"),
        (add_a_group, r"would move parameter 'of shape \(3,\)'"),
        (append_to_a_group, "would move parameter"),
        (append_a_frozen_one_with_a_gradient, "would move parameter"),
        (freeze, "'2.bias' was frozen"),
        (replace_a_layer, "'2.weight' of the model was replaced"),
        (add_a_layer, "'3.weight' is trainable and was not"),
        (take_out_of_its_group, "'2.bias' has left the optimizer"),
        (change_a_shape, r"'2.bias' had shape \(2,\), got \(1,\)"),
    ],
)
def test_a_step_that_would_move_other_parameters_than_were_noised_is_refused(change, named):
    model = small_net()
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    private = private_parts(parts=(model, optimizer, DataLoader(blobs(), batch_size=40)))
    train(private, 2)
    batch, target = next(iter(private.data_loader))
    functional.cross_entropy(model(batch), target).backward()
    change(private)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ParameterError, match=named):
        private.optimizer.step()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert len(private.accountant) == private.optimizer.steps == 2


@pytest.mark.parametrize("inner", [True, False])
def test_step_hooks_run_once_per_logical_step_and_see_the_noisy_mean(inner):
    private = private_parts(physical_batch_size=9)
    target, calls = private.optimizer.inner if inner else private.optimizer, []
    weight = private.model[0].weight
    target.register_step_pre_hook(lambda *rest: calls.append((rest[0], weight.clone(), weight.grad.clone())))
    handle = target.register_step_post_hook(lambda *rest: calls.append((rest[0], weight.clone(), None)))
    train(private, 2)
    assert [call[0] for call in calls] == [target] * 4
    torch.testing.assert_close(calls[1][1], calls[0][1] - 0.5 * calls[0][2])
    handle.remove()
    train(private, 3)
    assert len(calls) == 5


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_and_the_optimizer_steps_on(copied):
    private = private_parts()
    with pytest.raises(TypeError, match="not copied or pickled"):
        copied(private.optimizer)
    train(private, 2)
    assert private.optimizer.steps == 2


@pytest.mark.parametrize("unscaled", [False, True])
def test_a_gradient_scaler_is_refused_by_name_unless_it_does_nothing(unscaled):
    private = private_parts()
    batch, target = next(iter(private.data_loader))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.zeros(1))
    functional.cross_entropy(private.model(batch), target).backward()
    if unscaled:
        scaler.unscale_(private.optimizer)
    with pytest.raises(TypeError, match=r"GradScaler cannot step a private optimizer.*bfloat16"):
        scaler.step(private.optimizer)
    assert len(private.accountant) == 0
    private = private_parts()
    batch, target = next(iter(private.data_loader))
    off = torch.amp.GradScaler("cpu", enabled=False)
    off.scale(functional.cross_entropy(private.model(batch), target)).backward()
    off.step(private.optimizer)
    assert len(private.accountant) == 1


def test_accelerate_prepares_private_objects_and_its_own_loader_is_refused_with_the_way_out():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    ends = []
    for prepare in (lambda *parts: parts, accelerator.prepare):
        private = private_parts()
        model, optimizer, loader = prepare(private.model, private.optimizer, private.data_loader)
        for inputs, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        assert len(private.accountant) == 10
        ends.append(private.model[0].weight)
    assert torch.equal(*ends)
    with pytest.raises(ValueError, match="call make_private before prepare"):
        private_parts(parts=accelerator.prepare(*plain_parts()))


def test_noise_that_is_drawn_ahead_is_handed_out_once_and_not_in_a_forked_process(monkeypatch):
    noise, size = GeneralizedGaussian(1.5, 2.0), (1000,)

    def steps(source, count):
        found = [torch.zeros(size, dtype=torch.float64) for _ in range(count)]
        for each in found:
            source.add_noise_([each], noise)
        return torch.cat(found)

    source = Randomness.of(secure_generator(key=bytes(32)))
    drawn = steps(source, 70)  # over two draws ahead
    assert len(drawn.unique()) == len(drawn)
    assert stats.kstest(drawn.numpy(), noise.cdf).pvalue > 1e-3
    assert stats.kstest(drawn.numpy(), GeneralizedGaussian(1.5, 2.2).cdf).pvalue < 1e-6
    monkeypatch.setattr(os, "getpid", lambda: -1)  # what is left would be the parent's noise again
    with pytest.raises(RuntimeError, match="carried into another process"):
        steps(source, 1)


def test_a_copy_does_not_get_the_noise_that_was_drawn_ahead():
    source, noise = Randomness.of(None), GeneralizedGaussian(2.0, 1.0)
    source.add_noise_([torch.zeros(10)], noise)
    both = [torch.zeros(10), torch.zeros(10)]
    copied = copy.copy(source)
    source.add_noise_([both[0]], noise)
    copied.add_noise_([both[1]], noise)
    assert not torch.isclose(*both).any()


def test_pieces_of_tensors_get_the_noise_that_is_drawn_ahead_for_the_whole():
    noise, sizes = GeneralizedGaussian(2.0, 1.0), (30, 7)
    whole, cut = (Randomness.of(generator(3)) for _ in range(2))
    for _ in range(3):
        tensors = [torch.zeros(size) for size in sizes]
        whole.add_noise_(tensors, noise)
        pieces = [Piece(torch.zeros(size - 5), 5, size) for size in sizes]
        cut.add_noise_to_pieces_(pieces, noise)
        assert all(torch.equal(piece.tensor, each[5:]) for piece, each in zip(pieces, tensors, strict=True))
