# SPDX-License-Identifier: Apache-2.0
import io
import sys
from dataclasses import dataclass

import pytest

from ggdp.cli import main


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def ggdp(capsys, monkeypatch):
    """Run the command in this process, with text on its standard input."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as leaving:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(leaving.value.code, captured.out, captured.err)

    return run
