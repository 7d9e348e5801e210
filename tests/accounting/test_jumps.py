# SPDX-License-Identifier: Apache-2.0
"""Compositions split by the number of large losses, against mpmath and the other engines."""

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from scipy import optimize, special

from ggdp import AdditiveNoise, Adjacency, Composed, GeneralizedGaussian, PoissonSampled
from ggdp.accounting import account, delta, epsilon
from ggdp.accounting.engines import contour, jumps, rare
from ggdp.accounting.engines.curve import crossing
from ggdp.accounting.engines.jump_plan import Split, chernoff, planned_epsilon
from ggdp.accounting.engines.polynomial import Polynomial
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.hockey_stick import thresholds
from ggdp.privacy_loss.quadrature import certified_nodes
from ggdp.privacy_loss.shift_pair import ShiftPair


class _Exact:
    """One release at the working precision of mpmath."""

    def __init__(self, pair):
        self.beta, self.up, self.down, self.rate = (
            mp.mpf(v) for v in (pair.beta, pair.up, pair.down, pair.rate)
        )
        self.pair = pair

    def survival(self, z):
        half = mp.gammainc(1 / self.beta, abs(z) ** self.beta, regularized=True) / 2
        return half if z >= 0 else 1 - half

    def ratio(self, z, shift):
        return 1 - self.rate + self.rate * mp.exp(abs(z) ** self.beta - abs(z - shift) ** self.beta)

    def loss(self, z):
        return mp.log(self.ratio(z, self.up) / self.ratio(z, self.down))

    def place(self, t):
        """The noise whose loss is t: the library's, made exact by Newton's method."""
        z, h = mp.mpf(float(thresholds(self.pair, np.array([float(t)]))[0][0])), mp.mpf(10) ** -10
        if not mp.isfinite(z):
            return z
        for _ in range(2):
            slope = (self.loss(z + h) - self.loss(z - h)) / (2 * h)
            z = z if slope == 0 else z - (self.loss(z) - t) / slope
        return z

    def masses(self, z):
        still, up, down = (self.survival(z - shift) for shift in (0, self.up, self.down))
        return (1 - self.rate) * still + self.rate * up, (1 - self.rate) * still + self.rate * down

    def delta(self, t):
        p, q = self.masses(self.place(t))
        return p - mp.exp(t) * q

    def below_half(self, other, epsilon):
        """The part of delta of both where this loss is below epsilon / 2: then the other one is above."""
        epsilon = mp.mpf(epsilon)
        half, scale = self.place(epsilon / 2), self.delta(epsilon) + other.delta(epsilon)
        normalizer = 2 * mp.gamma(1 + 1 / self.beta)

        def share(z):
            density = self.ratio(z, self.up) * mp.exp(-(abs(z) ** self.beta)) / normalizer
            return density * other.delta(epsilon - self.loss(z)) / scale

        far = mp.mpf(50) ** (1 / self.beta)
        marks = {-far, self.down, mp.mpf(0), self.up, half}
        marks |= {half * k / 4 for k in range(1, 4)} | {-far * k / 3 for k in range(1, 3)}
        return scale * mp.quad(share, sorted(m for m in marks if m <= half), maxdegree=3)

    def delta_of_two(self, other, epsilon):
        """Where one loss is below epsilon / 2, the other one is above: an integral over the first, for each.
        Where both are above, their sum is beyond epsilon: a product."""
        (p, q), (p_2, q_2) = (one.masses(one.place(mp.mpf(epsilon) / 2)) for one in (self, other))
        first = self.below_half(other, epsilon)
        second = first if other is self else other.below_half(self, epsilon)
        return first + second + p * p_2 - mp.exp(mp.mpf(epsilon)) * q * q_2


def _drawn(parts, asked):
    return jumps.draw(parts, TiltPlan.of(parts), asked)


TWICE = [  # pair, epsilon
    (ShiftPair(2.75, 0.137, 0.0, 3.1e-4), 0.6176),
    (ShiftPair(4.21, 0.166, 0.0, 1.6e-5), 15.51),
    (ShiftPair(2.44, 0.118, -0.118, 1.3e-6), 1.843e-4),
]


