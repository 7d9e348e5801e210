# SPDX-License-Identifier: Apache-2.0
"""Bring every channel of image features to mean 0 and variance 1, by a release that is charged.

Mean and variance of the training features are private. Tramer and Boneh (2021) release them with noise, with
a clipping threshold that is a median of the private norms, which leaks. Here nothing is read from the data
but one noisy sum:

1. A first guess from public knowledge: features of random images whose amplitude falls like 1 / frequency, as
   that of photographs does. Features are shifted and scaled by it; all channels are then of order one, so
   that one clipping threshold serves all of them, and much more noise can be borne than without it.
2. Image i gives the vector v_i = (a_i / A, b_i / B) / sqrt(2), where a_i and b_i are the means over its
   pixels of z and of z^2, channel by channel, each clipped to l_2 norm A or B. So |v_i|_2 <= 1: adding or
   removing an image moves the sum of all v_i by at most 1 in l_2, whatever the others are. That sum is
   released with Gaussian noise, once: a mechanism of sensitivity 1 and norm 2.
3. Mean and variance are read off that release and the number of images, which training treats as public
   too. Noise of known variance s^2 on a guess that is good to about one deviation: what was released is
   shrunk towards the guess by 1 / (1 + s^2), so that with few images the guess stands.
"""

import functools
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ggdp.atomic_file import write_atomically
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import AdditiveNoise, release
from ggdp_paper.tasks.scattering import Scattering

MEAN_CLIP = 1.25
"""Threshold A for the means, in units of sqrt(channels); features far from the guess are pulled to it."""
SQUARE_CLIP = 4.0
"""Threshold B for the mean squares, likewise; a variable one deviation off its guess has mean square 2."""
LEAST_VARIANCE = 0.05
"""Of a channel after the first guess: a release that says less is noise."""

