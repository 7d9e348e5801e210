# SPDX-License-Identifier: Apache-2.0
"""Spherical noise against SciPy and mpmath: density, radius, moments; draws with both arms."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from ggdp import Gaussian, GeneralizedGaussian, SphericalGeneralizedGaussian, secure_generator
from laws import LEVEL

LAWS = [(1.0, 2), (1.5, 3), (3.0, 2), (8.0, 4), (2.5, 100)]
every_law = pytest.mark.parametrize(("beta", "dimension"), LAWS)
GENERATORS = {
    "numpy": lambda: np.random.default_rng(11),
    "secure": lambda: secure_generator(key=bytes(range(32))),
}


def torch_draws(noise, count, kind):
    torch = pytest.importorskip("torch")
    from ggdp.torch import sample
    from ggdp.torch import secure_generator as torch_secure_generator

    seeded = torch.Generator().manual_seed(12)
    generator = torch_secure_generator(key=bytes(range(32))) if kind == "torch-secure" else seeded
    dtype = torch.float64 if kind == "torch-secure" else torch.float32
    return sample(noise, (count,), generator=generator, dtype=dtype).double().numpy()


KINDS = [*GENERATORS, "torch", "torch-secure"]


def radius_law(beta, dimension, scale):
    return stats.gengamma(dimension / beta, beta, scale=scale)


@pytest.mark.parametrize("dimension", [1, 2, 5, 50])
def test_the_density_at_beta_two_is_that_of_independent_gaussians(dimension):
    x = np.random.default_rng(1).normal(size=(7, dimension))
    found = SphericalGeneralizedGaussian(2.0, math.sqrt(2.0) * 0.7, dimension).logpdf(x)
    assert found == pytest.approx(Gaussian(std=0.7).logpdf(x).sum(axis=-1), rel=1e-12)


@pytest.mark.parametrize("beta", [1.0, 1.5, 7.0])
def test_in_one_dimension_the_density_is_generalized_gaussian(beta):
    x = np.linspace(-3.0, 3.0, 13)
    found = SphericalGeneralizedGaussian(beta, 1.3, 1).logpdf(x[:, None])
    assert found == pytest.approx(GeneralizedGaussian(beta, 1.3).logpdf(x), rel=1e-12, abs=1e-13)


@every_law
def test_the_density_integrates_to_one_over_spheres(beta, dimension):
    noise = SphericalGeneralizedGaussian(beta, 1.7, dimension)
    axis = np.zeros(dimension)
    axis[0] = 1.0
    with mpmath.workdps(25):
        area = 2 * mpmath.pi ** (mpmath.mpf(dimension) / 2) / mpmath.gamma(mpmath.mpf(dimension) / 2)
        ends = [0, *(float(noise.radius_isf(p)) for p in (0.999, 0.5, 1e-3, 1e-12)), 60.0]
        total = mpmath.quad(
            lambda r: area * r ** (dimension - 1) * mpmath.exp(float(noise.logpdf(float(r) * axis))), ends
        )
    assert float(total) == pytest.approx(1.0, rel=1e-9)


@every_law
def test_the_radius_has_a_generalized_gamma_law(beta, dimension):
    noise, law = SphericalGeneralizedGaussian(beta, 1.7, dimension), radius_law(beta, dimension, 1.7)
    t = law.isf([0.99, 0.5, 1e-3, 1e-9])
    assert noise.radius_sf(t) == pytest.approx([0.99, 0.5, 1e-3, 1e-9], rel=1e-9)
    assert noise.radius_isf(noise.radius_sf(t)) == pytest.approx(t, rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 3, 1500, 10**6])
@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 8.0])
@pytest.mark.parametrize("order", [1.0, 2.0, 4.0])
def test_moments_are_ratios_of_gamma_functions(dimension, beta, order):
    noise = SphericalGeneralizedGaussian(beta, 0.5, dimension)
    with mpmath.workdps(40):
        a = mpmath.mpf(dimension) / mpmath.mpf(beta)
        log = mpmath.loggamma(a + order / mpmath.mpf(beta)) - mpmath.loggamma(a)
        truth = mpmath.mpf(0.5) ** order * mpmath.exp(log)
    assert noise.radius_moment(order) == pytest.approx(float(truth), rel=1e-11)
    if order == 2.0:
        assert noise.mean_square == pytest.approx(float(truth), rel=1e-11)
        assert SphericalGeneralizedGaussian.from_std(beta, noise.std, dimension).scale == pytest.approx(0.5)


@pytest.fixture(scope="module")
def draws():
    made = {}

    def drawn(beta, dimension, kind):
        if (beta, dimension, kind) not in made:
            noise = SphericalGeneralizedGaussian(beta, 1.7, dimension)
            made[beta, dimension, kind] = (
                noise.sample(20_000, rng=GENERATORS[kind]())
                if kind in GENERATORS
                else torch_draws(noise, 20_000, kind)
            )
        return made[beta, dimension, kind]

    return drawn


@every_law
@pytest.mark.parametrize("kind", KINDS)
def test_radii_are_accepted_as_their_law_and_rejected_as_a_near_one(beta, dimension, kind, draws):
    radius = np.linalg.norm(draws(beta, dimension, kind), axis=-1)
    assert stats.kstest(radius, radius_law(beta, dimension, 1.7).cdf).pvalue > LEVEL
    for near in (radius_law(beta, dimension, 1.7 * 1.04), radius_law(beta, dimension * 1.05, 1.7)):
        assert stats.kstest(radius, near.cdf).pvalue < LEVEL


@every_law
@pytest.mark.parametrize("kind", KINDS)
def test_directions_are_accepted_as_uniform_and_rejected_as_a_near_one(beta, dimension, kind, draws):
    vectors = draws(beta, dimension, kind)
    along = np.ones(dimension) / math.sqrt(dimension)
    cosine = vectors @ along / np.linalg.norm(vectors, axis=-1)
    half = 0.5 * (dimension - 1)
    assert stats.kstest(0.5 * (1.0 + cosine), stats.beta(half, half).cdf).pvalue > LEVEL
    tilted = stats.beta(half * 1.3, half * 1.3), stats.beta(half, half * 1.1)
    for near in tilted:
        assert stats.kstest(0.5 * (1.0 + cosine), near.cdf).pvalue < LEVEL


@every_law
def test_radius_and_direction_are_independent(beta, dimension, draws):
    vectors = draws(beta, dimension, "numpy")
    radius = np.linalg.norm(vectors, axis=-1)
    cosine = vectors[:, 0] / radius
    for one in (cosine, np.abs(cosine)):
        assert abs(np.corrcoef(radius, one)[0, 1]) * math.sqrt(len(radius)) < 4.5
    # the other arm: lengths of independent coordinates do depend on the direction
    iid = GeneralizedGaussian(8.0, 1.0).sample((20_000, 2), rng=np.random.default_rng(5))
    length = np.linalg.norm(iid, axis=-1)
    diagonal = np.abs(iid).min(axis=1) / length
    assert abs(np.corrcoef(length, diagonal)[0, 1]) * math.sqrt(len(length)) > 4.5


POWER = -1.4


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_of_the_radius_changes_the_law_of_the_length_alone(kind):
    noise = SphericalGeneralizedGaussian(1.5, 1.7, 2, power=POWER)  # of a shape below 1
    vectors = (
        noise.sample(20_000, rng=GENERATORS[kind]())
        if kind in GENERATORS
        else torch_draws(noise, 20_000, kind)
    )
    radius = np.linalg.norm(vectors, axis=-1)
    law, near = (stats.gengamma((2.0 + power) / 1.5, 1.5, scale=1.7) for power in (POWER, 0.95 * POWER))
    assert stats.kstest(radius, law.cdf).pvalue > LEVEL
    assert stats.kstest(radius, near.cdf).pvalue < LEVEL
    angle = np.arctan2(vectors[:, 1], vectors[:, 0]) / (2.0 * math.pi) % 1.0
    assert stats.kstest(angle, "uniform").pvalue > LEVEL
    assert noise.radius_sf(1.0) == pytest.approx(law.sf(1.0), rel=1e-12)
    assert noise.mean_square == pytest.approx(law.moment(2), rel=1e-9)
    assert noise.std == pytest.approx(SphericalGeneralizedGaussian.from_std(1.5, noise.std, 2, POWER).std)


@pytest.mark.parametrize("power", [POWER, 3.0])
def test_the_density_with_a_power_of_the_radius_integrates_to_one(power):
    noise = SphericalGeneralizedGaussian(1.5, 1.7, 2, power)
    with mpmath.workdps(20):
        total = mpmath.quad(
            lambda r: 2 * mpmath.pi * r * mpmath.exp(float(noise.logpdf([float(r), 0.0]))),
            [0, 1e-9, 1e-4, 0.1, 2, 10, 60],
        )
    assert float(total) == pytest.approx(1.0, rel=1e-5)
    assert noise.logpdf([0.0, 0.0]) == (math.inf if power < 0.0 else -math.inf)


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_sample_has_the_shape_asked_for_and_one_axis_more(kind):
    noise = SphericalGeneralizedGaussian(1.0, 1.0, 3)
    for shape, full in [((), (3,)), (4, (4, 3)), ((2, 5), (2, 5, 3)), ((0,), (0, 3))]:
        assert noise.sample(shape, rng=GENERATORS[kind]()).shape == full
    assert np.isfinite(SphericalGeneralizedGaussian(1.0, 1.0, 10**6).sample((), rng=GENERATORS[kind]())).all()


def test_a_point_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="x must have a last axis of length 3"):
        SphericalGeneralizedGaussian(1.0, 1.0, 3).logpdf([1.0, 2.0])
