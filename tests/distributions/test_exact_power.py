# SPDX-License-Identifier: Apache-2.0
import mpmath
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ggdp.distributions.exact_power import power_of_ratio
from oracle import relative_error
from parameters import betas, scales


@settings(max_examples=200, deadline=None)
@given(beta=betas, scale=scales, log_y=st.floats(-450.0, 450.0))
def test_power_of_a_ratio_is_right_to_a_few_ulp_whatever_the_exponent(beta, scale, log_y):
    x = scale * np.exp(log_y / beta)
    with mpmath.workdps(50):
        truth = (mpmath.mpf(float(x)) / mpmath.mpf(scale)) ** mpmath.mpf(beta)
    assert relative_error(power_of_ratio(np.asarray(x), scale, beta), truth) <= 1e-15


def test_a_plain_quotient_would_miss_that():
    beta, scale = 64.0, 3.0
    x = np.linspace(3.0, 3.3, 200)
    with mpmath.workdps(50):
        truths = [(mpmath.mpf(float(v)) / 3) ** 64 for v in x]
    plain = max(relative_error(v, t) for v, t in zip((x / scale) ** beta, truths, strict=True))
    ours = max(relative_error(v, t) for v, t in zip(power_of_ratio(x, scale, beta), truths, strict=True))
    assert plain > 3e-15 > 1e-15 > ours


def test_zero_infinity_and_overflow_are_no_surprise():
    values = power_of_ratio(np.array([0.0, np.inf, 1e300, 5e-324]), 1e-100, 64.0)
    np.testing.assert_array_equal(values, [0.0, np.inf, np.inf, 0.0])
