# SPDX-License-Identifier: Apache-2.0
"""The invented votes that ship with the tests; tests/data/make_votes.py made them."""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "data" / "votes_250_teachers.npz"


def shipped() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FILE) as data:
        return data["votes"].astype(np.int64), data["labels"].astype(np.int64)
