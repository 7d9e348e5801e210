# SPDX-License-Identifier: Apache-2.0
"""docs/noise.md: each claim names a test, and that test exists."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROOMS = {"D": "distributions", "T": "distributions/pytorch", "J": "ggdp_jax", "G": "gpu"}


def test_every_test_the_page_names_is_in_the_room_it_names():
    page = (TESTS.parent / "docs" / "noise.md").read_text()
    named = re.findall(r"\b([DTJG])\s`(test_\w+)(\.py)?`", page)
    assert len(named) > 25
    for room, test, suffix in named:
        files = sorted((TESTS / ROOMS[room]).glob("test_*.py"))
        known = {file.stem for file in files} if suffix else _tests(files)
        assert test in known, f"{test} is not in tests/{ROOMS[room]}"


def _tests(files):
    return {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
