# SPDX-License-Identifier: Apache-2.0
"""Images of random processes: noise, waves, an untrained generator, dead leaves; no photographs.

Four processes, each drawn for a whole batch at a time on the device of the generator:

- *fields*: Gaussian noise whose amplitude falls like a power of the frequency, stretched in one direction;
- *waves*: the place of a pixel goes through a small network with random weights and periodic units;
- *generated*: a convolutional network with random weights turns 4 x 4 random numbers into an image, doubling
  its side in every layer and adding noise (as an untrained StyleGAN does);
- *leaves*: shapes with random outlines fall on one another, each with a colour and a texture that is a piece
  of another image.

Contrastive learning from images like these is due to Baradad et al. (2021), "Learning to See by Looking at
Noise"; its use for private training to Tang et al. (2023).
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

_SIDE = 64
_LEAVES = 36
_TOGETHER = 1024  # images that are drawn at a time
_WIDTH = 24  # channels of a generator
_SAME_NETWORK = 64  # images that share the weights of a generator


def random_images(count: int, generator: torch.Generator) -> Tensor:
    """Bytes [count, 3, 64, 64], in random order, on the generator's device."""
    parts = []
    for start in range(0, count, _TOGETHER):
        parts.append(_mixture(min(_TOGETHER, count - start), generator))
    return torch.cat(parts)[:count]


def _mixture(count: int, generator: torch.Generator) -> Tensor:
    """A third of the images each: generated, leaves, and half fields, half waves."""
    some = -(-count // 6)
    plain = torch.cat([_fields(some, generator), _waves(some, generator), _generated(2 * some, generator)])
    pieces = torch.randint(len(plain), (2, 2 * some), generator=generator, device=generator.device)
    leaves = _leaves(plain[pieces[0]], plain[pieces[1]], generator)
    images = _exposed(torch.cat([plain, leaves]), generator)
    order = torch.randperm(len(images), generator=generator, device=generator.device)[:count]
    return (images[order] * 255.0).round().to(torch.uint8)


def _uniform(low: float, high: float, *shape: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator, device=generator.device)


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, device=generator.device)


def _coloured(images: Tensor, generator: torch.Generator) -> Tensor:
    """Colours that are mixtures of three channels, with one mixture that all colours share most of."""
    count = len(images)
    own = _uniform(0.1, 0.7, count, 1, 1, generator=generator)
    mixing = own * _normal(count, 3, 3, generator=generator) + _normal(count, 1, 3, generator=generator)
    return torch.einsum("nij,njhw->nihw", mixing, images)


