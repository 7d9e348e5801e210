# SPDX-License-Identifier: Apache-2.0
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cases import NOISES
from ggdp import Gaussian, GeneralizedGaussian, Laplace
from ggdp.distributions.generalized_gaussian import BETA, SCALE
from oracle import exact, relative_error
from parameters import betas, outside, scales

EXPONENTS = [1e-30, 1e-8, 0.01, 0.3, 0.7, 1.0, 1.09, 1.11, 3.0, 9.0, 29.9, 30.1, 95.0, 240.0, 520.0, 690.0]
LOG_WEIGHTS = [-1e-12, -0.1, -1.0, -30.0, -700.0, -745.5, -2e3, -1e5, -1e9]

every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
exponents = st.floats(math.log(1e-30), math.log(690.0)).map(math.exp)
signs = st.sampled_from([-1.0, 1.0])


def point(noise, exponent, sign=1.0):
    return sign * noise.scale * exponent ** (1.0 / noise.beta)


def is_normal(value):
    return mpmath.mpf("2.3e-308") < abs(value) < mpmath.mpf("1.7e308")


# Guarantee 1: pdf, cdf and sf to 1e-12.


@every_noise
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_density_and_probabilities_match_mpmath_to_1e_12(noise, sign):
    for exponent in EXPONENTS:
        x = point(noise, exponent, sign)
        truth = exact(noise, x)
        for name in ("pdf", "cdf", "sf"):
            if is_normal(getattr(truth, name)):
                assert relative_error(getattr(noise, name)(x), getattr(truth, name)) <= 1e-12, (name, x)


@settings(max_examples=150, deadline=None)
@given(beta=betas, scale=scales, exponent=exponents, sign=signs)
def test_density_and_probabilities_match_mpmath_over_the_declared_ranges(beta, scale, exponent, sign):
    noise = GeneralizedGaussian(beta, scale)
    x = point(noise, exponent, sign)
    truth = exact(noise, x)
    for name in ("pdf", "cdf", "sf"):
        if is_normal(getattr(truth, name)):
            assert relative_error(getattr(noise, name)(x), getattr(truth, name)) <= 1e-12


@every_noise
def test_logpdf_is_the_logarithm_of_the_density_however_small(noise):
    for exponent in [0.5, 30.0, 5e3, 1e5]:
        x = point(noise, exponent)
        truth = mpmath.log(exact(noise, x).pdf)
        assert abs(float(noise.logpdf(x) - truth)) <= 1e-12 * max(1.0, abs(float(truth)), exponent)


# Guarantee 2: logsf and logcdf to 1e-12, far out.


@every_noise
@pytest.mark.parametrize("exponent", [*EXPONENTS, 745.0, 1e3, 3.3e4, 1e5, 1e7])
def test_logsf_matches_mpmath_to_1e_12_far_out(noise, exponent):
    x = point(noise, exponent)
    assert relative_error(noise.logsf(x), exact(noise, x).logsf) <= 1e-12
    assert relative_error(noise.logcdf(-x), exact(noise, -x).logcdf) <= 1e-12


@settings(max_examples=150, deadline=None)
@given(beta=betas, scale=scales, exponent=st.floats(math.log(1e-20), math.log(1e5)).map(math.exp), sign=signs)
def test_logsf_matches_mpmath_over_the_declared_ranges(beta, scale, exponent, sign):
    noise = GeneralizedGaussian(beta, scale)
    x = point(noise, exponent, sign)
    truth = exact(noise, x).logsf
    if is_normal(truth):  # log(1 - p) of a p below 1e-308 is no double
        assert relative_error(noise.logsf(x), truth) <= 1e-12


# Guarantee 3: quantiles.


