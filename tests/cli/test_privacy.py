# SPDX-License-Identifier: Apache-2.0
"""`ggdp epsilon`, `delta`, `calibrate`, `curve`, `choose`: the library's answers, in the promised shape."""

import json
import math
import shlex

import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    PoissonSampled,
    Risk,
    account,
)
from ggdp import calibrate_rate as library_rate
from ggdp import calibrate_scale as library_scale
from ggdp import calibrate_steps as library_steps
from ggdp import delta as library_delta
from ggdp import epsilon as library_epsilon
from ggdp.cli import output

RUN = "--noise-multiplier 2 --rate 0.01 --steps 5000"
MULTIPLIER = math.sqrt(2.0) * 2.0


def run_of(beta):
    return Composed(PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, MULTIPLIER)), 0.01), times=5000)


def bounds_of(record):
    return (record["lower"], record["estimate"], record["upper"])


@pytest.fixture
def answer(ggdp):
    """The results of the JSON that a command prints, and nothing else: one as it is, several as a list."""

    def ask(line):
        done = ggdp(*shlex.split(line), "--json")
        assert (done.code, done.err) == (0, "")
        assert done.out.count("\n") == 1
        results = json.loads(done.out)["results"]
        return results[0] if len(results) == 1 else results

    return ask


def test_epsilon_prints_the_bounds_of_the_library(answer):
    record = answer(f"epsilon --beta 1.5 {RUN} --delta 1e-6")
    bounds = library_epsilon(run_of(1.5), delta=1e-6)
    assert bounds_of(record["epsilon"]) == (bounds.lower, bounds.estimate, bounds.upper)
    assert record["delta"] == 1e-6
    assert record["method"] == bounds.method
    assert record["noise_multiplier"] == pytest.approx(2.0, rel=1e-15)
    assert (record["beta"], record["rate"], record["steps"]) == (1.5, 0.01, 5000)
    assert (record["sensitivity"], record["adjacency"]) == (1.0, "add-remove")


@pytest.mark.parametrize(("norm", "dimension"), [("matched", "1000"), ("2", "inf"), ("inf", "3")])
def test_vectors_are_answered_as_the_library_answers_and_described_in_the_record(answer, norm, dimension):
    record = answer(
        f"epsilon --beta 1.5 --noise-multiplier 2 --delta 1e-6 --norm {norm} --dimension {dimension}"
    )
    size = math.inf if dimension == "inf" else int(dimension)
    p = norm if norm == "matched" else float(norm)
    step = AdditiveNoise(GeneralizedGaussian(1.5, MULTIPLIER), norm=p, dimension=size)
    bounds = library_epsilon(step, delta=1e-6)
    assert bounds_of(record["epsilon"]) == (bounds.lower, bounds.estimate, bounds.upper)
    assert str(record["dimension"]) == dimension
    assert str(record["norm"]).removesuffix(".0") == norm


def test_calibration_takes_vectors_too(answer):
    record = answer("calibrate --beta 1.5 --norm matched --dimension 50 --epsilon 2 --delta 1e-6")
    alone = answer("calibrate --beta 1.5 --epsilon 2 --delta 1e-6")
    assert record["scale"] == pytest.approx(alone["scale"], rel=1e-6)  # one coordinate is the worst case
    assert "dimension" not in alone


@pytest.mark.parametrize("wrong", ["--dimension 0", "--dimension 2.5", "--norm 0.5", "--norm near"])
def test_a_wrong_norm_or_dimension_is_refused_by_name(ggdp, wrong):
    done = ggdp(*shlex.split(f"epsilon --beta 1.5 --noise-multiplier 2 --delta 1e-6 {wrong}"))
    assert done.code == 2
    assert wrong.split()[0] in done.err


def test_delta_prints_the_bounds_of_the_library(answer):
    record = answer(f"delta --beta 1.5 {RUN} --epsilon 1.3")
    bounds = library_delta(run_of(1.5), epsilon=1.3)
    assert bounds_of(record["delta"]) == (bounds.lower, bounds.estimate, bounds.upper)
    assert record["target_epsilon"] == 1.3


