# SPDX-License-Identifier: Apache-2.0
"""The pages about described noise and the sampled accountant: every line runs and prints what they say."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["custom-noise.md", "monte-carlo.md"])
def test_the_page_runs(page):
    found = doctest.testfile(str(DOCS / page), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0