def _standard(images: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over the numbers of each image."""
    flat = images.flatten(1)
    mean, std = flat.mean(1), flat.std(1).clamp_min(1e-3)
    return (images - mean.view(-1, 1, 1, 1)) / std.view(-1, 1, 1, 1)


def _exposed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Numbers in [0, 1] with a brightness and a contrast of photographs."""
    count = len(images)
    brightness = _uniform(0.3, 0.6, count, 1, 1, 1, generator=generator)
    contrast = _uniform(0.12, 0.32, count, 1, 1, 1, generator=generator)
    tint = 0.06 * _normal(count, 3, 1, 1, generator=generator)
    return (brightness + tint + contrast * _standard(images)).clamp(0.0, 1.0)


def _fields(count: int, generator: torch.Generator) -> Tensor:
    axis = torch.fft.fftfreq(_SIDE, device=generator.device)
    rows, columns = axis.view(1, -1, 1), axis.view(1, 1, -1)
    angle = _uniform(0.0, math.pi, count, 1, 1, generator=generator)
    stretch = torch.exp(_uniform(0.0, 1.5, count, 1, 1, generator=generator))
    along = rows * torch.cos(angle) + columns * torch.sin(angle)
    across = (columns * torch.cos(angle) - rows * torch.sin(angle)) * stretch
    frequency = (along**2 + across**2).sqrt().clamp_min(1.0 / _SIDE)
    power = _uniform(0.6, 2.2, count, 1, 1, generator=generator)
    amplitude = (frequency**-power).unsqueeze(1)
    white = _normal(count, 3, _SIDE, _SIDE, generator=generator)
    fields = torch.fft.ifft2(torch.fft.fft2(white) * amplitude).real
    tails = _uniform(0.6, 2.0, count, 1, 1, 1, generator=generator)
    standard = _standard(fields)
    return _coloured(_standard(standard.sign() * standard.abs() ** tails), generator)


def _waves(count: int, generator: torch.Generator) -> Tensor:
    axis = torch.linspace(-1.0, 1.0, _SIDE, device=generator.device)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    places = torch.stack([rows, columns, (rows**2 + columns**2).sqrt()]).flatten(1)
    zoom = torch.exp(_uniform(0.0, 2.5, count, 1, 1, generator=generator))
    shift = torch.cat(
        [
            _uniform(-1.0, 1.0, count, 2, 1, generator=generator),
            torch.zeros(count, 1, 1, device=generator.device),
        ],
        dim=1,
    )
    values = (places + shift) * zoom
    for _ in range(3):
        inputs = values.shape[1]
        weights = _normal(count, 16, inputs, generator=generator) * (1.7 / math.sqrt(inputs))
        values = torch.sin(weights @ values + 3.0 * _normal(count, 16, 1, generator=generator))
    sharp = torch.exp(_uniform(-1.0, 2.5, count, 1, 1, generator=generator))
    values = torch.tanh(sharp * (_normal(count, 3, 16, generator=generator) @ values))
    return _coloured(values.view(count, 3, _SIDE, _SIDE), generator)


def _generated(count: int, generator: torch.Generator) -> Tensor:
    found = []
    for start in range(0, count, _SAME_NETWORK):
        found.append(_of_one_network(min(_SAME_NETWORK, count - start), generator))
    return _standard(torch.cat(found))


def _of_one_network(count: int, generator: torch.Generator) -> Tensor:
    """Styles scale the channels of every layer, one style an image; filters are smooth waves."""
    style = _normal(count, _WIDTH, generator=generator)
    values = _normal(count, _WIDTH, 4, 4, generator=generator)
    image = torch.zeros(count, 3, 4, 4, device=generator.device)
    for layer in range(5):
        if layer:
            values, image = (
                functional.interpolate(each, scale_factor=2, mode="bilinear", align_corners=False)
                for each in (values, image)
            )
        scale = 1.0 + 0.7 * style @ _normal(_WIDTH, _WIDTH, generator=generator) / math.sqrt(_WIDTH)
        values = functional.conv2d(values * scale.view(count, _WIDTH, 1, 1), _filters(generator), padding=2)
        strength = torch.exp(_uniform(-4.0, 0.0, count, 1, 1, 1, generator=generator))
        noise = _normal(count, 1, *values.shape[2:], generator=generator)
        bias = 0.5 * style @ _normal(_WIDTH, _WIDTH, generator=generator) / math.sqrt(_WIDTH)
        values = functional.leaky_relu(
            _standard(values) + strength * noise + bias.view(count, _WIDTH, 1, 1), 0.2
        )
        colours = _normal(count, 3, _WIDTH, generator=generator) / math.sqrt(_WIDTH)
        image = image + torch.einsum("nij,njhw->nihw", colours, values)
    return _coloured(_standard(image), generator)


def _filters(generator: torch.Generator) -> Tensor:
    """[channels, channels, 5, 5]: waves under a bell, of random direction and frequency; many are zero."""
    pairs = _WIDTH * _WIDTH
    axis = torch.arange(5.0, device=generator.device) - 2.0
    rows, columns = axis.view(1, -1, 1), axis.view(1, 1, -1)
    angle, phase = (_uniform(0.0, 2.0 * math.pi, pairs, 1, 1, generator=generator) for _ in range(2))
    frequency = _uniform(0.3, 2.0, pairs, 1, 1, generator=generator)
    along = rows * torch.cos(angle) + columns * torch.sin(angle)
    waves = torch.exp(-(rows**2 + columns**2) / 3.0) * torch.cos(frequency * along + phase)
    sparse = _normal(pairs, 1, 1, generator=generator) * (
        _uniform(0.0, 1.0, pairs, 1, 1, generator=generator) < 0.4
    )
    return (waves * sparse).view(_WIDTH, _WIDTH, 5, 5)


def _leaves(background: Tensor, textures: Tensor, generator: torch.Generator) -> Tensor:
    """Shapes on an image, the later above the earlier; large ones are rare and mostly below."""
    count = len(background)
    axis = torch.linspace(-1.0, 1.0, _SIDE, device=generator.device)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    image, textures = 0.6 * _standard(background), _standard(textures)
    most = torch.randint(3, _LEAVES + 1, (count,), generator=generator, device=generator.device)
    orders = torch.arange(1, 6, device=generator.device).view(1, 5, 1, 1)
    for number in range(_LEAVES):
        place = _uniform(-1.1, 1.1, 2, count, 1, 1, generator=generator)
        largest = 0.9 / (1.0 + 0.15 * number)
        radius = largest * _uniform(0.25, 1.0, count, 1, 1, generator=generator)
        down, right = rows - place[0], columns - place[1]
        turn = _uniform(0.0, 2.0 * math.pi, count, 1, 1, generator=generator)
        stretch = torch.exp(_uniform(-0.7, 0.7, count, 1, 1, generator=generator))
        first = (down * torch.cos(turn) + right * torch.sin(turn)) * stretch
        second = (right * torch.cos(turn) - down * torch.sin(turn)) / stretch
        if number % 3 == 2:  # a box
            distance = torch.maximum(first.abs(), second.abs())
            outline = torch.ones_like(distance)
        else:  # a round shape with bumps
            distance = (first**2 + second**2).sqrt()
            angle = torch.atan2(first, second).unsqueeze(1)
            bumps = 0.35 * _normal(count, 5, 1, 1, generator=generator) / orders
            phase = _uniform(0.0, 2.0 * math.pi, count, 5, 1, 1, generator=generator)
            outline = (1.0 + (bumps * torch.cos(orders * angle + phase)).sum(1)).clamp_min(0.2)
        edge = torch.exp(_uniform(2.0, 4.5, count, 1, 1, generator=generator))
        inside = torch.sigmoid(edge * (radius * outline - distance)).unsqueeze(1)
        inside = inside * (number < most).view(-1, 1, 1, 1)
        colour = _normal(count, 1, 1, 1, generator=generator) + 0.4 * _normal(
            count, 3, 1, 1, generator=generator
        )
        rough = _uniform(0.0, 0.6, count, 1, 1, 1, generator=generator)
        shade = 0.4 * (_normal(count, 1, 1, generator=generator) * first / radius.clamp_min(0.1)).unsqueeze(1)
        moved = torch.roll(textures, (7 * number, 11 * number), (2, 3))
        moved = moved.roll(number + 1, 0)
        leaf = colour + shade + rough * moved
        image = image + inside * (leaf - image)
    return image
