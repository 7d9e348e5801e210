# SPDX-License-Identifier: Apache-2.0
"""Every way out of the command line: help, version, refusals, a reader that leaves, an interrupt."""

import contextlib
import importlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
import typer

from ggdp import __version__, cli
from ggdp.cli.output import EXTRAS

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
COMMANDS = sorted(typer.main.get_command(cli.app).list_commands(None))


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
        (
            "release --beta 1 --scale 1 --seed 1.5",
            "--seed must be a whole number in [0, 9223372036854775807], got '1.5'",
        ),
        (
            "release --beta 1 --scale 1 --sensitivity 0",
            "--sensitivity must be a number in [1e-90, 1e+90], got 0.0",
        ),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line_with_status_2(ggdp, line, message):
    done = ggdp(*shlex.split(line))
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("ggdp: ")
    assert done.err.count("\n") == 1
    assert message in done.err


RUN = "epsilon --beta 2 --std 1 --delta 1e-6"
CHOOSE = "choose --epsilon 1 --delta 1e-6"
VOTE = f"{CHOOSE} --loss wrong-winner --votes"
MANY, TOO_MANY = str(10**400), "1" + "0" * 5000
"""Digits: more than a double has powers of ten, and more than Python turns into an integer."""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"noise --beta 2 --std {MANY}", "--std must be a number in (0, 1.79769e+308], got '1000"),
        (f"{RUN} --norm {MANY}", "--norm must be a number in [1, inf], or matched, got '1000"),
        ("noise --beta 2 --std 1e-400", "--std must be a number in [4.94066e-324, inf), got '1e-400'"),
        (f"noise --beta {MANY} --std 1", "--beta must be a number in [1, 64], got '1000"),
        (
            f"noise --beta 2 --std 1 --sensitivity -{MANY}",
            "--sensitivity must be a number in [1e-90, 1e+90]",
        ),
        (
            "noise --beta 2 --std 1e308",
            "--std must give a scale that is covered, got 1e+308: scale must be a number in [1e-100, 1e+100]",
        ),
        (
            f"{RUN} --steps {TOO_MANY}",
            "--steps must be a whole number >= 1 of at most 4300 digits, got one of 5001",
        ),
        (
            f"{RUN} --steps {MANY}",
            "--steps must be a whole number in [1, 1000",
        ),
        (
            f"{RUN} --sampling fixed-size:{MANY}/{MANY}",
            "--sampling must have",
        ),
        (
            f"{RUN} --sampling shuffled:{TOO_MANY}",
            "--sampling must be shuffled",
        ),
        (
            f"{VOTE} {MANY},3",
            "--votes must be two or more",
        ),
    ],
)
def test_a_number_that_no_double_or_integer_holds_is_refused_with_a_range_that_leaves_it_out(
    ggdp, line, message
):
    done = ggdp(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ggdp: {message}")
    assert done.err.count("\n") == 1
    assert len(done.err) < 400


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("noise --beta 1 --std 1 --std 2", "--std must be given once, got it 2 times"),
        ("noise --beta=1 --std=1 --beta=2", "--beta must be given once, got it 2 times"),
        ("train --epsilon 1 --beta 1 --beta 2", "--beta must be given once, got it 2 times"),
        (
            f"{RUN} --adjacency both",
            "--adjacency must be one of add-remove, add, remove, replace, got 'both'",
        ),
        ("noise --colour red", "No such option: --colour; ggdp noise --help says what there is"),
        ("demo --out=", "--out must be a folder, or the name of a new one, got ''"),
        (f"{CHOOSE} --plot=", "--plot must be the name of a file, got ''"),
        (
            f"{CHOOSE} --noise spherical",
            "--norm must be 2 with --noise spherical, got none",
        ),
        (
            f"{VOTE} 60",
            "--votes must be two or more counts",
        ),
        (
            f"{VOTE} -1,3",
            "--votes must be two or more counts",
        ),
    ],
)
def test_a_refusal_names_the_option_and_the_way_out(ggdp, line, message):
    done = ggdp(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ggdp: {message}")
    assert done.err.count("\n") == 1


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


def test_the_installed_commands_of_other_packages_are_those_that_the_project_declares():
    declared = tomllib.loads(PROJECT.read_text())["project"]["entry-points"][cli.GUESTS]
    installed = {point.name: point.value for point in entry_points(group=cli.GUESTS)}
    assert declared.items() <= installed.items(), "the installed metadata is old: install ggdp again"
    assert set(declared) == {"audit", "reproduce", "train"} <= set(COMMANDS)


def loaded_by(*arguments):
    """The modules that a command has imported when it ends, in a process of its own."""
    code = f"""
import sys
from ggdp.cli import main
try:
    main({arguments!r})
finally:
    print(*sys.modules, file=sys.stderr)"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def test_no_command_waits_for_those_of_other_packages_and_help_loads_nothing_heavy():
    own = loaded_by("epsilon", "--beta", "2", "--scale", "3", "--delta", "1e-6", "--json")
    assert "ggdp.cli.privacy" in own
    assert not any(name.startswith("ggdp_paper") for name in own)
    listed = loaded_by("--help")
    assert "ggdp_paper.cli.train" in listed
    assert not listed & {"torch", "matplotlib", "joblib", "sklearn", "scipy.stats", "pandas"}


def test_a_command_that_cannot_be_imported_is_listed_and_refused_in_one_line(ggdp, monkeypatch):
    away = EntryPoint("train", "not_there.cli:train", cli.GUESTS)
    without = EntryPoint("audit", "ggdp.cli.output:audit", cli.GUESTS)
    monkeypatch.setattr(cli, "entry_points", lambda group: [away, without])
    listed = ggdp("--help")
    assert listed.code == 0
    assert re.search(r"^  train +Not available here: not_there cannot be imported", listed.out, re.MULTILINE)
    done = ggdp("train", "--beta", "2", "more")
    assert (done.code, done.out) == (2, "")
    told = "train is a command of not_there, which cannot be imported here (No module named 'not_there')"
    assert done.err == f"ggdp: {told}; install not_there again\n"
    assert "audit is a command of ggdp, which cannot be imported here" in ggdp("audit").err


def test_a_package_can_add_a_command_and_replace_none(ggdp, monkeypatch):
    added = EntryPoint("sentence", "ggdp.cli.output:json_line", cli.GUESTS)
    taken = EntryPoint("noise", "not_there:noise", cli.GUESTS)
    monkeypatch.setattr(cli, "entry_points", lambda group: [added, taken])
    monkeypatch.setattr("ggdp.cli.output.json_line", lambda: typer.echo("hello"))
    assert ggdp("sentence").out == "hello\n"
    assert ggdp("noise", "--beta", "2", "--scale", "1").code == 0


def test_where_no_package_adds_commands_an_unknown_one_says_so(ggdp, monkeypatch):
    monkeypatch.setattr(cli, "entry_points", lambda group: [])
    done = ggdp("train", "--beta", "2")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "No such command 'train'" in done.err
    assert "no installed package adds any; if ggdp itself should, install it again" in done.err
    assert ggdp("--help").code == 0


def test_version_is_printed(ggdp):
    assert ggdp("--version").out == f"ggdp {__version__}\n"


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


def test_an_interrupt_while_the_command_is_imported_is_one_line_too(monkeypatch, capsys):
    class Interrupting:
        @staticmethod
        def find_spec(name, *_):
            if name == "ggdp.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "ggdp.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupting, *sys.meta_path])
    with pytest.raises(SystemExit) as leaving:
        importlib.import_module("ggdp.__main__").main()
    assert leaving.value.code == 130
    assert capsys.readouterr().err == "ggdp: interrupted\n"


EPSILON = "epsilon --beta 2 --scale 3 --delta 1e-6"


@pytest.mark.parametrize(
    ("line", "streams", "told"),
    [
        (EPSILON, ">&-", "ggdp: standard output is closed; send it to a file or to /dev/null\n"),
        (EPSILON, ">/dev/full", "ggdp: No space left on device\n"),
        ("release --beta 2 --scale 3", "<&-", "ggdp: standard input is closed; give the name of a file\n"),
        ("release --beta 2 --scale 3", ">&- 2>&-", ""),
    ],
)
def test_a_stream_that_is_closed_or_full_is_one_line_and_status_2(line, streams, told):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -m ggdp {line} {streams}"],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, told)


def test_a_file_that_ends_too_early_is_no_interrupt(ggdp, monkeypatch):
    def ended(*_):
        raise EOFError

    monkeypatch.setattr("ggdp.cli.release.read_numbers", ended)
    done = ggdp("release", "--beta", "1", "--scale", "1")
    assert (done.code, done.err) == (2, "ggdp: a file ended too early; it is empty or damaged\n")


def on_a_terminal(line):
    """What a command prints on stdout, and on a standard error that is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "ggdp", *shlex.split(line)]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # of a terminal whose other end has closed
        while part := os.read(ours, 65536):
            seen += part
    out = running.communicate(timeout=60)[0]
    os.close(ours)
    return out.decode(), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_progress_is_shown_on_a_terminal_and_nowhere_else(ggdp):
    line = "calibrate --beta 1.5 --beta 2 --epsilon 1 --delta 1e-6 --json"
    out, shown = on_a_terminal(line)
    assert "calibrating beta = 2" in shown
    alone = ggdp(*shlex.split(line))
    assert alone.err == ""
    assert json.loads(out) == json.loads(alone.out)


