# SPDX-License-Identifier: Apache-2.0
"""The Triton kernels against published vectors and a float64 reference: every dtype, cipher and launch."""

from dataclasses import replace

import numpy as np
import pytest

from ggdp import GeneralizedGaussian
from kernel_reference import (
    FLOAT32_TOLERANCE,
    FLOAT64_TOLERANCE,
    block_with_fine_tail,
    element_words,
    expected_noise,
    in_fine_tail,
    largest_relative_error,
    random_key,
)
from keystreams import CHACHA_VECTORS, PHILOX_VECTORS

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from ggdp.distributions.pytorch import fused, kernels  # noqa: E402
from ggdp.distributions.pytorch.streams import CHACHA_SPAN  # noqa: E402

NOISE = GeneralizedGaussian(1.5, 2.0)
ciphers = pytest.mark.parametrize("secure", [False, True], ids=["philox", "chacha20"])
# Blocks of random_key(8) that hold a word of the tail with q = 0, found by search: one word of 2^31 is such.
DEEP_BLOCKS = {False: 267917317, True: 59599434}
SHAPES = {False: fused.PHILOX_SHAPE, True: fused.CHACHA_SHAPE}


def draw(target, key, first_block, secure, *, noise=NOISE, add=False, shape=None):
    words = torch.from_numpy(key.view(np.int32)).to(target.device)
    fused.launch(target, noise, words, first_block, add=add, secure=secure, shape=shape or SHAPES[secure])
    return target


def poisoned(count, device, dtype=torch.float32):
    return torch.full((count,), torch.nan, device=device, dtype=dtype)


def keystream(device, key, first_block, secure, num_blocks=4):
    out = torch.zeros(num_blocks * (16 if secure else 4), dtype=torch.int32, device=device)
    words = torch.from_numpy(np.array(key, dtype=np.uint32).view(np.int32)).to(device)
    kernels.keystream_kernel[(1,)](out, words, first_block, BLOCKS=num_blocks, SECURE=secure, DOMAIN=0)
    return out.cpu().numpy().view(np.uint32)


@pytest.mark.parametrize("name", CHACHA_VECTORS)
def test_the_kernel_computes_the_chacha20_blocks_of_rfc_8439(name, device):
    vector = CHACHA_VECTORS[name]
    key = [*np.frombuffer(vector.key, "<u4").tolist(), *vector.stream_words]
    rows = keystream(device, key, vector.long_counter, secure=True).reshape(4, 4, 4)
    assert rows[:, 0].tobytes() == vector.block


@pytest.mark.parametrize("name", PHILOX_VECTORS)
def test_the_kernel_computes_the_philox_blocks_of_random123(name, device):
    counter, key, expected = PHILOX_VECTORS[name]
    first_block = (counter[0] | counter[1] << 32) - (1 << 64 if counter[1] >> 31 else 0)
    words = keystream(device, [*key, *counter[2:]], first_block, secure=False)
    assert tuple(words[:4].tolist()) == expected


@ciphers
@pytest.mark.parametrize("beta", [1.0, 1.25, 1.5, 2.0, 3.0, 8.0])
def test_float32_noise_is_the_reference_noise(beta, secure, device, num_elements):
    noise, key = GeneralizedGaussian(beta, 2.5), random_key(1, secure=secure)
    first_block = block_with_fine_tail(key, 2**33, secure=secure)
    drawn = draw(poisoned(num_elements, device), key, first_block, secure, noise=noise)
    words = element_words(key, first_block, num_elements, secure=secure)
    assert np.any(in_fine_tail(words))
    expected = expected_noise(words, noise, device, narrow=True)
    assert largest_relative_error(drawn, expected) < FLOAT32_TOLERANCE
    assert largest_relative_error(1.03 * drawn, expected) > FLOAT32_TOLERANCE


@ciphers
def test_a_draw_beyond_2_to_the_minus_31_reads_all_three_words(secure, device):
    key = random_key(8, secure=secure)
    first_block = DEEP_BLOCKS[secure] - DEEP_BLOCKS[secure] % 128
    drawn = draw(poisoned(4096, device), key, first_block, secure)
    words = element_words(key, first_block, 4096, secure=secure)
    deep = (words[0] & np.uint32(0x7FFFFFFF)) == np.uint32(1 << 30)
    assert np.any(deep)
    assert (
        largest_relative_error(drawn, expected_noise(words, NOISE, device, narrow=True)) < FLOAT32_TOLERANCE
    )
    words[1, deep] ^= np.uint32(1 << 31)
    assert (
        largest_relative_error(drawn, expected_noise(words, NOISE, device, narrow=True)) > FLOAT32_TOLERANCE
    )


@ciphers
def test_float64_noise_is_the_reference_noise(secure, device, num_elements):
    key = random_key(2, secure=secure)
    drawn = draw(poisoned(num_elements, device, torch.float64), key, 0, secure)
    words = element_words(key, 0, num_elements, secure=secure)
    expected = expected_noise(words, NOISE, device, narrow=False)
    assert largest_relative_error(drawn, expected) < FLOAT64_TOLERANCE


@ciphers
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_adding_is_the_sum_in_the_wider_precision_rounded_once(dtype, secure, device, num_elements):
    key = random_key(3, secure=secure)
    start = torch.linspace(-4.0, 4.0, num_elements, device=device).to(dtype)
    noised = draw(start.clone(), key, 128, secure, add=True)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    drawn = draw(poisoned(num_elements, device, wide), key, 128, secure)
    exact = start.double() + drawn.double()
    # One unit in the last place: Triton's interpreter truncates where a device rounds to nearest.
    error = (noised.double() - exact).abs()
    assert torch.all(error <= torch.finfo(dtype).eps * exact.abs() + torch.finfo(dtype).tiny)


@ciphers
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 2047, 2048, 2049, 5001])
def test_any_length_is_written_whole_and_nothing_beyond_it(count, secure, device):
    key = random_key(4, secure=secure)
    longer = draw(poisoned(8192, device), key, 256, secure)
    storage = poisoned(8192, device)
    draw(storage[:count], key, 256, secure)
    assert torch.equal(storage[:count], longer[:count])
    assert torch.all(torch.isnan(storage[count:]))


def test_the_result_does_not_depend_on_the_launch(device, num_elements):
    key = random_key(5, secure=False)
    one = draw(poisoned(num_elements, device), key, 7, secure=False)
    for blocks, num_warps in [(64, 1), (128, 2), (512, 4), (1024, 8)]:
        shape = fused.LaunchShape(blocks, num_warps)
        assert torch.equal(one, draw(poisoned(num_elements, device), key, 7, secure=False, shape=shape))
    secure_key = random_key(5, secure=True)
    one = draw(poisoned(num_elements, device), secure_key, CHACHA_SPAN, secure=True)
    for num_warps in (2, 4):
        shape = replace(fused.CHACHA_SHAPE, num_warps=num_warps)
        other = draw(poisoned(num_elements, device), secure_key, CHACHA_SPAN, secure=True, shape=shape)
        assert torch.equal(one, other)


@ciphers
def test_the_next_blocks_continue_the_stream(secure, device):
    key = random_key(7, secure=secure)
    whole = draw(poisoned(8192, device), key, 0, secure)
    second_half = draw(poisoned(4096, device), key, 256 if secure else 1024, secure)
    assert torch.equal(whole[4096:], second_half)
