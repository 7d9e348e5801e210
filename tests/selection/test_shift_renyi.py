# SPDX-License-Identifier: Apache-2.0
"""Renyi divergences of a shift: mpmath, closed forms, symmetry, monotonicity."""

import math

import mpmath
import numpy as np
import pytest

from ggdp import Gaussian, GeneralizedGaussian, Laplace
from ggdp.selection.shift_renyi import order_grid, shift_renyi


def exact(beta, distance_over_scale, order):
    with mpmath.workdps(30):
        b, s, m = mpmath.mpf(beta), mpmath.mpf(distance_over_scale), mpmath.mpf(order)
        ratio = (1 - 1 / m) ** (1 / (b - 1))
        peak = s * ratio / (1 - ratio)

        def exponent(u):
            return -m * abs(u) ** b + (m - 1) * abs(u - s) ** b

        top = exponent(-peak)
        ends = sorted(
            [-peak - 40 ** (1 / b) * 2, -peak - 1, -peak, mpmath.mpf(0), s, s + 1, s + 60 ** (1 / b)]
        )
        mass = mpmath.quad(lambda u: mpmath.exp(exponent(u) - top), ends)
        return float((mpmath.log(mass / (2 * mpmath.gamma(1 + 1 / b))) + top) / (m - 1))


@pytest.mark.parametrize("beta", [1.05, 1.5, 3.0])
@pytest.mark.parametrize(("distance", "order"), [(1.0, 1.1), (1.0, 30.0), (0.02, 3.0), (0.02, 1000.0)])
def test_the_divergence_is_that_of_mpmath(beta, distance, order):
    found = shift_renyi(GeneralizedGaussian(beta, 1.0), [order], distance)[0]
    assert found == pytest.approx(exact(beta, distance, order), rel=1e-9)


@pytest.mark.parametrize("std", [0.5, 7.0, 150.0])
def test_quadrature_meets_the_closed_form_of_the_gaussian(std):
    orders = order_grid(1.1, 60.0 * std, 60)
    nearly = GeneralizedGaussian(math.nextafter(2.0, 3.0), Gaussian(std).scale)
    np.testing.assert_allclose(shift_renyi(nearly, orders), orders / (2.0 * std**2), rtol=1e-8)


def test_quadrature_meets_the_closed_form_of_laplace():
    orders = order_grid(1.1, 500.0, 40)
    nearly = shift_renyi(GeneralizedGaussian(1.0 + 1e-7, 3.0), orders)
    np.testing.assert_allclose(nearly, shift_renyi(Laplace(3.0), orders), rtol=1e-5)


def test_the_divergence_of_laplace_stays_below_its_pure_epsilon():
    found = shift_renyi(Laplace(3.0), order_grid(1.1, 1e6, 100))
    assert np.all(found <= 1.0 / 3.0)
    assert found[-1] == pytest.approx(1.0 / 3.0, rel=1e-5)


@pytest.mark.parametrize("beta", [1.0, 1.2, 2.0, 5.0])
def test_the_divergence_rises_with_order_and_distance(beta):
    noise = GeneralizedGaussian(beta, 10.0)
    orders = order_grid(1.05, 30.0, 80)
    near, far = shift_renyi(noise, orders), shift_renyi(noise, orders, 2.0)
    assert np.all(np.diff(near) > 0.0)
    assert np.all(far > near)


def test_an_order_too_high_to_compute_is_infinite_rather_than_wrong():
    assert shift_renyi(GeneralizedGaussian(8.0, 1.0), [1000.0])[0] == np.inf


@pytest.mark.parametrize(
    ("orders", "message"), [([1.0], "orders must be above 1"), ([np.nan], "orders must")]
)
def test_orders_out_of_range_are_refused(orders, message):
    with pytest.raises(ValueError, match=message):
        shift_renyi(Laplace(1.0), orders)
