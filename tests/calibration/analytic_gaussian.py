# SPDX-License-Identifier: Apache-2.0
"""The analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8) by mpmath at 50 digits."""

import mpmath


def delta(std, epsilon, *, steps=1, rate=1):
    """delta of `steps` Gaussians with sensitivity 1, or of one on a Poisson sample (removing a record)."""
    with mpmath.workdps(50):
        std = mpmath.mpf(std) / mpmath.sqrt(steps)
        rate = mpmath.mpf(rate)
        # Sampled, delta(eps) = rate * delta_1(log((e^eps - 1 + rate) / rate)).
        inner = mpmath.log((mpmath.expm1(mpmath.mpf(epsilon)) + rate) / rate)
        left = mpmath.ncdf(1 / (2 * std) - inner * std)
        right = mpmath.exp(inner) * mpmath.ncdf(-1 / (2 * std) - inner * std)
        return rate * (left - right)


def smallest_std(epsilon, target_delta, *, steps=1, rate=1):
    """The standard deviation at which delta has the value asked for, by bisection in its logarithm."""
    low, high = mpmath.log(mpmath.mpf("1e-3")), mpmath.log(mpmath.mpf("1e5"))
    with mpmath.workdps(50):
        for _ in range(120):
            middle = (low + high) / 2
            private = delta(mpmath.exp(middle), epsilon, steps=steps, rate=rate) <= mpmath.mpf(target_delta)
            low, high = (low, middle) if private else (middle, high)
        return mpmath.exp(high)
