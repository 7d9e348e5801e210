# SPDX-License-Identifier: Apache-2.0
import csv
import io
import json
import shlex

import numpy as np
import pytest

from ggdp import AdditiveNoise, Adjacency, GeneralizedGaussian, calibrate_scale, epsilon
from ggdp import release as add_noise
from ggdp.mechanisms import from_dict
from ggdp.mechanisms.release import grid_of

QUIET = ("--beta", "1.5", "--scale", "1e-6")
TABLE = 'age,"salary, net",name\n31,1000,Ann\n45,2000.5,Bob\n'


def test_bare_numbers_come_back_one_per_line(ggdp):
    done = ggdp("release", *QUIET, stdin="1 2\n\n3,4\n")
    assert done.code == 0
    np.testing.assert_allclose([float(line) for line in done.out.splitlines()], [1, 2, 3, 4], atol=1e-4)
    assert done.out != "1.0\n2.0\n3.0\n4.0\n"


def test_only_the_released_column_leaves_a_table(ggdp, tmp_path):
    source = tmp_path / "people.csv"
    source.write_text(TABLE)
    done = ggdp("release", source, "--column", "salary, net", *QUIET)
    header, *values = done.out.splitlines()
    assert header == '"salary, net"'
    np.testing.assert_allclose([float(value) for value in values], [1000, 2000.5], atol=1e-4)
    assert "Ann" not in done.out
    assert "31" not in header


def test_out_is_written_whole_and_nothing_is_left_beside_it(ggdp, tmp_path):
    target = tmp_path / "noisy.csv"
    target.write_text("old")
    done = ggdp("release", "--column", "age", "--out", target, *QUIET, stdin=TABLE)
    assert done.code == 0
    assert done.out == ""
    assert target.read_text().startswith("age\n3")
    assert list(tmp_path.iterdir()) == [target]


def test_json_carries_values_and_mechanism(ggdp):
    done = ggdp("release", *QUIET, "--sensitivity", 2, "--json", stdin="5 6")
    (record,) = json.loads(done.out)["results"]
    assert done.err == ""
    noise = GeneralizedGaussian(1.5, 1e-6)
    assert from_dict(record["mechanism"]) == AdditiveNoise(noise, 2.0, 1.0, 2, grid=grid_of(noise))
    assert record["grid"] == grid_of(noise)
    np.testing.assert_allclose(record["values"], [5, 6], atol=1e-4)


def test_json_goes_to_out_when_there_is_one(ggdp, tmp_path):
    done = ggdp("release", *QUIET, "--json", "--out", tmp_path / "noisy.json", stdin="5")
    assert done.out == ""
    (record,) = json.loads((tmp_path / "noisy.json").read_text())["results"]
    np.testing.assert_allclose(record["values"], [5], atol=1e-4)


