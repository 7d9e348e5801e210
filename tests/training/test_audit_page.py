# SPDX-License-Identifier: Apache-2.0
"""docs/audit.md: what it names exists."""

import re
from pathlib import Path

from ggdp.training import audit, check_noise

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")


def test_what_the_page_names_exists():
    assert audit.__name__ in PAGE
    assert check_noise.__name__ in PAGE
    for path in re.findall(r"`((?:tests|benchmarks)/[\w/]+(?:\.py)?)", PAGE):
        assert (ROOT / path).exists(), path
