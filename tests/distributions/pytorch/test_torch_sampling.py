# SPDX-License-Identifier: Apache-2.0
"""`sample` and `add_noise_` on the CPU: the law in every dtype, streams that never meet, refusals."""

import io

import numpy as np
import pytest

from ggdp import GeneralizedGaussian, Laplace, SphericalGeneralizedGaussian
from laws import BETAS, LEVEL, count_pvalue, ks_pvalue, look_independent, scaled

torch = pytest.importorskip("torch")

from ggdp.distributions.pytorch.streams import CHACHA_SPAN, deal_words, stream_of  # noqa: E402
from ggdp.torch import add_noise_, sample, secure_generator  # noqa: E402

NUM_DRAWS = 200_000
KEY = bytes(range(32))
NOISE = GeneralizedGaussian(1.5, 2.0)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


GENERATORS = {"seeded": lambda: seeded(5), "secure": lambda: secure_generator(key=KEY)}
generators = pytest.mark.parametrize("make_generator", GENERATORS.values(), ids=GENERATORS)


def as_array(tensor):
    return tensor.double().numpy().ravel()


@pytest.mark.parametrize(
    ("beta", "dtype", "words"),
    [
        *((beta, torch.float32, "seeded") for beta in BETAS),
        *((1.5, dtype, "seeded") for dtype in DTYPES if dtype != torch.float32),
        *((1.5, dtype, "secure") for dtype in DTYPES),  # other words, and the same noise made of them
    ],
    ids=str,
)
def test_draws_follow_the_law_and_not_one_three_percent_off(beta, dtype, words):
    noise = GeneralizedGaussian(beta, 2.5)
    draws = as_array(sample(noise, (NUM_DRAWS,), generator=GENERATORS[words](), dtype=dtype))
    assert ks_pvalue(draws, noise) > LEVEL
    assert ks_pvalue(draws, scaled(noise, 1.03)) < LEVEL


@generators
@pytest.mark.parametrize("num_stds", [4, 5, 6])
def test_as_many_laplace_draws_as_there_should_be_lie_beyond_four_five_and_six_deviations(
    num_stds, make_generator
):
    noise = Laplace(2.5)
    draws = as_array(sample(noise, (10 * NUM_DRAWS,), generator=make_generator()))
    assert count_pvalue(draws, noise, num_stds * noise.std) > LEVEL
    assert count_pvalue(draws, scaled(noise, 1.03), num_stds * noise.std) < LEVEL
    assert count_pvalue(draws[np.abs(draws) < num_stds * noise.std], noise, num_stds * noise.std) < LEVEL


@dtypes
@generators
def test_adding_noise_is_adding_a_sample_in_the_wider_precision(make_generator, dtype):
    start = torch.linspace(-3.0, 3.0, 1001, dtype=dtype)
    noised = add_noise_(start.clone(), NOISE, generator=make_generator())
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    drawn = sample(NOISE, (1001,), generator=make_generator(), dtype=wide)
    assert noised.dtype == dtype
    torch.testing.assert_close(noised, (start.to(wide) + drawn).to(dtype), rtol=0, atol=0)


@generators
def test_tensors_of_a_list_get_different_parts_of_one_stream(make_generator):
    tensors = [torch.zeros(300, 7), torch.zeros(1), torch.zeros(5000)]
    returned = add_noise_(tensors, NOISE, generator=make_generator())
    assert returned is tensors
    drawn = np.concatenate([as_array(tensor) for tensor in tensors])
    assert np.unique(drawn).size == drawn.size


@generators
def test_successive_calls_and_neighbouring_coordinates_are_independent(make_generator):
    generator = make_generator()
    first, second = (as_array(sample(NOISE, (NUM_DRAWS,), generator=generator)) for _ in range(2))
    assert look_independent(first, second)
    assert look_independent(first[1:], first[:-1])
    assert not look_independent(first, np.abs(first) + second)


def test_ranks_and_steps_that_share_a_key_are_independent():
    shared = secure_generator(key=KEY)
    streams = [shared.stream(rank=rank, step=step) for rank, step in [(0, 0), (0, 1), (1, 0)]]
    draws = [as_array(sample(NOISE, (NUM_DRAWS,), generator=stream)) for stream in streams]
    root = as_array(sample(NOISE, (NUM_DRAWS,), generator=secure_generator(key=KEY)))
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert look_independent(draws[one], draws[other])
    assert all(look_independent(root, other) for other in draws)


@generators
def test_a_generator_in_the_same_state_gives_the_same_noise(make_generator):
    one, other = (sample(NOISE, (3, 5), generator=make_generator()) for _ in range(2))
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_without_a_generator_noise_does_not_repeat_whatever_the_global_seed():
    torch.manual_seed(0)
    first = sample(NOISE, (10,))
    torch.manual_seed(0)
    assert not torch.any(first == sample(NOISE, (10,)))


def test_global_randomness_is_left_alone():
    before = torch.get_rng_state()
    sample(NOISE, (10,))
    sample(NOISE, (10,), generator=seeded(1))
    assert torch.equal(before, torch.get_rng_state())


def test_parameters_that_require_gradients_are_noised_outside_autograd():
    parameter = torch.nn.Parameter(torch.zeros(100))
    add_noise_([parameter], NOISE, generator=seeded(2))
    assert parameter.requires_grad
    assert parameter.grad_fn is None
    assert torch.all(parameter != 0.0)


