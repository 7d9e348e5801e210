# SPDX-License-Identifier: Apache-2.0
"""Room for per-example gradients between measuring and summing, the same memory in every step."""

from typing import Final

import torch
from torch import Tensor

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
