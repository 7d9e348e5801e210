# SPDX-License-Identifier: Apache-2.0
"""Renyi accounting against definitions, closed forms and dp_accounting."""

import math

import mpmath as mp
import numpy as np
import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    delta,
    epsilon,
    renyi_divergence,
    renyi_epsilon,
)
from ggdp.accounting.steps import steps_of
from ggdp.accounting.vectors import renyi_conversion
from ggdp.accounting.vectors.renyi import sampled_gains, worst_step_gains
from ggdp.accounting.vectors.renyi_conversion import RenyiSteps
from ggdp.privacy_loss.worst_split import ORDERS


def sampled_by_quadrature(beta, scale, rate, order, direction):
    """D_a of the mixture, from the definition on a fine grid of noise."""
    z = np.linspace(-40.0, 40.0, 800_001) * scale
    log_still, log_moved = -((np.abs(z) / scale) ** beta), -((np.abs(z - 1.0) / scale) ** beta)
    log_mixture = np.logaddexp(math.log1p(-rate) + log_still, math.log(rate) + log_moved)
    log_p, log_q = (log_mixture, log_still) if direction is Adjacency.REMOVE else (log_still, log_mixture)
    normalizer = 2.0 * scale * math.gamma(1.0 + 1.0 / beta)
    integrand = np.exp(order * log_p + (1.0 - order) * log_q)
    return math.log(float(np.trapezoid(integrand, z)) / normalizer) / (order - 1.0)


@pytest.mark.parametrize(
    ("beta", "scale", "rate", "order"), [(1.5, 1.4, 0.1, 2), (1.1, 2.0, 0.3, 5), (2.5, 1.5, 0.2, 4)]
)
def test_sampled_divergence_at_whole_orders_is_exact(beta, scale, rate, order):
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, scale)), rate)
    found = renyi_divergence(step, order, adjacency=Adjacency.REMOVE)
    assert found.method == "exact"
    assert found.estimate == pytest.approx(
        sampled_by_quadrature(beta, scale, rate, order, Adjacency.REMOVE), rel=1e-8
    )


@pytest.mark.parametrize("order", [1.3, 2.5, 7.7])
def test_sampled_divergence_between_whole_orders_is_the_integral(order):
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(1.5, 1.4)), 0.1)
    exact = sampled_by_quadrature(1.5, 1.4, 0.1, order, Adjacency.REMOVE)
    found = renyi_divergence(step, order)
    assert found.estimate == pytest.approx(exact, rel=1e-8)
    assert found.upper - found.lower <= 1e-9 * found.upper


@pytest.mark.parametrize("beta", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 6.0])
def test_adding_a_record_never_costs_more_than_removing_it(beta, order):
    added = sampled_by_quadrature(beta, 1.2, 0.2, order, Adjacency.ADD)
    removed = sampled_by_quadrature(beta, 1.2, 0.2, order, Adjacency.REMOVE)
    assert added <= removed
    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 1.2)), 0.2)
    found = renyi_divergence(step, order, adjacency=Adjacency.ADD)
    assert found.estimate == pytest.approx(added, rel=1e-6)


def test_gaussian_and_laplace_divergences_are_the_closed_forms():
    assert renyi_divergence(AdditiveNoise(Gaussian(3.0)), 7.5).estimate == pytest.approx(
        7.5 / 18.0, rel=1e-12
    )
    a, m = 4.0, 0.5
    laplace = math.log(a / (2 * a - 1) * math.exp((a - 1) * m) + (a - 1) / (2 * a - 1) * math.exp(-a * m)) / (
        a - 1
    )
    assert renyi_divergence(AdditiveNoise(Laplace(2.0)), a).estimate == pytest.approx(laplace, rel=1e-12)


def test_divergences_add_up_and_replacing_doubles_the_shift():
    step, other = AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), AdditiveNoise(Gaussian(2.0))
    both = renyi_divergence(Composed([(step, 3), (other, 2)]), 3.0).estimate
    assert both == pytest.approx(
        3 * renyi_divergence(step, 3.0).estimate + 2 * renyi_divergence(other, 3.0).estimate
    )
    doubled = AdditiveNoise(GeneralizedGaussian(1.5, 2.0), sensitivity=2.0)
    replaced = renyi_divergence(step, 3.0, adjacency=Adjacency.REPLACE).estimate
    assert replaced == pytest.approx(renyi_divergence(doubled, 3.0).estimate, rel=1e-12)