@pytest.mark.parametrize(("pair", "asked"), TWICE)
def test_two_releases_hold_the_integral_over_one(pair, asked):
    """Losses that exceed epsilon by themselves are set apart."""
    parts = ((pair, 2),)
    with mp.workdps(18):
        one = _Exact(pair)
        exact = float(mp.log(one.delta_of_two(one, asked)))
    apart = rare.cut(parts, TiltPlan.of(parts), 1.05 * asked, exact)
    found = rare.RareSplit(jumps.draw(apart.parts, apart.plan, asked), apart.rare).log_delta(asked)
    slip = 1e-13 * abs(exact)
    assert found.lower - slip <= exact <= found.upper + slip
    assert found.upper - found.lower <= 5e-4


@pytest.mark.parametrize("asked", [1e-9, 3e-8])
def test_next_to_zero_a_loss_is_large_beside_the_spread_of_small_ones(asked):
    """Losses that are large beside epsilon are all there are."""
    beta, multiplier, rate = 3.76, 124.97808, 3.9e-6
    found = delta(_composed(beta, multiplier, rate, 2), epsilon=asked, adjacency=Adjacency.REMOVE)
    with mp.workdps(24):
        one = _Exact(ShiftPair(beta, 1.0 / (math.sqrt(2.0) * multiplier), 0.0, rate))
        exact = float(one.delta_of_two(one, asked))
    assert found.lower <= exact * (1.0 + 1e-10)
    assert exact <= found.upper * (1.0 + 1e-10)
    assert found.width <= 1e-5 * found.upper


def test_releases_of_two_kinds_hold_the_integrals_over_either():
    """Both may jump, one of them far more likely than the other."""
    one, other, asked = ShiftPair(2.75, 0.137, 0.0, 3.1e-4), ShiftPair(4.21, 0.12, 0.0, 2e-3), 0.6
    found = _drawn(((one, 1), (other, 1)), asked).log_delta(asked)
    with mp.workdps(18):
        exact = float(mp.log(_Exact(one).delta_of_two(_Exact(other), asked)))
    slip = 1e-13 * abs(exact)
    assert found.lower - slip <= exact <= found.upper + slip
    assert found.upper - found.lower <= 5e-4


def _with_rare_event(parts, target):
    """epsilon by a long contour beside a rare event."""
    plan = TiltPlan.of(parts)
    guess = rare.planned_epsilon(parts, plan, target)
    split = rare.cut(parts, plan, 1.3 * guess, target)
    line = contour.draw(split.parts, split.plan, saddle_for_epsilon(split.plan, guess), effort=20.0)
    return crossing(rare.RareSplit(line, split.rare), target, guess, 0.1 * guess)


@pytest.mark.parametrize(
    ("parts", "asked"),
    [
        (((ShiftPair(2.0, 0.7, 0.0, 1e-3), 2000),), 1e-30),
        (((ShiftPair(3.0, 0.3, -0.3, 1e-3), 300),), 1e-25),
        (((ShiftPair(1.5, 0.9, 0.0, 1e-4), 100),), 1e-20),
        (  # of the first kind a jump decides; the second one is next to all of the bulk
            (
                (ShiftPair(2.0, 0.7, 0.0, 1e-5), 40),
                (ShiftPair(1.5, 0.01, 0.0, 0.05), 5000),
                (ShiftPair(3.0, 0.3, 0.0, 1e-4), 20),
            ),
            1e-25,
        ),
    ],
)
def test_a_split_by_jumps_and_a_contour_with_a_rare_event_meet(parts, asked):
    target = math.log(asked)
    other = _with_rare_event(parts, target)
    found = crossing(_drawn(parts, other.estimate), target, other.estimate, 0.1 * other.estimate)
    assert found.upper - found.lower <= 1e-4 * found.upper
    assert other.lower <= found.upper
    assert found.lower <= other.upper


def test_where_many_jumps_matter_the_split_is_refused():
    """Losses of epsilon / 7 are as likely as not, so that no number of jumps is left out."""
    with pytest.raises(CannotCertifyError):
        _drawn(((ShiftPair(2.0, 0.7, 0.0, 0.5), 500),), 2.0)