def test_noise_adjacency_and_sensitivity_reach_the_accountant(answer):
    record = answer("epsilon --beta 2 --std 6 --sensitivity 2 --steps 5 --delta 1e-5 --adjacency replace")
    step = AdditiveNoise(GeneralizedGaussian.from_std(2, 6.0), sensitivity=2.0)
    expected = library_epsilon(Composed(step, times=5), delta=1e-5, adjacency=Adjacency.REPLACE)
    assert record["epsilon"]["upper"] == expected.upper
    assert record["adjacency"] == "replace"


@pytest.mark.parametrize(
    "line",
    [
        "epsilon --noise-multiplier 2 --delta 1e-6",
        "delta --noise-multiplier 2 --epsilon 0.3",
        "calibrate --epsilon 1 --delta 1e-6",
        "curve --noise-multiplier 2 --points 3",
    ],
)
def test_several_betas_are_a_list_of_what_each_alone_would_be(answer, line):
    both = answer(f"{line} --beta 1.5 --beta 2")
    assert both == [answer(f"{line} --beta 1.5"), answer(f"{line} --beta 2")]


def test_calibrate_finds_the_scale_of_the_library(answer):
    record = answer("calibrate --beta 1.5 --epsilon 2 --delta 1e-6 --rate 0.01 --steps 5000")
    found = library_scale(beta=1.5, epsilon=2.0, delta=1e-6, rate=0.01, steps=5000)
    assert record["scale"] == found.scale
    assert record["noise_multiplier"] == found.noise_multiplier
    assert record["epsilon"]["upper"] == found.achieved.upper <= 2.0
    assert record["delta"] == 1e-6
    assert record["target_epsilon"] == 2.0
    assert record["sharp"] is found.sharp


def test_calibrate_finds_steps_and_rates_too(answer):
    noise = {"beta": 1.5, "scale": MULTIPLIER}
    steps = answer(
        "calibrate --for steps --beta 1.5 --epsilon 2 --delta 1e-6 --noise-multiplier 2 --rate 0.05"
    )
    assert steps["steps"] == library_steps(**noise, rate=0.05, epsilon=2.0, delta=1e-6).steps
    rate = answer("calibrate --for rate --beta 1.5 --epsilon 2 --delta 1e-6 --noise-multiplier 2 --steps 900")
    assert rate["rate"] == library_rate(**noise, epsilon=2.0, delta=1e-6, steps=900).rate


def test_curve_holds_epsilon_at_evenly_spaced_logarithms_of_delta(answer):
    record = answer(f"curve --beta 1.5 {RUN} --from-delta 1e-8 --to-delta 1e-4 --points 3")
    assert [point["delta"] for point in record["curve"]] == pytest.approx([1e-8, 1e-6, 1e-4], rel=1e-12)
    assert record["curve"][1]["epsilon"]["upper"] == pytest.approx(1.349261426, rel=1e-8)


def test_choose_holds_the_best_noise_of_each_number_of_steps_beside_the_exponents_asked_for(answer):
    few, many = answer("choose --epsilon 1 --delta 1e-6 --steps 5 --steps 10 --points 3")
    assert [result["steps"] for result in (few, many)] == [5, 10]
    assert [one["beta"] for one in many["tried"]] == [1.0, 2.0, 3.0]
    assert many["best"]["beta"] == pytest.approx(1.47, abs=0.05)
    assert many["best"]["loss"] == pytest.approx(12.608, rel=1e-4)
    for name, one, expected in zip(("laplace", "gaussian"), many["tried"], (14.1277, 13.3596), strict=False):
        assert many[name]["loss"] == pytest.approx(expected, rel=1e-5)
        assert one["loss"] == pytest.approx(expected, rel=2e-5)
    assert few["best"]["beta"] < 1.05
    for one in (*few["tried"], *many["tried"], few["best"], many["best"]):
        assert 0.9999 < one["epsilon"]["upper"] <= 1.0