def test_the_bound_for_a_vector_is_above_every_split_at_every_order():
    vector = AdditiveNoise(GeneralizedGaussian(1.5, 1.0), dimension=10)
    for parts in (1, 2, 10):
        split = AdditiveNoise(GeneralizedGaussian(1.5, 1.0), shift=((parts ** (-1 / 1.5), parts),))
        for order in (1.3, 2.0, 8.3):
            assert renyi_divergence(split, order).upper <= renyi_divergence(vector, order).upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("rate", "steps", "noise_multiplier"), [(0.01, 1000, 1.0), (0.02, 500, 2.0), (1.0, 3, 4.0)]
)
def test_gaussian_epsilon_is_that_of_dp_accounting_or_better(rate, steps, noise_multiplier):
    import dp_accounting as accounting
    from dp_accounting import rdp

    orders = [*(1 + x / 10 for x in range(1, 100)), *range(11, 257)]
    peer = rdp.RdpAccountant(orders)
    event = accounting.GaussianDpEvent(noise_multiplier)
    peer.compose(accounting.PoissonSampledDpEvent(rate, event) if rate < 1 else event, steps)
    step = AdditiveNoise(Gaussian(noise_multiplier))
    gains = worst_step_gains(step, rate)
    ours = RenyiSteps(((gains, rate, steps),)).epsilon(math.log(1e-6))
    assert ours <= peer.get_epsilon(1e-6) * 1.003


@pytest.mark.parametrize("rate", [1e-4, 1e-3, 0.05])
@pytest.mark.parametrize("beta", [1.3, 1.9, 3.0])
def test_the_conversion_is_above_the_exact_epsilon_and_where_rates_are_usual_not_far(rate, beta):
    step = AdditiveNoise(GeneralizedGaussian(beta, 2.0))
    steps = RenyiSteps(((worst_step_gains(step, rate), rate, 5000),))
    exact = epsilon(Composed(PoissonSampled(step, rate), times=5000), delta=1e-7)
    bound = steps.epsilon(math.log(1e-7))
    assert exact.lower <= bound
    if beta < 2.0 and rate >= 1e-3:
        assert bound <= 1.25 * exact.upper
        assert steps.log_delta(bound * 1.0000001) <= math.log(1e-7) + 0.2


def test_leaving_rare_losses_out_helps_at_small_rates():
    step = AdditiveNoise(GeneralizedGaussian(1.9, math.sqrt(2.0)))
    gains = worst_step_gains(step, 0.001)
    exact = epsilon(Composed(PoissonSampled(step, 0.001), times=10_000), delta=1e-6)
    assert exact.upper <= RenyiSteps(((gains, 0.001, 10_000),)).epsilon(math.log(1e-6)) <= 1.1 * exact.upper


def test_sampling_helps_at_every_order():
    gains = worst_step_gains(AdditiveNoise(GeneralizedGaussian(1.5, 2.0)), 0.1)
    sampled = sampled_gains(gains, 0.1)
    usable = np.isfinite(sampled) & np.isfinite(gains)
    whole = usable & (np.arange(len(gains)) > 20)
    assert np.all(sampled[whole] <= gains[whole] * (1 + 1e-8))


def test_orders_that_are_too_small_or_cost_too_much_are_refused():
    step = AdditiveNoise(GeneralizedGaussian(1.5, 2.0))
    with pytest.raises(ValueError, match=r"order must be a number in \[1, 10000\], got 0.5"):
        renyi_divergence(step, 0.5)
    with pytest.raises(ValueError, match="order must be finite for this mechanism, got inf"):
        renyi_divergence(step, math.inf)
    with pytest.raises(ValueError, match="order must be smaller for a divergence that can be computed"):
        renyi_divergence(AdditiveNoise(GeneralizedGaussian(8.0, 0.1)), 900.0)
    with pytest.raises(ValueError, match="order must be smaller for a divergence that can be computed"):
        renyi_divergence(PoissonSampled(AdditiveNoise(GeneralizedGaussian(4.0, 1.0)), 0.01), 100.7)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_replacing_a_sampled_record_never_diverges_more_than_the_bound(beta, rate):
    """Against a plain sum over a grid, for centres on both sides and on the same side."""
    z = np.linspace(-1.0, 1.0, 200_001) * 500.0 ** (1.0 / beta)
    noise = GeneralizedGaussian(beta, 1.0)

    def mixture(centre):
        return (1.0 - rate) * noise.pdf(z) + rate * noise.pdf(z - centre)

    def divergence(order, one, other):
        ratio = mixture(one) / mixture(other)
        # the mean of ratio is one: leaving its part out spares the error of the sum
        excess = np.sum((ratio**order - 1.0 - order * (ratio - 1.0)) * mixture(other)) * (z[1] - z[0])
        return math.log1p(excess) / (order - 1.0)

    step = PoissonSampled(AdditiveNoise(noise, sensitivity=0.6), rate)
    for order in (1.3, 2.0, 6.0):
        bound = renyi_divergence(step, order, adjacency=Adjacency.REPLACE).upper
        for one, other in ((0.6, 0.3), (0.3, 0.6), (0.0, 0.6), (0.6, 0.0)):
            assert divergence(order, one, other) <= bound
        assert divergence(order, 0.6, -0.6) == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize(("beta", "scale"), [(1.5, 1.0), (3.0, 1.0), (4.0, 1.2)])
