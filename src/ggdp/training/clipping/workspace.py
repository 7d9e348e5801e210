# SPDX-License-Identifier: Apache-2.0
"""Memory for per-example gradients between measuring and summing, and for temporaries; each is used again.

On a CPU, a megabyte fresh from the system costs more than the arithmetic on it: every page is mapped and
zeroed at first touch, and given back soon after. Temporaries of a chunk's size live here instead, one per
purpose and thread. A GPU's allocator does as much by itself.
"""

import threading
from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor

_SMALLEST, _LARGEST = 1 << 14, 1 << 21  # numbers; below, the allocator is quick, above, memory is dear
_OWN = threading.local()


def scratch(purpose: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor, whose memory the next call for the same purpose takes over."""
    size = prod(shape)
    if like.device.type != "cpu" or not _SMALLEST <= size <= _LARGEST:
        return like.new_empty(shape)
    buffers: dict[tuple[str, torch.dtype], Tensor] = _OWN.__dict__.setdefault("buffers", {})
    buffer = buffers.get((purpose, like.dtype))
    if buffer is None or buffer.numel() < size:
        buffers[purpose, like.dtype] = buffer = torch.empty(size, dtype=like.dtype)
    return buffer[:size].view(shape)


# Gradients that fit here altogether are kept, and need not be found a second time.
_CPU_BYTES: Final = 1 << 25
_GPU_BYTES: Final = 1 << 30


def may_be_kept(num_bytes: int, device: torch.device) -> bool:
    """Whether so much would fit into an empty workspace."""
    return num_bytes <= _budget(device)


def _budget(device: torch.device) -> int:
    return _CPU_BYTES if device.type == "cpu" else _GPU_BYTES


class Workspace:
    """Hands out matrices until its budget is spent; `clear` takes all of them back.

    On a CPU fresh memory costs more than filling it, page by page, so that one buffer is kept from step to
    step. A GPU's allocator does as much by itself.
    """

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._used_bytes = 0

    def clear(self) -> None:
        """Everything handed out is free again."""
        self._used_bytes = 0

    def matrices(self, num_rows: int, like: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """One matrix with `num_rows` rows per sample, as wide and of its kind; None if they do not fit."""
        widths = [matrix.shape[1] for matrix in like]
        sample = like[0]
        needed = num_rows * sum(widths) * sample.element_size()
        budget = _budget(sample.device)
        if self._used_bytes + needed + 64 > budget:
            return None
        if sample.device.type != "cpu":
            self._used_bytes += needed
            return tuple(sample.new_empty(num_rows, width) for width in widths)
        sizes = [num_rows * width for width in widths]
        pieces = torch.split(self._taken(needed, budget).view(sample.dtype), sizes)
        return tuple(piece.view(num_rows, width) for piece, width in zip(pieces, widths, strict=True))

    def _taken(self, num_bytes: int, budget: int) -> Tensor:
        if self._buffer is None:
            # Never touched memory takes no room: pages come as they are first used.
            self._buffer = torch.empty(budget, dtype=torch.uint8)
        start = -(-self._used_bytes // 64) * 64
        self._used_bytes = start + num_bytes
        return self._buffer[start : start + num_bytes]
