# SPDX-License-Identifier: Apache-2.0
"""The table's two quantile functions against mpmath, on every octave down to 2^-95."""

import mpmath
import numpy as np
import pytest

from ggdp.distributions.quantile_table import center_quantile, quantile_table, tail_quantile

BETAS = [1.0, 1.0 + 1e-9, 1.25, 1.5, 2.0, 3.0, 8.0, 64.0]
OCTAVES = np.exp2(-np.arange(1.0, 96.0))


@pytest.mark.parametrize("beta", BETAS)
def test_tail_quantile_has_the_tail_weight_asked_for(beta):
    u = 0.83 * OCTAVES[::4]
    x = tail_quantile(beta, u)
    with mpmath.workdps(40):
        for prob, point in zip(u, x, strict=True):
            log_error = mpmath.log(_tail_weight(beta, point) / mpmath.mpf(prob))
            # d log(tail weight) / d log(x) is about -beta x^beta, the factor on the error of x.
            assert abs(log_error) < 2e-14 * (1.0 + beta * point**beta)


@pytest.mark.parametrize("beta", BETAS)
def test_center_quantile_is_right_to_relative_rounding(beta):
    v = 0.83 * OCTAVES[::4]
    x = center_quantile(beta, v)
    with mpmath.workdps(60):
        for prob, point in zip(v, x, strict=True):
            inside = 1 - _tail_weight(beta, point)
            assert abs(inside / mpmath.mpf(prob) - 1) < 1e-15 * 8


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize(("degree", "tolerance"), [(5, 1e-8), (12, 2e-14)])
def test_polynomials_meet_the_quantile_functions_between_their_nodes(beta, degree, tolerance):
    t = np.linspace(-0.125, 0.125, 41)
    table = quantile_table(beta, degree)
    values = np.polynomial.polynomial.polyval(t, table.coefficients).reshape(95, 4, 2, t.size)
    pieces = 1.125 + np.arange(4)[:, None] / 4 + t
    w = np.ldexp(pieces, np.arange(-65, 30)[:, None, None] - 31)
    for end, quantile in enumerate((center_quantile, tail_quantile)):
        np.testing.assert_allclose(values[:, :, end], quantile(beta, w), rtol=tolerance)
        assert not np.allclose(values[:, :, end], quantile(beta, 1.03 * np.minimum(w, 0.48)), rtol=1e-3)


def _tail_weight(beta, x):
    exponent = mpmath.mpf(float(beta))
    return mpmath.gammainc(1 / exponent, mpmath.mpf(float(x)) ** exponent, regularized=True)