def test_sampled_gains_bound_every_order_of_the_list_up_to_three(beta, scale):
    found = sampled_gains(worst_step_gains(AdditiveNoise(GeneralizedGaussian(beta, scale)), 0.05), 0.05)
    for order, gain in zip(ORDERS, found, strict=True):
        if order <= 3.0 and math.isfinite(gain):
            exact = (order - 1.0) * sampled_by_quadrature(beta, scale, 0.05, order, Adjacency.REMOVE)
            assert exact <= gain * (1 + 1e-7)


@pytest.mark.parametrize(("std", "times", "last"), [(10.0, 100, 5), (10.0, 100, 30), (4.0, 40, 8)])
def test_last_steps_known_exactly_bring_renyi_divergences_nearer_to_the_truth(std, times, last):
    step = AdditiveNoise(Gaussian(std=std))
    gain = worst_step_gains(step, 1.0)
    known = steps_of(Composed(step, times=last), Adjacency.REMOVE).pairs()[0]
    truth = epsilon(Composed(step, times=times), delta=1e-5, adjacency=Adjacency.REMOVE)
    plain = RenyiSteps(((gain, 1.0, times),)).epsilon(math.log(1e-5))
    smoothed = RenyiSteps(((gain, 1.0, times - last),)).epsilon_before(known, math.log(1e-5))
    assert truth.lower <= smoothed < plain
    at = truth.estimate
    exact = delta(Composed(step, times=times), epsilon=at, adjacency=Adjacency.REMOVE)
    log_delta = RenyiSteps(((gain, 1.0, times - last),)).log_delta_before(known, at)
    assert math.log(exact.lower) <= log_delta < RenyiSteps(((gain, 1.0, times),)).log_delta(at)


@pytest.mark.parametrize("norm", [2.0, "matched"])
def test_a_vector_diverges_by_at_least_as_much_as_one_coordinate(norm):
    noise = GeneralizedGaussian(1.5, 2.0)
    vector = Composed(PoissonSampled(AdditiveNoise(noise, norm=norm, dimension=100), 0.1), times=3)
    number = Composed(PoissonSampled(AdditiveNoise(noise), 0.1), times=3)
    found, one = renyi_divergence(vector, 2.5), renyi_divergence(number, 2.5)
    assert found.lower == pytest.approx(one.estimate, rel=1e-9)
    assert one.lower <= found.upper


def test_orders_one_and_infinity_are_the_mean_and_the_largest_loss():
    laplace, gaussian = AdditiveNoise(Laplace(2.0)), AdditiveNoise(Gaussian(std=2.0))
    assert renyi_divergence(laplace, math.inf).estimate == pytest.approx(0.5, rel=1e-12)
    sampled = Composed(PoissonSampled(laplace, 0.1), times=3)
    largest = 3.0 * math.log1p(0.1 * math.expm1(0.5))
    assert renyi_divergence(sampled, math.inf).estimate == pytest.approx(largest, rel=1e-12)
    mean_of_laplace, mean_of_gaussian = 0.5 + math.exp(-0.5) - 1.0, 0.125
    for step, mean in ((laplace, mean_of_laplace), (gaussian, mean_of_gaussian)):
        found = renyi_divergence(step, 1.0)
        assert mean <= found.upper <= mean * (1.0 + 2e-6)
        assert found.lower == 0.0


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0])
def test_an_epsilon_by_renyi_divergences_alone_is_above_the_exact_one_and_below_the_printed_conversion(
    beta, adjacency
):
    run = Composed(PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 2.0)), 0.02), times=500)
    found = renyi_epsilon(run, delta=1e-5, adjacency=adjacency)
    printed = min(
        renyi_divergence(run, float(order), adjacency=adjacency).upper + math.log(1e5) / (order - 1.0)
        for order in range(2, 40)
    )
    assert epsilon(run, delta=1e-5, adjacency=adjacency).lower < found.upper
    if adjacency is Adjacency.ADD_REMOVE:  # sampled replacement is bounded by other means than the divergence
        assert found.upper < printed
    assert found.lower == 0.0


def test_the_constant_of_a_conversion_keeps_its_digits_at_large_orders():
    """theta log(theta) - (1 + theta) log(1 + theta), of which 1e8 left seven digits, 1e12 three."""
    theta = np.geomspace(1e-3, 1e12, 40)
    with mp.workdps(40):
        exact = [float(t * mp.log(t) - (1 + t) * mp.log1p(t)) for t in map(mp.mpf, theta)]
    assert renyi_conversion._log_constant(theta) == pytest.approx(exact, rel=1e-15)
