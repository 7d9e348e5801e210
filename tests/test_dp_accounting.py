# SPDX-License-Identifier: Apache-2.0
"""Our accountant inside Google's library: its interface, its published numbers, and its own accountant."""

import math

import attr
import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from scipy.special import ndtr

from ggdp.dp_accounting import GGAccountant

RELATIONS = list(NeighboringRelation)
GAUSSIAN = dp_event.GaussianDpEvent(1.0)
SAMPLED = dp_event.PoissonSampledDpEvent(0.1, GAUSSIAN)


def nested(event):
    return [event, dp_event.ComposedDpEvent([event]), dp_event.SelfComposedDpEvent(event, 10)]


@pytest.mark.parametrize("relation", RELATIONS)
def test_nothing_costs_nothing(relation):
    for accountant in (GGAccountant(relation), GGAccountant(relation).compose(dp_event.NoOpDpEvent())):
        assert [accountant.get_epsilon(delta) for delta in (0, 1e-12, 0.7, 1)] == [0.0] * 4
        assert [accountant.get_delta(epsilon) for epsilon in (0, 1e-12, math.inf)] == [0.0] * 3


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("event", nested(dp_event.NonPrivateDpEvent()))
def test_what_keeps_nothing_private_costs_everything(relation, event):
    accountant = GGAccountant(relation)
    assert accountant.supports(event)
    accountant.compose(event).compose(SAMPLED)
    assert [accountant.get_epsilon(delta) for delta in (0, 0.99, 1)] == [math.inf] * 3
    assert [accountant.get_delta(epsilon) for epsilon in (0, 100, math.inf)] == [1.0] * 3


@pytest.mark.parametrize(
    "event",
    [
        dp_event.GaussianDpEvent(0),
        dp_event.LaplaceDpEvent(0),
        dp_event.DiscreteLaplaceDpEvent(0, 1),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(0)),
        dp_event.MixtureOfGaussiansDpEvent(0, [1, 2], [0.5, 0.5]),
        dp_event.GaussianDpEvent(0.001),
    ],
)
def test_noise_that_is_none_or_next_to_none_costs_an_infinite_epsilon(event):
    assert GGAccountant().compose(event).get_epsilon(0.01) == math.inf


@pytest.mark.parametrize(("relation", "epsilon"), list(zip(RELATIONS, (50.0, 100.0, 50.0), strict=True)))
def test_little_laplace_noise_is_charged_its_largest_loss(relation, epsilon):
    accountant = GGAccountant(relation).compose(dp_event.LaplaceDpEvent(0.02))
    assert accountant.get_epsilon(0.0) == pytest.approx(epsilon, rel=1e-12)
    assert accountant.get_epsilon(1e-6) == pytest.approx(epsilon, abs=1e-3)


@attr.s(frozen=True)
class UnknownDpEvent(dp_event.DpEvent):
    pass


@pytest.mark.parametrize(
    "unknown", [dp_event.UnsupportedDpEvent(), UnknownDpEvent(), dp_event.ZCDpEvent(0.1)]
)
def test_an_event_that_is_not_known_is_refused_wherever_it_stands_and_nothing_is_recorded(unknown):
    for event in nested(unknown):
        accountant = GGAccountant()
        assert not accountant.supports(event)
        assert accountant._maybe_compose(event, 1, False).invalid_event == unknown
        with pytest.raises(dp_accounting.UnsupportedEventError, match="caused by subevent"):
            accountant.compose(dp_event.ComposedDpEvent([GAUSSIAN, event]))
        assert accountant.get_epsilon(1e-6) == 0.0
        assert accountant.ledger == dp_event.NoOpDpEvent()


def test_an_event_outside_what_is_covered_is_refused_with_the_range():
    event = dp_event.PoissonSampledDpEvent(1e-9, GAUSSIAN)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="rate must be a number in"):
        GGAccountant().compose(event)


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_that_is_not_positive_is_refused(count):
    with pytest.raises(ValueError, match=r"count. must be positive"):
        GGAccountant().compose(GAUSSIAN, count)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("event", "count"),
    [
        (GAUSSIAN, 3),
        (SAMPLED, 20),
        (dp_event.ComposedDpEvent([SAMPLED, dp_event.GaussianDpEvent(4.0)]), 10),
        (dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.05, 200, 1.0), 20),
    ],
)
def test_google_s_accountant_is_above_ours_by_no_more_than_its_grid(relation, event, count):
    theirs = PLDAccountant(relation, value_discretization_interval=1e-3).compose(event, count)
    ours = GGAccountant(relation).compose(event, count)
    assert ours.epsilon_bounds(1e-5).lower <= theirs.get_epsilon(1e-5) * (1 + 1e-12)
    assert ours.get_epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), abs=2e-3)
    assert ours.get_delta(0.7) == pytest.approx(theirs.get_delta(0.7), rel=2e-3)


