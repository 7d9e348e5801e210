# SPDX-License-Identifier: Apache-2.0
"""The engine against Opacus's own at beta = 2, against a loop elsewhere, and what it refuses."""

import io
import math
from functools import partial

import numpy as np
import pytest
import torch
from opacus.validators.errors import UnsupportedModuleError
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp import AdditiveNoise, GeneralizedGaussian
from ggdp.opacus import GGPrivacyEngine
from training.opacus.models import (
    ZeroGradient,
    gradients_of,
    image_loader,
    opacus_engine,
    private,
    small_net,
    train,
)

# What torch warns of, every time, on account of Opacus's hooks.
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

NORMS = [1.0, 1.33, 2.0, 3.0, math.inf]


@pytest.mark.parametrize("grad_sample_mode", ["hooks", "functorch"])
@pytest.mark.parametrize("loss_reduction", ["mean", "sum"])
def test_beta_2_clips_like_opacus_on_the_same_batches(grad_sample_mode, loss_reduction):
    options = {
        "noise_multiplier": 0.0,
        "grad_sample_mode": grad_sample_mode,
        "loss_reduction": loss_reduction,
    }
    loss = partial(nn.functional.cross_entropy, reduction=loss_reduction)
    theirs = gradients_of(private(opacus_engine(), **options), loss=loss)
    ours = gradients_of(private(GGPrivacyEngine(), **options), loss=loss)
    assert len(ours) == len(theirs) == 4
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-6 * b.norm()


def test_beta_2_gives_opacus_its_own_noise_from_the_same_generator():
    theirs = gradients_of(private(opacus_engine()), passes=2)
    ours = gradients_of(private(GGPrivacyEngine()), passes=2)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-6 * b.norm()


def test_beta_2_per_layer_gives_what_opacus_gives():
    bounds = [0.1, 0.02, 0.2, 0.05, 0.3, 0.2]
    options = {"clipping": "per_layer", "max_grad_norm": bounds, "noise_multiplier": 0.5}
    theirs = gradients_of(private(opacus_engine(), **options))
    ours = gradients_of(private(GGPrivacyEngine(), **options))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-6 * b.norm()


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_the_gradient_is_the_loop_of_clipped_examples_over_the_expected_batch(p, clipping):
    bounds = [0.1, 0.02, 0.2, 0.05, 0.3, 0.2] if clipping == "per_layer" else 0.05
    options = {"beta": 2.0, "norm": p, "clipping": clipping, "max_grad_norm": bounds, "noise_multiplier": 0.0}
    reference = small_net().double()
    model, optimizer, loader = private(GGPrivacyEngine(), **options)
    x, y = next(iter(loader))
    nn.functional.cross_entropy(model(x), y).backward()
    assert optimizer.pre_step()
    total = [torch.zeros_like(parameter) for parameter in reference.parameters()]
    for image, label in zip(x.double(), y, strict=True):
        reference.zero_grad()
        nn.functional.cross_entropy(reference(image[None]), label[None]).backward()
        single = [parameter.grad for parameter in reference.parameters()]
        norms = [torch.linalg.vector_norm(part, ord=p) for part in single]
        if clipping == "flat":
            norms = [torch.linalg.vector_norm(torch.stack(norms), ord=p)] * 6
        limits = bounds if clipping == "per_layer" else [bounds] * 6
        for index in range(6):
            total[index] += single[index] * min(1.0, limits[index] / norms[index].item())
    for parameter, expected in zip(optimizer.params, total, strict=True):
        assert torch.allclose(parameter.grad.double(), expected / 16, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", [5, None])
def test_noise_has_its_law_and_no_other(beta, seed):
    """40,000 parameters with zero gradients: the true law is accepted, one wider by 10% is not."""
    data = DataLoader(TensorDataset(torch.ones(32, 1), torch.zeros(32)), batch_size=8)
    engine = GGPrivacyEngine(beta=beta)
    net = ZeroGradient(20_000)
    model, optimizer, loader = private(
        engine, noise_multiplier=1.3, max_grad_norm=0.7, net=net, loader=data, seed=seed
    )
    train(model, optimizer, loader, loss=lambda out, _: out.mean(), steps=1)
    drawn = 8 * torch.cat([parameter.grad.flatten() for parameter in optimizer.params]).double().numpy()
    scale = math.sqrt(2.0) * 1.3 * 0.7
    assert stats.kstest(drawn, GeneralizedGaussian(beta, scale).cdf).pvalue > 1e-6
    assert stats.kstest(drawn, GeneralizedGaussian(beta, 1.1 * scale).cdf).pvalue < 1e-6
    assert np.var(drawn) == pytest.approx(GeneralizedGaussian(beta, scale).std ** 2, rel=0.06)


def test_without_a_generator_noise_ignores_the_global_seed():
    first, second = (gradients_of(private(GGPrivacyEngine(), seed=None))[0] for _ in range(2))
    assert not torch.equal(first, second)


def test_a_seeded_generator_is_refused_in_secure_mode():
    with pytest.raises(ValueError, match="prohibited in secure mode"):
        private(GGPrivacyEngine(secure_mode=True))


def test_frozen_parameters_are_neither_noised_nor_counted():
    net = small_net()
    for parameter in net[0].parameters():
        parameter.requires_grad_(False)
    before = [parameter.clone() for parameter in net[0].parameters()]
    engine = GGPrivacyEngine(beta=1.5)
    model, optimizer, loader = private(engine, net=net)
    train(model, optimizer, loader)
    assert all(torch.equal(a, b) for a, b in zip(before, net[0].parameters(), strict=True))
    assert engine.accountant.history[0].dimension == 48 * 5 + 5 + 5 * 4 + 4


def test_each_step_is_recorded_with_everything_that_decides_its_cost():
    engine = GGPrivacyEngine()
    train(*private(engine, beta=1.5, norm=1.25, noise_multiplier=2.0))
    (entry,) = engine.accountant.history
    dimension = sum(parameter.numel() for parameter in small_net().parameters())
    assert entry[1:] == (0.25, 4, 1.5, 1.25, dimension, None)  # Poisson samples
    assert entry.noise_multiplier == pytest.approx(2.0, rel=1e-15)
    assert engine.get_epsilon(1e-5) == engine.accountant.epsilon(1e-5).upper


def test_the_matched_norm_is_clipped_and_recorded_as_the_number_it_is():
    engine = GGPrivacyEngine(beta=1.5, norm="matched")
    model, optimizer, loader = private(engine)
    train(model, optimizer, loader, steps=1)
    p = AdditiveNoise(GeneralizedGaussian(1.5, 1.0), norm="matched").p
    assert engine.accountant.history[0].norm == optimizer.norm == p < 1.5


def test_a_scheduled_noise_multiplier_is_recorded_step_by_step():
    from opacus.schedulers import ExponentialNoise

    engine = GGPrivacyEngine()
    model, optimizer, loader = private(engine)
    scheduler = ExponentialNoise(optimizer, gamma=0.5)
    for _ in range(2):
        train(model, optimizer, loader)
        scheduler.step()
    assert [(entry.noise_multiplier, entry.num_steps) for entry in engine.accountant.history] == [
        (pytest.approx(1.0), 4),
        (pytest.approx(0.5), 4),
    ]


@pytest.mark.parametrize(("beta", "norm"), [(1.5, None), (1.5, 1.0), (2.0, None)])
def test_the_target_is_met_after_the_epochs_asked_for(beta, norm):
    engine = GGPrivacyEngine(beta=beta, norm=norm)
    model = small_net()
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=image_loader(),
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=2,
        max_grad_norm=1.0,
    )
    for _ in range(2):
        train(model, optimizer, loader)
    assert 3.0 * (1.0 - 1e-5) <= engine.get_epsilon(1e-5) <= 3.0


