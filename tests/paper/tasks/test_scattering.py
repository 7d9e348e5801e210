# SPDX-License-Identifier: Apache-2.0
"""Scattering features against kymatio's numbers and against sums written out in float64."""

import math

import numpy as np
import pytest
import torch

from ggdp_paper.tasks import scattering
from ggdp_paper.tasks.scattering import Scattering

# Scattering2D(J=2, shape=(32, 32)) of kymatio 0.3.0 with torch 2.13, on the image of `smooth_image`: channel,
# row, column, value. (kymatio 0.3.0 imports beside SciPy 1.17 only if scipy.special.sph_harm is put back.)
KYMATIO = [
    (0, 0, 0, 0.788722),
    (0, 3, 5, -0.089151),
    (1, 2, 2, 0.056009),
    (4, 7, 7, 0.132722),
    (8, 4, 1, 0.031975),
    (9, 0, 3, 0.130864),
    (14, 5, 5, 0.103656),
    (17, 2, 6, 0.004525),
    (33, 4, 4, 0.002168),
    (52, 1, 7, 0.004935),
    (80, 6, 0, 0.014967),
]


def smooth_image():
    i = torch.arange(32.0)
    waves = torch.cos(0.3 * i[:, None] + 0.01 * i[:, None] ** 2) * torch.sin(0.5 * i[None, :])
    return waves + (i[:, None] > i[None, :])


def test_features_are_those_of_kymatio():
    found = Scattering(size=32)(smooth_image().view(1, 1, 32, 32))[0]
    assert found.shape == (81, 8, 8)
    for channel, row, column, value in KYMATIO:
        assert found[channel, row, column] == pytest.approx(value, rel=1e-3, abs=2e-5)


def gabor(size, width, angle, frequency, slant):
    """A periodic Gabor function, summed over 5 x 5 copies, at every pixel in turn."""
    cosine, sine = math.cos(angle), math.sin(angle)
    values = np.zeros((size, size), complex)
    for row in range(size):
        for column in range(size):
            for x in range(row - 2 * size, row + 3 * size, size):
                for y in range(column - 2 * size, column + 3 * size, size):
                    along, across = x * cosine + y * sine, -x * sine + y * cosine
                    bump = math.exp(-(along**2 + slant**2 * across**2) / (2 * width**2))
                    values[row, column] += bump * np.exp(1j * frequency * along)
    return values * slant / (2 * math.pi * width**2)


def convolved(image, kernel):
    """The periodic convolution as a sum of shifted copies."""
    total = np.zeros(image.shape, complex)
    for row in range(len(image)):
        for column in range(len(image)):
            total += kernel[row, column] * np.roll(image, (row, column), axis=(0, 1))
    return total


def without_high_frequencies(kernel):
    """A function at every second pixel once half its frequencies are gone, by sums of waves."""
    size = len(kernel)
    kept = [k for k in range(size) if k < size // 4 or k >= 3 * size // 4]
    into = np.exp(-2j * math.pi * np.outer(kept, np.arange(size)) / size)
    out = np.exp(2j * math.pi * np.outer(2 * np.arange(size // 2), kept) / size) / (size // 2)
    return out @ (into @ kernel @ into.T) @ out.T


def direct_features(image, angles):
    """The definition in float64: no transform, no matrices, one convolution after another."""
    size = len(image) + 8
    padded = np.pad(image, 4, mode="reflect")
    low = gabor(size, 1.6, 0.0, 0.0, 1.0)
    halved_low = without_high_frequencies(low)
    wavelets = {}
    for j in (0, 1):
        for turn in range(angles):
            angle = (angles // 2 - 1 - turn) * math.pi / angles
            wave = gabor(size, 0.8 * 2**j, angle, 0.75 * math.pi / 2**j, 4.0 / angles)
            envelope = gabor(size, 0.8 * 2**j, angle, 0.0, 4.0 / angles)
            wavelets[j, turn] = wave - wave.sum() / envelope.sum() * envelope
    fine = [abs(convolved(padded, wavelets[0, turn])) for turn in range(angles)]
    coarse = [abs(convolved(padded, wavelets[1, turn])[::2, ::2]) for turn in range(angles)]
    second = [abs(convolved(u, wavelets[1, turn])[::2, ::2]) for u in fine for turn in range(angles)]
    whole = [convolved(u, low)[4:-4:4, 4:-4:4] for u in [padded, *fine]]
    halves = [convolved(u, halved_low)[2:-2:2, 2:-2:2] for u in [*coarse, *second]]
    return np.real(np.stack(whole + halves))


def test_features_are_the_sums_of_the_definition():
    image = np.random.default_rng(3).normal(size=(16, 16))
    found = Scattering(size=16, angles=4)(torch.from_numpy(image).view(1, 1, 16, 16))[0]
    expected = direct_features(image, 4)
    assert found.shape == expected.shape == (25, 4, 4)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_images_do_not_touch_each_other(monkeypatch):
    images = torch.randn(7, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    together = Scattering(size=8)(images)
    monkeypatch.setitem(scattering._CHUNK_BYTES, "cpu", 1)
    apart = Scattering(size=8)(images)
    torch.testing.assert_close(together, apart)
    assert together.shape == (7, 243, 2, 2)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 3, 32, 30), (1, 3, 28, 28)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must have shape \[N, colours, 32, 32\]"):
        Scattering(size=32)(torch.zeros(shape))


def test_sizes_that_cannot_be_halved_twice_are_refused():
    with pytest.raises(ValueError, match="multiple of 4, got 30"):
        Scattering(size=30)
