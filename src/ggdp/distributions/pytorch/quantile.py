# SPDX-License-Identifier: Apache-2.0
"""The inverse distribution function in plain PyTorch: words in, noise out, on any device.

It is what the kernel computes, written plainly: the reference for it, and the path of devices without Triton.
"""

from functools import lru_cache

import torch

from ggdp.distributions import quantile_table as layout
from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.distributions.quantile_table import FLOAT32_DEGREE, FLOAT64_DEGREE, quantile_table

_FIRST_PIECE_32 = (127 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS
_FIRST_PIECE_64 = (1023 + layout.LOWEST_EXPONENT) << layout.PIECE_BITS


def noise_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision that noise for a tensor of `dtype` is computed in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@lru_cache(maxsize=64)
def coefficients(noise: GeneralizedGaussian, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the table of `noise`, scale included, in float32 or float64."""
    degree = FLOAT64_DEGREE if dtype == torch.float64 else FLOAT32_DEGREE
    table = quantile_table(noise.beta, degree).coefficients * noise.scale
    return torch.tensor(table, dtype=dtype, device=device)


def noise_from_words(triples: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Turn the words a, b, c of each element into noise, in the precision of `table`.

    Guarantees:
        * With u the 95-bit number of the words, the result is G(u) to 3e-7 relatively in float32 and 3e-14 in
          float64; float32 reads u to 31 bits unless u < 2^-14.
        * Every tail probability down to 2^-95 is met to a factor 1 +- 2^-16 in float32.
    """
    a, b, c = triples[0], triples[1], triples[2]
    tail = (a >> 30) & 1
    q = a & 0x3FFFFFFF
    fine = q.to(table.dtype) + _unsigned(b, table.dtype) * 2.0**-32
    fine = fine + (_unsigned(c, table.dtype) + 0.5) * 2.0**-64
    if table.dtype == torch.float64:
        bits = fine.view(torch.int64).clamp(max=layout.LARGEST_FLOAT64)
        piece = (bits >> 50) - _FIRST_PIECE_64
        t = ((bits & (2**50 - 1)) | 0x3FF0000000000000).view(torch.float64) - 1.125
    else:
        coarse = q.to(torch.float32) * layout.SHRINK_FLOAT32 + 0.5
        bits = torch.where((tail == 1) & (q < layout.FINE_TAIL), fine, coarse).view(torch.int32)
        piece = (bits >> 21) - _FIRST_PIECE_32
        t = ((bits & 0x1FFFFF) | 0x3F800000).view(torch.float32) - 1.125
    row = (2 * piece + tail).long()
    magnitude = table[-1][row]
    for coefficient in table[:-1].flip(0):
        magnitude = magnitude * t + coefficient[row]
    return torch.where(a < 0, -magnitude, magnitude)


def _unsigned(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (words.long() & 0xFFFFFFFF).to(dtype)
