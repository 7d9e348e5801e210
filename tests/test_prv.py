# SPDX-License-Identifier: Apache-2.0
"""In place of prv_accountant: closed forms lie between the bounds, and the interface is theirs."""

import math
import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from ggdp import Adjacency, PoissonSampled, delta
from ggdp.privacy_loss.custom import LossCdf
from ggdp.prv import (
    RDP,
    Accountant,
    ApproximateDPMechanism,
    DPSGDAccountant,
    GaussianMechanism,
    LaplaceMechanism,
    PoissonSubsampledGaussianMechanism,
    PrivacyRandomVariable,
    PRVAccountant,
    PureDPMechanism,
    find_noise_multiplier,
)


def gaussian_delta(epsilon, mu):
    return ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)


@pytest.mark.parametrize("eps_error", [1.0, 0.01])
@pytest.mark.parametrize("compositions", [10_000, 10_001])
def test_many_gaussian_releases_are_one(eps_error, compositions):
    """10^4 of noise 100 are one of noise 1, between bounds that do not depend on eps_error."""
    prv = PoissonSubsampledGaussianMechanism(sampling_probability=1.0, noise_multiplier=100.0)
    accountant = PRVAccountant([prv], eps_error, 1e-10, max_self_compositions=[compositions])
    lower, estimate, upper = accountant.compute_delta(4, [compositions])
    exact = gaussian_delta(4.0, math.sqrt(compositions) / 100.0)
    assert lower <= exact <= upper
    assert upper - lower <= 1e-8 * exact
    assert estimate == pytest.approx(exact, rel=1e-8)


def test_different_gaussian_releases_are_one():
    prvs = [GaussianMechanism(10.0), GaussianMechanism(10.0, l2_sensitivity=2.0)]
    accountant = PRVAccountant(prvs, 0.1, 1e-10, max_self_compositions=[50, 50])
    lower, _, upper = accountant.compute_delta(4, [50, 50])
    assert lower <= gaussian_delta(4.0, math.sqrt(50 / 100 + 50 / 25)) <= upper
    lower, _, upper = accountant.compute_delta(2, [50, 0])
    assert lower <= gaussian_delta(2.0, math.sqrt(50 / 100)) <= upper


@pytest.mark.parametrize("delta", [1.13e-18, 1e-60, 0.3, 0.7])
def test_any_delta_is_answered(delta):
    accountant = PRVAccountant(GaussianMechanism(1.0), 0.1, 1e-10)
    lower, estimate, upper = accountant.compute_epsilon(delta)
    assert lower <= estimate <= upper
    for at in (lower, upper):
        truth = gaussian_delta(at, 1.0)
        assert truth == pytest.approx(delta, rel=1e-6) or (at == 0.0 and truth <= delta)


@pytest.mark.parametrize(("lost", "times"), [(1e-7, 100_000), (1e-8, 10_000)])
def test_deltas_add_up_as_probabilities_do(lost, times):
    accountant = PRVAccountant(ApproximateDPMechanism(0.0, lost), 0.1, lost / 100, times)
    lower, _, upper = accountant.compute_delta(0.0, times)
    exact = -math.expm1(times * math.log1p(-lost))
    assert lower <= exact * (1 + 1e-12)
    assert exact <= upper <= exact * (1 + 1e-7)
    assert accountant.compute_epsilon(0.5 * exact, times)[1:] == (math.inf, math.inf)


def test_a_guarantee_obeys_advanced_composition():
    accountant = PRVAccountant(ApproximateDPMechanism(0.01, 1e-8), 0.1, 1e-11, 10_000)
    *_, upper = accountant.compute_epsilon(1e-4 + 1e-6, 10_000)
    most = 0.01 * math.sqrt(2 * 10_000 * math.log(1e6)) + 10_000 * 0.01 * math.expm1(0.01) / (
        math.exp(0.01) + 1
    )
    assert 0.8 * most < upper < most


