# SPDX-License-Identifier: Apache-2.0
"""The page of the demonstration: whole, escaped, its pictures and words made of the record alone."""

import base64
import re

import pytest

from ggdp import __version__
from ggdp.cli.demo import READERS_BY_BRANCH, TARGET
from ggdp.reporting import figures, pages


def result(beta, scale):
    spent = zip(TARGET["training_steps"], (0.5, 0.7, 1.0, 1.2, 1.5), strict=True)
    return {
        "beta": beta,
        "scale": scale,
        "std": 1.0,
        "epsilon": {"lower": 0.9, "estimate": 0.95, "upper": 1.0},
        "std_of_several": abs(beta - 1.4),
        "training": [{"steps": steps, "epsilon": {"lower": 0, "upper": upper}} for steps, upper in spent],
        "released": [count + beta for count in READERS_BY_BRANCH.values()],
        "mean_absolute_error": beta,
        "winner": "<Heron>",
        "true_winner_prob": 0.75,
    }


RECORD = {"target": TARGET, "results": [result(1.0, 1.0), result(1.5, 3.0), result(2.0, 6.0)]}


def errors_drawn(record):
    return figures.demo_error_figure(record, READERS_BY_BRANCH)


@pytest.fixture(scope="module")
def page():
    return pages.demo_page(RECORD, READERS_BY_BRANCH)


def test_the_page_holds_its_table_and_three_pictures_and_needs_nothing_else(page):
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == 3
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    assert page.count("<tr>") == 1 + len(RECORD["results"])
    assert "http" not in page
    assert '<meta name="viewport" content="width=device-width' in page
    assert f"ggdp {__version__}" in page


def test_text_is_escaped(page):
    assert "&lt;Heron&gt;" in page
    assert "<Heron>" not in page


@pytest.mark.parametrize("draw", [figures.demo_training_figure, errors_drawn])
def test_every_axis_is_labelled(draw):
    for axes in draw(RECORD).axes:
        assert axes.get_ylabel()
        assert axes.get_xlabel() or axes.get_xticklabels()


def test_lines_differ_in_colour_and_in_style():
    lines = figures.demo_training_figure(RECORD).axes[0].get_lines()
    assert len({line.get_color() for line in lines}) == len(RECORD["results"])
    assert len({line.get_linestyle() for line in lines}) == len(RECORD["results"])


def test_an_exponent_has_one_colour_in_all_pictures_of_the_page():
    steps = [line.get_color() for line in figures.demo_training_figure(RECORD).axes[0].get_lines()]
    errors = [line.get_color() for line in errors_drawn(RECORD).axes[0].get_lines()]
    assert steps == errors[: len(steps)]


def test_the_words_name_the_least_noise_of_one_release_and_of_several():
    words = pages.least_noise(RECORD)
    assert words.startswith("One release needs least noise at beta = 1 (std 1.00); 10 releases")
    assert "at beta = 1.5 (std 0.10, against 0.40 at beta = 1, 0.60 at beta = 2)" in words


def test_the_errors_drawn_are_released_minus_true():
    lines = errors_drawn(RECORD).axes[0].get_lines()
    drawn = [line.get_ydata() for line in lines if len(line.get_ydata()) == len(READERS_BY_BRANCH)]
    for values, one in zip(drawn, RECORD["results"], strict=True):
        assert values == pytest.approx([one["beta"]] * len(READERS_BY_BRANCH))