_PHOTOGRAPHS = 256
_FIELD = 64  # random fields are larger than images, so that images are not periodic
_GREY, _COLOUR = 0.95, 0.3  # weights of what the colours share and of what is their own
_PUBLIC_SEED = 20_210_505  # of the first guess, which is a public constant; no privacy rests on it
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Mean and standard deviation for each channel."""

    mean: Tensor
    std: Tensor

    def apply_(self, features: Tensor) -> Tensor:
        """Shift and scale features [N, channels, ...] in place."""
        shape = (-1, *(1,) * (features.ndim - 2))
        mean, std = (values.to(features).view(shape) for values in (self.mean, self.std))
        for part in torch.split(features, _CHUNK):
            part.sub_(mean).div_(std)
        return features


def mechanism(channels: int, noise_multiplier: float) -> AdditiveNoise:
    """The release of step 2, as an accountant reads it: 2 * channels numbers of sensitivity 1 in l_2."""
    noise = GeneralizedGaussian.from_noise_multiplier(2.0, noise_multiplier)
    return AdditiveNoise(noise, sensitivity=1.0, norm=2.0, dimension=2 * channels)


def private_standardisation(
    features: Tensor, guess: Standardisation, noise_multiplier: float, *, rng: Rng | None = None
) -> Standardisation:
    """Mean and standard deviation of the channels of features [N, channels, h, w], released once.

    Args:
        features: as the scattering transform gives them.
        guess: public, near the truth.
        noise_multiplier: of the release; see `mechanism` for what it costs.
        rng: of the noise; unpredictable if left out.

    Guarantees:
        1. The result depends on the features only through one sum of vectors of l_2 norm at most 1, one for
           each image, released by `mechanism(channels, noise_multiplier)`, and through their number.
    """
    channels = features.shape[1]
    total = contributions(features, guess).sum(dim=0, dtype=torch.float64)
    noisy = release(mechanism(channels, noise_multiplier), total.cpu().numpy(), rng=rng)
    each = math.sqrt(2.0 * channels) / len(features)  # from the sum of v_i to a mean over images
    mean, square = torch.split(torch.from_numpy(np.asarray(noisy) * each), channels)
    shift = _shrunk(mean * MEAN_CLIP, 0.0, noise_multiplier * each * MEAN_CLIP)
    square = _shrunk(square * SQUARE_CLIP, 1.0, noise_multiplier * each * SQUARE_CLIP)
    variance = (square - shift**2).clamp_min(LEAST_VARIANCE)
    guess_mean, guess_std = guess.mean.double().cpu(), guess.std.double().cpu()
    return Standardisation((guess_mean + guess_std * shift).float(), (guess_std * variance.sqrt()).float())


def _shrunk(values: Tensor, guess: float, noise_std: float) -> Tensor:
    return guess + (values - guess) / (1.0 + noise_std**2)


def contributions(features: Tensor, guess: Standardisation) -> Tensor:
    """The vectors v_i of step 2, [N, 2 * channels], each of l_2 norm at most 1."""
    root = math.sqrt(features.shape[1])
    found = []
    for part in torch.split(features, _CHUNK):
        scaled = guess.apply_(part.clone()).flatten(2)
        found.append(
            torch.cat(
                [
                    _clipped(scaled.mean(dim=2) / (MEAN_CLIP * root)),
                    _clipped(scaled.square().mean(dim=2) / (SQUARE_CLIP * root)),
                ],
                dim=1,
            )
            / math.sqrt(2.0)
        )
    return torch.cat(found)


def _clipped(rows: Tensor) -> Tensor:
    """Rows in float64, each shortened to l_2 norm at most 1, rounding included."""
    rows = rows.double()
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / (norms * (1.0 + 1e-12)).clamp_min(1.0)


@functools.cache
def photograph_guess(
    scattering: Scattering, mean: tuple[float, ...], std: tuple[float, ...]
) -> Standardisation:
    """Step 1: what the channels of photographs are about, from random fields and no photograph at all.

    Args:
        scattering: the transform.
        mean: of the colours, as images are normalised by; fields are centred on 0.45.
        std: likewise; fields have deviation 0.25.
    """
    generator = torch.Generator().manual_seed(_PUBLIC_SEED)
    fields = _GREY * _falling_fields(1, generator) + _COLOUR * _falling_fields(3, generator)
    images = 0.45 + 0.25 * fields[:, :, : scattering.size, : scattering.size]
    features = scattering((images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))
    channels = features.transpose(0, 1).flatten(1)
    return Standardisation(channels.mean(dim=1), channels.std(dim=1))


def _falling_fields(colours: int, generator: torch.Generator) -> Tensor:
    """Gaussian random fields of variance 1 whose amplitude falls like 1 / frequency."""
    axis = torch.fft.fftfreq(_FIELD)
    frequency = (axis[:, None] ** 2 + axis[None, :] ** 2).sqrt().clamp_min(1.0 / _FIELD)
    white = torch.randn(_PHOTOGRAPHS, colours, _FIELD, _FIELD, generator=generator)
    fields: Tensor = torch.fft.ifft2(torch.fft.fft2(white) / frequency).real
    return fields / fields.square().mean().sqrt()


def standardisation_kept_in(
    file: Path | None,
    features: Tensor,
    guess: Standardisation,
    noise_multiplier: float,
    *,
    rng: Rng | None = None,
) -> Standardisation:
    """What the file holds; or a new release, which is then written to it. Without a file, a new release.

    Every release costs privacy, and the ledger of a run counts one, so that a run that goes on later must not
    make another. Released numbers are public: the file holds no secret.

    Raises:
        ValueError: The file holds a release of other data or with other noise, or nothing that can be read.
    """
    asked = {"noise_multiplier": noise_multiplier, "num_images": len(features), "channels": features.shape[1]}
    if file is not None and file.exists():
        return _read(file, asked)
    found = private_standardisation(features, guess, noise_multiplier, rng=rng)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        numbers = {"mean": found.mean.tolist(), "std": found.std.tolist()}
        write_atomically(file, json.dumps({**asked, **numbers}) + "\n")
    return found


def _read(file: Path, asked: dict[str, float]) -> Standardisation:
    try:
        kept = json.loads(file.read_text())
        mean, std = torch.tensor(kept["mean"]), torch.tensor(kept["std"])
        differing = [name for name, value in asked.items() if kept[name] != value]
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{str(file)!r} must hold a released standardisation and cannot be read; give another folder"
        ) from None
    if differing:
        name = differing[0]
        raise ValueError(
            f"{str(file)!r} holds a release with {name} = {kept[name]}, got {asked[name]}; "
            "give another folder"
        )
    return Standardisation(mean, std)
