# SPDX-License-Identifier: Apache-2.0
"""`sample` and `add_noise_` on a CUDA device: the law with enough draws to see the tail, and the streams."""

import numpy as np
import pytest
from scipy import stats

from ggdp import GeneralizedGaussian, SphericalGeneralizedGaussian
from kernel_reference import FLOAT32_TOLERANCE, element_words, expected_noise, largest_relative_error

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.cuda

from ggdp.distributions.pytorch import fused  # noqa: E402
from ggdp.distributions.pytorch.sampling import Piece, add_noise_to_pieces_  # noqa: E402
from ggdp.torch import add_noise_, sample, secure_generator  # noqa: E402

NOISE = GeneralizedGaussian(1.5, 2.0)
KEY = bytes(range(32))
NUM_DRAWS = 1 << 26
BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0]
GENERATORS = {
    "seeded": lambda: torch.Generator("cuda").manual_seed(5),
    "seeded on the CPU": lambda: torch.Generator().manual_seed(5),
    "secure": lambda: secure_generator(key=KEY),
}
generators = pytest.mark.parametrize("make_generator", GENERATORS.values(), ids=GENERATORS)


def largest_z(draws, noise):
    """Largest deviation, in standard errors, of the counts beyond quantiles from 0.9 down to 2^-20.

    Each threshold is moved to a number v of the draws' dtype: a rounded draw exceeds v exactly if the noise
    exceeded v by half a unit in the last place, so rounding does not enter.
    """
    size, worst = draws.abs(), 0.0
    for prob in np.append(np.arange(0.9, 0.1, -0.1), 2.0 ** -np.arange(4, 21)):
        value = float(torch.tensor(float(noise.isf(prob / 2)), dtype=draws.dtype))
        half_unit = 2.0 ** np.floor(np.log2(value)) * torch.finfo(draws.dtype).eps / 2
        beyond = float(noise.tail_weight(value + half_unit))
        deviation = int((size > value).sum()) - size.numel() * beyond
        worst = max(worst, abs(deviation) / np.sqrt(size.numel() * beyond * (1 - beyond)))
    return worst


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("secure", [False, True], ids=["philox", "chacha20"])
def test_counts_beyond_every_quantile_are_those_of_the_law(beta, secure):
    noise = GeneralizedGaussian(beta, 2.5)
    generator = GENERATORS["secure" if secure else "seeded"]()
    draws = sample(noise, (NUM_DRAWS,), generator=generator, device="cuda")
    assert largest_z(draws, noise) < 5.5
    assert largest_z(draws, GeneralizedGaussian(beta, 1.03 * noise.scale)) > 20.0
    cut_off = torch.where(draws.abs() < float(noise.isf(2.0**-15)), draws, 0.0)
    assert largest_z(cut_off, noise) > 20.0


@pytest.mark.parametrize("num_stds", [4, 5, 6])
@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0])
def test_as_many_draws_as_there_should_be_lie_beyond_four_five_and_six_deviations(beta, num_stds):
    noise = GeneralizedGaussian(beta, 2.5)
    generator, beyond, count = GENERATORS["seeded"](), num_stds * noise.std, 0
    num_calls = 64 if beta == 2.0 and num_stds == 6 else 8
    for _ in range(num_calls):
        count += int((sample(noise, (NUM_DRAWS,), generator=generator, device="cuda").abs() > beyond).sum())
    expected = num_calls * NUM_DRAWS * float(noise.tail_weight(beyond))
    near = num_calls * NUM_DRAWS * float(GeneralizedGaussian(beta, 1.03 * 2.5).tail_weight(beyond))
    assert abs(count - expected) < 4.5 * np.sqrt(expected) + 4.5
    assert abs(count - near) > 4.5 * np.sqrt(near) or near < 40.0  # 8 draws beyond six Gaussian deviations


@pytest.mark.parametrize(("beta", "dimension"), [(1.0, 2), (1.5, 3), (8.0, 4), (2.5, 100)])
@generators
def test_radius_and_angle_of_spherical_noise_follow_their_laws(beta, dimension, make_generator):
    noise = SphericalGeneralizedGaussian(beta, 1.7, dimension)
    vectors = sample(noise, (20_000,), generator=make_generator(), device="cuda", dtype=torch.float64)
    assert vectors.is_cuda
    vectors = vectors.cpu().numpy()
    radius, half = np.linalg.norm(vectors, axis=-1), 0.5 * (dimension - 1)
    share = 0.5 * (1.0 + vectors.sum(axis=-1) / (radius * np.sqrt(dimension)))
    for draws, law, *near in (
        (
            radius,
            stats.gengamma(dimension / beta, beta, scale=1.7),
            stats.gengamma(dimension / beta, beta, scale=1.7 * 1.04),
            stats.gengamma(1.05 * dimension / beta, beta, scale=1.7),
        ),
        (share, stats.beta(half, half), stats.beta(1.3 * half, 1.3 * half), stats.beta(half, 1.1 * half)),
    ):
        assert stats.kstest(draws, law.cdf).pvalue > 1e-4
        for other in near:
            assert stats.kstest(draws, other.cdf).pvalue < 1e-4
    for cosine in (share, np.abs(share - 0.5)):
        assert abs(np.corrcoef(radius, cosine)[0, 1]) * np.sqrt(len(radius)) < 4.5


