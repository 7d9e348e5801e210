# SPDX-License-Identifier: Apache-2.0
"""`ggdp explore` serves the page on this machine only, and refuses what it cannot do in one line."""

import importlib.util
import socket
import subprocess
from pathlib import Path

import pytest

from ggdp.cli import output

HAS_MARIMO = importlib.util.find_spec("marimo") is not None


@pytest.mark.skipif(not HAS_MARIMO, reason="marimo is not installed")
def test_the_page_is_served_on_loopback_only_at_the_port_that_was_asked(ggdp, monkeypatch):
    asked = []

    class Server:
        def __init__(self, command, process_group):
            asked.append(command)
            self.group, self.ended = process_group, False

        def wait(self):
            if not self.ended:
                assert self.group == 0  # or Ctrl-C would reach it too
                raise KeyboardInterrupt

        def terminate(self):
            self.ended = True

    monkeypatch.setattr(subprocess, "Popen", Server)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    done = ggdp("explore", "--port", "28181", "--no-browser")
    assert (done.code, done.err) == (0, "")
    assert "http://127.0.0.1:28181" in done.out
    ((*_, page, _, _, host, address, port, number, headless),) = asked
    assert (host, address, port, number, headless) == ("--host", "127.0.0.1", "--port", "28181", "--headless")
    assert Path(page).read_text(encoding="utf-8").startswith("# SPDX")


@pytest.mark.skipif(not HAS_MARIMO, reason="marimo is not installed")
def test_a_port_that_is_taken_is_refused_in_one_line(ggdp):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = ggdp("explore", "--port", port, "--no-browser")
    assert done.code == 2
    assert done.err.startswith(f"ggdp: --port must be free, got {port}")
    assert done.err.count("\n") == 1


def test_without_marimo_the_extra_that_brings_it_is_named(ggdp, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        output.importlib.util, "find_spec", lambda name: None if name == "marimo" else found(name)
    )
    done = ggdp("explore")
    told = 'this command needs marimo, not installed here; try pip install "ggdp[explore]"'
    assert (done.code, done.out, done.err) == (2, "", f"ggdp: {told}\n")