@pytest.mark.parametrize(("place", "tilt"), [(2.0, 3.0), (3.0, 5.0)])
def test_a_release_without_its_jumps_and_the_jumps_alone_have_its_moments(place, tilt):
    """Beyond the cut and up to it, each against a plain sum, with a plan that is far off."""
    pair = ShiftPair(beta=3.0, up=0.4, down=-0.4, rate=1e-3)
    noise = np.linspace(-8.0, 8.0, 4_000_001)
    density = np.exp(pair.log_mixture(noise, pair.up) - np.abs(noise) ** pair.beta - pair.log_normalizer)
    terms = density * np.exp(tilt * pair.loss(noise))
    for part, kept in (
        (replace(pair, cut=place), noise <= place),
        (replace(pair, floor=place), noise >= place),
    ):
        truth = math.log(np.trapezoid(terms[kept], noise[kept]))
        for rough in (truth, truth + 3.0):
            nodes = certified_nodes(part, (tilt,), 50.0, (rough,))
            assert nodes.log_phi[0] == pytest.approx(truth, abs=1e-5)
            assert nodes.quadrature[0] < 1e-12


def test_what_more_jumps_may_add_covers_them():
    """A bound on all jumps but none lies above the term of one, which decides, and not far above."""
    parts, asked = ((ShiftPair(2.0, 0.7, 0.0, 1e-3), 2000),), 4.8
    split = Split(parts, 0.4 * asked, asked, *TiltPlan.of(parts).split(0.4 * asked))
    one = jumps._line(split, 1, split.saddle(1), 10.0, 1.0).delta(asked)
    bound, tilt, factor = split.many(0)
    certified = jumps._certified_many(split, 0, tilt, factor) - tilt * asked
    assert one.base + math.log(one.low) <= certified <= one.base + math.log(one.high) + 8.0
    assert certified == pytest.approx(bound, abs=0.1)


def test_the_coefficients_of_a_product_are_those_of_its_binomials():
    """(1/2 + z/4)^3 (1/4 + z/2): all terms by hand."""
    found = Polynomial.one(1, 2)
    none, full = np.zeros(1), np.full(1, 0.1)
    found = found.times(np.full(1, 0.5 + 0j), none, np.full(1, 0.25 + 0j), none, 3)
    found = found.times(np.full(1, 0.25 + 0j), full, np.full(1, 0.5 + 0j), none, 1)
    assert found.value[:, 0].real == pytest.approx([1 / 32, 7 / 64, 15 / 128])
    assert found.larger[:, 0] - found.size[:, 0] == pytest.approx([0.1 / 8, 0.1 * 3 / 16, 0.1 * 3 / 32])


def test_planned_coefficients_are_those_of_the_product():
    """Powers of two terms, multiplied out one after another."""
    rng = np.random.default_rng(5)
    bulks, jumps_, times = rng.uniform(0.1, 1.0, 7), rng.uniform(0.0, 0.1, 7), [1, 2, 3, 1, 50, 7, 1]
    whole = np.array([1.0])
    for bulk, jump, count in zip(bulks, jumps_, times, strict=True):
        for _ in range(count):
            whole = np.convolve(whole, [bulk, jump])
    pairs = [(ShiftPair(2.0, 0.1 * (1 + k), 0.0, 0.5), count) for k, count in enumerate(times)]
    plan = TiltPlan.of(tuple(pairs))
    split = Split(tuple(pairs), 0.1, 0.2, plan, plan, list(range(7)))
    found = split.log_coefficients(np.log(bulks), np.log(jumps_), 4)
    assert found == pytest.approx(np.log(whole[:5]), abs=1e-12)


def test_a_plan_that_is_split_keeps_its_mass():
    """Bulks and jumps of three kinds, one of which has none."""
    parts = (
        (ShiftPair(1.5, 0.4, 0.0, 0.5), 3),
        (ShiftPair(1.0, 0.01, 0.0, 0.5), 4),
        (ShiftPair(3.0, 0.2, 0.0, 0.1), 5),
    )
    plan = TiltPlan.of(parts)
    bulk, jump, which = plan.split(0.3)
    assert which == [0, 2]
    assert jump.times.tolist() == [3.0, 5.0]
    whole = np.exp(plan.log_phis(1.5))
    rest = np.exp(bulk.log_phis(1.5))
    assert rest[1] == pytest.approx(whole[1], rel=1e-12)
    assert rest[which] + np.exp(jump.log_phis(1.5)) == pytest.approx(whole[which], rel=1e-12)
    assert jump.loss.min() > 0.3 >= bulk.loss.max()


