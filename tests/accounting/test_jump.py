# SPDX-License-Identifier: Apache-2.0
"""One large loss beside a bulk: split by the number of jumps, against mpmath and the other engines."""

import math

import mpmath as mp
import numpy as np
import pytest

from ggdp import AdditiveNoise, Adjacency, Composed, GeneralizedGaussian, PoissonSampled
from ggdp.accounting import account, delta, epsilon
from ggdp.accounting.engines import bulk, contour, jump, rare
from ggdp.accounting.engines.curve import crossing
from ggdp.accounting.engines.tilt import TiltPlan, saddle_for_epsilon, saddle_for_log_delta
from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.hockey_stick import thresholds
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


TWICE = [  # pair, epsilon
    (ShiftPair(2.75, 0.137, 0.0, 3.1e-4), 0.6176),
    (ShiftPair(4.21, 0.166, 0.0, 1.6e-5), 15.51),
    (ShiftPair(2.44, 0.118, -0.118, 1.3e-6), 1.843e-4),
]


@pytest.mark.parametrize(("pair", "asked"), TWICE)
def test_two_releases_hold_the_integral_over_one(pair, asked):
    parts = ((pair, 2),)
    found = jump.build(parts, TiltPlan.of(parts), asked, 1e-8).log_delta(asked)
    with mp.workdps(18):
        one = _Exact(pair)
        exact = float(mp.log(one.delta_of_two(one, asked)))
    slip = 1e-13 * abs(exact)
    assert found.lower - slip <= exact <= found.upper + slip
    assert found.upper - found.lower <= 1e-5


def test_releases_of_two_kinds_hold_the_integrals_over_either():
    """Both may jump, one of them far more likely than the other."""
    one, other, asked = ShiftPair(2.75, 0.137, 0.0, 3.1e-4), ShiftPair(4.21, 0.12, 0.0, 2e-3), 0.6
    parts = ((one, 1), (other, 1))
    found = jump.build(parts, TiltPlan.of(parts), asked, 1e-8).log_delta(asked)
    with mp.workdps(18):
        exact = float(mp.log(_Exact(one).delta_of_two(_Exact(other), asked)))
    slip = 1e-13 * abs(exact)
    assert found.lower - slip <= exact <= found.upper + slip
    assert found.upper - found.lower <= 1e-5


def test_jumps_of_two_kinds_beside_a_bulk_meet_the_contour_with_a_rare_event():
    """Of the first kind a jump decides; the second one is next to all of the bulk, and has none."""
    parts = ((ShiftPair(2.0, 0.7, 0.0, 1e-5), 40), (ShiftPair(1.5, 0.01, 0.0, 0.05), 5000))
    parts, target = (*parts, (ShiftPair(3.0, 0.3, 0.0, 1e-4), 20)), math.log(1e-25)
    plan = TiltPlan.of(parts)
    guess = rare.planned_epsilon(parts, plan, target)
    split = rare.cut(parts, plan, 1.3 * guess, target)
    line = contour.draw(split.parts, split.plan, saddle_for_epsilon(split.plan, guess), effort=20.0)
    other = crossing(rare.RareSplit(line, split.rare), target, guess, 0.1 * guess)
    curve = jump.build(parts, plan, other.estimate, 1e-5, 2**17)
    found = crossing(curve, target, other.estimate, 0.1 * guess, resolution=1e-7)
    assert found.upper - found.lower <= 1e-3 * found.upper
    assert other.lower <= found.upper
    assert found.lower <= other.upper


@pytest.mark.parametrize(
    ("pair", "times", "asked"),
    [
        (ShiftPair(2.0, 0.7, 0.0, 1e-3), 2000, 1e-30),
        (ShiftPair(3.0, 0.3, -0.3, 1e-3), 300, 1e-25),
        (ShiftPair(1.5, 0.9, 0.0, 1e-4), 100, 1e-20),
    ],
)
def test_one_jump_and_the_contour_with_a_rare_event_meet(pair, times, asked):
    parts, target = ((pair, times),), math.log(asked)
    plan = TiltPlan.of(parts)
    guess = rare.planned_epsilon(parts, plan, target)
    split = rare.cut(parts, plan, 1.3 * guess, target)
    line = contour.draw(split.parts, split.plan, saddle_for_epsilon(split.plan, guess), effort=20.0)
    other = crossing(rare.RareSplit(line, split.rare), target, guess, 0.1 * guess)
    found = crossing(jump.build(parts, plan, other.estimate, 1e-6), target, other.estimate, 0.1 * guess)
    assert found.upper - found.lower <= 1e-5 * found.upper
    assert other.lower <= found.upper
    assert found.lower <= other.upper


