# SPDX-License-Identifier: Apache-2.0
"""Small models and data for the tests of training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def generator(seed):
    return torch.Generator().manual_seed(seed)


def blobs(num=400, features=6, seed=1):
    """Two classes a little apart."""
    drawn = generator(seed)
    labels = torch.randint(2, (num,), generator=drawn)
    inputs = torch.randn(num, features, generator=drawn) + 1.5 * labels[:, None]
    return TensorDataset(inputs, labels)


def small_net(features=6, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 2))


def plain_parts(num=400, learning_rate=0.5, momentum=0.9, batch_size=40):
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=momentum)
    return model, optimizer, DataLoader(blobs(num), batch_size=batch_size)