def test_pure_privacy_ends_at_the_sum_of_the_epsilons():
    for prv in (PureDPMechanism(0.1), LaplaceMechanism(0.1)):
        accountant = PRVAccountant(prv, 0.1, 1e-9, 30)
        assert accountant.compute_epsilon(0.0, 30)[2] == pytest.approx(3.0, rel=1e-12)
        assert accountant.compute_delta(3.0001, 30) == (0.0, 0.0, 0.0)


def test_a_composition_answers_what_its_accountant_answers_and_undoes_itself():
    accountant = PRVAccountant(PoissonSubsampledGaussianMechanism(1e-2, 1.0), 0.1, 1e-8, 200)
    composed = accountant.compute_composition(150)
    assert composed.compute_epsilon(1e-6, 1e-8, 0.1) == accountant.compute_epsilon(1e-6, 150)
    assert composed.compute_delta_estimate(composed.compute_epsilon(1e-6)[1]) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("prv", "largest"),
    [
        (PoissonSubsampledGaussianMechanism(0.05, 0.8), 14.0),
        (PoissonSubsampledGaussianMechanism(1.0, 2.0), 8.0),
        (GaussianMechanism(2.0), 8.0),
        (LaplaceMechanism(0.7), 0.7),
        (PureDPMechanism(0.7), 0.7),
    ],
)
def test_cdf_is_of_a_privacy_loss(prv, largest):
    """The mean of e^-L is 1, and delta(0.3) is the mean of (1 - e^(0.3 - L))_+; both by parts."""
    mean, _ = quad(lambda t: math.exp(-t) * prv.cdf(t), -largest, largest, limit=400, points=[0.0])
    assert mean + math.exp(-largest) == pytest.approx(1.0, rel=1e-6)
    expected, _ = quad(lambda t: math.exp(0.3 - t) * (1.0 - prv.cdf(t)), 0.3, largest, limit=400)
    assert PRVAccountant(prv, 0.1, 1e-9).compute_delta(0.3)[1] == pytest.approx(expected, rel=1e-6)


def test_pdf_is_the_slope_of_cdf():
    prv = PoissonSubsampledGaussianMechanism(0.05, 0.8)
    t = np.array([-0.04, 0.01, 0.5, 2.0])
    slope = (prv.cdf(t + 1e-6) - prv.cdf(t - 1e-6)) / 2e-6
    assert prv.pdf(t) == pytest.approx(slope, rel=1e-5)
    assert prv.pdf(math.log(0.95) - 0.1) == prv.cdf(math.log(0.95) - 0.1) == 0.0
    assert prv.probability(0.01, 0.5) == prv.cdf(0.5) - prv.cdf(0.01)


class Wrapped(PrivacyRandomVariable):
    """Another's distribution function and nothing else."""

    def __init__(self, inner):
        self.inner = inner

    def cdf(self, t):
        return self.inner.cdf(t)

    @property
    def pm_inf(self):
        return self.inner.pm_inf


@pytest.mark.parametrize(
    ("inner", "times"),
    [
        (PoissonSubsampledGaussianMechanism(0.01, 1.0), 400),
        (GaussianMechanism(8.0), 1),
        (GaussianMechanism(8.0), 30),
        (LaplaceMechanism(0.1), 60),
        (ApproximateDPMechanism(0.1, 1e-7), 40),
    ],
)
def test_a_class_with_nothing_but_cdf_is_answered_by_bounds_around_the_truth(inner, times):
    own = PRVAccountant([Wrapped(inner)], 0.01, 1e-9, [times])
    known = PRVAccountant(inner, 0.01, 1e-9, times)
    low, _, high = own.compute_epsilon(1e-5, [times])
    lower, _, upper = known.compute_epsilon(1e-5, times)
    assert low <= upper
    assert lower <= high <= low + 0.02
    low, _, high = own.compute_delta(0.4, [times])
    lower, _, upper = known.compute_delta(0.4, times)
    assert low <= upper
    assert lower <= high <= low * 1.1 + 1e-6


def test_classes_of_one_s_own_compose_with_known_ones():
    both = PRVAccountant([Wrapped(GaussianMechanism(8.0)), GaussianMechanism(8.0)], 0.01, 1e-9, [20, 20])
    lower, _, upper = both.compute_delta(1.0, [15, 20])
    assert lower <= gaussian_delta(1.0, math.sqrt(35) / 8) <= upper <= lower * 1.02