def test_a_release_that_cannot_be_cut_at_epsilon_leaves_the_others_narrow():
    """Of the third kind a double knows no noise with a loss of epsilon: cut where its noise ends, it took
    all width from the rare event of the first.
    """
    parts = (
        (ShiftPair(8.96, 0.01816, 0.0, 0.00511), 297),
        (ShiftPair(1.0, 0.412, 0.0, 1.81e-6), 6060),
        (ShiftPair(3.5, 0.02318, 0.0, 3.03e-7), 500),
    )
    asked = 0.06
    apart = rare.cut(parts, TiltPlan.of(parts), 1.05 * asked, math.log(5e-13))
    assert apart.parts[2][0].supremum < asked
    value, _, middle, _ = apart.rare.delta(asked)
    assert 0.0 < middle < 1e-7 * 5e-13
    saddle = saddle_for_epsilon(apart.plan, asked)
    found = rare.RareSplit(contour.draw(apart.parts, apart.plan, saddle), apart.rare).log_delta(asked)
    other = rare.RareSplit(jumps.draw(apart.parts, apart.plan, asked), apart.rare).log_delta(asked)
    assert found.upper - found.lower < 1e-6
    assert other.upper - other.lower < 1e-3
    assert max(found.lower, other.lower) <= min(found.upper, other.upper)
    assert value < math.exp(found.lower)


def _composed(beta, multiplier, rate, times):
    noise = AdditiveNoise(GeneralizedGaussian(beta=beta, scale=math.sqrt(2.0) * multiplier))
    return Composed(PoissonSampled(noise, rate), times)


@pytest.mark.parametrize(
    ("setting", "asked", "adjacency"),
    [
        ((6.1, 40.8, 4e-7, 3), 4.5e-77, Adjacency.REMOVE),
        ((2.203, 3.79, 6.4e-5, 15), 3.1e-100, Adjacency.REMOVE),
        ((5.604, 24.9, 1.9e-7, 4676), 6.1e-71, Adjacency.ADD_REMOVE),
        ((3.456, 5.99, 2.3e-6, 318), 5.7e-86, Adjacency.REPLACE),
        ((6.281, 151.0, 1.1e-5, 4125), 4.8e-100, Adjacency.REPLACE),
        # planned e^9 too likely: one jump
        ((3.71256837, 38.697752475, 1.731030675566147e-5, 283), 6.744803917994589e-94, Adjacency.REPLACE),
        # next to an epsilon of zero, 4e-8 and 2e-5
        ((3.760015661501823, 124.97808452841501, 3.87644908e-6, 147), 1.8480236065e-07, Adjacency.REMOVE),
        ((13.674771501213597, 99.89977893259909, 1.9109825e-4, 14), 1.81276511429e-06, Adjacency.REMOVE),
    ],
)
def test_rare_losses_at_tiny_deltas_are_answered_to_five_digits(setting, asked, adjacency):
    """A tilt for one of no jump and one jump does not suit the other: these were up to 100% wide."""
    mechanism = _composed(*setting)
    found = epsilon(mechanism, delta=asked, adjacency=adjacency)
    assert 0.0 < found.upper - found.lower <= 1e-5 * found.upper
    other = account(mechanism, adjacency=adjacency)  # with curves of its own
    assert other.delta(epsilon=found.upper).lower <= asked * (1.0 + 1e-12)
    assert other.delta(epsilon=found.lower).upper >= asked * (1.0 - 1e-12)


def test_an_epsilon_of_zero_is_found_behind_rare_large_losses():
    """delta at zero is 1.4e-5, and the saddle point of all losses says that epsilon is 7.8 at 5.5e-5."""
    mechanism = _composed(13.9485586, 6.80769489, 1.92321838e-06, 717)
    assert delta(mechanism, epsilon=0.0).upper < 1.4e-5
    assert epsilon(mechanism, delta=5.5e-5).upper == 0.0
    assert epsilon(mechanism, delta=1.3e-5).lower > 0.0


