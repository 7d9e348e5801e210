# SPDX-License-Identifier: Apache-2.0
"""What every mechanism of the table owes its users, whichever road its account takes.

The truths at the end are sums and closed forms in mpmath that share no code with the engines.
"""

import itertools
import json
import math

import mpmath
import pytest

from cases import CUSTOM, MECHANISMS, NOISES, VOTES
from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    EpsilonTooLargeError,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    NoisyArgmax,
    PoissonSampled,
    account,
    delta,
    epsilon,
    privacy_curve,
)
from ggdp.accounting.engines import contour, lattice
from ggdp.mechanisms import from_dict

ALL = {**MECHANISMS, **CUSTOM, **VOTES, **{f"sampled-{n}": PoissonSampled(m, 0.1) for n, m in CUSTOM.items()}}
every = pytest.mark.parametrize("name", ALL)
LEAST_DELTA = {"guarantee": 1e-6, "sampled-guarantee": 1e-6}  # it loses 1e-8 for good


def deltas(name):
    return [max(value, LEAST_DELTA.get(name, 0.0)) for value in (1e-9, 1e-6, 1e-3)]


@pytest.fixture(scope="module")
def profiles():
    return {name: account(mechanism) for name, mechanism in ALL.items()}


@every
def test_bounds_are_in_order_and_epsilon_falls_as_delta_grows(name, profiles):
    answers = [profiles[name].epsilon(delta=value) for value in deltas(name)]
    for answer in answers:
        assert 0.0 <= answer.lower <= answer.estimate <= answer.upper < math.inf
    for less, more in itertools.pairwise(answers):
        assert more.lower <= less.upper
        assert more.estimate <= less.estimate * (1.0 + 1e-9) + 1e-12


@every
def test_delta_at_the_epsilon_of_a_delta_is_that_delta(name, profiles):
    profile, wanted = profiles[name], deltas(name)[1]
    found = profile.epsilon(delta=wanted)
    assert profile.delta(epsilon=found.upper).lower <= wanted * (1.0 + 1e-12)
    assert found.lower == 0.0 or profile.delta(epsilon=found.lower).upper >= wanted * (1.0 - 1e-12)


@every
def test_twice_costs_no_less_than_once(name):
    mechanism = ALL[name]
    released = mechanism.as_mechanism() if name in VOTES else mechanism
    twice = epsilon(Composed(released, times=2), delta=1e-4)
    assert twice.upper >= epsilon(mechanism, delta=1e-4).lower


@pytest.mark.parametrize("name", [name for name in ALL if name not in VOTES])  # these name their neighbours
def test_add_remove_is_the_worse_of_both(name):
    both, add, remove = (
        epsilon(ALL[name], delta=1e-5, adjacency=kind)
        for kind in (Adjacency.ADD_REMOVE, Adjacency.ADD, Adjacency.REMOVE)
    )
    assert both.lower <= max(add.upper, remove.upper)
    assert both.upper >= max(add.lower, remove.lower)
    if both.width < 1e-3 * both.upper:
        assert both.estimate == pytest.approx(max(add.estimate, remove.estimate), rel=1e-3)


@pytest.mark.parametrize("name", [*MECHANISMS, "outcomes", "gaussian-mixture", "spherical"])
def test_a_mechanism_read_from_json_costs_the_same(name, profiles):
    again = from_dict(json.loads(json.dumps(ALL[name].to_dict(), allow_nan=False)))
    assert epsilon(again, delta=1e-6) == account(ALL[name]).epsilon(delta=1e-6)


@every
def test_a_profile_answers_as_single_questions_do(name):
    """Answers read off what earlier questions built are certified as the others are."""
    wanted = sorted([*deltas(name), 3e-6])
    asked = privacy_curve(ALL[name], deltas=wanted)
    for value, found in zip(wanted, asked, strict=True):
        alone = epsilon(ALL[name], delta=value)
        assert found.lower <= alone.upper
        assert alone.lower <= found.upper
        assert found.width <= max(4.0 * alone.width, 2e-6 * alone.upper)


# --- what is kept between questions


def test_further_questions_nearby_build_nothing(monkeypatch):
    drawn = []
    for engine, name in ((contour, "draw"), (lattice, "build")):
        real = getattr(engine, name)
        monkeypatch.setattr(engine, name, lambda *a, real=real, **k: drawn.append(1) or real(*a, **k))
    profile = account(MECHANISMS["repeated"])
    profile.epsilon(delta=1e-6)
    assert drawn
    drawn.clear()
    first = profile.epsilon(delta=2e-6)
    assert profile.delta(epsilon=first.estimate).estimate == pytest.approx(2e-6, rel=1e-6)
    assert not drawn


def test_a_curve_may_be_asked_in_any_order(profiles):
    wanted = [1e-3, 1e-9, 1e-6]
    found = account(MECHANISMS["repeated"]).curve(deltas=wanted)
    for value, one in zip(wanted, found, strict=True):
        assert one.estimate == pytest.approx(epsilon(MECHANISMS["repeated"], delta=value).estimate, rel=1e-9)


# --- votes


