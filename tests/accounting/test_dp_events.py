# SPDX-License-Identifier: Apache-2.0
"""Google's events: what has the same meaning here goes there and back, what has none is refused."""

import math
import sys

import attr
import pytest
from dp_accounting import dp_event as google
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    FixedSizeSampled,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    RandomlyTruncatedPoisson,
    TruncatedPoisson,
    delta,
)
from ggdp.accounting import from_dp_event, to_dp_event
from ggdp.privacy_loss.classical import (
    BoundedRange,
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    GaussianMixtureShift,
    PrivacyGuarantee,
    RandomizedResponse,
)

GAUSSIAN = AdditiveNoise(Gaussian(std=1.5))
LAPLACE = AdditiveNoise(Laplace(scale=3.0))
EVENTS = [
    (google.GaussianDpEvent(1.5), GAUSSIAN),
    (google.LaplaceDpEvent(3.0), LAPLACE),
    (google.PoissonSampledDpEvent(0.1, google.GaussianDpEvent(1.5)), PoissonSampled(GAUSSIAN, 0.1)),
    (google.PoissonSampledDpEvent(0.2, google.LaplaceDpEvent(3.0)), PoissonSampled(LAPLACE, 0.2)),
    (google.SelfComposedDpEvent(google.LaplaceDpEvent(3.0), 7), Composed(LAPLACE, times=7)),
    (
        google.TruncatedSubsampledGaussianDpEvent(100, 0.1, 40, 1.5),
        RandomlyTruncatedPoisson(GAUSSIAN, 0.1, largest_batch=40, population=100),
    ),
    (
        google.ComposedDpEvent(
            [
                google.SelfComposedDpEvent(
                    google.PoissonSampledDpEvent(0.1, google.GaussianDpEvent(1.5)), 30
                ),
                google.SelfComposedDpEvent(google.LaplaceDpEvent(3.0), 2),
            ]
        ),
        Composed([(PoissonSampled(GAUSSIAN, 0.1), 30), (LAPLACE, 2)]),
    ),
]


@pytest.mark.parametrize(("event", "mechanism"), EVENTS)
def test_an_event_and_its_mechanism_are_each_other(event, mechanism):
    assert from_dp_event(event) == mechanism
    assert to_dp_event(mechanism) == event


FIELDS = {
    "EpsilonDeltaDpEvent": ["epsilon", "delta"],
    "ExponentialMechanismDpEvent": ["epsilon"],
    "PermuteAndFlipDpEvent": ["epsilon"],
    "DiscreteGaussianDpEvent": ["sigma", "sensitivity", "dimension"],
}
NEWER = {
    name: getattr(google, name, None) or attr.make_class(name, fields, bases=(google.DpEvent,), frozen=True)
    for name, fields in FIELDS.items()
}


@pytest.fixture(autouse=True)
def _events_of_newer_versions(monkeypatch):
    """The installed version of dp_accounting may not have these yet."""
    for name, kind in NEWER.items():
        monkeypatch.setattr(google, name, kind, raising=False)


def newer(name, **fields):
    return NEWER[name](**fields)


ONE_WAY = [
    (google.DiscreteLaplaceDpEvent(0.5, 3), DiscreteLaplaceNoise(0.5, 3)),
    (
        google.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.25, 0.75]),
        GaussianMixtureShift(2.0, (0.0, 1.0), (0.25, 0.75)),
    ),
    (newer("EpsilonDeltaDpEvent", epsilon=1.0, delta=1e-6), PrivacyGuarantee(1.0, 1e-6)),
    (newer("ExponentialMechanismDpEvent", epsilon=0.5), BoundedRange(0.5)),
    (
        newer("PermuteAndFlipDpEvent", epsilon=0.5),
        AdditiveNoise(Laplace(scale=1.0), sensitivity=0.5, shift=(1,)),
    ),
    (
        newer("DiscreteGaussianDpEvent", sigma=3.0, sensitivity=2.5, dimension=1),
        DiscreteGaussianNoise(3.0, 2),
    ),
    (
        newer("DiscreteGaussianDpEvent", sigma=3.0, sensitivity=1.4, dimension=None),
        DiscreteGaussianNoise(3.0, 1),
    ),
    (google.GaussianDpEvent(5000.0), AdditiveNoise(Gaussian(std=5000.0), shift=(1,))),
    (
        google.SampledWithoutReplacementDpEvent(100, 10, google.GaussianDpEvent(2.0)),
        FixedSizeSampled(AdditiveNoise(Gaussian(std=2.0)), sample_size=10, population=100),
    ),
    (
        google.SampledWithReplacementDpEvent(100, 10, google.LaplaceDpEvent(2.0)),
        FixedSizeSampled(AdditiveNoise(Laplace(scale=2.0)), 10, 100, replacement=True),
    ),
    (
        google.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 60, 5000.0),
        TruncatedPoisson(AdditiveNoise(Gaussian(std=5000.0), shift=(1,)), 0.01, 60, population=1000),
    ),
]


