# SPDX-License-Identifier: Apache-2.0
"""Hold numbers against what is expected of them, each within its own tolerance."""

import math
from collections.abc import Mapping

Expected = Mapping[str, Mapping[str, float]]


def differences(found: Mapping[str, float], expected: Expected) -> list[str]:
    """A line for each number that is missing or farther from its `value` than its `tolerance`.

    >>> one = {"value": 1.1, "tolerance": 0.2}
    >>> differences({"a": 1.0, "b": 2.0}, {"a": one, "c": one})
    ['c is missing']
    """
    wrong = []
    for name, entry in expected.items():
        value = found.get(name, math.nan)
        if math.isnan(value):
            wrong.append(f"{name} is missing")
        elif not abs(value - entry["value"]) <= entry["tolerance"]:
            wrong.append(f"{name} is {value:.6g}, expected {entry['value']:.6g} +- {entry['tolerance']:g}")
    return wrong
