# SPDX-License-Identifier: Apache-2.0
"""The order of scores: its parts against mpmath, its verdicts where the answer is known, its consequence by
brute force."""

import math

import mpmath as mp
import numpy as np
import pytest

from ggdp import AdditiveNoise, GeneralizedGaussian, delta
from ggdp.mechanisms.additive_noise import matched_exponent
from ggdp.privacy_loss.matched_norm import (
    Cover,
    ScoreLaw,
    _rest,
    domination,
    own_norm_stretch,
    verify_matched_norm,
)


def stop_loss_by_mpmath(beta, ratio, threshold):
    """E(s_1 + r s_2 - t)_+ from the densities; r = 0 is one score."""
    with mp.workdps(20):
        beta, ratio, threshold = mp.mpf(beta), mp.mpf(ratio), mp.mpf(threshold)
        normalizer = 2 * mp.gamma(1 + 1 / beta)

        def one(t):
            x = (abs(t) / beta) ** (1 / (beta - 1))
            tail = mp.gammainc(1 / beta, x**beta) / mp.gamma(1 / beta) / 2
            return mp.exp(-(x**beta)) / normalizer - abs(t) * tail + max(-t, 0)

        if ratio == 0:
            return one(threshold)
        even = mp.quad(
            lambda x: (
                mp.exp(-(x**beta))
                / normalizer
                * (
                    one(threshold - ratio * beta * x ** (beta - 1))
                    + one(threshold + ratio * beta * x ** (beta - 1))
                )
            ),
            [0, 0.5, 1, 2, 4, 8, 16, 40] if beta < 1.3 else [0, 0.5, 1, 2, 4, 8, 14],
        )
        return even


@pytest.mark.parametrize(("beta", "threshold"), [(1.1, 0.4), (1.1, 1.5), (1.5, 0.0), (1.5, 4.0), (1.9, 7.0)])
def test_the_stop_loss_of_one_score_is_its_closed_form(beta, threshold):
    law = ScoreLaw(beta, 50)
    exact = stop_loss_by_mpmath(beta, 0, threshold)
    assert law.stop_loss(np.array([threshold]))[0] == pytest.approx(float(exact), rel=1e-9)
    assert exact * (1 - 1e-9) <= law.stop_loss_above(np.array([threshold]))[0] <= exact * 1.001


@pytest.mark.parametrize(
    ("beta", "ratio", "threshold"), [(1.2, 0.5, 0.6), (1.5, 1.0, 1.0), (1.5, 0.1, 3.0), (1.9, 0.7, 4.0)]
)
def test_the_bound_of_two_scores_is_above_their_integral_and_close(beta, ratio, threshold):
    exact = float(stop_loss_by_mpmath(beta, ratio, threshold))
    found = ScoreLaw(beta, 200).split_above(ratio, np.array([threshold]))[0]
    assert exact * (1 - 1e-9) <= found <= exact * 1.01


@pytest.mark.parametrize("beta", [1.03, 1.1, 1.25, 1.33, 1.5, 1.66, 1.75])
def test_the_matched_norm_is_verified(beta):
    report = verify_matched_norm(beta)
    assert report.certified
    assert report.norm == matched_exponent(beta) < beta
    assert 0.0 < report.smallest_ratio < 0.02
    assert verify_matched_norm(beta, norm=beta, stretch=own_norm_stretch(beta)).certified


@pytest.mark.parametrize(
    ("beta", "norm"), [(1.25, 1.25), (1.5, 1.5), (1.75, 1.75), (1.25, 1.23), (1.5, 1.47), (1.75, 1.728)]
)
def test_norms_above_the_largest_one_scanned_are_not_verified(beta, norm):
    """The largest norms that a scan of privacy profiles left are 1.2264, 1.4675 and 1.7251."""
    report = verify_matched_norm(beta, norm=norm)
    assert not report.certified
    assert report.undecided is not None
    assert "a split is not below" in report.reason


def test_what_is_near_zero_is_true_at_smaller_ratios_and_thresholds():
    cover = Cover(ScoreLaw(1.5, 100), matched_exponent(1.5), 1.0, 6.0)
    for ratio, threshold in ((0.02, 3.0), (0.005, 6.0), (0.05, 1.0)):
        assert cover._near_zero(ratio, threshold)
        for part in (0.3, 0.9):
            assert cover._near_zero(part * ratio, threshold)
            assert cover._near_zero(ratio, part * threshold)
            c = float(cover.length(part * ratio))
            left = stop_loss_by_mpmath(1.5, part * ratio, part * threshold)
            assert left <= c * stop_loss_by_mpmath(1.5, 0, part * threshold / c)
    assert not cover._near_zero(0.9, 6.0)