def test_many_releases_of_bounded_loss_cost_their_sum_at_tiny_deltas():
    """ADD: nearly all losses are next to the largest one, of 765,423 releases together."""
    rate, times = 3.0250335e-4, 765_423
    found = epsilon(_composed(22.8704, 0.31235, rate, times), delta=3.6e-85, adjacency=Adjacency.ADD)
    assert found.upper == pytest.approx(-times * math.log1p(-rate), rel=1e-12)
    assert found.upper - found.lower <= 1e-9 * found.upper


def _next_to_the_largest_loss(setting, epsilon, points=3000):
    """delta of ADD, by convolving the law of how far each loss lies below the largest; to some 1e-4."""
    beta, multiplier, rate, times = setting
    shift = 1.0 / (math.sqrt(2.0) * multiplier)
    short = float(-times * mp.log1p(-mp.mpf(rate)) - mp.mpf(epsilon))
    y = np.linspace(0.0, short, points + 1)
    odds = np.log(np.expm1(y[1:]) * (1.0 - rate) / rate)
    noise = [optimize.brentq(lambda z, o=one: z**beta - (z + shift) ** beta - o, 0.0, 60.0) for one in odds]
    law = first = np.append(0.0, 0.5 * special.gammaincc(1.0 / beta, np.array(noise) ** beta))
    for _ in range(times - 1):
        law = np.append(0.0, np.convolve(np.diff(first), 0.5 * (law[1:] + law[:-1]))[:points])
    return float(np.trapezoid(law, y))


@pytest.mark.parametrize(
    ("setting", "asked"),
    [
        ((2.605, 0.449, 2.1e-4, 2), 6.9e-75),
        ((7.183, 2.17, 0.052, 2), 2.7e-41),
        ((2.886, 0.725, 0.083, 6), 4.4e-55),
    ],
)
def test_few_releases_of_bounded_loss_cost_their_sum_at_tiny_deltas(setting, asked):
    """ADD: no loss exceeds -log(1 - rate), and all of them come close to it with a chance far above delta."""
    _, _, rate, times = setting
    found = epsilon(_composed(*setting), delta=asked, adjacency=Adjacency.ADD)
    assert found.lower <= found.upper <= -times * mp.log1p(-mp.mpf(rate)) * (1 + mp.mpf(10) ** -13)
    assert found.upper - found.lower <= 1e-9 * found.upper
    if found.upper < -times * math.log1p(-rate) * (1.0 - 1e-13):  # else the largest loss is all there is
        assert _next_to_the_largest_loss(setting, found.lower) >= asked * (1.0 - 1e-3)
        assert _next_to_the_largest_loss(setting, found.upper) <= asked * (1.0 + 1e-3)


def test_equal_releases_cost_the_same_however_they_are_listed():
    """Five kinds that are one: the coefficients of all add up to those of one."""
    pair, asked = ShiftPair(2.0, 0.7, 0.0, 1e-4), 6.0
    together = _drawn(((pair, 15),), asked).log_delta(asked)
    apart = _drawn(tuple((pair, times) for times in (1, 2, 3, 4, 5)), asked).log_delta(asked)
    assert apart.upper - apart.lower <= 1e-3
    assert apart.lower <= together.upper
    assert together.lower <= apart.upper


def test_a_bulk_that_decides_beside_rare_large_losses_is_answered_to_five_digits():
    """Large losses spoil every tilt of the whole; of the bulks alone it is good (84% wide before)."""
    mechanism = _composed(11.28, 150.4, 0.0032, 1_250_000)
    found = epsilon(mechanism, delta=1.3e-73, adjacency=Adjacency.REMOVE)
    assert 0.0 < found.upper - found.lower <= 1e-5 * found.upper
    assert delta(mechanism, epsilon=found.upper, adjacency=Adjacency.REMOVE).lower <= 1.3e-73 * (1.0 + 1e-12)
    assert delta(mechanism, epsilon=found.lower, adjacency=Adjacency.REMOVE).upper >= 1.3e-73 * (1.0 - 1e-12)