@pytest.mark.parametrize(("event", "mechanism"), ONE_WAY)
def test_an_event_that_has_an_equal_here_becomes_it(event, mechanism):
    assert from_dp_event(event) == mechanism
    assert from_dp_event(google.PoissonSampledDpEvent(1.0, event)) == mechanism


@pytest.mark.parametrize("drawn", ["SampledWithoutReplacementDpEvent", "SampledWithReplacementDpEvent"])
def test_gaussian_releases_of_one_batch_are_one_with_no_more_noise(drawn):
    """Four of deviation 4 and one of deviation 2 say of a sum what one of deviation sqrt(2) says."""
    several = google.ComposedDpEvent(
        [google.SelfComposedDpEvent(google.GaussianDpEvent(4.0), 4), google.GaussianDpEvent(2.0)]
    )
    batch = from_dp_event(getattr(google, drawn)(100, 10, several))
    assert isinstance(batch, FixedSizeSampled)
    assert (batch.sample_size, batch.population) == (10, 100)
    assert batch.replacement == (drawn == "SampledWithReplacementDpEvent")
    assert batch.mechanism == AdditiveNoise(batch.mechanism.noise)
    assert math.sqrt(2.0) * (1 - 1e-14) < batch.mechanism.noise.std < math.sqrt(2.0)


def test_a_class_of_the_same_name_from_elsewhere_is_not_taken_for_the_library_s():
    namesake = attr.make_class("GaussianDpEvent", ["noise_multiplier"], bases=(google.DpEvent,), frozen=True)
    with pytest.raises(ValueError, match="no mechanism here means the same"):
        from_dp_event(namesake(1.0))


def test_randomized_response_is_about_records_that_are_replaced():
    event = google.RandomizedResponseDpEvent(0.5, 3)
    assert from_dp_event(event, adjacency=Adjacency.REPLACE) == RandomizedResponse(0.5, 3)


@pytest.mark.parametrize(
    "name", ["EpsilonDeltaDpEvent", "ExponentialMechanismDpEvent", "PermuteAndFlipDpEvent"]
)
def test_a_guarantee_about_a_sample_is_one_for_records_that_are_added_or_removed(name):
    fields = {"epsilon": 1.0, "delta": 0.0} if name == "EpsilonDeltaDpEvent" else {"epsilon": 1.0}
    event = google.PoissonSampledDpEvent(0.1, newer(name, **fields))
    assert from_dp_event(event).rate == 0.1
    with pytest.raises(ValueError, match="a third law"):
        from_dp_event(event, adjacency=Adjacency.REPLACE)


@pytest.mark.parametrize(
    "event",
    [
        google.DiscreteLaplaceDpEvent(1.0, 0),
        google.MixtureOfGaussiansDpEvent(1.0, [0.0], [1.0]),
        newer("EpsilonDeltaDpEvent", epsilon=0.0, delta=0.0),
        newer("ExponentialMechanismDpEvent", epsilon=0.0),
        newer("PermuteAndFlipDpEvent", epsilon=0.0),
        newer("DiscreteGaussianDpEvent", sigma=3.0, sensitivity=0.0, dimension=1),
    ],
)
def test_an_event_that_moves_nothing_releases_nothing(event):
    assert from_dp_event(google.ComposedDpEvent([event, google.LaplaceDpEvent(3.0)])) == LAPLACE


@pytest.mark.parametrize(("event", "mechanism"), EVENTS)
def test_google_bounds_the_delta_that_we_bound(event, mechanism):
    """Google's upper bound, discretised at 1e-4, is not below our lower one and not far above."""
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(event)
    theirs, ours = accountant.get_delta(0.05), delta(mechanism, epsilon=0.05)
    assert theirs >= ours.lower * (1 - 1e-9)
    assert theirs <= ours.upper * (1 + 1e-3)


def test_one_sample_released_through_several_gaussians_is_one_gaussian():
    """1/2^2 + 2/4^2 = 3/8; Google's accountant takes the same view."""
    inner = google.ComposedDpEvent(
        [google.GaussianDpEvent(2.0), google.SelfComposedDpEvent(google.GaussianDpEvent(4.0), 2)]
    )
    event = google.SelfComposedDpEvent(google.PoissonSampledDpEvent(0.05, inner), 100)
    mechanism = from_dp_event(event)
    ((step, times),) = mechanism.parts
    assert (times, step.rate) == (100, 0.05)
    assert step.mechanism.noise.std == pytest.approx((3 / 8) ** -0.5, rel=1e-15)
    accountant, same = RdpAccountant(), RdpAccountant()
    accountant.compose(event)
    same.compose(to_dp_event(mechanism))
    assert same.get_epsilon(1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-12)