@every_noise
@pytest.mark.parametrize("log_weight", LOG_WEIGHTS)
def test_isf_inverts_the_exact_log_survival_function(noise, log_weight):
    log_prob = log_weight - math.log(2.0)
    x = float(noise.isf(log_prob=log_prob))
    truth = exact(noise, x)
    with mpmath.workdps(50):
        error = (truth.logsf - mpmath.mpf(log_prob)) * truth.sf / (truth.pdf * mpmath.mpf(x))
    # Near the median, log_prob determines x only to the rounding of log_prob itself.
    conditioning = abs(log_prob * float(truth.sf / truth.pdf / mpmath.mpf(x)))
    assert abs(float(error)) <= 1e-12 + 2.0**-52 * conditioning


@every_noise
@pytest.mark.parametrize("prob", [5e-324, math.exp(-700.0), 1e-300, 1e-16, 0.01, 0.25, 0.4999, 0.5 - 2**-54])
def test_isf_takes_a_probability_down_to_the_smallest_double(noise, prob):
    x = float(noise.isf(prob))
    truth = exact(noise, x)
    with mpmath.workdps(50):
        error = (mpmath.log(truth.sf) - mpmath.log(mpmath.mpf(prob))) * truth.sf / (truth.pdf * mpmath.mpf(x))
    assert abs(float(error)) <= 1e-12
    assert noise.ppf(prob) == -x


@every_noise
def test_quantiles_at_the_ends_and_the_middle(noise):
    np.testing.assert_array_equal(noise.isf([0.0, 0.5, 1.0]), [math.inf, 0.0, -math.inf])
    np.testing.assert_array_equal(noise.ppf([0.0, 0.5, 1.0]), [-math.inf, 0.0, math.inf])
    np.testing.assert_array_equal(noise.isf(log_prob=[-math.inf, 0.0]), [math.inf, -math.inf])


@settings(max_examples=100, deadline=None)
@given(beta=betas, scale=scales, prob=st.floats(1e-300, 1.0 - 2**-53))
def test_survival_of_a_quantile_is_its_probability(beta, scale, prob):
    noise = GeneralizedGaussian(beta, scale)
    x = noise.isf(prob)
    # A quantile rounded to a double moves its own logarithmic survival by |x| * hazard rate * 2^-53.
    wobble = 2.0**-52 * abs(x) * noise.pdf(x) / min(prob, 1.0 - prob)
    assert noise.sf(x) == pytest.approx(prob, rel=1e-12 + 4.0 * wobble)


@pytest.mark.parametrize("bad", [{}, {"prob": 0.1, "log_prob": -1.0}])
def test_isf_wants_exactly_one_of_its_two_arguments(bad):
    with pytest.raises(ValueError, match="exactly one"):
        Laplace(1.0).isf(**bad)


@pytest.mark.parametrize("bad", [-0.1, 1.5, [0.5, 2.0]])
def test_quantile_of_what_is_no_probability_is_refused(bad):
    with pytest.raises(ValueError, match=r"prob must be a number in \[0, 1\], got"):
        Laplace(1.0).ppf(bad)


# Peers and closed forms.


