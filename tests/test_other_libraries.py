# SPDX-License-Identifier: Apache-2.0
"""docs/other-libraries.md: every block runs where the libraries that it imports are installed."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "other-libraries.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def packages(block):
    """The top-level packages that a block imports."""
    found = set()
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found


INSTALLED = [
    block for block in BLOCKS if all(importlib.util.find_spec(name) is not None for name in packages(block))
]


def test_the_page_shows_the_three_libraries():
    others = set.union(*map(packages, BLOCKS)) - {"ggdp", "numpy", "scipy"}
    assert len(BLOCKS) == 4
    assert others == {"dp_accounting", "opendp"}


@pytest.mark.parametrize("block", INSTALLED, ids=lambda block: "+".join(sorted(packages(block))))
def test_block_runs_and_what_it_asserts_holds(block):
    exec(compile(block, "docs/other-libraries.md", "exec"), {})