LAPLACE = [(dp_event.LaplaceDpEvent(1.0), 3), (dp_event.LaplaceDpEvent(2.0), 2)]
DISCRETE = [(dp_event.DiscreteLaplaceDpEvent(1.0, 1), 3), (dp_event.DiscreteLaplaceDpEvent(0.5, 1), 2)]
MIXTURES = [
    (dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.2, 0.6, 0.2]), 3),
    (dp_event.MixtureOfGaussiansDpEvent(2.0, [0.0, 2.0, 3.0], [0.33, 0.34, 0.33]), 2),
]


@pytest.mark.parametrize(
    ("events", "epsilon", "delta", "within"),
    [
        ([(dp_event.GaussianDpEvent(math.sqrt(3)), 3)], 1.0, 0.126936, 1e-5),
        ([(dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(0.5)), 3)], 1.0, 0.15594, 1e-3),
        (LAPLACE, 4.0, 0.0, 1e-9),
        ([(dp_event.PoissonSampledDpEvent(0.2, dp_event.LaplaceDpEvent(0.5)), 3)], 2.46964, 0.0, 1e-5),
        (DISCRETE, 4.0, 0.0, 1e-9),
        (MIXTURES, 17.193115, 1e-6, 1e-6),
    ],
)
def test_the_numbers_that_google_s_tests_publish(events, epsilon, delta, within):
    accountant = GGAccountant()
    for event, count in events:
        accountant.compose(event, count)
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, abs=within)
    assert accountant.get_delta(epsilon) == pytest.approx(delta, abs=max(1e-6, within / 10))


@pytest.mark.parametrize(
    ("relation", "noise", "buckets"),
    [
        (NeighboringRelation.REPLACE_ONE, 4 / (3 + math.e), 4),
        (NeighboringRelation.REPLACE_SPECIAL, (4 - math.e) / 3, 4),
        (NeighboringRelation.REPLACE_SPECIAL, math.exp(-1), 2),
    ],
)
def test_randomized_response_is_one_private_at_the_noise_that_google_s_tests_publish(
    relation, noise, buckets
):
    event = dp_event.RandomizedResponseDpEvent(noise, buckets)
    accountant = GGAccountant(relation).compose(event)
    assert accountant.get_epsilon(0) == pytest.approx(1.0, rel=1e-12)
    assert accountant.get_delta(1.0) <= 1e-12
    assert accountant.compose(event, 4).get_epsilon(0) == pytest.approx(5.0, rel=1e-12)
    assert not GGAccountant().supports(event)


def test_both_relations_of_randomized_response_compose_with_noise():
    event = dp_event.ComposedDpEvent([SAMPLED, dp_event.RandomizedResponseDpEvent(0.1, 3)])
    supported = [GGAccountant(relation).supports(event) for relation in RELATIONS]
    assert supported == [False, True, True]
    alone = GGAccountant(NeighboringRelation.REPLACE_ONE).compose(SAMPLED)
    assert alone.get_epsilon(1e-3) < alone.compose(dp_event.RandomizedResponseDpEvent(0.1, 3)).get_epsilon(
        1e-3
    )


def test_a_full_batch_costs_less_than_google_answers_and_empty_ones_cost_nothing():
    """Google expects 17.904330 of these two, by a pair for full batches that costs more than the true one."""
    accountant = GGAccountant()
    accountant.compose(dp_event.TruncatedSubsampledGaussianDpEvent(4, 0.5, 2, 1.0), 3)
    accountant.compose(dp_event.TruncatedSubsampledGaussianDpEvent(3, 0.5, 2, 1.0), 2)
    found = accountant.epsilon_bounds(1e-6)
    assert 9.5 < found.lower < 16.45 < found.upper < 16.46 < 17.904330
    for sizes in ((0, 0.5, 2), (4, 0.5, 0), (4, 0.0, 2)):
        accountant.compose(dp_event.TruncatedSubsampledGaussianDpEvent(*sizes, 1.0))
    assert accountant.get_epsilon(1e-6) == found.upper
    accountant.compose(dp_event.TruncatedSubsampledGaussianDpEvent(4, 0.5, 2, 0.03))
    assert accountant.get_epsilon(1e-6) == math.inf


def test_empty_records_in_place_of_others_are_not_taken_for_records_that_are_added():
    """A full batch then keeps its size, which costs more; any choice of what is left out is covered."""
    often_cut = dp_event.TruncatedSubsampledGaussianDpEvent(4, 0.5, 2, 1.0)
    special = GGAccountant(NeighboringRelation.REPLACE_SPECIAL).compose(often_cut)
    assert special.get_epsilon(1e-6) == math.inf


@pytest.mark.parametrize("delta", [1e-7, 0.3, 0.5, 0.50001, 0.75, 0.9])
def test_every_delta_is_answered_and_answers_undo_each_other(delta):
    """Gaussian noise of deviation 1/4 has delta = Phi(2 - e/4) - exp(e) Phi(-2 - e/4) at epsilon e."""
    accountant = GGAccountant().compose(dp_event.GaussianDpEvent(0.25))
    bounds = accountant.epsilon_bounds(delta)
    at = [ndtr(2 - e / 4) - math.exp(e) * ndtr(-2 - e / 4) for e in (bounds.lower, bounds.upper)]
    assert at[0] * (1 + 1e-9) >= delta >= at[1] * (1 - 1e-9)
    assert bounds.upper == pytest.approx(bounds.lower, rel=1e-8)
    assert accountant.get_delta(accountant.get_epsilon(delta)) == pytest.approx(delta, rel=1e-8)