def test_choose_compares_spherical_noise_on_a_vector_in_l2_unless_independent_noise_is_asked_for(answer):
    asked = "choose --epsilon 1 --delta 1e-6 --norm 2 --dimension 3 --points 2 --to-beta 2"
    found = answer(asked)
    other = answer(f"{asked} --noise independent")
    ball = library_scale(beta=1.0, epsilon=1.0, delta=1e-6, norm=2, dimension=3, spherical=True)
    assert found["best"]["std"] == pytest.approx(ball.noise.std, rel=1e-4)
    assert found["best"]["std"] < 0.9 * other["best"]["std"]
    assert found["gaussian"]["loss"] == pytest.approx(other["gaussian"]["loss"], rel=1e-4)


def test_choose_tells_how_often_noise_is_beyond_each_threshold(answer):
    near, far = answer(
        "choose --epsilon 1.5 --delta 1e-5 --loss outside --threshold 2 --threshold 20 "
        "--points 4 --to-beta 2.5"
    )
    assert near["threshold"] == 2.0
    assert near["best"]["beta"] == 1.0
    assert [one["beta"] for one in near["tried"]] == [1.0, 1.5, 2.0, 2.5]
    assert near["tried"][0]["loss"] == pytest.approx(math.exp(-2.0 * (1.5 + 2e-5)), rel=5e-5)
    assert 1.3 < far["best"]["beta"] < 1.8
    for one in far["tried"]:
        assert one["log_loss"] >= far["best"]["log_loss"]
        assert one["loss"] == math.exp(one["log_loss"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"epsilon --beta 1.5 {RUN} --delta 1e-6", ["1.349261427", "delta = 1e-06", "2.43062"]),
        ("delta --beta 1 --scale 2 --epsilon 0.5", ["pure"]),
        (
            "calibrate --beta 1 --beta 2 --epsilon 1 --delta 1e-6",
            ["4.224678", "epsilon = 1 at", "1.41422", "4.22468"],
        ),
        ("curve --beta 1 --beta 2 --scale 5 --points 2", ["beta = 1", "beta = 2", "1e-10"]),
        (
            "choose --epsilon 1 --delta 1e-6 --steps 10 --points 3",
            ["10 releases", "13.36 *", "best beta", "12.608", "10.8%", "5.6%"],
        ),
    ],
)
def test_without_json_people_get_a_table(ggdp, line, words):
    done = ggdp(*shlex.split(line))
    assert (done.code, done.err) == (0, "")
    assert "│" in done.out
    for word in words:
        assert word in done.out


