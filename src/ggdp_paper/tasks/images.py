# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and SVHN: scattering features, privately standardised, and a small convolutional net on them.

As Tramer and Boneh (2021) have it: pixels in [0, 1] normalised by the usual channel means of photographs
(constants of another dataset, ImageNet, so nothing private), 243 channels of scattering features at 8 x 8,
standardised, then 187,210 parameters. Features of order 2 are halved: they are 192 of the 243 channels, and
at full weight most of what clipping leaves of a gradient is theirs.
"""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ggdp import arguments
from ggdp_paper.tasks import image_files
from ggdp_paper.tasks.scattering import Scattering
from ggdp_paper.tasks.standardisation import (
    Standardisation,
    mechanism,
    photograph_guess,
    standardisation_kept_in,
)
from ggdp_paper.tasks.task import Defaults, Request, Task, initialised, synthetic_variant

DEFAULTS = Defaults(batch_size=8192, clip_norm=0.1, learning_rate=4.0, momentum=0.9, epochs=60)
CHANNELS = 243
CLASSES = 10
PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)
_SYMMETRIC = ("cifar10",)  # tasks in which a mirror changes no label; a digit's mirror image is no digit
_PART = 4096  # images that are normalised at a time

Reader = Callable[[Path], tuple[image_files.LabelledImages, image_files.LabelledImages]]


def load_cifar10(request: Request) -> Task:
    """50,000 images for training and 10,000 for the score."""
    if request.synthetic is not None:
        return _synthetic("cifar10", request)
    folder = request.folder(
        "cifar10", holding="cifar-10-batches-py or cifar-10-batches-bin", published=image_files.CIFAR10
    )
    return _from_files("cifar10", image_files.cifar10, folder, request)


def load_svhn(request: Request) -> Task:
    """73,257 images for training and 26,032 for the score."""
    if request.synthetic is not None:
        return _synthetic("svhn", request)
    folder = request.folder("svhn", holding="train_32x32.mat and test_32x32.mat", published=image_files.SVHN)
    return _from_files("svhn", image_files.svhn, folder, request)


def build(generator: torch.Generator) -> nn.Module:
    """conv 243 -> 64, tanh, max-pool, conv 64 -> 64, tanh, linear 1024 -> 10: 187,210 parameters."""
    return initialised(
        lambda: nn.Sequential(
            nn.Conv2d(CHANNELS, 64, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(1024, CLASSES),
        ),
        generator,
    )


def scattered(pixels: Tensor) -> Tensor:
    """Features [N, 243, 8, 8] of bytes [N, 3, 32, 32], on the same device."""
    scattering = Scattering(size=32)
    mean, std = (torch.tensor(of, device=pixels.device).view(3, 1, 1) for of in (PIXEL_MEAN, PIXEL_STD))
    features = torch.empty(len(pixels), CHANNELS, 8, 8, device=pixels.device)
    for start in range(0, len(pixels), _PART):
        part = pixels[start : start + _PART].float() / 255.0
        features[start : start + _PART] = scattering((part - mean) / std)
    return features


def channel_weights(order_weights: tuple[float, float, float]) -> Tensor:
    """The factor of each of the 243 channels: a colour has one of order 0, 16 of order 1, 64 of order 2."""
    weights = [arguments.real("order_weights", weight, above=0.0) for weight in order_weights]
    return torch.tensor(weights)[torch.tensor([0] + 16 * [1] + 64 * [2])].repeat(3)


def _from_files(name: str, read: Reader, folder: Path, request: Request) -> Task:
    parts = [(torch.from_numpy(part.pixels), torch.from_numpy(part.labels)) for part in read(folder)]
    return _task(name, parts[0], parts[1], request)


def _task(name: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], request: Request) -> Task:
    """Features of both parts, standardised by a release on the training part, which is charged."""
    is_symmetric = name in _SYMMETRIC
    if request.views not in ((1, 2) if is_symmetric else (1,)):
        allowed = "1, or 2 (an image beside its mirror image)," if is_symmetric else "1"
        raise ValueError(f"views must be {allowed} for {name}, got {request.views}")
    learnt, scored = (scattered(pixels.to(request.device)) for pixels, _ in (train, test))
    guess = photograph_guess(Scattering(size=32), PIXEL_MEAN, PIXEL_STD)
    noise = request.standardisation_noise
    released = standardisation_kept_in(request.kept, learnt, guess, noise, rng=request.rng)
    weighted = Standardisation(released.mean, released.std / channel_weights(request.order_weights))
    found = [(learnt, train), (scored, test)]
    if is_symmetric:
        found.append((_mirrored(test[0], request), test))
    if request.views == 2:
        learnt = torch.stack([learnt, _mirrored(train[0], request)], dim=1).flatten(0, 1)
        found[0] = (learnt, train)
    parts = [(weighted.apply_(features), labels.to(request.device)) for features, (_, labels) in found]
    if request.views == 2:
        parts[0] = (learnt.view(-1, 2, *learnt.shape[1:]), parts[0][1])
    data = [TensorDataset(*part) for part in parts]
    return Task(
        name,
        data[0],
        data[1],
        build,
        DEFAULTS,
        (mechanism(CHANNELS, noise),),
        mirrored=data[2] if is_symmetric else None,
        views=request.views,
    )


def _mirrored(pixels: Tensor, request: Request) -> Tensor:
    return scattered(pixels.flip(-1).to(request.device))


def _synthetic(name: str, request: Request) -> Task:
    """Stripes of a direction that is the class's own, under noise."""
    generator = request.synthetic
    axis = torch.arange(32, dtype=torch.float32)

    def drawn(number: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(number) % CLASSES
        angle = (math.pi / CLASSES * labels).view(-1, 1, 1)
        phase = 2.0 * math.pi * torch.rand(number, 1, 1, generator=generator)
        across = torch.cos(angle) * axis[:, None] + torch.sin(angle) * axis[None, :]
        stripes = 128.0 + 80.0 * torch.sin(across + phase).unsqueeze(1)
        noisy = stripes + 20.0 * torch.randn(number, 3, 32, 32, generator=generator)
        return noisy.clamp(0.0, 255.0).to(torch.uint8), labels

    return synthetic_variant(_task(name, drawn(200), drawn(100), request))
