# SPDX-License-Identifier: Apache-2.0
"""The pictures of curves and outliers: labelled, told apart, the Gaussian marked, read from records alone."""

import math

import pytest

from ggdp import AdditiveNoise, Adjacency, Bounds, GeneralizedGaussian
from ggdp.calibration import Calibrated, LeastOutliers
from ggdp.calibration.outliers import OutlierStudy, OutlierTarget
from ggdp.reporting import canvas
from ggdp.reporting.figures import curve_figure, outlier_figure
from ggdp.reporting.records import Run, bounds_record, curve_record

BETAS = (1.0, 1.5, 2.0, 3.0)
DELTAS = [1e-8, 1e-5]


def curve(beta, upper=2.0):
    run = Run(AdditiveNoise(GeneralizedGaussian(beta, 2.0)), 0.01, 5000, Adjacency.ADD_REMOVE)
    answers = [Bounds(1.0, 1.5, upper, "made up"), Bounds(0.5, 0.6, 0.7, "made up")]
    return curve_record(run, DELTAS, answers)


def study(threshold):
    noises = tuple(
        Calibrated(
            step=AdditiveNoise(GeneralizedGaussian(beta, 2.0)),
            rate=1.0,
            steps=1,
            delta=1e-5,
            achieved=Bounds(1.0, 1.0, 1.0, "made up"),
            sharp=True,
        )
        for beta in BETAS
    )
    best = LeastOutliers(3.0, float(noises[3].noise.logsf(threshold)) + math.log(2.0), threshold, noises[3])
    return OutlierStudy(OutlierTarget(1.0, 1e-5), noises, (best,))


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
def test_outliers_mark_laplace_gaussian_and_the_least_even_where_weights_underflow(threshold, label, scale):
    drawn = outlier_figure([("made up", study(threshold).to_dict())])
    (axes,) = drawn.axes
    assert axes.get_ylabel().startswith(label)
    assert axes.get_yscale() == scale
    assert {text.get_text() for text in axes.texts} == {"Laplace", "Gaussian"}
    curve_line, best, *_ = axes.get_lines()
    assert list(curve_line.get_xdata()) == list(BETAS)
    assert list(best.get_xdata()) == [3.0]
    assert best.get_ydata()[0] == pytest.approx(curve_line.get_ydata()[3])
    assert all(math.isfinite(value) for value in curve_line.get_ydata())
    assert canvas.png(drawn).startswith(b"\x89PNG")


def test_an_infinite_upper_bound_is_null_in_json():
    assert bounds_record(Bounds(0.0, 1.0, math.inf, "made up")) == {
        "lower": 0.0,
        "estimate": 1.0,
        "upper": None,
    }