@pytest.mark.parametrize(
    "line",
    [
        "curve --beta 1 --beta 2 --scale 5 --points 4",
        "choose --epsilon 1.5 --delta 1e-5 --loss outside --threshold 2 --points 3 --to-beta 1.2",
    ],
)
def test_a_picture_is_written_and_named_below_the_table_and_json_is_still_alone_on_stdout(
    ggdp, tmp_path, line
):
    target = tmp_path / "out.png"
    table = ggdp(*shlex.split(line)).out
    done = ggdp(*shlex.split(line), "--plot", target)
    assert (done.code, done.out) == (0, f"{table}Wrote {target}\n")
    assert target.read_bytes().startswith(b"\x89PNG")
    assert ggdp(*shlex.split(line), "--plot", target.with_suffix(".svg")).code == 0
    assert b"<svg" in target.with_suffix(".svg").read_bytes()
    target.unlink()
    done = ggdp(*shlex.split(line), "--plot", target, "--json")
    assert isinstance(json.loads(done.out), dict)
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("epsilon --beta 0.5 --scale 1 --delta 1e-6", "--beta must be a number in [1, 32], got 0.5"),
        ("epsilon --beta 2 --delta 1e-6", "exactly one of --scale, --noise-multiplier, --std must be given"),
        ("epsilon --beta 2 --scale 1 --delta 0", "--delta must be positive for this mechanism, got 0"),
        ("epsilon --beta 2 --scale 1 --delta 1e-200", "--delta must be a number in [1e-100, 1), got 1e-200"),
        ("epsilon --beta 2 --scale 1 --delta 1e-6 --steps 0", "--steps must be a whole number >= 1, got 0"),
        ("epsilon --beta 2 --scale 1 --delta 1e-6 --rate 2", "--rate must be a number in (0, 1], got 2.0"),
        ("epsilon --beta 2 --scale 1e9 --delta 1e-6", "ggdp: the noise multiplier must be a number in"),
        ("epsilon --beta 2 --noise-multiplier 1e9 --delta 1e-6", "ggdp: --noise-multiplier must be a number"),
        ("epsilon --beta 2 --scale 1 --delta 1e-6 --adjacency near", "'near'"),
        ("epsilon --scale 1 --delta 1e-6", "Missing option '--beta'"),
        ("delta --beta 2 --scale 1 --epsilon -1", "--epsilon must be a number in [0, inf), got -1.0"),
        ("epsilon --beta 33 --scale 1 --delta 1e-6", "--beta must be a number in [1, 32], got 33.0"),
        ("calibrate --beta 1 --epsilon 1000 --delta 1e-6", "is met by all of the noise multipliers covered"),
        ("calibrate --beta 2 --epsilon 1 --delta 1e-6 --std 1", "--std must not be given with --for scale"),
        (
            "calibrate --for steps --beta 2 --epsilon 1 --delta 1e-6 --std 1 --steps 3",
            "--steps must not be given",
        ),
        (
            "calibrate --for rate --beta 2 --epsilon 1 --delta 1e-6 --std 1 --rate 0.1",
            "--rate must not be given",
        ),
        ("calibrate --for steps --beta 2 --epsilon 1 --delta 1e-6", "exactly one of --scale"),
        ("calibrate --for steps --beta 2 --epsilon 0.1 --delta 1e-6 --std 1", "exceeded by one step already"),
        ("calibrate --for noise --beta 2 --epsilon 1 --delta 1e-6", "'noise'"),
        ("curve --beta 2 --scale 1 --points 1", "--points must be a whole number in [2, 1000], got 1"),
        (
            "curve --beta 2 --scale 1 --from-delta 1e-3 --to-delta 1e-4",
            "--from-delta must be below --to-delta",
        ),
        (
            "curve --beta 2 --scale 5 --points 2 --plot /no/such/place.png",
            "--plot must be a file in a folder that exists, got '/no/such/place.png'",
        ),
        (
            "curve --beta 2 --scale 5 --points 2 --plot out.gif",
            "--plot must end in .png or .svg, got 'out.gif'",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --loss outside --threshold 0",
            "--threshold must be a number in (0, inf), got 0.0",
        ),
        ("choose --epsilon 1 --delta 1e-6 --loss outside", "threshold must be given with --loss outside"),
        (
            "choose --epsilon 1 --delta 1e-6 --level 0.9",
            "--level must be left out except with --loss interval",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --dimension 3",
            "norm must be given to compare exponents on a vector, as a number in [1, inf], got none",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --norm 2 --dimension 0",
            "--dimension must be a whole number in [1, ",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --norm 1 --dimension 3 --noise spherical",
            "--norm must be 2 for spherical noise, got 1.0",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --norm 2 --dimension 2000000 --noise spherical",
            "--dimension must be a whole number in [1, 1000000], got 2000000",
        ),
        (
            "choose --epsilon 1 --delta 1e-6 --norm 2 --dimension 3 --noise spherical --loss interval",
            "--loss must be one of std, mean-absolute, got 'interval'",
        ),
        (
            "choose --epsilon 1e-9 --delta 1e-9 --steps 100 --norm 2 --dimension 3",
            "cannot be met by",
        ),
        ("choose --epsilon 1 --delta 1e-6 --from-beta 3 --to-beta 2", "--from-beta must be below --to-beta"),
    ],
)
def test_a_wrong_question_is_refused_in_one_line_with_status_2(ggdp, line, message):
    done = ggdp(*shlex.split(line))
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("ggdp: ")
    assert done.err.count("\n") == 1
    assert message in done.err


