# SPDX-License-Identifier: Apache-2.0
"""Launch the Triton kernel that draws and adds in one pass."""

import importlib.util
from dataclasses import dataclass
from functools import lru_cache

import torch

from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.torch.quantile import coefficients, noise_dtype
from ggdp.torch.streams import CHACHA_SPAN, CHACHA_WORDS, PHILOX_WORDS, Stream


@dataclass(frozen=True)
class LaunchShape:
    """How the kernel is launched. Nothing here can change the law of the noise.

    Attributes:
        blocks: Keystream blocks per program. For ChaCha20 this is CHACHA_SPAN, which the stream's order is
            built on.
        num_warps: Warps per program.
        degree: Degree of the polynomials, None for the degree of the precision.
        shared: Pass the table through shared memory instead of the first-level cache.
    """

    blocks: int
    num_warps: int
    degree: int | None = None
    shared: bool = False


PHILOX_SHAPE = LaunchShape(blocks=256, num_warps=4)
CHACHA_SHAPE = LaunchShape(blocks=CHACHA_SPAN, num_warps=4)


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
    num_rounds: int = 10,
    fine_tail: bool = True,
) -> None:
    """Launch with everything spelled out; the last two arguments are for measurements only."""
    from ggdp.torch.kernels import noise_kernel

    table = coefficients(noise, noise_dtype(target.dtype), target.device, shape.degree)
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
        SHARED=shape.shared,
        NUM_ROUNDS=num_rounds,
        FINE=fine_tail,
        num_warps=shape.num_warps,
    )