def test_a_loss_known_in_one_direction_is_not_answered_in_the_other_nor_sampled():
    loss = LossCdf(GaussianMechanism(8.0).cdf, infinite=0.0, cells=100)
    assert delta(loss, epsilon=0.1, adjacency=Adjacency.REMOVE).upper < 1.0
    for mechanism, adjacency in ((loss, Adjacency.ADD_REMOVE), (PoissonSampled(loss, 0.1), Adjacency.REMOVE)):
        with pytest.raises(ValueError, match="adjacency must be 'remove' and rate 1 for a loss known by"):
            delta(mechanism, epsilon=0.1, adjacency=adjacency)


class WideLaplace(LaplaceMechanism):
    """Named after a known release, but with a law of its own: losses of up to 3."""

    def cdf(self, t):
        return LaplaceMechanism(3.0).cdf(t)


class LeakyGaussian(GaussianMechanism):
    @property
    def pm_inf(self):
        return 1e-3


def test_a_class_that_derives_from_a_known_one_is_answered_by_its_own_law():
    lower, _, upper = PRVAccountant(WideLaplace(0.1), 0.01, 1e-9).compute_epsilon(1e-6)
    assert lower <= 3.0 + 2 * math.log1p(-1e-6) <= upper < 3.001
    assert PRVAccountant(LeakyGaussian(10.0), 0.01, 1e-9).compute_epsilon(1e-6)[2] == math.inf
    assert PRVAccountant(LeakyGaussian(10.0), 0.01, 1e-9).compute_delta(0.5)[0] >= 1e-3 * (1 - 1e-9)


def test_a_number_of_steps_may_be_a_whole_float():
    accountant = DPSGDAccountant(0.8, 5e-3, max_steps=1000.0)
    assert accountant.compute_epsilon(1e-6, num_steps=700.0) == accountant.compute_epsilon(1e-6, 700)
    assert find_noise_multiplier(1.0, 10.0, 1.0, 1e-6) == find_noise_multiplier(1.0, 10, 1.0, 1e-6)
    with pytest.raises(ValueError, match="num_self_compositions must be a whole number"):
        accountant.compute_epsilon(1e-6, num_steps=700.5)


def test_a_parameter_that_is_changed_is_answered_or_refused():
    changed = LaplaceMechanism(0.1)
    changed.mu = 3.0
    assert 2.9 < PRVAccountant(changed, 0.1, 1e-9).compute_epsilon(1e-6)[2] <= 3.0
    with pytest.raises(AttributeError):
        GaussianMechanism(10.0).mu = 3.0


def test_renyi_divergences_of_finite_losses_are_not_taken_for_those_of_all():
    """(0.1, 1e-3)-privacy promises no epsilon at a smaller delta, ten of it none below 0.00996."""
    accountant = RDP([ApproximateDPMechanism(0.1, 1e-3)])
    assert accountant.compute_epsilon(1e-3, [1]) == (0.0, math.inf, math.inf)
    assert accountant.compute_epsilon(9.955e-3, [10])[2] == math.inf
    exact = PRVAccountant(ApproximateDPMechanism(0.1, 1e-3), 0.1, 1e-9, 10).compute_epsilon(0.011, 10)
    assert exact[0] <= accountant.compute_epsilon(0.011, [10])[2] < math.inf


def test_an_epsilon_above_2000_has_a_delta():
    """One release of deviation 1/50 has delta = Phi(25 - e/50) - exp(e) Phi(-25 - e/50) at epsilon e."""
    accountant = PRVAccountant(GaussianMechanism(0.02), 0.1, 1e-9)
    lower, _, upper = accountant.compute_delta(2500.0)
    assert lower <= 2.0363540713343950e-138 <= upper < lower * (1 + 1e-9)
    assert PRVAccountant(PureDPMechanism(1500.0), 0.1, 1e-9, 2).compute_delta(4000.0, 2) == (0.0, 0.0, 0.0)


class NoLoss(PrivacyRandomVariable):
    def cdf(self, t):
        return ndtr(np.asarray(t) + 0.5)  # of Q's losses, not of P's