def test_a_seed_repeats_the_library_release_and_no_seed_never_repeats(ggdp):
    seeded = [ggdp("release", *QUIET, "--seed", 3, stdin="1 2").out for _ in range(2)]
    expected = add_noise(
        AdditiveNoise.histogram(GeneralizedGaussian(1.5, 1e-6)), [1.0, 2.0], rng=np.random.default_rng(3)
    )
    assert seeded[0] == seeded[1] == "".join(f"{value!r}\n" for value in expected)
    assert ggdp("release", *QUIET, stdin="1 2").out != ggdp("release", *QUIET, stdin="1 2").out


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ((), "", "standard input must hold at least one number, got none"),
        ((), "1\ntwo\n", "line 2 of standard input must be a finite number, got 'two'"),
        ((), "1\nnan\n", "line 2 of standard input must be a finite number, got 'nan'"),
        (
            ("--column", "name"),
            TABLE,
            "line 2 of standard input, column 'name', must be a finite number, got 'Ann'",
        ),
        (("--column", "height"), TABLE, "got 'height'; the columns are ['age', 'salary, net', 'name']"),
        (("--column", "a"), "a,a\n1,2\n", "names more than one column"),
        (
            ("--column", "b"),
            "a,b\n1\n",
            "line 2 of standard input, column 'b', must be a finite number, got ''",
        ),
        (("--column", "a"), "", "the columns are []"),
        (("/no/such/file",), "", "cannot use file '/no/such/file': No such file or directory"),
    ],
    ids=[
        "empty",
        "text",
        "nan",
        "text-column",
        "no-column",
        "twin-columns",
        "ragged",
        "no-header",
        "no-file",
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(ggdp, tmp_path, arguments, stdin, message):
    target = tmp_path / "out.csv"
    done = ggdp("release", *arguments, *QUIET, "--out", target, stdin=stdin)
    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_target_is_named(ggdp, tmp_path):
    done = ggdp("release", *QUIET, "--out", tmp_path / "missing" / "x.csv", stdin="1")
    assert done.code == 2
    assert "--out must be a file in a folder that exists, got" in done.err
    assert "missing/x.csv" in done.err


def test_bytes_that_are_no_text_are_refused(ggdp, tmp_path):
    source = tmp_path / "picture"
    source.write_bytes(b"\xff\xfe\x00\x81")
    done = ggdp("release", source, *QUIET)
    assert done.code == 2
    assert "must be UTF-8 text" in done.err


def test_the_noise_is_calibrated_to_a_budget_and_the_cost_is_told(ggdp, tmp_path):
    source = tmp_path / "readers.csv"
    source.write_text('branch,readers,note\nAbbey,412,x\n"Bank, old",138,y\n')
    line = ("release", source, "--column", "readers", "--beta", "1.5", "--epsilon", "1", "--delta", "1e-6")
    done = ggdp(*line, "--keep", "branch", "--round")
    header, *rows = list(csv.reader(io.StringIO(done.out)))
    assert header == ["branch", "readers"]
    assert [label for label, _ in rows] == ["Abbey", "Bank, old"]
    assert all(
        int(number) == pytest.approx(exact, abs=60)
        for (_, number), exact in zip(rows, (412, 138), strict=True)
    )
    assert "it costs epsilon <= 1 at delta = 1e-06 (add-remove)" in done.err
    assert "one record must move the numbers by at most 1 (norm: l_1)" in done.err
    (found,) = json.loads(ggdp(*line, "--json").out)["results"]
    alone = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-6)
    assert found["scale"] == pytest.approx(alone.scale, rel=1e-6)  # in norm 1 one count answers for all
    assert 0.999 < found["epsilon"]["upper"] <= 1.0


def test_the_cost_is_that_of_the_accountant_and_rounding_changes_nothing_else(ggdp):
    line = (
        "release",
        "--beta",
        "3",
        "--std",
        "5",
        "--norm",
        "2",
        "--adjacency",
        "replace",
        "--seed",
        "1",
        "--json",
    )
    plain, whole = (
        json.loads(ggdp(*line, *more, stdin="10 20.5").out)["results"][0] for more in ((), ("--round",))
    )
    mechanism = AdditiveNoise(GeneralizedGaussian.from_std(3.0, 5.0), 1.0, 2.0, 2)
    assert plain["epsilon"]["upper"] == epsilon(mechanism, delta=1e-6, adjacency=Adjacency.REPLACE).upper
    assert whole["values"] == [round(value) for value in plain["values"]]
    assert all(isinstance(value, int) for value in whole["values"])


def test_noise_that_no_accountant_covers_has_no_cost_and_says_so(ggdp):
    done = ggdp("release", "--beta", "64", "--scale", "2", stdin="10")
    assert done.code == 0
    assert "no cost is certified (beta must be a number in [1, 32], got 64.0; larger ones" in done.err
    record = json.loads(ggdp("release", "--beta", "64", "--scale", "2", "--json", stdin="10").out)
    assert record["results"][0]["epsilon"]["upper"] is None


