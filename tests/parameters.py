# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies drawn from the ranges that the package declares."""

import math

from hypothesis import strategies as st

from ggdp.arguments import Range
from ggdp.distributions.generalized_gaussian import BETA, SCALE


def inside(parameter: Range) -> st.SearchStrategy[float]:
    """Values of the typical range most of the time, of the whole domain and its ends otherwise."""
    low, high = parameter.typical
    typical = st.floats(low, high)
    anywhere = st.floats(math.log(parameter.least), math.log(parameter.most)).map(
        lambda log_value: min(max(math.exp(log_value), parameter.least), parameter.most)
    )
    return st.one_of(typical, anywhere, st.sampled_from([parameter.least, parameter.most]))


def outside(parameter: Range) -> list[object]:
    """Values that must be refused: beyond either end, not finite, not a number."""
    below = math.nextafter(parameter.least, -math.inf)
    above = math.nextafter(parameter.most, math.inf)
    return [below, above, 0.0, -1.0, math.nan, math.inf, -math.inf, "1.5", None, True, [2.0], 1j, 10**400]


betas = inside(BETA)
scales = inside(SCALE)
