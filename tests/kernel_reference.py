# SPDX-License-Identifier: Apache-2.0
"""What a kernel must give, in float64: the words by plain NumPy, the quantile by plain PyTorch."""

import numpy as np
import torch

from ggdp import GeneralizedGaussian
from ggdp.distributions.pytorch.quantile import coefficients, noise_from_words
from ggdp.distributions.pytorch.streams import CHACHA_SPAN, CHACHA_WORDS, PHILOX_WORDS, deal_words
from keystreams import Words, chacha20_words, philox_words

# Largest relative error of noise computed in float32: polynomial of degree 5, its evaluation, one rounding.
FLOAT32_TOLERANCE = 5e-7
FLOAT64_TOLERANCE = 1e-13


def random_key(seed: int, *, secure: bool) -> Words:
    """A key whose stream words are random too, as a kernel reads it."""
    key = np.random.default_rng(seed).integers(0, 2**32, size=10 if secure else 4, dtype=np.uint32)
    key[-1] &= np.uint32(0xFFFFFFFC)
    return key


def element_words(key: Words, first_block: int, num_elements: int, *, secure: bool) -> Words:
    """The words a, b, c of each element, shape (3, num_elements)."""
    return np.stack([_domain(key, first_block, num_elements, secure, domain) for domain in range(3)])


def _domain(key: Words, first_block: int, num_elements: int, secure: bool, domain: int) -> Words:
    if secure:
        num_blocks = CHACHA_SPAN * -(-num_elements // (CHACHA_SPAN * CHACHA_WORDS))
        words = chacha20_words(key, first_block, num_blocks, domain=domain)
        return deal_words(words.view(np.int32)).view(np.uint32)[:num_elements]
    num_blocks = -(-num_elements // PHILOX_WORDS)
    return philox_words(key, first_block, num_blocks, domain=domain)[:num_elements]


def block_with_fine_tail(key: Words, first_block: int, *, secure: bool) -> int:
    """The first span from `first_block` on that holds an element of the fine tail."""
    words = element_words(key, first_block, 1 << 18, secure=secure)
    index = int(np.flatnonzero(in_fine_tail(words))[0])
    words_per_block = CHACHA_WORDS if secure else PHILOX_WORDS
    return first_block + CHACHA_SPAN * (index // (CHACHA_SPAN * words_per_block))


def in_fine_tail(words: Words) -> np.ndarray:
    """Which elements float32 arithmetic reads with all three words."""
    return (words[0] & np.uint32(0x7FFE0000)) == np.uint32(1 << 30)


def expected_noise(
    words: Words, noise: GeneralizedGaussian, device: torch.device, *, narrow: bool
) -> torch.Tensor:
    """The noise of the words in float64; `narrow` reads them as float32 arithmetic does."""
    words = words.copy()
    if narrow:
        coarse = ~in_fine_tail(words)
        words[1, coarse], words[2, coarse] = 1 << 31, 0  # the middle of the cell of the first word
    triples = torch.from_numpy(words.view(np.int32)).to(device)
    return noise_from_words(triples, coefficients(noise, torch.float64, device))


def largest_relative_error(drawn: torch.Tensor, expected: torch.Tensor) -> float:
    """NaN and elements left unwritten count as infinite."""
    error = ((drawn.double() - expected) / expected).abs()
    return float(torch.nan_to_num(error, nan=torch.inf).max())
