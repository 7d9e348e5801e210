# SPDX-License-Identifier: Apache-2.0
import base64
import json
import re

import pytest
from ggdp.reporting.demo_study import Case, Study, Target
from ggdp.reporting.example_data import READERS_BY_BRANCH

from ggdp import Bounds
from ggdp.reporting import demo_page, figures


def case(beta, scale):
    return Case(
        beta=beta,
        scale=scale,
        std=1.0,
        achieved=Bounds(0.9, 0.95, 1.0, "made up"),
        std_of_several=abs(beta - 1.4),
        training=tuple(Bounds(0.0, x, x, "made up") for x in (0.5, 0.7, 1.0, 1.2, 1.5)),
        released=tuple(count + beta for count in READERS_BY_BRANCH.values()),
        mean_absolute_error=beta,
        winner="<Heron>",
        true_winner_prob=0.75,
    )


STUDY = Study(Target(), (case(1.0, 1.0), case(1.5, 3.0), case(2.0, 6.0)))


def test_the_page_holds_its_table_and_three_pictures_and_needs_nothing_else():
    page = demo_page.page(STUDY, "9.9")
    images = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(images) == 3
    assert all(base64.b64decode(image).startswith(b"\x89PNG") for image in images)
    assert page.count("<tr>") == 1 + len(STUDY.cases)
    assert "http" not in page
    assert '<meta name="viewport" content="width=device-width' in page
    assert "ggdp 9.9" in page


def test_text_is_escaped():
    page = demo_page.page(STUDY, "9.9")
    assert "&lt;Heron&gt;" in page
    assert "<Heron>" not in page


@pytest.mark.parametrize("draw", [figures.training, figures.errors])
def test_every_axis_is_labelled(draw):
    for axes in draw(STUDY).axes:
        assert axes.get_ylabel()
        assert axes.get_xlabel() or axes.get_xticklabels()


def test_lines_differ_in_colour_and_in_style():
    (axes,) = figures.training(STUDY).axes
    lines = axes.get_lines()
    assert len({line.get_color() for line in lines}) == len(STUDY.cases)
    assert len({line.get_linestyle() for line in lines}) == len(STUDY.cases)


def test_the_words_name_the_least_noise_of_one_release_and_of_several():
    words = demo_page.least_noise(STUDY)
    assert words.startswith("One release needs least noise at beta = 1 (std 1.00); 10 releases")
    assert "at beta = 1.5 (std 0.10, against 0.40 at beta = 1, 0.60 at beta = 2)" in words


def test_the_errors_drawn_are_released_minus_true():
    (axes,) = figures.errors(STUDY).axes
    drawn = [line.get_ydata() for line in axes.get_lines() if len(line.get_ydata()) == len(READERS_BY_BRANCH)]
    for values, row in zip(drawn, STUDY.cases, strict=True):
        assert values == pytest.approx([row.beta] * len(READERS_BY_BRANCH))


def test_the_record_is_plain_data():
    assert json.loads(json.dumps(STUDY.to_dict()))["results"][1]["beta"] == 1.5
