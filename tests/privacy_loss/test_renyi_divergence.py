# SPDX-License-Identifier: Apache-2.0
"""Renyi divergences of one coordinate, against mpmath and closed forms."""

import math

import mpmath as mp
import numpy as np
import pytest

from ggdp.privacy_loss import renyi_panels
from ggdp.privacy_loss.renyi_divergence import LARGEST_GAIN, PROVED_ERROR, gains, sampled_gain
from ggdp.privacy_loss.shift_pair import ShiftPair
from ggdp.privacy_loss.worst_split import ORDERS
from pair_oracle import ExactPair


def gain_by_mpmath(beta, order, shift):
    """log of the integral of p^a q^(1-a), straight from the definition, at 40 digits."""
    with mp.workdps(40):
        beta, order, shift = mp.mpf(beta), mp.mpf(order), mp.mpf(shift)

        def exponent(z):
            return -order * abs(z) ** beta + (order - 1) * abs(z - shift) ** beta

        low, high = mp.mpf(-1), shift + 1
        while exponent(low) > -80:
            low *= mp.mpf("1.2")
        while exponent(high) > -80:
            high *= mp.mpf("1.2")
        points = {low, mp.mpf(0), shift, high}
        for kink in (mp.mpf(0), shift):
            for side in (-1, 1):
                points |= {kink + side * mp.mpf(4) ** -k for k in range(-4, 14)}
        points |= {low + (shift - low) * k / 12 for k in range(12)}
        inside = sorted(point for point in points if low <= point <= high)
        total = mp.quad(lambda z: mp.exp(exponent(z)), inside, method="gauss-legendre", maxdegree=5)
        return mp.log(total / (2 * mp.gamma(1 + 1 / beta)))


@pytest.mark.parametrize(
    ("beta", "order", "shift"),
    [
        (1.0, 2.5, 0.7),
        (1.1, 12.0, 0.35),
        (1.25, 1.2, 1.5),
        (1.5, 2.0, 0.707),
        (1.5, 40.0, 0.05),
        (1.75, 6.5, 0.3),
        (1.9, 3.0, 2.3),
        (2.5, 4.0, 0.6),
        (3.0, 7.0, 0.2),
        (4.0, 2.0, 0.5),
        (8.0, 1.5, 0.4),
    ],
)
def test_gains_agree_with_mpmath_to_ten_digits(beta, order, shift):
    exact = gain_by_mpmath(beta, order, shift)
    assert abs(gains(beta, np.array([order]), shift)[0] / exact - 1) <= PROVED_ERROR


def integral_by_mpmath(beta, order, shift):
    with mp.workdps(40):
        return mp.expm1(gain_by_mpmath(beta, order, shift))


@pytest.mark.parametrize(
    ("beta", "order", "shift"),
    [(1.2, 5.0, 0.4), (1.5, 30.0, 0.1), (1.9, 1.5, 1.0), (2.5, 6.0, 0.5), (3.0, 2.0, 1.0)],
)
@pytest.mark.parametrize("nodes", [4, 6, 20])
def test_quadrature_errs_by_no_more_than_is_proved_also_with_few_nodes(
    monkeypatch, beta, order, shift, nodes
):
    """With few nodes the proved error is large, and the true one must still be below it."""
    monkeypatch.setattr(renyi_panels, "_COUNT", nodes)
    points, weights = np.polynomial.legendre.leggauss(nodes)
    monkeypatch.setattr(renyi_panels, "_NODES", points)
    monkeypatch.setattr(renyi_panels, "_WEIGHTS", weights)
    monkeypatch.setattr(renyi_panels, "_MOST_ROUNDS", 3 if nodes < 20 else 40)
    found = renyi_panels.integrals(beta, np.array([order]), shift)
    exact = integral_by_mpmath(beta, order, shift)
    assert found.error[0] > 0.0
    assert abs(mp.exp(mp.mpf(float(found.log_value[0]))) / exact - 1) <= found.error[0]
    assert nodes < 20 or found.error[0] < 1e-11


