# SPDX-License-Identifier: Apache-2.0
"""Every way out of the command line: help, version, refusals, a reader that leaves, an interrupt."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
import typer

from ggdp import cli, version

COMMANDS = sorted(typer.main.get_command(cli.app).commands)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("noise --beta 0.5 --scale 1", "--beta must be a number in [1, 64], got 0.5"),
        ("noise --beta nan --scale 1", "--beta must be a number in [1, 64], got nan"),
        ("noise --beta inf --scale 1", "--beta must be a number in [1, 64], got inf"),
        ("noise --beta two --scale 1", "--beta must be a number in [1, 64], got 'two'"),
        ("noise --beta 1.5 --scale -1", "--scale must be a number in [1e-100, 1e+100], got -1.0"),
        ("noise --beta 1.5 --std 0", "--std must be a number in (0, inf), got 0.0"),
        (
            "noise --beta 1.5 --scale 1 --std 1",
            "exactly one of --scale, --noise-multiplier, --std must be given",
        ),
        ("noise --beta 1.5", "exactly one of --scale, --noise-multiplier, --std must be given, got none"),
        ("noise --scale 1", "Missing option '--beta'"),
        ("noise --beta", "'--beta' requires an argument"),
        ("noise --colour red", "No such option: --colour"),
        ("noise --beta 1 --scale 1 extra", "unexpected extra argument"),
        ("noises", "No such command 'noises'"),
        ("release --beta 1 --scale 1 --seed 1.5", "--seed must be a whole number >= 0, got '1.5'"),
        ("release --beta 1 --scale 1 --sensitivity 0", "--sensitivity must be a number in (0, inf), got 0.0"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line_with_status_2(ggdp, line, message):
    done = ggdp(*shlex.split(line))
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("ggdp: ")
    assert done.err.count("\n") == 1
    assert message in done.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_every_command_shows_an_example(ggdp, command, flag):
    done = ggdp(command, flag)
    assert done.code == 0
    assert f"Example: ggdp {command}" in " ".join(done.out.split())


@pytest.mark.parametrize("arguments", [(), ("-h",), ("--help",)])
def test_help_lists_every_command(ggdp, arguments):
    done = ggdp(*arguments)
    assert done.code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.out, re.MULTILINE)


def test_version_is_printed(ggdp):
    assert ggdp("--version").out == f"ggdp {version()}\n"


def test_the_help_of_release_says_that_seeded_noise_is_not_private(ggdp):
    assert "NOT private" in " ".join(ggdp("release", "-h").out.split())


def process(*arguments, **streams):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", "ggdp", *arguments], env=environment, **streams)


def test_a_reader_that_leaves_early_is_no_traceback():
    pipe = subprocess.PIPE
    running = process("release", "--beta", "1", "--scale", "1", stdin=pipe, stdout=pipe, stderr=pipe)
    running.stdout.close()
    running.stdin.write(b"1\n" * 200_000)
    running.stdin.close()
    errors = running.stderr.read()
    running.stderr.close()
    assert running.wait(timeout=60) == 1
    assert errors == b""


def test_an_interrupt_is_one_line_and_status_130():
    pipe = subprocess.PIPE
    code = "import ggdp.cli; print('ready', flush=True); ggdp.cli.main('release --beta 1 --scale 1'.split())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )
    assert running.stdout.readline() == b"ready\n"
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(timeout=1.0)  # it waits for its standard input
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert errors == b"ggdp: interrupted\n"