@pytest.mark.parametrize(
    ("number", "down", "up"),
    [
        (0.25, "0.25", "0.25"),
        (0.1, "0.1", "0.1"),
        (1.00000000001, "1", "1.000000001"),
        (6.1234567891e-9, "6.123456789e-9", "6.123456790e-9"),
        (1.349261426085, "1.349261426", "1.349261427"),
        (0.0, "0", "0"),
        (1400.0, "1400", "1400"),
        (1.23456789012e15, "1.234567890e+15", "1.234567891e+15"),
    ],
)
def test_printed_bounds_are_rounded_to_their_own_side(number, down, up):
    assert float(output.rounded_down(number)) == float(down) <= number
    assert float(output.rounded_up(number)) == float(up) >= number
    assert max(len(output.rounded_down(number)), len(output.rounded_up(number))) <= 15


def test_risk_prints_the_bounds_of_the_library_and_words_with_each_number_on_its_safe_side(answer, ggdp):
    line = (
        "risk --beta 2 --noise-multiplier 1 --rate 0.01 --steps 1000 --prior 0.2 --false-positive-rate 0.01"
    )
    record = answer(line)
    risk = Risk(account(Composed(PoissonSampled(AdditiveNoise(Gaussian(1.0)), 0.01), times=1000)))
    found = risk.attack_success(false_positive_rate=0.01, prior=0.2)
    (attack,) = record["attacks"]
    assert attack["true_positive_rate"]["upper"] == pytest.approx(found.true_positive_rate.upper, rel=1e-7)
    assert attack["posterior"]["upper"] == pytest.approx(found.posterior.upper, rel=1e-7)
    assert record["advantage"]["upper"] == pytest.approx(found.advantage.upper, rel=1e-7)
    assert record["mu"]["upper"] == pytest.approx(risk.gdp().mu.upper, rel=1e-6)
    missed = [point["false_negative_rate"] for point in record["trade_off"]]
    assert all(one["upper"] - one["lower"] <= 1e-5 for one in missed)
    said = ggdp(*shlex.split(line)).out
    told = float(said.split("no attacker detects more than ")[1].split("%")[0])
    assert 100.0 * found.true_positive_rate.upper <= told + 1e-4
    assert told <= 100.0 * found.true_positive_rate.upper * 1.001
    assert said.index("detects more than") < said.index("Epsilon is at most")


def test_risk_draws_the_trade_off_curve(ggdp, tmp_path):
    picture = tmp_path / "risk.svg"
    done = ggdp("risk", "--beta", "1", "--beta", "2", "--std", "2", "--plot", str(picture))
    assert done.code == 0
    text = picture.read_text()
    assert "false-negative rate" in text
    assert "blind guessing" in text


def test_more_steps_than_are_covered_are_refused_by_the_name_of_the_option(ggdp):
    done = ggdp("epsilon", "--beta", "2", "--std", "1", "--delta", "1e-6", "--steps", "10000000000")
    assert done.code == 2
    assert done.err == "ggdp: --steps must be a whole number in [1, 10000000], got 10000000000\n"


def test_a_comparison_says_which_exponent_is_refused(ggdp):
    run = ["--std", "3", "--rate", "0.01", "--steps", "5000", "--delta", "1e-6"]
    done = ggdp("epsilon", "--beta", "2", "--beta", "32", *run)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("; this is about --beta 32\n")


def test_risk_in_words_waits_for_no_curve(ggdp, monkeypatch):
    asked = []
    monkeypatch.setattr(Risk, "trade_off_curve", lambda self, rates, **_: asked.extend(rates) or [])
    assert ggdp("risk", "--beta", "1", "--std", "2").code == 0
    assert asked == []
