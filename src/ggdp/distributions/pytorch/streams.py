# SPDX-License-Identifier: Apache-2.0
"""Where random words come from: a generator of PyTorch, or the ChaCha20 keystream.

A stream answers three questions, one per way of drawing: 64-bit words for the CPU sampler, the three 32-bit
words of each element (see `ggdp.distributions.quantile_table`) for plain PyTorch, and a key with a block
number for a kernel that computes those words itself. Each answer moves the stream on, so no word serves
twice.
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions.secure import BLOCK_BYTES, NUM_DOMAINS, SecureGenerator, secure_generator

Generator = torch.Generator | SecureGenerator

PHILOX_WORDS = 4  # 32-bit words in a block of Philox-4x32
CHACHA_WORDS = BLOCK_BYTES // 4
CHACHA_SPAN = 32
"""Blocks whose words are dealt out together: element 4 (r SPAN + k) + j of a span owns word j of row r of
block k.

With the four rows of a ChaCha20 state kept apart, a warp that computes a block per thread reads and writes
consecutive elements. The value is part of the stream's definition, not a launch parameter: another one deals
the words out otherwise.
"""


class Stream(Protocol):
    """A source of random words for one call."""

    secure: bool

    def words(self, count: int) -> NDArray[np.int64]:
        """Return 64-bit words in host memory."""

    def triples(self, num_elements: int, device: torch.device) -> torch.Tensor:
        """Return the words a, b, c of each element: an int32 tensor of shape (3, num_elements)."""

    def kernel_key(self, device: torch.device) -> torch.Tensor:
        """Return the key words that a kernel reads, as int32."""

    def reserve(self, num_elements: int) -> int:
        """Set the blocks of so many elements aside for a kernel and return the first one's number."""


def stream_of(generator: Generator | None) -> Stream:
    """Return the stream of the caller's generator, or of a fresh secure one when there is none."""
    if generator is None:
        return SecureStream(secure_generator())
    if isinstance(generator, SecureGenerator):
        return SecureStream(generator)
    arguments.instance(
        "generator", generator, torch.Generator, hint="leave it out for one that nobody can predict"
    )
    return SeededStream(generator)


class SecureStream:
    """The keystream of a `SecureGenerator`; kernels and plain PyTorch read the same words from it."""

    secure = True

    def __init__(self, generator: SecureGenerator) -> None:
        self._generator = generator
        self._keys: dict[torch.device, tuple[bytes, torch.Tensor]] = {}

    def words(self, count: int) -> NDArray[np.int64]:
        """Return 64-bit words in host memory."""
        return self._generator.words(count)

    def triples(self, num_elements: int, device: torch.device) -> torch.Tensor:
        """Return the words a, b, c of each element, computed on the CPU."""
        num_blocks = _num_span_blocks(num_elements)
        first = self._generator.reserve(num_blocks)
        domains = [
            deal_words(self._generator.blocks(first, num_blocks, domain=domain).view(np.int32))
            for domain in range(NUM_DOMAINS)
        ]
        return torch.from_numpy(np.stack(domains)[:, :num_elements].copy()).to(device)

    def kernel_key(self, device: torch.device) -> torch.Tensor:
        """Return the 256-bit key and the two words that name the stream."""
        key = self._generator.kernel_key()  # another one after a fork
        if device not in self._keys or self._keys[device][0] != key.tobytes():
            words = torch.from_numpy(key.view(np.int32))
            # From pinned memory the copy waits its turn on the device instead of making the host wait.
            words = words.pin_memory() if device.type == "cuda" else words
            self._keys[device] = key.tobytes(), words.to(device, non_blocking=True)
        return self._keys[device][1]

    def reserve(self, num_elements: int) -> int:
        """Set whole spans of blocks aside."""
        return self._generator.reserve(_num_span_blocks(num_elements))


class SeededStream:
    """The words of a `torch.Generator`; a kernel gets a Philox key and stream number drawn from it for this
    call.

    A `torch.Generator` on the CPU uses only 32 bits of its seed, so seeds of ranks can collide: ranks should
    share a secure generator's key and take `stream(rank=...)` instead.
    """

    secure = False

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._key: torch.Tensor | None = None
        self._next_block = 0

    def words(self, count: int) -> NDArray[np.int64]:
        """Return 64-bit words in host memory."""
        drawn = torch.empty(count, dtype=torch.int64, device=self._generator.device)
        drawn.random_(-(2**63), None, generator=self._generator)
        words: NDArray[np.int64] = drawn.cpu().numpy()
        return words

    def triples(self, num_elements: int, device: torch.device) -> torch.Tensor:
        """Return the words a, b, c of each element, drawn where the generator lives."""
        count = NUM_DOMAINS * num_elements
        drawn = torch.empty(-(-count // 2), dtype=torch.int64, device=self._generator.device)
        drawn.random_(-(2**63), None, generator=self._generator)
        return drawn.view(torch.int32)[:count].view(NUM_DOMAINS, num_elements).to(device)

    def kernel_key(self, device: torch.device) -> torch.Tensor:
        """Return a 64-bit Philox key and a 62-bit stream number; two more bits are the kernel's domains."""
        if self._key is None:
            drawn = torch.empty(2, dtype=torch.int64, device=self._generator.device)
            drawn.random_(-(2**63), None, generator=self._generator)
            self._key = drawn.view(torch.int32)
            self._key[3] &= -4
        return self._key.to(device)

    def reserve(self, num_elements: int) -> int:
        """Set the next blocks of this call's key aside."""
        first = self._next_block
        self._next_block += -(-num_elements // PHILOX_WORDS)
        return first


def deal_words(words: NDArray[np.int32], span: int = CHACHA_SPAN) -> NDArray[np.int32]:
    """Reorder the words of whole spans of ChaCha20 blocks from keystream order to element order."""
    rows = words.reshape(-1, span, CHACHA_WORDS // 4, 4)
    return rows.transpose(0, 2, 1, 3).reshape(-1)


def _num_span_blocks(num_elements: int) -> int:
    return CHACHA_SPAN * -(-num_elements // (CHACHA_SPAN * CHACHA_WORDS))