@pytest.mark.parametrize("beta", [1.0, 1.001, 1.33, 1.75, 1.999, 2.0001, 2.7, 3.0, 5.5, 8.0])
def test_every_order_that_is_of_use_is_proved_at_every_shift(beta):
    for shift in (1e-7, 1e-3, 0.08, 0.9, 7.0, 60.0):
        useful = renyi_panels.peak_gain(beta, ORDERS, shift) <= LARGEST_GAIN - 20.0
        assert np.all(np.isfinite(gains(beta, ORDERS[useful], shift)))


@pytest.mark.parametrize("shift", [1e-9, 1e-4, 0.01, 0.9, 3.0])
@pytest.mark.parametrize("order", [1.0 + 1e-9, 1.5, 2.0, 30.0])
def test_laplace_gains_are_the_closed_form_at_every_size(order, shift):
    with mp.workdps(60):
        a, m = mp.mpf(order), mp.mpf(shift)
        exact = mp.log((a * mp.exp((a - 1) * m) + (a - 1) * mp.exp(-a * m)) / (2 * a - 1))
        found = gains(1.0, np.array([order]), shift)[0]
        assert abs(found / exact - 1) < 1e-10


@pytest.mark.parametrize("shift", [1e-12, 1e-3, 2.0])
def test_nearly_gaussian_noise_has_nearly_gaussian_gains(shift):
    orders = np.array([1.001, 2.0, 9.0])
    assert gains(2.0 + 1e-9, orders, shift) == pytest.approx(gains(2.0, orders, shift), rel=1e-7)


@pytest.mark.parametrize("beta", [1.0, 1.3, 1.8, 2.6, 5.0])
def test_tiny_shifts_cost_the_fisher_information(beta):
    information = beta**2 * math.gamma(2.0 - 1.0 / beta) / math.gamma(1.0 / beta)
    found = gains(beta, np.array([3.0]), 1e-8)[0]
    assert found == pytest.approx(0.5 * 3.0 * 2.0 * information * 1e-16, rel=1e-6)


@pytest.mark.parametrize("beta", [1.0, 1.4, 2.5])
def test_gains_are_convex_in_the_shift_and_in_the_order(beta):
    shifts = np.linspace(0.0, 2.0, 21)
    along = np.array([gains(beta, np.array([4.0]), float(m))[0] for m in shifts])
    assert np.all(np.diff(along, 2) >= -1e-12)
    orders = np.linspace(1.5, 12.0, 22)
    assert np.all(np.diff(gains(beta, orders, 0.6), 2) >= -1e-12)


def test_gains_beyond_use_are_infinite_unless_asked_for():
    assert gains(4.0, np.array([1000.0]), 2.0)[0] == math.inf
    assert LARGEST_GAIN < gains(1.5, np.array([2000.0]), 1.0, math.inf)[0] < math.inf


@pytest.mark.parametrize(
    ("pair", "order"),
    [
        (ShiftPair(1.5, 0.5, 0.0, 0.01), 1.3),
        (ShiftPair(1.5, 0.0, -0.5, 0.01), 7.7),
        (ShiftPair(3.0, 0.4, -0.4, 0.2), 2.5),
        (ShiftPair(1.0, 0.7, 0.0, 0.05), 12.25),
        (ShiftPair(2.0, 0.3, 0.0, 1e-5), 1.001),
        (ShiftPair(4.5, 0.4, 0.0, 0.3), 3.5),
    ],
)
def test_sampled_gain_holds_the_integral_at_any_order(pair, order):
    low, high = sampled_gain(pair, order)
    with mp.workdps(30):
        exact, a = ExactPair(pair), mp.mpf(order)

        def integrand(z):
            q = exact.mixture(z, exact.down)
            ratio = exact.mixture(z, exact.up) / q
            return q * (ratio**a - 1 - a * (ratio - 1))

        reach = 60 if pair.beta == 1.0 else 14
        ends = exact.down - reach, exact.up + reach
        steps = {ends[0] + (ends[1] - ends[0]) * k / 24 for k in range(25)}
        near = {kink + side * mp.mpf(10) ** -k for kink in exact.kinks for side in (-1, 1) for k in (1, 3)}
        truth = mp.log1p(mp.quad(integrand, sorted({*steps, *near, *exact.kinks})))
    assert low * (1.0 - 1e-13) <= truth <= high * (1.0 + 1e-13)
    assert high - low <= 1e-10 * high
