# SPDX-License-Identifier: Apache-2.0
"""Which two datasets count as neighbours."""

from enum import StrEnum


class Adjacency(StrEnum):
    """The neighbouring relation a guarantee speaks about.

    `ADD_REMOVE` is the worse of `ADD` and `REMOVE`, each composed on its own. In `REMOVE` the adversary tests
    the output with the record against the output without it; in `ADD` the other way round. `REPLACE` lets one
    record change its value, which moves a query by up to twice its add-remove sensitivity.
    """

    ADD_REMOVE = "add-remove"
    ADD = "add"
    REMOVE = "remove"
    REPLACE = "replace"