def test_an_audit_says_on_a_terminal_what_it_is_at():
    _, shown = on_a_terminal(
        "audit --task adult --synthetic --beta 2 --epsilon 2 --steps 8 --canaries 20 --json"
    )
    assert "training with canaries" in shown
    assert "testing the first steps" in shown


def test_the_bar_of_train_leaves_its_lines_alone():
    _, shown = on_a_terminal(
        "train --task adult --synthetic --beta 2 --noise-multiplier 4 --seed 1 --epochs 2 --rate 0.5"
    )
    lines = re.split(r"[\r\n]+", shown)
    for epoch in (1, 2):
        (line,) = [line for line in lines if f"epoch {epoch}:" in line]
        assert re.fullmatch(rf"epoch {epoch}: epsilon [\d.]+, accuracy [\d.]+", line.strip())


def test_the_lines_of_train_never_tell_less_than_the_upper_bound(ggdp, tmp_path):
    record = tmp_path / "run.json"
    line = "train --task adult --synthetic --beta 2 --noise-multiplier 4 --epochs 4 --rate 0.5 --record"
    told = re.findall(r"epsilon ([\d.]+)", ggdp(*line.split(), record).err)
    rows = json.loads(record.read_text())["results"][0]["rows"]
    assert len(told) == len(rows) == 4
    for shown, row in zip(told, rows, strict=True):
        assert row["epsilon"]["upper"] <= float(shown) <= 1.0001 * row["epsilon"]["upper"]


