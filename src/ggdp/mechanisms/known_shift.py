# SPDX-License-Identifier: Apache-2.0
"""The shift of a vector by one record where it is known, equal coordinates counted together."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ggdp import arguments

Shift = tuple[tuple[float, int], ...]
MOST_COORDINATES = 10**9


def compressed(shift: Any) -> Shift:
    """Pairs (value, count) in order of value, from numbers or from such pairs.

    >>> compressed([1, -1, 1])
    ((-1.0, 1), (1.0, 2))
    >>> compressed([(0.5, 1_000_000), (0.5, 1)])
    ((0.5, 1000001),)

    Raises:
        ValueError: Not a sequence of finite numbers or pairs, all of them zero, or more than 10^9 of them.
    """
    arguments.instance(
        "shift", shift, (Iterable,), hint="give a tuple such as (1, -1), or pairs (value, count)"
    )
    listed = list(shift)
    if any(isinstance(entry, (tuple, list)) for entry in listed):
        counts = _counted(listed)
    else:
        values, numbers = np.unique(arguments.finite_array("shift", listed), return_counts=True)
        counts = dict(zip((values + 0.0).tolist(), numbers.tolist(), strict=True))  # + 0.0: no negative zero
    if not any(counts):
        raise ValueError(f"shift must move at least one coordinate, got {arguments.shown(shift)}")
    total = sum(counts.values())
    arguments.whole("number of coordinates of shift", total, most=MOST_COORDINATES)
    return tuple(sorted(counts.items()))


def _counted(entries: list[Any]) -> dict[float, int]:
    counts: dict[float, int] = {}
    for entry in entries:
        if not (isinstance(entry, (tuple, list)) and len(entry) == 2):
            raise ValueError(
                f"shift must hold numbers, or pairs (value, count) throughout, got {arguments.shown(entry)}"
            )
        value = arguments.real("value in shift", entry[0]) + 0.0
        counts[value] = counts.get(value, 0) + arguments.whole("count in shift", entry[1])
    return counts