def test_noise_from_a_seed_is_told_not_to_be_private(ggdp):
    done = ggdp("release", *QUIET, "--seed", "1", "--json", stdin="10")
    assert done.err.startswith("WARNING: the noise is from --seed")
    assert "NOT private" in done.err
    (record,) = json.loads(done.out)["results"]
    assert record["seeded"]
    assert "not private" in record["caveats"][0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--column a --column b --scale 2", "--column must be given once, got 'a' and 'b'"),
        ("--keep b --scale 2", "--keep goes with --column"),
        ("--column a --keep a --scale 2", "--keep must name other columns than --column, got 'a'"),
        ("--column a --keep b --keep b --scale 2", "--keep must name each column once"),
        ("--column a --keep c --scale 2", "--keep is not a column of standard input, got 'c'"),
        (
            "--column a",
            "exactly one of --epsilon, --scale, --noise-multiplier, --std must be given, got none",
        ),
        ("--column a --epsilon 1", "--epsilon needs --delta"),
        ("--column a --epsilon 1 --delta 1e-6 --std 3", "--std must not be given with --epsilon"),
        ("--column a --epsilon 1 --delta 1.5", "--delta must be a number in [0, 1), got 1.5"),
        ("--column a --scale 2 --out /dev/stdout", "--out must be a file that can be written"),
        ("/dev/zero --scale 2", "/dev/zero must hold at most 128 MiB, got more"),
    ],
)
def test_a_wrong_release_is_refused_in_one_line(ggdp, line, message):
    done = ggdp("release", "--beta", "1.5", *shlex.split(line), stdin="a,b\n1,2\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert message in done.err


def test_a_field_that_is_too_long_is_refused_in_one_line(ggdp):
    done = ggdp("release", *QUIET, "--column", "a", stdin="a\n" + "1" * 200_000 + "\n")
    assert done.code == 2
    assert done.err == "ggdp: line 2 of standard input must be CSV: field larger than field limit (131072)\n"


def test_counts_come_back_as_whole_numbers_and_the_grid_is_recorded(ggdp):
    line = ("release", "--column", "n", "--keep", "who", "--beta", "1", "--scale", "2")
    done = ggdp(*line, stdin="who,n\na,412\nb,-7\nc,0\n")
    rows = list(csv.reader(io.StringIO(done.out)))[1:]
    assert all(number.lstrip("-").isdecimal() for _, number in rows)
    assert "rounded to multiples of 1;" in done.err
    (record,) = json.loads(ggdp(*line, "--json", stdin="who,n\na,412\n").out)["results"]
    assert record["grid"] == record["mechanism"]["grid"] == 1.0
    assert isinstance(record["values"][0], int)


def test_sums_come_back_on_the_grid_of_the_noise_or_on_one_of_choice(ggdp):
    for more, grid in (((), 2.0**-9), (("--grid", "0.25"), 0.25)):
        done = ggdp("release", "--beta", "1", "--scale", "2", *more, "--json", stdin="41.5 7")
        (record,) = json.loads(done.out)["results"]
        assert record["grid"] == grid
        assert all(value / grid == round(value / grid) for value in record["values"])
    refused = ggdp("release", "--beta", "1", "--scale", "2", "--grid", "0.3", stdin="41.5")
    assert refused.code == 2
    assert "grid must be a power of two" in refused.err


def test_a_delta_of_zero_that_the_noise_cannot_have_is_refused(ggdp):
    done = ggdp("release", "--beta", "2", "--std", "3", "--delta", "0", stdin="1 2")
    assert (done.code, done.out) == (2, "")
    assert "--delta must be positive for this mechanism, got 0" in done.err


def test_counts_with_very_large_noise_are_rounded_to_a_grid_that_suits_it(ggdp):
    done = ggdp("release", "--beta", "2", "--scale", "1e20", "--json", stdin="1 2")
    assert done.code == 0
    assert json.loads(done.out)["results"][0]["grid"] > 1e16


def test_noise_that_is_not_covered_is_told_in_plain_words(ggdp):
    done = ggdp("release", "--beta", "2", "--std", "3", "--sensitivity", "1e-9", stdin="1 2")
    assert done.code == 0
    assert "no cost is certified (the noise multiplier must be a number in [0.02, 1000], got" in done.err