def test_a_vote_costs_what_its_noisy_counts_cost():
    vote = VOTES["argmax"]
    two = Composed(AdditiveNoise(vote.noise), times=2)
    assert epsilon(vote, delta=1e-6) == epsilon(two, delta=1e-6)
    assert epsilon(vote, delta=1e-6, adjacency=Adjacency.REPLACE) == epsilon(two, delta=1e-6)
    with pytest.raises(ValueError, match="adjacency must be left out for NoisyArgmax"):
        epsilon(vote, delta=1e-6, adjacency=Adjacency.ADD_REMOVE)
    one = NoisyArgmax(vote.noise, adjacency=Adjacency.ADD_REMOVE)
    assert epsilon(one, delta=1e-6) == epsilon(AdditiveNoise(vote.noise), delta=1e-6)


# --- refusals are types


def test_an_epsilon_too_large_to_be_computed_is_an_error_of_its_own():
    much = Composed(AdditiveNoise(GeneralizedGaussian.from_noise_multiplier(3.0, 0.02, 1.0)), times=100)
    with pytest.raises(EpsilonTooLargeError, match="must be at most 2000") as caught:
        epsilon(much, delta=1e-6)
    assert caught.value.at_least <= 1e9
    assert isinstance(caught.value, ValueError)


# --- replacement is removal of twice the sensitivity, or of two records


@pytest.mark.parametrize("noise", ["laplace", "between", "gaussian"])
def test_replacing_an_unsampled_record_is_moving_twice_as_far(noise):
    once = Composed(AdditiveNoise(NOISES[noise], sensitivity=0.3), times=3)
    far = Composed(AdditiveNoise(NOISES[noise], sensitivity=0.6), times=3)
    assert epsilon(once, delta=1e-6, adjacency=Adjacency.REPLACE) == epsilon(far, delta=1e-6)


def test_pure_privacy_of_a_vector_is_the_l1_norm_of_its_longest_shift():
    laplace = AdditiveNoise(Laplace(scale=2.0), norm=2.0, dimension=4)  # |v|_1 <= 2 |v|_2
    found = epsilon(Composed(laplace, times=3), delta=0.0)
    assert found.upper == pytest.approx(3.0, rel=1e-11)
    assert found.lower >= 1.5 * (1.0 - 1e-12)


# --- truths


def hockey_stick(p, q, e):
    return mpmath.fsum(max(a - mpmath.exp(e) * b, 0) for a, b in zip(p, q, strict=True))


def gaussian_truth(mu, e):
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


def laplace_truth(length, e):
    return -mpmath.expm1((e - length) / 2) if e < length else mpmath.mpf(0)


def guarantee_truth(epsilon, lost, e):
    """The worst pair of an (epsilon, delta) guarantee: Kairouz, Oh, Viswanath 2015."""
    return lost + (1 - lost) * max(mpmath.exp(epsilon) - mpmath.exp(e), 0) / (1 + mpmath.exp(epsilon))


def discrete_truth(log_weight, shift, e):
    support = range(-400, 401)
    weight = {k: mpmath.exp(log_weight(k)) for k in range(-420, 421)}
    total = mpmath.fsum(weight.values())
    return hockey_stick([weight[k - shift] / total for k in support], [weight[k] / total for k in support], e)


TRUTHS = {
    "scalar": lambda e: laplace_truth(1 / mpmath.mpf(0.7), e),
    "sensitive": lambda e: gaussian_truth(mpmath.mpf(0.25) / mpmath.mpf(3.3), e),
    "any-dimension": lambda e: laplace_truth(1 / mpmath.mpf(0.7), e),
    "outcomes": lambda e: hockey_stick((0.75, 0.25), (0.25, 0.75), e),
    "guarantee": lambda e: guarantee_truth(mpmath.mpf(0.5), mpmath.mpf(1e-8), e),
    "discrete-laplace": lambda e: discrete_truth(lambda k: -abs(k) * mpmath.mpf(0.5), 2, e),
    "discrete-gaussian": lambda e: discrete_truth(lambda k: -(mpmath.mpf(k) ** 2) / 18, 1, e),
    "density": lambda e: laplace_truth(mpmath.mpf(0.5), e),
    "threshold": lambda e: gaussian_truth(mpmath.mpf(0.25), e),
}


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("at", [0.0, 0.02, 0.2, 0.45])
def test_the_truth_lies_inside(name, at, profiles):
    with mpmath.workdps(40):
        truth = TRUTHS[name](mpmath.mpf(at))
    found = profiles[name].delta(epsilon=at)
    assert found.lower * (1.0 - 1e-15) <= truth <= found.upper * (1.0 + 1e-15)
    assert found.width <= 1e-4 * float(truth) + 1e-12


@pytest.mark.parametrize("name", TRUTHS)
def test_a_planted_error_of_a_thousandth_would_be_seen(name, profiles):
    """The other arm: the bounds are narrow enough for the test above to fail."""
    with mpmath.workdps(40):
        truth = float(TRUTHS[name](mpmath.mpf(0.2)))
    found = profiles[name].delta(epsilon=0.2)
    assert truth == 0.0 or not found.lower <= 1.001 * truth <= found.upper


def test_gaussian_with_sampling_never_costs_more_than_without():
    noise = AdditiveNoise(Gaussian(std=2.0))
    assert delta(PoissonSampled(noise, 0.3), epsilon=0.1).upper <= delta(noise, epsilon=0.1).lower
