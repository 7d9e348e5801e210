# SPDX-License-Identifier: Apache-2.0
"""The scripts of examples/ run, and each fits on one screen."""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch's, on account of Opacus's hooks
@pytest.mark.filterwarnings("ignore:Secure RNG turned off")  # what Opacus's own engine says of itself
def test_an_example_runs_and_fits_on_one_screen(script, capsys):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 52
    for package in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_moving_an_opacus_script_changes_the_accountant_and_nothing_else():
    before, after = ((EXAMPLES[0].parent / f"opacus_{when}.py").read_text() for when in ("before", "after"))
    code = after.split('"""')[2].replace("\nimport ggdp.opacus  # registers the accountant\n", "", 1)
    assert code.replace('"ggdp"', '"rdp"') == before.split('"""')[2]
