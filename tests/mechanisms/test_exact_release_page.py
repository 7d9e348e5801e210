# SPDX-License-Identifier: Apache-2.0
"""docs/exact-release.md: each test that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exact-release.md").read_text(encoding="utf-8")


def test_the_tests_it_names_exist():
    written = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+?)(?:_\.\.\.)?`", PAGE)
    assert len(named) > 8
    assert [name for name in named if f"def {name}" not in written] == []
    for path in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).exists()