class NoProbability(PrivacyRandomVariable):
    def cdf(self, t):
        return 2.0 * ndtr(t)


@pytest.mark.parametrize(
    ("prv", "reason"), [(NoLoss(), "a mean of at most 1"), (NoProbability(), "a probability")]
)
def test_a_cdf_that_is_of_no_privacy_loss_is_refused(prv, reason):
    with pytest.raises(ValueError, match=reason):
        PRVAccountant(prv, 0.1, 1e-9).compute_delta(1.0)


def test_what_does_not_fit_is_refused():
    prv = GaussianMechanism(1.0)
    accountant = PRVAccountant([prv], 0.1, 1e-9, [10])
    with pytest.raises(ValueError, match="at most max_self_compositions, got 11 and 10"):
        accountant.compute_epsilon(1e-6, [11])
    with pytest.raises(ValueError, match="must hold 1 numbers, one for each prv, got 2"):
        accountant.compute_epsilon(1e-6, [1, 1])
    with pytest.raises(ValueError, match=r"import its class from ggdp\.prv"):
        PRVAccountant(["gaussian"], 0.1, 1e-9)
    with pytest.raises(ValueError, match="delta must be"):
        accountant.compute_epsilon(-1e-6, 1)


def test_dp_sgd_costs_what_the_general_accountant_says_and_the_old_name_warns():
    now = DPSGDAccountant(0.8, 5e-3, max_steps=1000).compute_epsilon(delta=1e-6, num_steps=700)
    prv = PoissonSubsampledGaussianMechanism(noise_multiplier=0.8, sampling_probability=5e-3)
    assert PRVAccountant(prv, 0.1, 1e-9, 700).compute_epsilon(1e-6, 700) == now
    with pytest.warns(DeprecationWarning, match="use DPSGDAccountant"):
        old = Accountant(0.8, 5e-3, 1e-6, 1000, 0.1)
    assert old.compute_epsilon(num_compositions=700) == now
    composed = old.compute_compositions(700)
    lower, estimate, upper = composed.compute_delta(0.5)
    assert old.compute_delta_lower(composed, 0.5) == lower <= old.compute_delta(composed, 0.5) == estimate
    assert old.compute_delta_upper(composed, 0.5) == upper < estimate * (1 + 1e-6)
    with pytest.raises(ValueError, match="at most max_self_compositions, got 1001 and 1000"):
        old.compute_compositions(1001)
    assert (old.noise_multiplier, old.sampling_probability, old.max_compositions) == (0.8, 5e-3, 1000)
    assert RDP([prv]).compute_epsilon(1e-6, [700])[2] >= now[0]
    assert RDP([prv], orders=np.array([2.0, 8.0])).compute_epsilon(1e-6, [700])[2] >= now[0]
    assert (
        PRVAccountant(PoissonSubsampledGaussianMechanism(0.0, 1.0), 0.1, 1e-9).compute_epsilon(1e-6)[2] == 0.0
    )


@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "delta"),
    [
        (2e-3, 10_000, 4.0, 1e-7),
        (256 / 50_000, 9765, 10.0, 1e-5),
        (0.26058631921824105, 18800, 4.0, 1.1448e-4),
    ],
)
def test_the_noise_found_meets_the_target_and_no_less_would(rate, steps, epsilon, delta):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = find_noise_multiplier(rate, steps, target_epsilon=epsilon, target_delta=delta)
    assert DPSGDAccountant(found, rate, steps).compute_epsilon(delta, steps)[2] <= epsilon
    assert DPSGDAccountant(found * (1 - 1e-5), rate, steps).compute_epsilon(delta, steps)[0] > epsilon


def test_noise_beyond_mu_max_is_refused():
    with pytest.raises(RuntimeError, match="mu_max must be at least"):
        find_noise_multiplier(0.5, 10_000, target_epsilon=0.5, target_delta=1e-6)
    with pytest.raises(RuntimeError, match="no noise multiplier was found"):
        find_noise_multiplier(1.0, 10_000_000, target_epsilon=1e-3, target_delta=1e-9)