@pytest.mark.parametrize(("beta", "length"), [(1.1, 1.0), (1.5, 0.3), (1.5, 1.0), (1.75, 2.0)])
def test_no_split_of_the_matched_norm_costs_more_than_one_coordinate(beta, length):
    """The consequence, which the verification never looks at: exact profiles of splits, at every size."""
    noise, p = GeneralizedGaussian(beta, 1.0), matched_exponent(beta)
    for at in (0.5 * length, length**beta + 0.5):
        one = delta(AdditiveNoise(noise, shift=(length,)), epsilon=at)
        if one.upper < 1e-30:
            continue
        for shares in ([0.5] * 2, [0.9, 0.1], [0.1] * 10):
            split = tuple(length * share ** (1.0 / p) * (1.0 - 1e-12) for share in shares)
            assert delta(AdditiveNoise(noise, shift=split), epsilon=at).lower <= one.upper


def test_what_is_left_out_is_too_small_to_see_and_grows_with_the_shift():
    p = matched_exponent(1.5)
    small, large = (domination(1.5, p, 1.0, shift, 1e9) for shift in (1.0, 8.0))
    assert small is not None
    assert large is not None
    assert 0.0 < small.delta < 1e-40
    assert small.delta < large.delta < 1e-15
    assert 1.0 < small.stretch < 1.0 + 1e-12
    assert domination(1.5, p, 1.0, 50.0, 1e9) is None
    assert domination(1.5, 1.5, 1.0, 1.0, 2) is None  # not verified
    assert domination(1.999, 1.99, 1.0, 1.0, 2) is None


def test_infinitely_many_coordinates_cost_next_to_nothing_more_where_small_ones_are_small():
    """The rest beyond 10^30 coordinates, as Gaussian noise: its stop loss against that of a longer score."""
    p = matched_exponent(1.5)
    finite, infinite = (domination(1.5, p, 1.0, 1.0, dimension) for dimension in (1e9, math.inf))
    assert finite is not None
    assert infinite is not None
    assert finite.stretch < infinite.stretch < 1.0 + 1e-9
    assert domination(1.9, matched_exponent(1.9), 1.0, 1.0, math.inf) is None
    for beta, size in ((1.66, 1e-3), (1.75, 0.01)):
        more = _rest(beta, 2.0 / (1.0 + 2.0 * math.log10(1.0 / size) / 30.0))  # n^(-(2-p)/(2p)) = size
        law = ScoreLaw(beta, 10)
        scale = size * math.sqrt(0.5 * math.pi) / math.gamma(1.0 + 1.0 / beta)
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        for threshold in (0.0, 1.0, 3.0, 5.0):
            moved = np.abs(threshold - scale * nodes)
            both = law.stop_loss(moved) + np.maximum(scale * nodes - threshold, 0.0)
            left = float(both @ weights) / math.sqrt(2.0 * math.pi)
            longer = (1.0 + more) * law.stop_loss(np.array([threshold / (1.0 + more)]))[0]
            assert left <= longer * (1 + 1e-9)


@pytest.mark.parametrize(("norm", "stretch"), [(2.0, 1.0), (1.999, 1.0), (1.99, 1.3)])
def test_a_norm_so_close_to_two_that_ratios_near_zero_are_not_covered_is_not_certified(norm, stretch):
    found = verify_matched_norm(1.5, norm=norm, stretch=stretch)
    assert not found.certified
    assert found.smallest_ratio == 0.0


def test_arguments_out_of_range_are_refused_by_name():
    with pytest.raises(ValueError, match="beta must be"):
        verify_matched_norm(2.0)
    with pytest.raises(ValueError, match="norm must be"):
        verify_matched_norm(1.5, norm=1.0)
    with pytest.raises(ValueError, match="stretch must be"):
        verify_matched_norm(1.5, stretch=0.9)


@pytest.mark.parametrize("beta", [1.03, 1.2821, 1.344, 1.4187, 1.4987, 1.7, 1.95])
def test_every_stretch_of_the_documented_range_is_answered(beta):
    for stretch in (3.0, 10.0):  # two merged coordinates of a long stretch reach beyond every table
        assert verify_matched_norm(beta, norm=1.01, stretch=stretch).certified
