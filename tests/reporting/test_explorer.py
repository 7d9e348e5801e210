# SPDX-License-Identifier: Apache-2.0
"""The explorer's arithmetic: what it shows is what Python and the shell say, and links restore settings."""

import contextlib
import io
import json
import math
import shlex
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from ggdp import Adjacency, Gaussian, Laplace, epsilon
from ggdp.mechanisms import AdditiveNoise
from ggdp.reporting.explorer import answer as answers
from ggdp.reporting.explorer.question import (
    ADJACENCIES,
    FIND,
    KNOBS,
    NORMS,
    PRESETS,
    Settings,
    command_line,
    from_query,
    python_lines,
    question_of,
    to_query,
)

COST = Settings(find="epsilon", beta="2", noise="1.3", rate="256/60000", steps="500")
CASES = {
    **PRESETS,
    "a fraction": COST,
    "a vector": replace(COST, beta="1.5", dimension="1000", norm="matched"),
    "replaced": replace(COST, adjacency="replace", rate="1", steps="3"),
    "target, removed": Settings(beta="2", steps="7", rate="0.1", adjacency="remove"),
    "any dimension": replace(COST, dimension="any", norm="1"),
}


@pytest.fixture(params=CASES)
def settings(request):
    return CASES[request.param]


def test_the_python_lines_print_the_numbers_of_the_answer(settings):
    question = question_of(settings)
    found = answers.answer_of(question)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(python_lines(question), {})
    assert f"upper={found.epsilon.upper!r}" in printed.getvalue()
    assert f"lower={found.epsilon.lower!r}" in printed.getvalue()
    if question.target_epsilon is not None:
        assert f"\n{found.noise_multiplier!r} {found.noise.scale!r} " in printed.getvalue()


def test_the_command_prints_the_numbers_of_the_answer(settings, ggdp):
    question = question_of(settings)
    found = answers.answer_of(question)
    done = ggdp(*shlex.split(command_line(question))[1:], "--json")
    (result,) = json.loads(done.out)["results"]
    assert result["epsilon"]["upper"] == found.epsilon.upper
    assert result["scale"] == found.noise.scale


def test_a_link_restores_the_settings(settings):
    typed = replace(settings, beta=" 1.5 & more", norm="1,7")
    for one in (settings, typed):
        query = parse_qs(to_query(one), keep_blank_values=True)
        assert from_query(query) == one
        assert from_query({name: values[-1] for name, values in query.items()}) == one
    assert from_query({"beta": "3", "file": "other.py"}) == Settings(beta="3")


def test_the_page_shows_the_upper_bound_rounded_up_and_the_lower_down(settings):
    found = answers.answer_of(question_of(settings))
    shown = answers.facts(found)
    assert found.epsilon.upper <= float(shown["epsilon"]) <= found.epsilon.upper * (1 + 1e-5)
    assert float(shown["lower"]) <= found.epsilon.lower <= found.epsilon.upper <= float(shown["upper"])
    assert answers.run_in_words(found).endswith(".")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"beta": "0.5"}, "Beta must be a number in [1, 32], got 0.5."),
        ({"beta": "two"}, "Beta must be a number, such as 0.5 or 1e-6, got 'two'."),
        ({"rate": "1/0"}, "Sampling rate must be a number, such as 0.5 or 1e-6, got '1/0'."),
        ({"rate": "1/"}, "Sampling rate must be a number, such as 0.5 or 1e-6, got '1/'."),
        ({"delta": "nan"}, "Delta must be a finite number, got 'nan'."),
        ({"steps": "2.5"}, "Steps must be a whole number in [1, 10000000], got '2.5'."),
        ({"epsilon": "0"}, "Target epsilon must be a number in (0, inf), got 0.0."),
        ({"adjacency": "next"}, "Adjacency must be one of add-remove, add, remove, replace, got 'next'."),
        ({"find": "x"}, "Find must be one of noise, epsilon, got 'x'."),
        ({"find": "epsilon", "noise": "1e9"}, "Noise multiplier must be a number in [0.02, 1000], got "),
        ({"epsilon": "1e-7", "steps": "1e6"}, "Epsilon = 1e-07 at delta = 1e-06 cannot be met by the noise"),
        ({"delta": "0"}, "Delta must be positive for this mechanism, got 0"),
        ({"norm": "3", "dimension": "any"}, "Numbers per step must be finite when norm is above 2"),
    ],
)
def test_what_cannot_be_answered_is_told_in_one_sentence(change, told):
    with pytest.raises((ValueError, ArithmeticError)) as refused:
        answers.answer_of(question_of(replace(Settings(), **change)))
    line = answers.sentence(refused.value)
    assert line.startswith(told)
    assert line.endswith(".")
    assert "\n" not in line
    assert "_" not in line


def test_rivals_are_as_private_and_the_noise_itself_is_not_its_own_rival():
    found = answers.answer_of(question_of(Settings()))
    laplace, gaussian = answers.rivals_of(found)
    for rebuilt in (Laplace(laplace.noise.scale), Gaussian(gaussian.noise.std)):
        cost = epsilon(AdditiveNoise(rebuilt), delta=1e-6)
        assert cost.upper == pytest.approx(found.epsilon.upper, rel=1e-6)
    assert "47.5% less" in answers.comparison(found, [laplace])[0]
    own = answers.answer_of(question_of(Settings(beta="1")))
    assert [rival.name for rival in answers.rivals_of(own)] == ["Gaussian"]


def test_a_rival_that_there_is_not_is_told_and_left_out_of_pictures_and_table():
    pure = answers.answer_of(question_of(PRESETS["Histogram"]))
    (gaussian,) = answers.rivals_of(pure)
    assert gaussian.noise is None
    assert answers.comparison(pure, [gaussian])[0].startswith("Gaussian noise of equal privacy is not known")
    rows = answers.tail_rows(pure, [gaussian])
    assert all(row.weights["Gaussian"] is None for row in rows)
    for row in rows:  # of Laplace noise, a closed form
        assert row.weights["Laplace"] == pytest.approx(math.exp(-row.t / pure.noise.scale), rel=1e-12)
    assert b"Gaussian" not in answers.tail_picture(pure, [gaussian])


def test_every_picture_is_drawn_and_names_its_axes():
    found = answers.answer_of(question_of(Settings()))
    rivals, trade_off = answers.rivals_of(found), answers.trade_off_of(found)
    drawn = {
        b"epsilon, certified": answers.curve_picture(found),
        b"units of the sensitivity": answers.density_picture(found, rivals),
        b"P(|noise| &gt; t)": answers.tail_picture(found, rivals),
        b"false negative rate": answers.trade_off_picture(trade_off),
    }
    for words, svg in drawn.items():
        assert b"<svg" in svg
        assert words in svg
    # At most e^epsilon r + delta of the members are found at the false positive rate r.
    told = answers.attack_in_words(trade_off)
    percent = float(told.partition("at most ")[2].partition("%")[0])
    assert 1.0 < percent <= math.e * 1.0 + 1e-3


def test_every_setting_can_be_turned_and_sliders_stop_near_what_is_typed():
    for knob in KNOBS:
        assert list(knob.stops) == sorted(set(knob.stops))
        assert knob.nearest(f"{knob.stops[3]:g}") == knob.stops[3]
        assert knob.nearest("what?") == knob.stops[0]
        assert knob.nearest("1e308") == knob.stops[-1]
    chosen = {"find": FIND, "norm": NORMS, "adjacency": ADJACENCIES}
    assert {knob.name for knob in KNOBS} | set(chosen) == set(vars(Settings()))
    assert set(ADJACENCIES.values()) == {str(one) for one in Adjacency}
