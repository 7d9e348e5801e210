# SPDX-License-Identifier: Apache-2.0
"""Handwritten digits, 8 x 8 pixels: scikit-learn carries them, so that this task needs no files."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ggdp_paper.tasks.task import Defaults, Request, Task, initialised, synthetic_variant

CLASSES = 10
DEFAULTS = Defaults(batch_size=512, clip_norm=0.5, learning_rate=0.25, momentum=0.9, epochs=60)
_EVERY = 5  # the examples 0, 5, 10, ... are for the score; a fixed rule, so that every run has the same split


def load(request: Request) -> Task:
    """1,437 examples for training and 360 for the score."""
    if request.synthetic is not None:
        return synthetic_variant(Task("digits", *_synthetic(request), build, DEFAULTS))
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.as_tensor(found.images, dtype=torch.float32, device=request.device).unsqueeze(1) / 16.0
    labels = torch.as_tensor(found.target, dtype=torch.int64, device=request.device)
    held_out = torch.arange(len(labels), device=request.device) % _EVERY == 0
    train = TensorDataset(images[~held_out], labels[~held_out])
    return Task("digits", train, TensorDataset(images[held_out], labels[held_out]), build, DEFAULTS)


def build(generator: torch.Generator) -> nn.Module:
    """Two small convolutions and a linear layer, 6,090 parameters."""
    return initialised(
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128, CLASSES),
        ),
        generator,
    )


def _synthetic(request: Request) -> tuple[TensorDataset, TensorDataset]:
    """A fixed random picture for each class, under noise."""
    generator = request.synthetic
    pictures = torch.rand(CLASSES, 1, 8, 8, generator=generator)

    def drawn(number: int) -> TensorDataset:
        labels = torch.arange(number) % CLASSES
        noise: Tensor = 0.2 * torch.randn(number, 1, 8, 8, generator=generator)
        return TensorDataset((pictures[labels] + noise).to(request.device), labels.to(request.device))

    return drawn(256), drawn(100)
