# SPDX-License-Identifier: Apache-2.0
"""Scattering features of images: fixed wavelets, moduli and averages; nothing is learnt from the data.

The transform of Mallat and Oyallon at two scales (J = 2), as in "Differentially Private Learning Needs Better
Features" (Tramer and Boneh 2021). With * a periodic convolution of the image reflected at its border,
psi_(j,t) a Morlet wavelet of scale 2^j and angle t, and phi a Gaussian of scale 2^J, the features of one
colour are

    x * phi,    |x * psi_(j,t)| * phi,    | |x * psi_(0,t)| * psi_(1,u) | * phi,

read at every fourth pixel: 1 + 2 L + L^2 numbers for L angles, 81 for eight. Filters, border and order of the
channels are those of kymatio 0.3, so that its features and these are the same to about 1e-4 (it writes 3.1415
for pi); kymatio itself cannot be imported beside SciPy 1.17.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ggdp import arguments

SCALES = 2
STRIDE = 2**SCALES
BORDER = STRIDE
_WRAPS = range(-2, 3)  # copies of a filter that are added up to make it periodic
_CHUNK_BYTES = {"cpu": 32 << 20, "cuda": 1 << 30}  # of the largest intermediate, so that memory stays bounded


@dataclass(frozen=True)
class Scattering:
    """Scattering features of square images with sides of `size` pixels, a multiple of four.

    >>> Scattering(size=32).channels
    81
    >>> Scattering(size=8, angles=2)(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 27, 2, 2])
    """

    size: int = 32
    angles: int = 8

    def __post_init__(self) -> None:
        arguments.whole("size", self.size, least=2 * STRIDE, most=1024)
        if self.size % STRIDE:
            raise ValueError(f"size must be a multiple of {STRIDE}, got {self.size}")
        arguments.whole("angles", self.angles, most=64)

    @property
    def channels(self) -> int:
        """Numbers per pixel and colour: 1 + 2 L + L^2."""
        return (1 + self.angles) ** 2

    def __call__(self, images: Tensor) -> Tensor:
        """Features [N, colours * channels, size / 4, size / 4] of images [N, colours, size, size], float32.

        The images are taken in parts of bounded size, on the device that they are on.
        """
        if images.ndim != 4 or images.shape[2:] != (self.size, self.size):
            raise ValueError(
                f"images must have shape [N, colours, {self.size}, {self.size}], got {list(images.shape)}"
            )
        number, colours = images.shape[:2]
        side = self.size // STRIDE
        found = torch.empty(number, colours, self.channels, side, side, device=images.device)
        filters = _filters(self.size + 2 * BORDER, self.angles, images.device)
        each = (
            colours * self.angles * (self.angles + 4) * (self.size + 2 * BORDER) ** 2 * 2
        )  # bytes, complex64
        step = max(1, _CHUNK_BYTES["cuda" if images.is_cuda else "cpu"] // each)
        for start in range(0, number, step):
            part = images[start : start + step].to(torch.float32)
            found[start : start + step] = _scatter(part, filters)
        return found.flatten(1, 2)


@dataclass(frozen=True)
class _Filters:
    """Fourier transforms of the wavelets, and the averages as matrices that act on rows and columns."""

    fine: Tensor  # [angles, padded, padded], scale 1
    coarse: Tensor  # [aliases, angles, padded / 2, padded / 2], scale 2
    average: Tensor  # [size / 4, padded]
    half_average: Tensor  # [size / 4, padded / 2], for what is read at every second pixel


def _scatter(images: Tensor, filters: _Filters) -> Tensor:
    """Features [n, colours, channels, side, side] of a few images."""
    padded = torch.nn.functional.pad(images, (BORDER,) * 4, mode="reflect")
    spectrum = torch.fft.fft2(padded)
    fine = torch.fft.ifft2(spectrum.unsqueeze(2) * filters.fine).abs()
    coarse = _convolved_by_halves(spectrum.unsqueeze(2), filters.coarse).abs()
    second = _convolved_by_halves(torch.fft.fft2(fine), filters.coarse).abs()
    return torch.cat(
        [
            _averaged(padded.unsqueeze(2), filters.average),
            _averaged(fine, filters.average),
            _averaged(coarse.squeeze(2), filters.half_average),
            _averaged(second.flatten(2, 3), filters.half_average),
        ],
        dim=2,
    )


def _convolved_by_halves(spectrum: Tensor, aliased: Tensor) -> Tensor:
    """Convolve with every coarse wavelet and keep every second pixel.

    [..., k, m, m] becomes [..., k, angles, m/2, m/2]. Keeping every second pixel averages the frequencies
    that become the same, so the product is formed for one quarter of them at a time and never in full.
    """
    half = spectrum.shape[-1] // 2
    corners = [spectrum[..., a : a + half, b : b + half] for a in (0, half) for b in (0, half)]
    total = corners[0].unsqueeze(-3) * aliased[0]
    for corner, part in zip(corners[1:], aliased[1:], strict=True):
        total.addcmul_(corner.unsqueeze(-3), part)
    convolved: Tensor = torch.fft.ifft2(total)
    return convolved


def _averaged(values: Tensor, average: Tensor) -> Tensor:
    """A convolution with phi, read at every fourth pixel; phi is a product of one function per axis."""
    return average @ values @ average.T


def _filters(padded: int, angles: int, device: torch.device) -> _Filters:
    fine = torch.stack([_morlet(padded, 1.0, angles, turn) for turn in range(angles)])
    coarse = torch.stack([_morlet(padded, 2.0, angles, turn) for turn in range(angles)])
    half = padded // 2
    # Divided by the four frequencies that fall on one.
    aliased = torch.stack([coarse[:, a : a + half, b : b + half] / 4.0 for a in (0, half) for b in (0, half)])
    single = torch.complex64
    return _Filters(
        fine.to(device, single),
        aliased.to(device, single),
        _average(padded, 1).to(device, torch.float32),
        _average(padded, 2).to(device, torch.float32),
    )


def _morlet(padded: int, scale: float, angles: int, turn: int) -> Tensor:
    """Fourier transform of a wavelet of mean zero: psi(u) = g(u) (exp(i xi.u) - c), float64, real.

    The envelope g is a Gaussian of width 0.8 * scale across the wave and slant times wider along it, with
    slant 4 / L; xi has length 3 pi / (4 scale) and direction (L/2 - 1 - turn) pi / L.
    """
    width, slant = 0.8 * scale, 4.0 / angles
    angle = (angles // 2 - 1 - turn) * math.pi / angles
    frequency = 0.75 * math.pi / scale
    offsets = torch.arange(padded * _WRAPS.start, padded * _WRAPS.stop, dtype=torch.float64)
    rows, columns = torch.meshgrid(offsets, offsets, indexing="ij")
    along = rows * math.cos(angle) + columns * math.sin(angle)
    across = columns * math.cos(angle) - rows * math.sin(angle)
    envelope = torch.exp(-(along**2 + (slant * across) ** 2) / (2.0 * width**2)) * slant
    envelope /= 2.0 * math.pi * width**2
    wave = _wrapped(envelope * torch.exp(1j * frequency * along), padded)
    envelope = _wrapped(envelope.to(wave.dtype), padded)
    spectrum: Tensor = torch.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real
    return spectrum


def _wrapped(values: Tensor, padded: int) -> Tensor:
    """A function on a large square made periodic."""
    return values.view(len(_WRAPS), padded, len(_WRAPS), padded).sum(dim=(0, 2))


def _average(padded: int, read: int) -> Tensor:
    """One axis of phi, a Gaussian of width 0.8 * 2^(J-1), as a matrix, float64.

    It acts on a row that was read at every `read`-th pixel, keeps every fourth pixel of the whole, and drops
    the border. What was read at every second pixel has half the frequencies, and phi keeps those of its own.
    """
    width = 0.8 * 2 ** (SCALES - 1)
    offsets = torch.arange(padded * _WRAPS.start, padded * _WRAPS.stop, dtype=torch.float64)
    gaussian = torch.exp(-(offsets**2) / (2.0 * width**2)) / (math.sqrt(2.0 * math.pi) * width)
    spectrum = torch.fft.fft(gaussian.view(len(_WRAPS), padded).sum(dim=0)).real
    length = padded // read
    kept = torch.cat([spectrum[: length // 2], spectrum[padded - length // 2 :]])
    kernel: Tensor = torch.fft.ifft(kept).real
    places = torch.arange(length)
    outputs = torch.arange(BORDER // read, length - BORDER // read, STRIDE // read)
    return kernel[(outputs[:, None] - places[None, :]) % length]