def test_spherical_noise_is_added_to_tensors_on_the_device_as_one_vector():
    noise = SphericalGeneralizedGaussian(1.5, 2.0, 7)
    generator = torch.Generator("cuda")
    whole = sample(noise, (), generator=generator.manual_seed(5), device="cuda", dtype=torch.float64)
    parts = [torch.ones(2, 2, device="cuda").double(), torch.ones(3, device="cuda").double()]
    add_noise_(parts, noise, generator=generator.manual_seed(5))
    added = torch.cat([part.flatten() for part in parts]) - 1.0
    assert torch.allclose(added, whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@generators
def test_every_dtype_follows_the_law(dtype, make_generator):
    draws = sample(NOISE, (1 << 22,), generator=make_generator(), device="cuda", dtype=dtype)
    assert largest_z(draws, NOISE) < 5.5
    assert largest_z(draws, GeneralizedGaussian(NOISE.beta, 1.03 * NOISE.scale)) > 20.0


@generators
def test_a_generator_in_the_same_state_gives_the_same_noise_and_then_other_noise(make_generator):
    generator = make_generator()
    first, second = (sample(NOISE, (4099,), generator=generator, device="cuda") for _ in range(2))
    assert torch.equal(first, sample(NOISE, (4099,), generator=make_generator(), device="cuda"))
    assert not torch.any(first == second)


@generators
def test_tensors_of_a_list_get_different_parts_of_the_stream(make_generator):
    tensors = [
        torch.zeros(300, 7, device="cuda"),
        torch.zeros(1, device="cuda"),
        torch.zeros(500, device="cuda"),
    ]
    add_noise_(tensors, NOISE, generator=make_generator())
    drawn = torch.cat([tensor.flatten() for tensor in tensors])
    assert torch.unique(drawn).numel() >= drawn.numel() - 3  # float32 repeats by chance now and then


def test_ranks_steps_coordinates_and_calls_are_uncorrelated():
    shared = secure_generator(key=KEY)
    streams = [shared, shared.stream(rank=0), shared.stream(rank=1), shared.stream(rank=1, step=1)]
    rows = [sample(NOISE, (1 << 22,), generator=stream, device="cuda") for stream in [*streams, shared]]
    rows.append(rows[0].roll(1))
    for values in (torch.stack(rows).double(), torch.stack(rows).double().abs()):
        correlation = torch.corrcoef(values) - torch.eye(len(rows), device="cuda")
        assert float(correlation.abs().max()) * 2**11 < 4.5


def test_the_secure_generator_draws_the_keystream_of_its_key():
    drawn = sample(NOISE, (10_000,), generator=secure_generator(key=KEY), device="cuda")
    words = element_words(secure_generator(key=KEY).kernel_key(), 0, 10_000, secure=True)
    expected = expected_noise(words, NOISE, drawn.device, narrow=True)
    assert largest_relative_error(drawn, expected) < FLOAT32_TOLERANCE


def test_a_view_that_is_not_contiguous_is_noised_in_place():
    whole = torch.zeros(64, 96, device="cuda")
    add_noise_(whole.t()[10:20], NOISE, generator=GENERATORS["seeded"]())
    touched = whole != 0.0
    assert bool(touched[:, 10:20].all())
    assert int(touched.sum()) == 640


def test_without_triton_plain_pytorch_gives_the_same_law(monkeypatch):
    monkeypatch.setattr(fused, "triton_is_installed", lambda: False)
    draws = sample(NOISE, (NUM_DRAWS // 4,), generator=GENERATORS["seeded"](), device="cuda")
    assert largest_z(draws, NOISE) < 5.5
    assert largest_z(draws, GeneralizedGaussian(NOISE.beta, 1.03 * NOISE.scale)) > 20.0


@generators
@pytest.mark.parametrize("cut", [0, 1, 333, 512, 5000])
def test_pieces_of_tensors_get_the_noise_that_the_whole_tensors_get(make_generator, cut):
    whole = [torch.zeros(size, device="cuda") for size in (100_003, 7, 70_001)]
    add_noise_(whole, NOISE, generator=make_generator())
    halves = []
    for first in (True, False):
        ends = [(0, min(cut, len(each))) if first else (min(cut, len(each)), len(each)) for each in whole]
        pieces = [
            Piece(torch.zeros(stop - start, device="cuda"), start, len(each))
            for (start, stop), each in zip(ends, whole, strict=True)
        ]
        add_noise_to_pieces_(pieces, NOISE, generator=make_generator())
        halves.append([piece.tensor for piece in pieces])
    for left, right, each in zip(*halves, whole, strict=True):
        assert torch.equal(torch.cat([left, right]), each)
        assert each.any()
