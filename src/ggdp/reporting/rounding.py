# SPDX-License-Identifier: Apache-2.0
"""Bounds as text, each rounded to its own side, so that what is printed is still a bound."""

import decimal


def rounded_up(number: float, digits: int = 10) -> str:
    """A number with so many significant digits that is never below it, as an upper bound must be.

    >>> rounded_up(1.00000000001), rounded_up(0.25)
    ('1.000000001', '0.25')
    """
    return _rounded(number, digits, decimal.ROUND_CEILING)


def rounded_down(number: float, digits: int = 10) -> str:
    """A number with so many significant digits that is never above it, as a lower bound must be."""
    return _rounded(number, digits, decimal.ROUND_FLOOR)


def _rounded(number: float, digits: int, rounding: str) -> str:
    with decimal.localcontext(prec=digits, rounding=rounding):
        # From repr, the shortest decimal that reads back as this double.
        rounded = (+decimal.Decimal(repr(number))).normalize()
    return f"{rounded:f}" if 1e-4 <= abs(number) < 10.0**digits or number == 0.0 else f"{rounded:e}"
