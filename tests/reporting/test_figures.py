# SPDX-License-Identifier: Apache-2.0
"""The pictures of curves and choices: labelled, told apart, the Gaussian marked, read from records alone."""

import math

import pytest

from ggdp import AdditiveNoise, Adjacency, Bounds, GeneralizedGaussian
from ggdp.calibration import BestNoise, Calibrated, WeighedNoise
from ggdp.reporting import canvas
from ggdp.reporting.figures import choice_figure, curve_figure
from ggdp.reporting.records import Run, bounds_record, choice_record, curve_record

BETAS = (1.0, 1.5, 2.0, 3.0)
DELTAS = [1e-8, 1e-5]


def curve(beta, upper=2.0):
    run = Run(AdditiveNoise(GeneralizedGaussian(beta, 2.0)), 0.01, 5000, Adjacency.ADD_REMOVE)
    answers = [Bounds(1.0, 1.5, upper, "made up"), Bounds(0.5, 0.6, 0.7, "made up")]
    return curve_record(run, DELTAS, answers)


def choice(loss, log_loss, threshold=None):
    noises = [
        WeighedNoise(
            Calibrated(
                step=AdditiveNoise(GeneralizedGaussian(beta, 2.0)),
                rate=1.0,
                steps=10,
                delta=1e-5,
                achieved=Bounds(1.0, 1.0, 1.0, "made up"),
                sharp=True,
            ),
            log_loss(GeneralizedGaussian(beta, 2.0)),
        )
        for beta in BETAS
    ]
    laplace, _, gaussian, last = noises
    best = BestNoise(last.calibrated, last.log_loss, laplace.log_loss, gaussian.log_loss)
    return {"loss": loss, "results": [choice_record(best, noises, threshold)]}


def test_curves_are_labelled_and_told_apart_without_colour():
    (axes,) = curve_figure([curve(beta) for beta in BETAS]).axes
    assert "epsilon" in axes.get_xlabel()
    assert "delta" in axes.get_ylabel()
    assert axes.get_yscale() == "log"
    lines = axes.get_lines()
    assert len({line.get_color() for line in lines}) == len(BETAS)
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in lines}) == len(BETAS)


def test_curves_show_the_certified_upper_bounds():
    (axes,) = curve_figure([curve(1.5)]).axes
    assert list(axes.get_lines()[0].get_xdata()) == [2.0, 0.7]
    assert list(axes.get_lines()[0].get_ydata()) == DELTAS


def test_a_point_without_an_upper_bound_is_left_out():
    (axes,) = curve_figure([curve(1.5, upper=math.inf)]).axes
    assert list(axes.get_lines()[0].get_xdata()) == [0.7]


def test_the_gaussian_is_black_solid_and_named_wherever_it_stands():
    for betas in ((2.0, 1.0), (1.0, 1.5, 2.0)):
        styles = dict(zip(betas, canvas.styles_of(list(betas)), strict=True))
        assert styles[2.0]["color"] == canvas.GAUSSIAN_COLOUR
        assert styles[2.0]["linestyle"] == "-"
        assert styles[2.0]["label"] == "beta = 2 (Gaussian)"
        assert styles[1.0]["label"] == "beta = 1 (Laplace)"
        assert styles[1.0]["color"] != canvas.GAUSSIAN_COLOUR


@pytest.mark.parametrize(
    ("threshold", "label", "scale"), [(2.0, "P(|noise|", "log"), (2e3, "log10 P(|noise|", "linear")]
)
def test_choices_mark_laplace_gaussian_and_the_least_even_where_weights_underflow(threshold, label, scale):
    record = choice("outside", lambda noise: float(noise.logsf(threshold)) + math.log(2.0), threshold)
    drawn = choice_figure([("made up", record)])
    (axes,) = drawn.axes
    assert axes.get_ylabel().startswith(label)
    assert axes.get_yscale() == scale
    assert {text.get_text() for text in axes.texts} == {"Laplace", "Gaussian"}
    curve_line, best, *_ = axes.get_lines()
    assert sorted(set(curve_line.get_xdata())) == list(BETAS)
    assert list(best.get_xdata()) == [3.0]
    assert best.get_ydata()[0] == pytest.approx(curve_line.get_ydata()[-1])
    assert all(math.isfinite(value) for value in curve_line.get_ydata())
    assert canvas.png(drawn).startswith(b"\x89PNG")


def test_other_losses_are_drawn_as_shares_of_the_gaussian_s():
    (axes,) = choice_figure([("made up", choice("std", lambda noise: math.log(noise.std)))]).axes
    line = axes.get_lines()[0]
    values = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert values[2.0] == 1.0
    assert values[1.0] == pytest.approx(2.0)  # at one scale: sqrt(2) scale against scale / sqrt(2)
    assert axes.get_ylabel() == "standard deviation of the noise, Gaussian = 1"


def test_an_infinite_upper_bound_is_null_in_json():
    assert bounds_record(Bounds(0.0, 1.0, math.inf, "made up")) == {
        "lower": 0.0,
        "estimate": 1.0,
        "upper": None,
    }