def test_what_is_missing_is_named_at_once_with_the_one_extra_that_brings_it(ggdp, monkeypatch, tmp_path):
    for package in ("torch", "matplotlib", "joblib"):
        monkeypatch.setitem(sys.modules, package, None)
    line = ("train", "--beta", "2", "--epsilon", "1", "--plot", tmp_path / "run.png")
    told = 'ggdp: this command needs {}, not installed here; try pip install "ggdp[{}]"\n'
    for arguments, named, extra in (
        (line, "torch and matplotlib", "reproduce"),
        (line[:-2], "torch", "torch"),
        (("demo", "--out", tmp_path / "demo"), "matplotlib", "plot"),
        (("reproduce", "fig1", "--out", tmp_path / "out"), "joblib and matplotlib", "reproduce"),
    ):
        done = ggdp(*arguments)
        assert (done.code, done.err) == (2, told.format(named, extra))
    assert list(tmp_path.iterdir()) == []


def test_the_extras_bring_what_the_commands_say_they_bring():
    project = tomllib.loads(PROJECT.read_text())["project"]
    names = {"scikit-learn": "sklearn"}

    def brought(extra):
        found = set()
        for requirement in project["optional-dependencies"][extra]:
            inner = re.fullmatch(r"ggdp\[(.*)\]", requirement)
            package = re.match(r"[\w-]+", requirement)[0]
            found |= (
                set().union(*map(brought, inner[1].split(","))) if inner else {names.get(package, package)}
            )
        return found

    assert {extra: brought(extra) for extra in EXTRAS} == EXTRAS


def test_the_help_shows_no_release_of_single_people(ggdp):
    assert "age" not in re.findall(r"\w+", ggdp("release", "-h").out)


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_a_refusal_that_cannot_be_told_has_its_status(closed):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = f"{shlex.quote(sys.executable)} -m ggdp epsilon --beta 3 {closed}"
    done = subprocess.run(["sh", "-c", line], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")


def test_the_install_page_lists_every_extra_that_a_command_may_ask_for():
    page = (PROJECT.parent / "docs" / "start" / "install.md").read_text()
    rows = "".join(row.split("|")[1] for row in page.splitlines() if row.startswith("| `"))
    assert set(EXTRAS) <= set(re.findall(r"`(\w+)`", rows))


@pytest.mark.parametrize(
    ("line", "heads"),
    [
        ("curve --beta 1.5 --beta 1.50000001 --std 3 --points 2", ("beta = 1.5", "beta = 1.50000001")),
        (
            "simulate-argmax --epsilon 1 --epsilon 1.0000001 --delta 1e-5 --points 2 --histograms 2",
            ("epsilon = 1", "epsilon = 1.0000001"),
        ),
        (
            f"{CHOOSE} --loss outside --threshold 1 --threshold 1.0000001 --points 2",
            ("t = 1", "t = 1.0000001"),
        ),
    ],
)
def test_two_values_that_are_nearly_equal_have_a_column_each(ggdp, line, heads):
    words = [word.strip() for word in re.split("[┃\n]", ggdp(*line.split()).out)]
    assert set(heads) <= set(words)


def test_a_narrow_terminal_cuts_no_name_of_a_number(ggdp, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    told = ggdp("noise", "--beta", "2", "--std", "4").out
    assert "…" not in told
    assert "0.001" in told


RELEASE = "release numbers.csv --beta 2 --std 3"
PATE = "pate numbers.csv --beta 2 --epsilon 1 --delta 1e-5"
TRAIN = "train --task adult --synthetic --beta 2 --epsilon 1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{RELEASE} --out numbers.csv", "--out must be another file than the numbers"),
        (f"{PATE} --out ./numbers.csv", "--out must be another file than VOTES"),
        (f"{PATE} --truth truth.csv --out truth.csv", "--out must be another file than --truth"),
        (f"{PATE} --out l.csv --report l.csv", "--report must be another file than --out"),
        (f"{TRAIN} --record run.png --plot run.png", "--plot must be another file than --record"),
    ],
)
def test_no_file_is_written_over_another_of_the_same_command(ggdp, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.csv").write_text("40,5\n30,15\n")
    done = ggdp(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ggdp: {message}, got ")
    assert [file.name for file in tmp_path.iterdir()] == ["numbers.csv"]
    assert (tmp_path / "numbers.csv").read_text() == "40,5\n30,15\n"
