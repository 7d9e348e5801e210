# SPDX-License-Identifier: Apache-2.0
"""What the commands say where a value, a file or a header does not fit."""

import os
import shlex
import warnings
import zipfile

import numpy as np
import pytest
import typer

from ggdp import cli
from ggdp.selection import votes as vote_files

COMMANDS = sorted(typer.main.get_command(cli.app).list_commands(None))
RUN = "epsilon --beta 2 --std 1 --delta 1e-6"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            f"{RUN} --sampling fixed-size:0/3",
            "--sampling must have numbers that fit, got fixed-size:0/3: the sample size must be a",
        ),
        (
            f"{RUN} --sampling sorted",
            "--sampling must be one of poisson:RATE, truncated-poisson:RATE/LARGEST",
        ),
        (f"{RUN} --sampling shuffled:3", "--steps must be a multiple of 3, the steps of an epoch"),
        (f"{RUN} --dimension 0", "--dimension must be a whole number in [1, 1000000000], or inf, got 0"),
        (f"{RUN} --sensitivity 1e-290", "--sensitivity must be a number in [1e-90, 1e+90], got 1e-290"),
        (
            "simulate-argmax --epsilon 1 --delta 1e-6 --points 2 --histograms 3 --classes 1000",
            "--votes must be enough for 1000 classes, got 1000",
        ),
        (
            "simulate-argmax --epsilon 1 --delta 1e-6 --most-gap 5e-324",
            "--most-gap must be a number in [1e-09, 1), got 5e-324",
        ),
        ("release --beta 1 --std 4 --keep=x --column=y --grid 3 -", "--column is not a column of"),
        ("release --beta 1 --std 4 '' ", "the name of the file of numbers must not be empty"),
        ("pate votes.xls --beta 1 --epsilon 1 --delta 0", "'votes.xls' must end in .npz, .npy or .csv"),
        (
            "train --beta 2 --epsilon 1 --norm 1e39",
            "--norm must be a number in [1, 1e+30], or inf, or matched, got 1e+39",
        ),
    ],
)
def test_a_refusal_speaks_of_options_and_never_of_arguments_of_python(ggdp, line, message):
    done = ggdp(*shlex.split(line), stdin="a,b\n1,2\n")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"ggdp: {message}")


def test_a_target_that_the_least_noise_meets_names_no_option_that_the_command_has_not(ggdp):
    done = ggdp(*["choose", "--epsilon", "64", "--delta", "1e-6", "--points", "2", "--to-beta", "2"])
    assert done.code == 2
    assert "or take the noise multiplier 0.02, whose epsilon is" in done.err


def test_a_table_without_column_is_told_of_the_option(ggdp):
    done = ggdp("release", "--beta", "1", "--std", "4", stdin="branch,readers\na,1\n")
    assert "line 1 of standard input must be a finite number, got 'branch'" in done.err
    assert done.err.endswith("; of a CSV file with a header give --column\n")


def test_of_many_columns_a_few_are_named(ggdp):
    names = [f"column {place}" for place in range(1000)]
    done = ggdp("release", "--beta", "1", "--std", "4", "--column", "other", stdin=",".join(names) + "\n")
    assert done.code == 2
    assert "the columns are ['column 0', 'column 1'," in done.err
    assert done.err.endswith("'column 19'] and 980 more\n")


def test_a_name_of_a_file_commands_no_terminal(ggdp):
    name = "\x1b[31mvotes"
    done = ggdp("pate", name, "--beta", "1", "--epsilon", "1", "--delta", "0")
    assert done.code == 2
    assert "\\x1b[31mvotes" in done.err
    assert "\x1b" not in done.err


def test_votes_without_end_are_refused_before_memory_ends(ggdp, tmp_path, monkeypatch):
    monkeypatch.setattr(vote_files, "MOST_BYTES", 1 << 20)
    endless, bomb = tmp_path / "endless.csv", tmp_path / "bomb.npz"
    os.symlink("/dev/zero", endless)
    np.savez_compressed(bomb, votes=np.zeros((1 << 18, 1), dtype=np.int64))
    with zipfile.ZipFile(bomb) as parts:
        assert bomb.stat().st_size < 1 << 14 < parts.infolist()[0].file_size
    for file, told in ((endless, "must hold at most 1 MiB, got more"), (bomb, "it holds more than 1 MiB")):
        done = ggdp("pate", file, "--beta", "1", "--epsilon", "1", "--delta", "0")
        assert (done.code, done.out) == (2, "")
        assert told in done.err


def test_a_record_that_is_no_text_is_told_in_plain_words(ggdp, tmp_path):
    record = tmp_path / "run.json"
    record.write_bytes(b'{"kind": "\xff"}')
    done = ggdp("report", record, "--html", tmp_path / "run.html")
    assert done.code == 2
    assert (
        done.err
        == f"ggdp: {str(record)!r} is not UTF-8 text: byte 10 is undecodable; give what --json printed\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    "line",
    [
        "delta --beta 1.5 --std 4 --epsilon 1.7e308",
        "epsilon --beta 1.5 --std 4 --delta 1e-6 --norm 1000 --dimension 2",
        "risk --beta 2 --std 4 --false-positive-rate 5e-324",
    ],
)
def test_the_ends_of_the_ranges_are_answered_without_a_warning(ggdp, line):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = ggdp(*line.split())
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_speaks_in_types_of_python(ggdp, command):
    told = ggdp(command, "--help").out
    for kind in ("<str>", "<path>", "<int>", "<float>", "list["):
        assert kind not in told


def test_what_pytorch_says_of_a_device_is_cut_short(ggdp):
    done = ggdp("train", "--task", "adult", "--synthetic", "--beta", "2", "--epsilon", "2", "--device", "xla")
    assert done.code == 2
    assert done.err.startswith("ggdp: --device must be one that PyTorch can use, got 'xla': ")
    assert len(done.err) < 400
