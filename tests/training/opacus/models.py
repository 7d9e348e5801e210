# SPDX-License-Identifier: Apache-2.0
"""Small models and data sets for the tests of the Opacus adapter."""

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def small_net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(), nn.Linear(5, 4)
    )


def image_loader(num=64, batch_size=16, seed=1, **options):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(num, 1, 6, 6, generator=generator)
    labels = torch.randint(4, (num,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=batch_size, **options)


class ZeroGradient(nn.Module):
    """A model whose gradients are all zero: what its parameters do is noise."""

    def __init__(self, size=4000):
        super().__init__()
        self.layer = nn.Linear(1, size)

    def forward(self, x):
        return 0.0 * self.layer(x)


def train(model, optimizer, loader, loss=None, steps=None):
    loss = nn.functional.cross_entropy if loss is None else loss
    done = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        done += 1
        if done == steps:
            break
    return done


def opacus_engine():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Secure RNG turned off")
        return PrivacyEngine()


def private(engine, *, noise_multiplier=1.0, max_grad_norm=0.3, seed=5, net=None, loader=None, **options):
    model = small_net() if net is None else net
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if seed is not None:
        options["noise_generator"] = torch.Generator().manual_seed(seed)
    torch.manual_seed(7)
    return engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=image_loader() if loader is None else loader,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        **options,
    )


def gradients_of(run, loader=None, passes=1, loss=None):
    """The gradients that the wrapped optimizer sees, step by step."""
    model, optimizer, own_loader = run
    seen = []
    hook = optimizer.step_hook

    def spy(optim):
        seen.append(torch.cat([parameter.grad.flatten() for parameter in optim.params]).clone())
        if hook is not None:  # Opacus's accountant
            hook(optim)

    optimizer.attach_step_hook(spy)
    for _ in range(passes):
        train(model, optimizer, own_loader if loader is None else loader, loss)
    return seen