@pytest.mark.parametrize(
    ("parts", "asked", "adjacency"),
    [
        (((8.1, 6.29, 2.6e-3, 300),), 1e-50, Adjacency.REMOVE),  # several rare losses together
        (
            ((1.0, 709.8, 0.0503, 191), (1.0, 611.3, 0.0377, 191)),
            2.1e-90,
            Adjacency.ADD,
        ),  # atoms of two kinds
        (((2.0, 2.06, 2.6e-7, 1049), (2.0, 3.12, 2.7e-7, 1049)), 5e-45, Adjacency.REPLACE),
        (((13.38, 11.4, 2.87e-5, 1534242),), 1.6e-24, Adjacency.REMOVE),  # between two jumps and three
        (((25.8, 480.6, 1.02e-7, 2),), 3.7e-75, Adjacency.REPLACE),  # both releases must jump
    ],
)
def test_what_was_wide_is_answered_to_five_digits_in_both_forms(parts, asked, adjacency):
    steps = [
        (PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, math.sqrt(2.0) * multiplier)), rate), times)
        for beta, multiplier, rate, times in parts
    ]
    mechanism = Composed(steps)
    found = epsilon(mechanism, delta=asked, adjacency=adjacency)
    assert 0.0 < found.upper - found.lower <= 1e-5 * found.upper
    assert delta(mechanism, epsilon=found.upper, adjacency=adjacency).lower <= asked * (1.0 + 1e-12)
    assert delta(mechanism, epsilon=found.lower, adjacency=adjacency).upper >= asked * (1.0 - 1e-12)


def test_next_to_the_largest_loss_a_very_strong_tilt_costs_no_digits():
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=1.0, scale=28.2)), 0.06)
    mechanism = Composed(step, times=5)
    found = epsilon(mechanism, delta=1.2e-15, adjacency=Adjacency.REMOVE)
    assert found.lower > 0.0
    assert delta(mechanism, epsilon=found.lower, adjacency=Adjacency.REMOVE).upper >= 1.2e-15
    assert delta(mechanism, epsilon=found.upper, adjacency=Adjacency.REMOVE).lower <= 1.2e-15


def test_a_term_is_planned_where_its_line_crosses_and_not_by_a_parabola_beyond_its_kink():
    """699 releases: without a jump delta was planned e^78 times too small, and the answer was 2% wide."""
    pair = ShiftPair(15.778890138864666, 1.0 / (math.sqrt(2.0) * 8.0328), 0.0, 0.00812390694811987)
    parts, asked = ((pair, 699),), 345.0
    split = Split(parts, 0.4 * asked, asked, *TiltPlan.of(parts).split(0.4 * asked))
    saddle = split.saddle(0)
    certified = jumps._certified_one(split, 0, saddle.theta) - saddle.theta * asked
    assert chernoff(saddle) == pytest.approx(certified, abs=1.0)


def test_quadrature_next_to_a_cut_needs_few_panels_at_a_very_strong_tilt():
    """All mass lies closer to the cut than a plan's last node: 60,000 panels were not enough."""
    pair = ShiftPair(4.046, 0.0737, 0.0, 1.745e-4, cut=3.11)
    plan, tilt = TiltPlan.of(((pair, 1),)), 4137.0
    planned = float(plan.log_phis(tilt)[0])
    nodes = certified_nodes(pair, (tilt,), 0.0, (planned - 30.0,), most_panels=200)
    assert nodes.quadrature[0] < 1e-12
    assert planned == pytest.approx(nodes.log_phi[0], abs=0.5)


def test_a_rare_event_is_cut_surely_beyond_what_its_bound_needs():
    """The loss at the cut, rounded, fell short of what was asked by less than a double tells."""
    mechanism = _composed(23.144181018666284, 187.40047925203476, 1.854605137201928e-07, 207)
    found = epsilon(mechanism, delta=1.0257528583989476e-83, adjacency=Adjacency.REMOVE)
    assert 0.0 < found.upper - found.lower <= 1e-5 * found.upper


def test_tilts_beyond_what_doubles_hold_are_left_out_of_a_plan():
    """Three releases at beta = 32, of losses up to 1e300: exponents overflowed, with a warning."""
    parts = ((ShiftPair(32.0, 1.25, 0.0, 1.0), 3),)
    assert 0.0 < planned_epsilon(parts, TiltPlan.of(parts), math.log(0.9), 1e-6) < math.inf


def test_an_engine_that_finds_an_epsilon_below_zero_ends_in_an_answer():
    """delta is the distance of the two laws, to a few digits: the next guess had no logarithm."""
    found = epsilon(_composed(3.0, 1.4 / math.sqrt(2.0), 3e-7, 20), delta=1e-6)
    assert found.upper <= 1e-9