def test_a_budget_spent_before_is_warned_of():
    engine = GGPrivacyEngine()
    engine.accountant.step(noise_multiplier=1.0, sample_rate=0.1)
    model = small_net()
    with pytest.warns(UserWarning, match="1 steps are recorded already"):
        engine.make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=image_loader(),
            target_epsilon=3.0,
            target_delta=1e-5,
            epochs=2,
            max_grad_norm=1.0,
        )


def test_a_checkpoint_brings_back_model_optimizer_and_ledger():
    file = io.BytesIO()
    engine = GGPrivacyEngine(beta=1.5)
    model, optimizer, loader = private(engine)
    train(model, optimizer, loader)
    engine.save_checkpoint(path=file, module=model, optimizer=optimizer)
    file.seek(0)
    resumed = GGPrivacyEngine(beta=1.5)
    other, other_optimizer, _ = private(resumed, net=small_net(seed=9))
    resumed.load_checkpoint(path=file, module=other, optimizer=other_optimizer)
    assert resumed.accountant.history == engine.accountant.history
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert other_optimizer.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()


def test_a_model_with_batch_norm_is_refused_as_opacus_does():
    net = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4))
    with pytest.raises(UnsupportedModuleError, match="BatchNorm"):
        private(GGPrivacyEngine(), net=net)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rand_on_empty": True}, "rand_on_empty must be False"),
        ({"grad_sample_mode": "ghost"}, "keeps per-example gradients"),
        ({"clipping": "adaptive"}, "clipping must be one of flat, per_layer"),
        ({"clipping": "per_layer"}, "must be a list, one bound per trainable parameter"),
        ({"clipping": "per_layer", "max_grad_norm": [1.0]}, "each of the 6 trainable parameters, got 1"),
        ({"max_grad_norm": [1.0] * 6}, "must be one number"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be a number"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be a number"),
        ({"noise_multiplier": 1e-3}, "noise_multiplier must be a number in"),
        ({"beta": 0.5}, "beta must be a number in"),
        ({"beta": 9.0}, "beta must be at most 8 for a vector"),
        ({"beta": math.nan}, "beta must be a number in"),
        ({"norm": 0.5}, "norm must be a number in"),
    ],
)
def test_what_has_no_proved_epsilon_is_refused_with_the_reason(options, reason):
    with pytest.raises(ValueError, match=reason):
        private(GGPrivacyEngine(), **options)


def test_accountants_that_know_only_gaussian_noise_are_refused():
    with pytest.raises(ValueError, match="accountant must be one of ggdp"):
        GGPrivacyEngine(accountant="rdp")


def test_a_target_that_no_noise_meets_is_refused():
    model = small_net()
    with pytest.raises(ValueError, match="cannot be met"):
        GGPrivacyEngine(beta=1.5).make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=image_loader(),
            target_epsilon=1e-4,
            target_delta=1e-5,
            epochs=1000,
            max_grad_norm=1.0,
        )