def test_an_epsilon_above_what_is_computed_is_the_largest_loss_or_infinite():
    accountant = GGAccountant().compose(dp_event.LaplaceDpEvent(0.1), 500)  # epsilon is about 4000
    assert accountant.get_epsilon(1e-6) == accountant.get_epsilon(0.0) == pytest.approx(5000.0, rel=1e-12)
    assert accountant.get_delta(2000.0) > 0.9
    assert accountant.get_delta(5000.1) == accountant.get_delta(1e9) == accountant.get_delta(math.inf) == 0.0
    accountant.compose(dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(5.0)))
    assert accountant.get_epsilon(1e-6) == math.inf


def test_delta_of_a_large_epsilon_undoes_epsilon_of_delta():
    """10^4 releases of deviation 1 are one of 1/100: delta = Phi(50 - e/100) - exp(e) Phi(-50 - e/100)."""
    accountant = GGAccountant().compose(GAUSSIAN, 10_000)
    epsilon = accountant.get_epsilon(1e-6)
    assert 5474.0 < epsilon < 5475.0
    assert accountant.get_delta(epsilon) == pytest.approx(1e-6, rel=1e-6)
    assert accountant.get_delta(math.inf) < 1e-60


def test_more_releases_than_are_counted_are_refused_when_they_are_composed():
    many = dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(1000.0), 10**4)
    accountant = GGAccountant().compose(many, 10**3)
    for more in (many, dp_event.LaplaceDpEvent(2000.0)):
        with pytest.raises(dp_accounting.UnsupportedEventError, match="count must be at most 10,000,000"):
            accountant.compose(more)
    assert accountant.get_epsilon(0.0) == pytest.approx(1e4, rel=1e-9)
    assert GGAccountant().compose(dp_event.GaussianDpEvent(1e4), 10**8).get_epsilon(1e-6) < 10.0


def test_gaussian_releases_without_sampling_cost_what_one_of_their_joint_noise_costs():
    """Four of deviation 2 are one of deviation 1, and a million of deviation 10^4 are one of deviation 10."""
    four = GGAccountant().compose(dp_event.GaussianDpEvent(2.0), 4)
    one = GGAccountant().compose(GAUSSIAN)
    assert four.get_epsilon(1e-6) == pytest.approx(one.get_epsilon(1e-6), rel=1e-12)
    many = GGAccountant().compose(dp_event.GaussianDpEvent(1e4), 10**6)
    ten = GGAccountant().compose(dp_event.GaussianDpEvent(10.0))
    assert many.get_epsilon(1e-6) == pytest.approx(ten.get_epsilon(1e-6), rel=1e-12)


def test_noise_of_any_size_is_answered_where_records_are_replaced():
    """A replaced record moves a sum by two, so that deviation 4000 costs what 2000 does for one removed."""
    replaced, removed = GGAccountant(NeighboringRelation.REPLACE_ONE), GGAccountant()
    for kind in (dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent):
        replaced.compose(kind(4000.0), 100_000).compose(kind(40.0))
        removed.compose(kind(2000.0), 100_000).compose(kind(20.0))
        assert replaced.get_epsilon(1e-6) == pytest.approx(removed.get_epsilon(1e-6), rel=1e-6)
    noise = dp_accounting.calibrate_dp_mechanism(
        lambda: GGAccountant(NeighboringRelation.REPLACE_ONE), dp_event.LaplaceDpEvent, 1e-4, 0.0
    )
    assert noise == pytest.approx(2e4, rel=1e-6)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_delta_that_is_no_probability_is_refused(value):
    with pytest.raises(ValueError, match="target_delta must be"):
        GGAccountant().get_epsilon(value)
    with pytest.raises(ValueError, match="target_epsilon must be"):
        GGAccountant().get_delta(-1.0)


def test_google_s_calibration_finds_noise_and_steps_with_it():
    noise = dp_accounting.calibrate_dp_mechanism(GGAccountant, dp_event.LaplaceDpEvent, 0.5, 0.0)
    assert noise == pytest.approx(2.0, rel=1e-6)
    assert GGAccountant().compose(dp_event.LaplaceDpEvent(noise)).get_epsilon(0.0) <= 0.5
    steps = dp_accounting.calibrate_dp_mechanism(
        GGAccountant,
        lambda count: dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, GAUSSIAN), count),
        target_epsilon=2.0,
        target_delta=1e-6,
        bracket_interval=dp_accounting.ExplicitBracketInterval(1, 5000),
        discrete=True,
    )
    assert steps == 874  # as ggdp.Accountant.remaining says: 500 done and 374 left
