# SPDX-License-Identifier: Apache-2.0
"""Memory for temporaries that is used again.

On a CPU, a megabyte fresh from the system costs more than the arithmetic on it: every page is mapped and
zeroed at first touch, and given back soon after. Temporaries of a chunk's size live here instead, one per
purpose and thread. A GPU's allocator does as much by itself.
"""

import threading
from collections.abc import Sequence
from math import prod

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
