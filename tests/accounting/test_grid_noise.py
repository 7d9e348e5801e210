# SPDX-License-Identifier: Apache-2.0
"""What noise on a grid costs, against sums over the whole numbers at 40 digits."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    DiscreteGeneralizedGaussian,
    Gaussian,
    GeneralizedGaussian,
    GridNoise,
    PoissonSampled,
    calibrate_family,
    delta,
    epsilon,
)

NOISES = [(1.0, 2.5), (1.5, 3.3), (2.0, 4.0), (5.0, 9.0), (64.0, 20.0)]


def law(beta, scale, reach):
    with mp.workdps(40):
        size, power = mp.mpf(scale), mp.mpf(beta)
        weight = [mp.e ** (-((abs(k) / size) ** power)) for k in range(-reach, reach + 1)]
        total = mp.fsum(weight)
        return dict(zip(range(-reach, reach + 1), [one / total for one in weight], strict=True))


def hockey_stick(p, q, epsilon):
    with mp.workdps(40):
        factor = mp.e ** mp.mpf(epsilon)
        return mp.fsum(max(p.get(k, 0) - factor * q.get(k, 0), 0) for k in set(p) & set(q))


def moved(noise, by):
    return {k + by: mass for k, mass in noise.items()}


def mixed(noise, other, rate):
    return {
        k: (1 - mp.mpf(rate)) * noise.get(k, 0) + mp.mpf(rate) * other.get(k, 0)
        for k in set(noise) | set(other)
    }


def encloses(bounds, exact, width=1e-9):
    cut_off = 1e-60  # more than the sums leave out
    assert bounds.lower - cut_off <= exact <= bounds.upper + cut_off
    assert bounds.upper - bounds.lower <= width * float(exact) + cut_off


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("beta", "scale"), NOISES)
def test_delta_of_one_release_is_the_sum_over_the_whole_numbers(beta, scale, steps, level):
    noise = law(beta, scale, 400)
    mechanism = GridNoise(DiscreteGeneralizedGaussian(beta, scale), sensitivity=steps)
    for adjacency, by in ((Adjacency.ADD_REMOVE, steps), (Adjacency.REPLACE, 2 * steps)):
        exact = hockey_stick(moved(noise, by), noise, level)
        encloses(delta(mechanism, epsilon=level, adjacency=adjacency), exact)


@pytest.mark.parametrize("rate", [0.01, 0.6])
@pytest.mark.parametrize(("beta", "scale"), NOISES)
def test_delta_of_a_sampled_release_is_the_sum_over_the_whole_numbers(beta, scale, rate):
    noise, level = law(beta, scale, 400), 0.2
    mechanism = PoissonSampled(GridNoise(DiscreteGeneralizedGaussian(beta, scale), sensitivity=2), rate)
    with mp.workdps(40):
        up, down = mixed(noise, moved(noise, 2), rate), mixed(noise, moved(noise, -2), rate)
    encloses(delta(mechanism, epsilon=level, adjacency=Adjacency.REMOVE), hockey_stick(up, noise, level))
    encloses(delta(mechanism, epsilon=level, adjacency=Adjacency.ADD), hockey_stick(noise, up, level))
    encloses(delta(mechanism, epsilon=level, adjacency=Adjacency.REPLACE), hockey_stick(up, down, level))


def test_a_composition_with_another_kind_is_the_sum_over_pairs():
    one, other = law(2.0, 4.0, 60), law(1.5, 3.3, 60)
    parts = [
        (GridNoise(DiscreteGeneralizedGaussian(2.0, 4.0)), 1),
        (GridNoise(DiscreteGeneralizedGaussian(1.5, 3.3)), 1),
    ]
    with mp.workdps(40):
        factor = mp.e ** mp.mpf(0.7)
        exact = mp.fsum(
            max(one.get(k - 1, 0) * other.get(j - 1, 0) - factor * one[k] * other[j], 0)
            for k, j in itertools.product(one, other)
        )
    found = delta(Composed(parts), epsilon=0.7)
    encloses(found, exact, 1e-3)


def test_no_way_to_split_a_move_over_two_numbers_costs_more_than_one_number_in_norm_one():
    for beta, scale in NOISES:
        noise = {k: float(mass) for k, mass in law(beta, scale, 80).items()}
        k = np.array(list(noise))
        weights = np.array([noise[int(one)] for one in k])

        def shifted(by, noise=noise, k=k):
            return np.array([noise.get(int(one) - by, 0.0) for one in k])

        for level in (0.1, 0.5, 2.0):
            whole = np.maximum(shifted(4) - math.exp(level) * weights, 0.0).sum()
            for split in ((1, 3), (2, 2)):
                p = np.outer(shifted(split[0]), shifted(split[1]))
                assert (
                    np.maximum(p - math.exp(level) * np.outer(weights, weights), 0.0).sum() <= whole + 1e-12
                )


def test_delta_goes_down_to_1e_30():
    mechanism = Composed(GridNoise(DiscreteGeneralizedGaussian.gaussian(10.0)), times=3)
    found = epsilon(mechanism, delta=1e-30)
    assert found.width < 1e-2 * found.upper
    sigma = 10.0 / math.sqrt(3.0)
    assert found.upper == pytest.approx(
        epsilon(AdditiveNoise(GeneralizedGaussian(2.0, math.sqrt(2.0) * sigma)), delta=1e-30).upper, rel=1e-2
    )


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0])
def test_as_the_grid_gets_finer_the_cost_meets_that_of_continuous_noise(beta):
    continuous = epsilon(AdditiveNoise(GeneralizedGaussian(beta, 3.0)), delta=1e-6)
    away = []
    for grid in (1.0, 2.0**-3, 2.0**-6):
        found = epsilon(GridNoise(DiscreteGeneralizedGaussian(beta, 3.0 / grid), grid=grid), delta=1e-6)
        away.append(abs(found.estimate / continuous.estimate - 1.0))
    assert away[2] <= 1e-5
    assert away[2] <= away[0] + 1e-9


def test_real_numbers_cost_a_step_more():
    noise = DiscreteGeneralizedGaussian(2.0, 3.0 * 64)
    on, off = (GridNoise(noise, 0.99, 1 / 64, on_grid=on_grid) for on_grid in (True, False))
    assert off.steps == on.steps + 1
    assert epsilon(off, delta=1e-6).lower > epsilon(on, delta=1e-6).upper


def test_a_scale_on_the_grid_is_calibrated():
    def family(scale):
        return Composed(GridNoise(DiscreteGeneralizedGaussian(1.5, scale)), times=4)

    found = calibrate_family(family, epsilon=1.0, delta=1e-6, between=(1.0, 100.0), relative=1e-3)
    assert 0.99 < found.achieved.upper <= 1.0
    assert epsilon(family(found.value * 0.995), delta=1e-6).lower > 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sensitivity": 0.5}, "sensitivity must be at least one step of the grid"),
        ({"sensitivity": -1.0}, "sensitivity must be a number"),
        ({"grid": 0.3}, "grid must be a power of two"),
        ({"dimension": math.inf, "on_grid": False}, "dimension must be a whole number"),
        ({"dimension": 0}, "dimension must be a whole number"),
    ],
)
def test_descriptions_without_meaning_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GridNoise(DiscreteGeneralizedGaussian(2.0, 3.0), **arguments)


def test_what_cannot_be_accounted_is_refused_with_a_way_out():
    wide = GridNoise(DiscreteGeneralizedGaussian(1.1, 2.0**30))
    with pytest.raises(ValueError, match="take a coarser grid"):
        epsilon(wide, delta=1e-6)


def test_replacing_a_sampled_record_over_two_numbers_costs_no_more_than_over_one():
    rate, level = 0.3, 0.2
    for beta, scale in NOISES:
        noise = law(beta, scale, 60)
        k = range(-60, 61)
        here, two, three = (np.array([float(noise.get(one - by, 0)) for one in k]) for by in (0, 2, 3))
        mechanism = PoissonSampled(
            GridNoise(DiscreteGeneralizedGaussian(beta, scale), sensitivity=3, dimension=2), rate
        )
        bound = delta(mechanism, epsilon=level, adjacency=Adjacency.REPLACE).upper
        rest = (1.0 - rate) * np.outer(here, here)
        one = np.array([float(noise.get(place + 1, 0)) for place in k])
        for p, q in (
            (np.outer(two, one), np.outer(here, three[::-1])),
            (np.outer(three, here), np.outer(here, three)),
        ):
            costs = np.maximum(rest + rate * p - math.exp(level) * (rest + rate * q), 0.0).sum()
            assert costs <= bound + 1e-12


def test_many_different_discrete_gaussians_cost_what_continuous_ones_do():
    sigmas = [20.0 + 0.37 * index for index in range(40)]
    mechanism = Composed([(GridNoise(DiscreteGeneralizedGaussian.gaussian(sigma)), 1) for sigma in sigmas])
    together = math.sqrt(1.0 / sum(sigma**-2 for sigma in sigmas))
    found = epsilon(mechanism, delta=1e-10)
    assert found.width < 1e-3 * found.upper
    assert found.upper == pytest.approx(
        epsilon(AdditiveNoise(Gaussian(together)), delta=1e-10).upper, rel=1e-3
    )
