# SPDX-License-Identifier: Apache-2.0
"""The site: it builds without a warning, and holds every page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as `make docs` builds it, in a process of its own: Sphinx keeps what it loads."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-W", "--keep-going", "--quiet", "-b", "html"),
            *("-d", str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_site_builds_without_warnings_and_has_every_page(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page


def test_the_site_loads_nothing_from_the_network(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text, page
        assert '<link rel="stylesheet" href="http' not in text, page


def test_the_glossary_has_an_entry_for_every_word_of_the_design():
    design = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
    table = design.split("| word | meaning, everywhere |")[1].split("\n\n")[0]
    words = re.findall(r"^\| ([^|]*[a-z][^|]*) \|", table, re.MULTILINE)
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = plain(re.findall(r"^(.+)\n: ", glossary, re.MULTILINE))
    assert len(words) > 10
    assert plain(words) - terms == set(), (
        "words of DESIGN.md that docs/reference/glossary.md does not explain"
    )


def plain(entries):
    """The words of entries such as "`prob`, `log_prob`", without marks."""
    return {word.strip(" `").replace("_", " ").lower() for entry in entries for word in entry.split(",")}