def test_several_jumps_that_matter_are_refused():
    """A loss of epsilon / 3 is not rare here: no cut leaves two jumps out."""
    parts = ((ShiftPair(2.0, 0.7, 0.0, 0.05), 500),)
    with pytest.raises(CannotCertifyError):
        jump.build(parts, TiltPlan.of(parts), 2.0, 1e-6)


def test_chords_between_values_are_off_by_no_more_than_they_say():
    one = bulk.Jump.beyond_loss(ShiftPair(3.0, 0.2, 0.0, 1e-4), 0.05)
    t = np.linspace(1.0, -0.2, 3 * bulk._MOST_EXACT)
    joined, exact = bulk._joined(one, t), one.delta(t)
    off = np.abs(joined.value - exact.value)
    assert np.all(off <= joined.error + exact.error)
    assert np.max(off / exact.value) > 1e-12  # so that there is something to be charged


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
    beta, multiplier, rate, times = setting
    found = epsilon(_composed(*setting), delta=asked, adjacency=Adjacency.ADD)
    with mp.workdps(50):
        exact = _Exact(ShiftPair(beta, 0.0, -1.0 / (math.sqrt(2.0) * multiplier), rate))
        assert found.upper >= found.lower
        assert found.upper <= -times * mp.log1p(-mp.mpf(rate)) * (1 + mp.mpf(10) ** -13)
        # some event shows the lower end at 50 digits too: the best of many, then of many close to it
        low, high, best = mp.mpf(0.5), mp.mpf(5), mp.mpf(0)
        for _ in range(4):
            places = mp.linspace(low, high, 60)
            chances = [
                exact.masses(z)[0] ** times * (1 - mp.exp(found.lower - times * exact.loss(z)))
                for z in places
            ]
            top = max(range(60), key=chances.__getitem__)
            best, low, high = chances[top], places[max(top - 1, 0)], places[min(top + 1, 59)]
        assert best >= asked
    assert found.upper - found.lower <= 1e-9 * found.upper


@pytest.mark.parametrize(
    ("parts", "asked"),
    [
        (((ShiftPair(2.0, 0.3, 0.0, 0.02), 2000),), 1e-12),
        (((ShiftPair(3.0, 0.2, -0.2, 0.01), 3000), (ShiftPair(1.5, 0.05, 0.0, 0.1), 500)), 1e-9),
    ],
)
def test_bounding_all_jumps_meets_the_contour_of_whole_losses(parts, asked):
    """No jump decides: the bulks alone are D_0, and what jumps may add is charged."""
    plan, target = TiltPlan.of(parts), math.log(asked)
    saddle = saddle_for_log_delta(plan, target)
    whole = crossing(contour.draw(parts, plan, saddle), target, saddle.epsilon, saddle.deviation)
    bounded = crossing(jump.without_jump(parts, plan, saddle.epsilon, target), target, saddle.epsilon, 0.1)
    assert bounded.upper - bounded.lower <= 1e-5 * bounded.upper
    assert bounded.lower <= whole.upper
    assert whole.lower <= bounded.upper


def test_what_jumps_may_add_covers_one_jump_that_decides():
    """Bounding it makes the interval wide, and it still holds what splitting by jumps finds."""
    parts, asked = ((ShiftPair(2.0, 0.7, 0.0, 1e-3), 2000),), 4.8
    plan = TiltPlan.of(parts)
    split = jump.build(parts, plan, asked, 1e-6).log_delta(asked)
    bounded = jump.without_jump(parts, plan, asked, split.estimate).log_delta(asked)
    assert bounded.lower < split.lower - 1.0
    assert split.upper <= bounded.upper <= split.upper + 10.0


def test_equal_releases_cost_the_same_however_they_are_listed():
    """Five kinds that are one: each has its own transform, and their jumps add up."""
    pair, asked = ShiftPair(2.0, 0.7, 0.0, 1e-4), 6.0
    together = jump.build(((pair, 15),), TiltPlan.of(((pair, 15),)), asked, 1e-6).log_delta(asked)
    parts = tuple((pair, times) for times in (1, 2, 3, 4, 5))
    apart = jump.build(parts, TiltPlan.of(parts), asked, 1e-6, 2**17).log_delta(asked)
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