def test_a_sample_of_a_sample_has_the_product_of_the_rates():
    event = google.PoissonSampledDpEvent(0.5, google.PoissonSampledDpEvent(0.25, google.GaussianDpEvent(1.5)))
    assert from_dp_event(event) == PoissonSampled(GAUSSIAN, 0.125)


@pytest.mark.parametrize("rate", [1.0, 1])
def test_a_sample_of_everything_is_no_sample(rate):
    twice = google.SelfComposedDpEvent(google.LaplaceDpEvent(3.0), 2)
    assert from_dp_event(google.PoissonSampledDpEvent(rate, google.LaplaceDpEvent(3.0))) == LAPLACE
    assert from_dp_event(google.PoissonSampledDpEvent(rate, twice)) == Composed(LAPLACE, times=2)


def test_an_event_that_releases_nothing_is_left_out_of_a_composition():
    event = google.ComposedDpEvent(
        [
            google.NoOpDpEvent(),
            google.LaplaceDpEvent(3.0),
            google.SelfComposedDpEvent(google.GaussianDpEvent(1.0), 0),
            google.PoissonSampledDpEvent(0.0, google.GaussianDpEvent(1.0)),
        ]
    )
    assert from_dp_event(event) == LAPLACE


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (google.NoOpDpEvent(), "releases nothing"),
        (google.ComposedDpEvent([]), "releases nothing"),
        (google.NonPrivateDpEvent(), "event must be private"),
        (google.GaussianDpEvent(0.0), "without noise is not private"),
        (google.ZCDpEvent(0.1), "ZCDpEvent"),
        (google.UnsupportedDpEvent(), "no mechanism here means the same, UnsupportedDpEvent"),
        (google.RandomizedResponseDpEvent(0.5, 3), "`REPLACE_ONE` or `REPLACE_SPECIAL`"),
        (google.PoissonSampledDpEvent(0.1, google.MixtureOfGaussiansDpEvent(1.0, [1.0], [1.0])), "a sampled"),
        (google.MixtureOfGaussiansDpEvent(1.0, [1.0, 2.0], [1.0]), "of one length"),
        (newer("DiscreteGaussianDpEvent", sigma=3.0, sensitivity=2.0, dimension=2), "several integers move"),
        (newer("EpsilonDeltaDpEvent", epsilon=-1.0, delta=0.0), "epsilon must be"),
        (google.SampledWithoutReplacementDpEvent(100, 10, google.ZCDpEvent(1.0)), "got a sampled ZCDpEvent"),
        (
            google.SampledWithoutReplacementDpEvent(
                9, 3, google.SelfComposedDpEvent(google.LaplaceDpEvent(1.0), 2)
            ),
            "one release of Gaussian or Laplace noise",
        ),
        (
            google.PoissonSampledDpEvent(0.1, google.SelfComposedDpEvent(google.LaplaceDpEvent(1.0), 2)),
            "not all Gaussian",
        ),
        (google.PoissonSampledDpEvent(1.5, google.GaussianDpEvent(1.0)), "sampling_probability must be"),
        ("gaussian", "event must be of type DpEvent"),
    ],
)
def test_what_has_no_equal_here_is_refused_with_the_reason(event, reason):
    with pytest.raises(ValueError, match=reason):
        from_dp_event(event)


@pytest.mark.parametrize(
    ("mechanism", "reason"),
    [
        (AdditiveNoise(GeneralizedGaussian(beta=1.5, scale=2.0)), "beta must be 1 or 2"),
        (Composed([(LAPLACE, 2), (AdditiveNoise(GeneralizedGaussian(beta=3.0, scale=2.0)), 1)]), "beta must"),
        (AdditiveNoise(Gaussian(std=1.0), norm=4.0), "norm must be at most 2"),
        (AdditiveNoise(Laplace(scale=1.0), norm=2.0), "norm must be at most 1"),
        ("laplace", "mechanism must be of type"),
    ],
)
def test_what_has_no_equal_there_is_refused_with_the_reason(mechanism, reason):
    with pytest.raises(ValueError, match=reason):
        to_dp_event(mechanism)


def test_a_sensitivity_divides_the_noise():
    assert to_dp_event(AdditiveNoise(Laplace(scale=3.0), sensitivity=1.5)) == google.LaplaceDpEvent(2.0)
    gaussian = to_dp_event(AdditiveNoise(Gaussian(std=3.0), sensitivity=1.5))
    assert gaussian.noise_multiplier == pytest.approx(2.0, rel=1e-15)


def test_a_bound_in_a_smaller_norm_is_enough():
    assert isinstance(to_dp_event(AdditiveNoise(Gaussian(std=3.0), norm=1.0)), google.GaussianDpEvent)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"pip install 'ggdp\[interop\]'"):
        to_dp_event(LAPLACE)
