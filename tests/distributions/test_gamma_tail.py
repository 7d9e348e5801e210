# SPDX-License-Identifier: Apache-2.0
import mpmath
import numpy as np
import pytest

from ggdp.distributions import gamma_tail
from oracle import relative_error

ORDERS = [1 / 64, 0.05, 0.2, 0.5, 2 / 3, 0.99, 1.0]
POINTS = np.array(
    [1e-280, 1e-12, 0.4, 0.51, 1.0, 1.0999, 1.1001, 5.0, 29.999, 30.0, 30.001, 80.0, 333.0, 700.0]
)


def exact_upper(a, y):
    with mpmath.workdps(50):
        return mpmath.gammainc(mpmath.mpf(a), mpmath.mpf(float(y)), mpmath.inf, regularized=True)


@pytest.mark.parametrize("a", ORDERS)
def test_upper_matches_mpmath_while_it_is_a_normal_double(a):
    values = gamma_tail.upper(a, POINTS)
    assert max(relative_error(v, exact_upper(a, y)) for v, y in zip(values, POINTS, strict=True)) <= 2e-13


@pytest.mark.parametrize("a", ORDERS)
def test_log_upper_matches_mpmath_where_upper_underflows(a):
    points = np.array([0.3, 1.0, 29.0, 31.0, 800.0, 1e5, 1e12])
    values = gamma_tail.log_upper(a, points)
    truths = [mpmath.log(exact_upper(a, y)) for y in points]
    assert max(relative_error(v, t) for v, t in zip(values, truths, strict=True)) <= 3e-14


@pytest.mark.parametrize("a", ORDERS)
def test_both_routes_meet_at_the_border(a):
    just_below = np.nextafter(gamma_tail.TAIL_START, 0.0)
    below, above = gamma_tail.log_upper(a, np.array([just_below, gamma_tail.TAIL_START]))
    assert below == pytest.approx(above, rel=1e-15)


def test_infinity_has_no_mass_beyond_it():
    assert gamma_tail.upper(0.5, np.array([np.inf]))[0] == 0.0
    assert gamma_tail.log_upper(0.5, np.array([np.inf]))[0] == -np.inf
