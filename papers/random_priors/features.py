# SPDX-License-Identifier: Apache-2.0
"""Private images, their views, and what the frozen parts of the network make of them."""

import argparse
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import prior
import torch
from random_images import random_images
from torch import Tensor, nn
from torch.nn import functional

from ggdp_paper.tasks import image_files, images
from ggdp_paper.tasks.scattering import Scattering
from ggdp_paper.tasks.standardisation import Standardisation, photograph_guess

CHUNK = 4096  # images at a time
_SHIFT = 4  # pixels by which a view may be moved
_PUBLIC = 2048  # random images from which the first guess of features comes


@dataclass(frozen=True)
class Split:
    """Images as bytes, on the device; `scored` are those that accuracies are about."""

    train: Tensor
    labels: Tensor
    scored: Tensor
    scored_labels: Tensor


def split(asked: argparse.Namespace) -> Split:
    """Training and test images, or training images and some that were held out of them."""
    train, test = image_files.cifar10(asked.data)
    pixels, labels = torch.from_numpy(train.pixels), torch.from_numpy(train.labels)
    if asked.held_out:
        scored, scored_labels = pixels[-asked.held_out :], labels[-asked.held_out :]
        pixels, labels = pixels[: -asked.held_out], labels[: -asked.held_out]
    else:
        scored, scored_labels = torch.from_numpy(test.pixels), torch.from_numpy(test.labels)
    if asked.most:
        pixels, labels = pixels[: asked.most], labels[: asked.most]
        scored, scored_labels = scored[: asked.most], scored_labels[: asked.most]
    return Split(*(part.to(asked.device) for part in (pixels, labels, scored, scored_labels)))


def views_of(pixels: Tensor, views: int, generator: torch.Generator) -> Tensor:
    """[n, views, 3, 32, 32]: each image as it is, then mirrored, then moved and perhaps mirrored."""
    found = torch.empty(len(pixels), views, *pixels.shape[1:], dtype=pixels.dtype, device=pixels.device)
    padded = functional.pad(pixels.float(), (_SHIFT,) * 4, mode="reflect").to(pixels.dtype)
    axis = torch.arange(32, device=pixels.device)
    every = torch.arange(len(pixels), device=pixels.device).view(-1, 1, 1)
    for view in range(views):
        if view < 2:
            found[:, view] = pixels if view == 0 else pixels.flip(-1)
            continue
        down, right = torch.randint(
            2 * _SHIFT + 1, (2, len(pixels), 1), generator=generator, device=pixels.device
        )
        mirror = torch.rand(len(pixels), 1, generator=generator, device=pixels.device) < 0.5
        columns = right + torch.where(mirror, axis.flip(0), axis)
        moved = padded.permute(0, 2, 3, 1)[every, (down + axis).unsqueeze(2), columns.unsqueeze(1)]
        found[:, view] = moved.permute(0, 3, 1, 2)
    return found


def halves(device: str) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


@torch.no_grad()
def frozen_features(trunk: nn.Sequential, pixels: Tensor, grid: int | None) -> Tensor:
    """What the frozen parts make of images, averaged over a grid of places if one is given."""
    device, found = pixels.device.type, []
    for part in torch.split(pixels, CHUNK):
        seen = prior.normalised(part)
        if device == "cuda":
            seen = seen.contiguous(memory_format=torch.channels_last)
        with halves(device):
            seen = trunk(seen)
        if grid:
            seen = functional.adaptive_avg_pool2d(seen.float(), grid)
        found.append(seen.contiguous().to(torch.bfloat16 if device == "cuda" else torch.float32))
    return torch.cat(found)


def side_by_side(count: int, views: int, of_view: Callable[[int], Tensor]) -> Tensor:
    """[count, views, ...] from what a function gives for each view, with no second copy of the whole."""
    first = of_view(0)
    found = torch.empty(count, views, *first.shape[1:], dtype=first.dtype, device=first.device)
    found[:, 0] = first
    del first
    for view in range(1, views):
        found[:, view] = of_view(view)
    return found


class Features:
    """Frozen features in one form: pooled for a linear layer, or maps beside scattering features."""

    def __init__(self, network: nn.Sequential, asked: argparse.Namespace, *, maps: bool) -> None:
        self._network, self._maps, self._grid = network, maps, None if maps else asked.grid
        device = asked.device
        public = random_images(min(_PUBLIC, asked.most or _PUBLIC), torch.Generator(device).manual_seed(7))
        seen = functional.avg_pool2d(public.float(), 2).round().to(torch.uint8)
        own = frozen_features(network, seen, self._grid).float()
        channels = own.transpose(0, 1).flatten(1) if maps else own.flatten(1).T
        guess = Standardisation(channels.mean(1), channels.std(1).clamp_min(1e-2))
        if maps:
            other = photograph_guess(Scattering(size=32), images.PIXEL_MEAN, images.PIXEL_STD)
            mean, std = (
                torch.cat([a.to(device), b.to(device)])
                for a, b in ((other.mean, guess.mean), (other.std, guess.std))
            )
            guess = Standardisation(mean, std)
        self.guess = guess

    @property
    def channels(self) -> int:
        return len(self.guess.mean)

    def __call__(self, pixels: Tensor) -> Tensor:
        """[n, channels, h, w] of images, not standardised."""
        found = frozen_features(self._network, pixels, self._grid)
        if not self._maps:
            return found.flatten(1).view(len(found), -1, 1, 1)
        scattered = images.scattered(pixels)
        return torch.cat([scattered.to(found.dtype), found], dim=1)

    def weights(self) -> Tensor:
        """By which standardised channels are multiplied: those of scattering as in Table 1."""
        if not self._maps:
            return torch.full((self.channels,), 1.0 / math.sqrt(self.channels))
        scattering = images.channel_weights((1.0, 1.0, 0.5))
        return torch.cat([scattering, torch.full((self.channels - len(scattering),), 0.5)])
