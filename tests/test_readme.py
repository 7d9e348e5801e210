# SPDX-License-Identifier: Apache-2.0
"""Every block of the README runs."""

import re
import shlex
from pathlib import Path

import pytest

from ggdp.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
PYTHON = [block for language, block in BLOCKS if language == "python"]
SHELL = [line for language, block in BLOCKS if language == "bash" for line in block.splitlines()]


def test_the_readme_has_its_five_snippets():
    assert len(BLOCKS) == len(PYTHON) + 1 == 5


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.split("import ")[1].split("\n")[0])
def test_python_block_runs(block):
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("line", SHELL)
def test_shell_line_runs(line, capsys, monkeypatch, tmp_path):
    *feeding, command = line.split(" | ")
    if feeding:
        (tmp_path / "input").write_text(shlex.split(feeding[0])[1])
        command += f" {tmp_path / 'input'}"
    with pytest.raises(SystemExit) as leaving:
        main(shlex.split(command)[1:])
    assert leaving.value.code == 0
    assert capsys.readouterr().out
