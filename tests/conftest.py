# SPDX-License-Identifier: Apache-2.0
"""Property tests draw the same examples every time; HYPOTHESIS_PROFILE=fresh draws new ones."""

import io
import os
import sys
from dataclasses import dataclass

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def ggdp(capsys, monkeypatch):
    """Run the command in this process, with text on its standard input."""
    from ggdp.cli import main

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as leaving:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(leaving.value.code, captured.out, captured.err)

    return run