def test_a_view_is_noised_in_place_and_its_neighbours_are_not():
    whole = torch.zeros(6, 8)
    add_noise_(whole.t()[2:4], NOISE, generator=seeded(3))
    touched = whole != 0.0
    assert torch.all(touched[:, 2:4])
    assert int(touched.sum()) == 12


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,), (3, 5)])
def test_a_sample_has_the_shape_asked_for(shape):
    assert sample(NOISE, shape, generator=seeded(4)).shape == shape


def test_a_checkpoint_refuses_the_secure_generator():
    with pytest.raises(TypeError, match="not pickled, copied or saved"):
        torch.save({"generator": secure_generator()}, io.BytesIO())


@pytest.mark.parametrize("num_elements", [1, 512, 513, 5000])
def test_triples_of_a_secure_stream_are_the_dealt_words_of_its_three_domains(num_elements):
    triples = stream_of(secure_generator(key=KEY)).triples(num_elements, torch.device("cpu"))
    generator = secure_generator(key=KEY)
    num_blocks = CHACHA_SPAN * -(-num_elements // (16 * CHACHA_SPAN))
    for domain in range(3):
        words = deal_words(generator.blocks(0, num_blocks, domain=domain).view(np.int32))
        np.testing.assert_array_equal(triples[domain].numpy(), words[:num_elements])


def test_dealing_words_moves_each_to_the_element_that_owns_it():
    span, num_blocks = 4, 8
    dealt = deal_words(np.arange(16 * num_blocks, dtype=np.int32), span)
    for block in range(num_blocks):
        for row in range(4):
            for word in range(4):
                element = 16 * span * (block // span) + 4 * (row * span + block % span) + word
                assert dealt[element] == 16 * block + 4 * row + word


@generators
def test_two_reservations_of_a_stream_never_overlap(make_generator):
    stream = stream_of(make_generator())
    key = stream.kernel_key(torch.device("cpu"))
    assert stream.reserve(5) == 0
    second = stream.reserve(5000)
    assert second >= 2
    assert stream.reserve(1) >= second + -(-5000 // 16)
    assert torch.equal(key, stream.kernel_key(torch.device("cpu")))


@pytest.mark.parametrize("generator", [7, np.random.default_rng(1), "cuda"])
def test_anything_but_a_generator_is_refused(generator):
    with pytest.raises(ValueError, match="generator must be of type Generator"):
        sample(NOISE, (3,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_dtype_that_cannot_hold_noise_is_refused(dtype):
    with pytest.raises(ValueError, match="dtype must be one of"):
        add_noise_(torch.zeros(3, dtype=dtype), NOISE, generator=seeded(6))


@pytest.mark.parametrize(
    ("scale", "dtype"), [(1e-60, torch.float32), (1e3, torch.float16), (1e-60, torch.bfloat16)]
)
def test_noise_that_would_vanish_or_overflow_in_a_dtype_is_refused(scale, dtype):
    with pytest.raises(ValueError, match=r"scale must be a number in .* use a wider dtype"):
        sample(Laplace(scale), (3,), generator=seeded(7), dtype=dtype)


def test_a_list_of_anything_but_tensors_is_refused():
    with pytest.raises(ValueError, match="tensors must be of type Tensor"):
        add_noise_([np.zeros(3)], NOISE, generator=seeded(8))


def test_tensors_drawn_together_get_the_noise_one_long_tensor_would():
    tensors = [
        torch.zeros(0),
        torch.zeros(3, 4),
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(5),
        torch.zeros(7),
    ]
    generators = [torch.Generator().manual_seed(6) for _ in range(2)]
    noise = GeneralizedGaussian(1.5, 2.0)
    add_noise_(tensors, noise, generator=generators[0])
    lengths = [12, 2, 12]  # runs of one dtype
    expected = [
        sample(noise, (length,), generator=generators[1], dtype=dtype)
        for length, dtype in zip(lengths, (torch.float32, torch.float64, torch.float32), strict=True)
    ]
    assert torch.equal(tensors[1].reshape(-1), expected[0])
    assert torch.equal(tensors[2], expected[1])
    assert torch.equal(torch.cat(tensors[3:]), expected[2])


def test_one_vector_of_spherical_noise_is_added_to_all_tensors_together():
    noise = SphericalGeneralizedGaussian(1.5, 2.0, 7)
    whole = sample(noise, (), generator=seeded(5), dtype=torch.float64)
    parts = [torch.ones(2, 2, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    assert add_noise_(parts, noise, generator=seeded(5)) is parts
    added = torch.cat([part.flatten() for part in parts]) - 1.0
    assert torch.allclose(added, whole, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(sample(noise, (), generator=seeded(6), dtype=torch.float64), whole)
    assert sample(noise, (2, 3)).shape == (2, 3, 7)
    assert sample(noise, (0,)).shape == (0, 7)


def test_spherical_noise_that_does_not_fit_its_tensors_is_refused():
    noise = SphericalGeneralizedGaussian(1.0, 1.0, 4)
    with pytest.raises(ValueError, match="as many numbers as the noise has dimensions, 4, got 3"):
        add_noise_(torch.zeros(3), noise)
    with pytest.raises(ValueError, match="one dtype and one device"):
        add_noise_([torch.zeros(2), torch.zeros(2, dtype=torch.float64)], noise)
    with pytest.raises(ValueError, match=r"length of the noise must be .* use a wider dtype"):
        sample(SphericalGeneralizedGaussian(1.0, 1e4, 4), (), dtype=torch.float16)
