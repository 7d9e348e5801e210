# SPDX-License-Identifier: Apache-2.0
"""Launch the Triton kernel that draws and adds in one pass."""

import importlib.util
from dataclasses import dataclass
from functools import lru_cache

import torch

from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.distributions.pytorch.quantile import coefficients, noise_dtype
from ggdp.distributions.pytorch.streams import CHACHA_SPAN, CHACHA_WORDS, PHILOX_WORDS, Stream


@dataclass(frozen=True)
class LaunchShape:
    """How the kernel is launched: keystream blocks per program, and warps. No draw depends on it."""

    blocks: int
    num_warps: int


# The fastest on an H200. Few elements per program keep programs that hold a far tail rare.
PHILOX_SHAPE = LaunchShape(blocks=128, num_warps=2)
CHACHA_SHAPE = LaunchShape(blocks=CHACHA_SPAN, num_warps=1)


@lru_cache(maxsize=1)
def triton_is_installed() -> bool:
    """Return whether kernels can be compiled."""
    return importlib.util.find_spec("triton") is not None


def draw_(target: torch.Tensor, noise: GeneralizedGaussian, stream: Stream, *, add: bool) -> None:
    """Add noise to the contiguous `target`, or overwrite it with noise."""
    key, first_block = stream.kernel_key(target.device), stream.reserve(target.numel())
    shape = CHACHA_SHAPE if stream.secure else PHILOX_SHAPE
    launch(target, noise, key, first_block, add=add, secure=stream.secure, shape=shape)


def launch(
    target: torch.Tensor,
    noise: GeneralizedGaussian,
    key: torch.Tensor,
    first_block: int,
    *,
    add: bool,
    secure: bool,
    shape: LaunchShape,
) -> None:
    """Launch with everything spelled out; a ChaCha20 shape has CHACHA_SPAN blocks."""
    from ggdp.distributions.pytorch.kernels import noise_kernel

    table = coefficients(noise, noise_dtype(target.dtype), target.device)
    words_per_block = CHACHA_WORDS if secure else PHILOX_WORDS
    num_programs = -(-target.numel() // (shape.blocks * words_per_block))
    noise_kernel[(num_programs,)](
        target,
        key,
        table,
        target.numel(),
        first_block,
        BLOCKS=shape.blocks,
        DEGREE=table.shape[0] - 1,
        NUM_ROWS=table.shape[1],
        ADD=add,
        SECURE=secure,
        num_warps=shape.num_warps,
    )