@pytest.mark.parametrize(
    ("noise", "peer"), [(Laplace(0.7), stats.laplace(scale=0.7)), (Gaussian(3.3), stats.norm(scale=3.3))]
)
@pytest.mark.parametrize("name", ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf"])
def test_named_special_cases_match_scipy(noise, peer, name):
    x = np.linspace(-20.0, 20.0, 101)
    np.testing.assert_allclose(getattr(noise, name)(x), getattr(peer, name)(x), rtol=2e-13)


@every_noise
def test_gennorm_is_the_same_law(noise):
    peer = stats.gennorm(noise.beta, scale=noise.scale)
    x = noise.scale * np.linspace(-1.3, 1.3, 27)
    for name in ("pdf", "cdf", "sf"):
        np.testing.assert_allclose(getattr(noise, name)(x), getattr(peer, name)(x), rtol=1e-9)


@every_noise
def test_moments_entropy_and_information_match_integrals(noise):
    unit = GeneralizedGaussian(noise.beta, 1.0)
    beta = mpmath.mpf(noise.beta)
    with mpmath.workdps(30):
        norm = mpmath.gamma(1 + 1 / beta)
        end = (mpmath.mpf(120)) ** (1 / beta)

        def mean_of(function):
            edges = [0, min(mpmath.mpf("0.7"), end / 2), min(mpmath.mpf(1), end * mpmath.mpf("0.8")), end]
            return mpmath.quad(lambda x: function(x) * mpmath.exp(-(x**beta)), edges) / norm

        variance = float(mean_of(lambda x: x**2))
        assert unit.variance == pytest.approx(variance, rel=1e-11)
        assert unit.kurtosis == pytest.approx(float(mean_of(lambda x: x**4)) / variance**2, rel=1e-11)
        assert unit.entropy == pytest.approx(
            float(mean_of(lambda x: x**beta) + mpmath.log(2 * norm)), rel=1e-11
        )
        score = float(mean_of(lambda x: (beta * x ** (beta - 1)) ** 2))
        assert unit.fisher_information == pytest.approx(score, rel=1e-11)
    assert noise.mean == 0.0
    assert noise.std == pytest.approx(noise.scale * unit.std, rel=1e-14)
    assert noise.variance == pytest.approx(noise.scale**2 * unit.variance, rel=1e-14)
    assert noise.entropy == pytest.approx(unit.entropy + math.log(noise.scale), rel=1e-14)
    assert noise.fisher_information == pytest.approx(unit.fisher_information / noise.scale**2, rel=1e-14)


# Properties.


@settings(max_examples=100, deadline=None)
@given(beta=betas, scale=scales, ratio=st.floats(-3.0, 3.0))
def test_the_law_is_symmetric_and_its_two_sides_add_to_one(beta, scale, ratio):
    noise = GeneralizedGaussian(beta, scale)
    x = scale * ratio
    assert noise.pdf(x) == noise.pdf(-x)
    assert noise.sf(x) == noise.cdf(-x)
    assert noise.logsf(x) == noise.logcdf(-x)
    assert noise.sf(x) + noise.cdf(x) == pytest.approx(1.0, rel=1e-15)
    assert noise.tail_weight(abs(x)) == pytest.approx(2.0 * noise.sf(abs(x)), rel=1e-15)


@settings(max_examples=60, deadline=None)
@given(beta=betas, scale=scales)
def test_survival_falls_and_log_survival_is_concave(beta, scale):
    noise = GeneralizedGaussian(beta, scale)
    x = scale * np.linspace(-2.0, 2.0, 41)
    log_survival = noise.logsf(x)
    assert np.all(np.diff(log_survival) <= 0.0)
    slopes = np.diff(log_survival)
    assert np.all(np.diff(slopes) <= 1e-9 * np.maximum(1.0, np.abs(slopes[1:])))


@settings(max_examples=60, deadline=None)
@given(beta=betas, scale=st.floats(1e-50, 1e50), factor=st.sampled_from([2.0**-30, 0.5, 2.0, 2.0**30]))
def test_scaling_the_noise_scales_its_argument(beta, scale, factor):
    noise, scaled = GeneralizedGaussian(beta, scale), GeneralizedGaussian(beta, factor * scale)
    assert scaled.sf(1.1 * scale * factor) == pytest.approx(noise.sf(1.1 * scale), rel=1e-14)
    assert scaled.isf(1e-5) == pytest.approx(factor * noise.isf(1e-5), rel=1e-14)


@every_noise
def test_infinities_are_the_ends_and_nan_stays_nan(noise):
    x = np.array([-math.inf, math.inf, math.nan, 0.0])
    np.testing.assert_array_equal(noise.sf(x), [1.0, 0.0, math.nan, 0.5])
    np.testing.assert_array_equal(noise.pdf(x)[:3], [0.0, 0.0, math.nan])
    np.testing.assert_array_equal(noise.logsf(x)[:3], [0.0, -math.inf, math.nan])


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_all_scales_are_the_ends_too_without_a_warning():
    noise = GeneralizedGaussian(beta=3.0, scale=1e-50)
    assert (noise.sf(1e308), noise.cdf(1e308), noise.logsf(1e308), noise.logcdf(1e308)) == (
        0.0,
        1.0,
        -math.inf,
        0.0,
    )


@every_noise
@pytest.mark.parametrize("name", ["pdf", "logpdf", "cdf", "sf", "logcdf", "logsf", "tail_weight"])
def test_arrays_keep_their_shape_and_numbers_give_numbers(noise, name):
    function = getattr(noise, name)
    grid = noise.scale * np.arange(6.0).reshape(2, 3)
    assert function(grid).shape == (2, 3)
    assert function([]).shape == (0,)
    assert isinstance(function(noise.scale), float)
    assert function(grid)[0, 1] == function(noise.scale)
    assert function(2) == function(2.0)


# Construction.


def test_each_constructor_is_built_from_what_it_names():
    assert GeneralizedGaussian.from_std(1.5, 2.0).std == pytest.approx(2.0, rel=1e-15)
    assert GeneralizedGaussian.from_noise_multiplier(2.0, 1.5, sensitivity=0.5).std == pytest.approx(
        0.75, rel=1e-15
    )
    assert GeneralizedGaussian.from_noise_multiplier(1.5, 2.0).scale == 2.0 * math.sqrt(2.0)
    paper = GeneralizedGaussian.from_definition8_sigma(1.5, 3.0)
    x = np.array([0.0, 0.3, 2.0])
    np.testing.assert_allclose(paper.logpdf(x) - paper.logpdf(0.0), -(x**1.5) / 3.0, rtol=1e-14, atol=1e-15)
    assert Gaussian(std=2.0).std == pytest.approx(2.0, rel=1e-15)
    assert Laplace(scale=2.0).beta == 1.0


def test_equal_parameters_are_one_key_and_fields_cannot_change():
    noise = GeneralizedGaussian(beta=2, scale=1)
    assert {noise: "found"}[GeneralizedGaussian(2.0, 1.0)] == "found"
    with pytest.raises(AttributeError):
        noise.beta = 3.0


@pytest.mark.parametrize("bad", outside(BETA), ids=repr)
def test_beta_outside_its_range_is_refused_by_name_value_and_range(bad):
    with pytest.raises(ValueError, match=r"^beta must be a number in \[1, 64\], got "):
        GeneralizedGaussian(beta=bad, scale=1.0)


@pytest.mark.parametrize("bad", outside(SCALE), ids=repr)
def test_scale_outside_its_range_is_refused_by_name_value_and_range(bad):
    with pytest.raises(ValueError, match=r"^scale must be a number in \[1e-100, 1e\+100\], got "):
        GeneralizedGaussian(beta=1.5, scale=bad)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "2"], ids=repr)
def test_constructors_refuse_by_the_name_of_their_own_argument(bad):
    with pytest.raises(ValueError, match=r"^std must be"):
        GeneralizedGaussian.from_std(1.5, bad)
    with pytest.raises(ValueError, match=r"^std must be"):
        Gaussian(bad)
    with pytest.raises(ValueError, match=r"^noise_multiplier must be"):
        GeneralizedGaussian.from_noise_multiplier(1.5, bad)
    with pytest.raises(ValueError, match=r"^sensitivity must be"):
        GeneralizedGaussian.from_noise_multiplier(1.5, 1.0, sensitivity=bad)
    with pytest.raises(ValueError, match=r"^sigma must be"):
        GeneralizedGaussian.from_definition8_sigma(1.5, bad)


def test_tail_weight_of_a_negative_distance_is_refused():
    with pytest.raises(ValueError, match=r"t must be a number in \[0, inf\), got -1.0"):
        Laplace(1.0).tail_weight(-1.0)
