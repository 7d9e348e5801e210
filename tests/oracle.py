# SPDX-License-Identifier: Apache-2.0
"""The Generalized Gaussian by mpmath at 50 digits, for the exact doubles it is given."""

from dataclasses import dataclass

import mpmath

from ggdp import GeneralizedGaussian


@dataclass(frozen=True)
class Exact:
    """The functions of one noise at one point."""

    pdf: mpmath.mpf
    cdf: mpmath.mpf
    sf: mpmath.mpf
    logcdf: mpmath.mpf
    logsf: mpmath.mpf


def exact(noise: GeneralizedGaussian, x: float) -> Exact:
    with mpmath.workdps(50):
        beta, scale, point = mpmath.mpf(noise.beta), mpmath.mpf(noise.scale), mpmath.mpf(float(x))
        a = 1 / beta
        y = (abs(point) / scale) ** beta
        far = mpmath.gammainc(a, y, mpmath.inf, regularized=True) / 2
        near = 1 - far
        pdf = mpmath.exp(-y) / (2 * scale * mpmath.gamma(1 + a))
        log_far, log_near = mpmath.log(far), mpmath.log1p(-far)
        if point >= 0:
            return Exact(pdf, near, far, log_near, log_far)
        return Exact(pdf, far, near, log_far, log_near)


def relative_error(value: float, truth: mpmath.mpf) -> float:
    with mpmath.workdps(50):
        return float(abs((mpmath.mpf(float(value)) - truth) / truth))
