# SPDX-License-Identifier: Apache-2.0
"""Vector releases: no certified epsilon is below that of an explicit split; each route says what it is."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest

from ggdp import (
    Accountant,
    AdditiveNoise,
    Adjacency,
    Bounds,
    Composed,
    Estimate,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    account,
    calibrate_scale,
    calibrate_steps,
    delta,
    epsilon,
    estimate_scale,
)
from vector_noise import DELTA, noise


def explicit_splits(p, dimension, rng):
    """Shifts of l_p norm just within one: equal, geometric, one large plus many small, random; as pairs."""
    count = int(min(dimension, 4))

    def pairs(shares):
        values = [
            (float(share) ** (1.0 / p) if math.isfinite(p) else 1.0) * (1.0 - 1e-12) for share in shares
        ]
        return tuple((value, 1) for value in values if value > 0.0)

    yield (((1.0 - 1e-12) * float(dimension) ** (-1.0 / p), int(dimension)),)
    yield ((1.0 - 1e-12, 1),)
    if dimension <= 3:  # unequal coordinates take the engines longer; benchmarks/vector_grid.py has more
        yield pairs(0.5 ** np.arange(1, count + 1))
        yield pairs(rng.dirichlet(np.ones(count)))
    if dimension >= 3:
        rest = int(dimension) - 1
        yield ((0.8 ** (1.0 / p), 1), ((0.2 / rest) ** (1.0 / p) * (1.0 - 1e-12), rest))


GRID = [
    (1.0, 2.0, 10),
    (1.1, 1.1, 10),
    (1.25, 1.25, 2),
    (1.25, 2.0, 100),
    (1.5, 1.5, 3),
    (1.5, 1.5, 10**6),
    (1.5, 2.0, 10**6),
    (1.5, math.inf, 5),
    (1.75, 1.75, 100),
    (1.9, 1.9, 10),
    (2.0, 2.0, 10**6),
    (2.5, 2.5, 100),
    (3.0, 2.0, 3),
    (4.0, 1.0, 2),
]


@pytest.mark.parametrize("norm", [2.0, 3.0, math.inf])
def test_the_largest_loss_of_laplace_vectors_is_that_of_an_equal_split(norm):
    vector = AdditiveNoise(Laplace(2.0), norm=norm, dimension=9)
    length = 0.5 * 9.0 ** (1.0 - 1.0 / norm)
    up, down = math.log1p(0.1 * math.expm1(length)), -math.log1p(0.1 * math.expm1(-length))
    for mechanism, adjacency, truth in (
        (vector, Adjacency.ADD_REMOVE, length),
        (vector, Adjacency.REPLACE, 2.0 * length),
        (PoissonSampled(vector, 0.1), Adjacency.ADD_REMOVE, up),
        (PoissonSampled(vector, 0.1), Adjacency.ADD, down),
        (PoissonSampled(vector, 0.1), Adjacency.REPLACE, up + down),
    ):
        found = epsilon(mechanism, delta=0.0, adjacency=adjacency)
        assert found.lower <= truth * (1.0 + 1e-14)
        assert found.upper >= truth * (1.0 - 1e-14)
        assert found.width <= 1e-11 * truth


@pytest.mark.parametrize(("beta", "p", "dimension"), GRID)
def test_certified_epsilon_is_never_below_that_of_an_explicit_split(beta, p, dimension):
    certified = epsilon(AdditiveNoise(noise(beta), norm=p, dimension=dimension), delta=DELTA)
    assert isinstance(certified, Bounds)
    for shift in explicit_splits(p, dimension, np.random.default_rng(3)):
        split = epsilon(AdditiveNoise(noise(beta), shift=shift), delta=DELTA)
        assert split.lower <= certified.upper, shift


@pytest.mark.parametrize("beta", [1.0, 1.25, 1.5, 1.75, 1.9, 2.0])
@pytest.mark.parametrize(
    ("noise_multiplier", "rate", "steps", "target"),
    [(1.0, 0.01, 5000, 1e-6), (1.0, 0.001, 10_000, 1e-6), (2.5, 0.02, 2500, 1e-5)],
)
def test_certified_epsilon_of_training_is_within_a_tenth_of_one_coordinate(
    beta, noise_multiplier, rate, steps, target
):
    def run(dimension):
        step = AdditiveNoise(noise(beta, noise_multiplier), dimension=dimension)
        return Composed(PoissonSampled(step, rate), times=steps)

    one, many = epsilon(run(1), delta=target), epsilon(run(10**6), delta=target)
    assert one.lower <= many.upper <= 1.1 * one.upper


@pytest.mark.parametrize(("beta", "p"), [(1.25, 1.25), (1.5, 2.0), (1.1, 1.1)])
def test_certified_epsilon_grows_with_the_dimension_and_stays_bounded(beta, p):
    step = [AdditiveNoise(noise(beta), norm=p, dimension=d) for d in (1, 2, 3, 10, 1000, 10**9, math.inf)]
    uppers = [epsilon(one, delta=DELTA).upper for one in step]
    assert all(low <= high * (1 + 1e-9) for low, high in pairwise(uppers))
    assert uppers[-1] < 10.0


@pytest.mark.parametrize("away", [1e-13, 1e-10, 1e-6])
def test_the_largest_loss_of_laplace_vectors_has_its_digits_at_rates_next_to_one(away):
    vector = AdditiveNoise(Laplace(scale=0.05), norm=2, dimension=2)
    found = account(PoissonSampled(vector, 1.0 - away), adjacency=Adjacency.REPLACE).largest_loss()[1]
    with mpmath.workdps(50):
        rate, length = mpmath.mpf(1.0 - away), mpmath.sqrt(2) / mpmath.mpf(0.05)
        up, down = (1 - rate + rate * mpmath.exp(side * length) for side in (1, -1))
        assert mpmath.log(up / down) <= found <= mpmath.log(up / down) * (1 + 1e-11)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD, Adjacency.REMOVE])
@pytest.mark.parametrize("beta", [1.0, 1.5, 3.0])
def test_in_the_sum_norm_one_coordinate_dominates_sampled_or_not(beta, adjacency):
    """Brute force over splits of two coordinates: the mixture's hockey stick, integrated over the plane."""
    z = np.linspace(-12.0, 13.0, 1251)
    x, y = np.meshgrid(z, z)
    area = (z[1] - z[0]) ** 2 / (2.0 * math.gamma(1.0 + 1.0 / beta)) ** 2
    still = np.exp(-(np.abs(x) ** beta) - np.abs(y) ** beta)
    for rate in (1.0, 0.2):
        step = AdditiveNoise(GeneralizedGaussian(beta, 1.0), norm=1.0, dimension=2)
        for at in (0.05, 0.4):
            claimed = delta(PoissonSampled(step, rate), epsilon=at, adjacency=adjacency)
            for share in (0.5, 0.2):
                moved = np.exp(-(np.abs(x - share) ** beta) - np.abs(y - 1.0 + share) ** beta)
                with_record = (1.0 - rate) * still + rate * moved
                one, other = (with_record, still) if adjacency is Adjacency.REMOVE else (still, with_record)
                split = float(np.sum(np.maximum(one - math.exp(at) * other, 0.0))) * area
                assert split <= claimed.upper * (1 + 1e-3) + 1e-7


def test_gaussian_noise_is_exact_in_every_norm_by_rotation():
    one = epsilon(AdditiveNoise(Gaussian(2.0)), delta=DELTA)
    for p in (1.0, 1.5, 2.0):
        assert (
            epsilon(AdditiveNoise(Gaussian(2.0), norm=p, dimension=math.inf), delta=DELTA).upper == one.upper
        )
    wide = epsilon(AdditiveNoise(Gaussian(2.0), norm=math.inf, dimension=9), delta=DELTA)
    assert wide.estimate == pytest.approx(
        epsilon(AdditiveNoise(Gaussian(2.0), 3.0), delta=DELTA).estimate, rel=1e-9
    )
    sampled = PoissonSampled(AdditiveNoise(Gaussian(2.0), shift=(0.6, 0.8)), 0.01)
    scalar = PoissonSampled(AdditiveNoise(Gaussian(2.0)), 0.01)
    assert epsilon(sampled, delta=DELTA).estimate == pytest.approx(
        epsilon(scalar, delta=DELTA).estimate, rel=1e-9
    )


# in two coordinates the l_1 norm is hardly longer than the l_1.02 norm: there the hybrid bound is the tighter
TRAINING = Composed(PoissonSampled(AdditiveNoise(noise(1.02, 1.0), dimension=2), 0.01), times=2000)


@pytest.mark.parametrize(
    ("mechanism", "route"),
    [
        (AdditiveNoise(noise(1.5), shift=(1, -1)), "known shift"),
        (AdditiveNoise(noise(1.5), norm=1, dimension=7), "hybrid"),
        (AdditiveNoise(noise(2.0), dimension=7), "rotation"),
        (AdditiveNoise(noise(1.5), norm=math.inf, dimension=7), "every coordinate"),
        (AdditiveNoise(noise(1.5), norm=1.4, dimension=7), "score order"),
        (AdditiveNoise(noise(1.5), dimension=math.inf), "certified score order"),
        (AdditiveNoise(noise(2.5), dimension=7), "certified score envelope"),
        (AdditiveNoise(noise(2.5, 0.1), norm=2, dimension=7), "certified renyi"),
        (TRAINING, "certified hybrid"),
        (PoissonSampled(AdditiveNoise(noise(1.5), shift=(1, -1)), 0.1), "certified score envelope"),
        (PoissonSampled(AdditiveNoise(noise(3.0, 0.2), shift=(1, -1)), 0.1), "certified renyi"),
    ],
)
def test_an_answer_names_its_route(mechanism, route):
    for answer in (epsilon(mechanism, delta=DELTA), delta(mechanism, epsilon=0.5)):
        assert isinstance(answer, Bounds)
        assert answer.method.startswith(route)


def test_a_million_equal_coordinates_are_one_entry():
    many = AdditiveNoise(noise(1.5), shift=np.full(10**6, 1e-4))
    assert many.shift == ((1e-4, 10**6),)
    assert many == AdditiveNoise(noise(1.5), shift=((1e-4, 10**6),), dimension=10**6)
    limit = AdditiveNoise(noise(1.5), shift=((1e-4, 10**6),))
    assert epsilon(limit, delta=DELTA).method == "known shift, contour"


def test_replacing_moves_a_vector_twice_as_far_and_a_known_shift_as_given():
    for p in (1.0, 1.5):
        once = AdditiveNoise(noise(1.5, 3.0), 2.0, p, 10)
        single = AdditiveNoise(noise(1.5, 3.0), 1.0, p, 10)
        replaced = epsilon(single, delta=DELTA, adjacency=Adjacency.REPLACE)
        assert replaced.upper == pytest.approx(epsilon(once, delta=DELTA).upper, rel=1e-6)
    vote = AdditiveNoise(noise(1.5), shift=(1, -1))
    assert epsilon(vote, delta=DELTA, adjacency=Adjacency.REPLACE).upper == epsilon(vote, delta=DELTA).upper


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: epsilon(AdditiveNoise(noise(1.5), norm=3, dimension=math.inf), delta=DELTA),
            "dimension must be finite",
        ),
        (
            lambda: epsilon(
                PoissonSampled(AdditiveNoise(noise(1.5), shift=(1, -1)), 0.1),
                delta=DELTA,
                adjacency=Adjacency.REPLACE,
            ),
            "adjacency must be add-remove, add or remove for a Poisson-sampled known shift",
        ),
        (
            lambda: epsilon(AdditiveNoise(noise(1.5), dimension=3), delta=DELTA, method="guess"),
            "method must be one of scanned",
        ),
        (
            lambda: epsilon(
                PoissonSampled(AdditiveNoise(noise(1.5), dimension=3), 0.1), delta=DELTA, method="scanned"
            ),
            "no composition of its coordinates",
        ),
        (lambda: AdditiveNoise(noise(2.5), norm="matched", dimension=3), "beta must be a number in"),
        (lambda: AdditiveNoise(noise(1.5), norm="l2"), "norm must be one of matched"),
        (lambda: AdditiveNoise(noise(1.5), dimension=0), "dimension must be a whole number"),
        (lambda: AdditiveNoise(noise(1.5), dimension=2.5), "dimension must be a whole number"),
        (
            lambda: AdditiveNoise(noise(1.5), dimension=3, shift=(1, 1)),
            "dimension must be 2, the length of shift",
        ),
        (lambda: AdditiveNoise(noise(1.5), shift=(0, 0)), "shift must move at least one coordinate"),
        (lambda: AdditiveNoise(noise(1.5), shift=((1, 2), 3)), "pairs \\(value, count\\) throughout"),
        (lambda: AdditiveNoise(noise(1.5), shift=()), "shift must hold at least one number"),
    ],
)
def test_what_has_no_sound_answer_is_refused_with_the_reason(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.parametrize(
    "ask",
    [
        lambda step: epsilon(step, delta=DELTA, method="scanned"),
        lambda step: epsilon(step, delta=DELTA, method="one-coordinate"),
        lambda step: delta(step, epsilon=1.0, method="scanned"),
        lambda step: delta(step, epsilon=1.0, method="one-coordinate"),
    ],
)
def test_uncertified_methods_give_estimates_at_most_the_certified_bound(ask):
    step = AdditiveNoise(noise(1.5), dimension=10)
    found = ask(step)
    assert isinstance(found, Estimate)
    assert "bound" in found.caveat
    certified = epsilon(step, delta=DELTA).upper if found.value > 0.5 else delta(step, epsilon=1.0).upper
    assert found.value <= certified


def test_the_scan_finds_more_than_one_coordinate_where_splits_cost_more():
    step = AdditiveNoise(GeneralizedGaussian(1.5, 0.5), dimension=10)
    scanned = epsilon(step, delta=DELTA, method="scanned").value
    assert scanned > epsilon(step, delta=DELTA, method="one-coordinate").value + 0.1


def test_calibration_takes_vectors_and_an_estimate_is_asked_for_by_name():
    found = calibrate_scale(beta=1.5, epsilon=2.0, delta=DELTA, dimension=100)
    assert found.achieved.upper <= 2.0
    assert found.step.dimension == 100
    assert found.scale > calibrate_scale(beta=1.5, epsilon=2.0, delta=DELTA).scale
    estimated = estimate_scale(beta=1.5, epsilon=2.0, delta=DELTA, dimension=100, method="one-coordinate")
    assert isinstance(estimated.achieved, Estimate)
    assert estimated.achieved.value == pytest.approx(2.0, rel=1e-6)
    matched = calibrate_scale(beta=1.5, epsilon=2.0, delta=DELTA, dimension=100, norm="matched")
    assert matched.scale == pytest.approx(estimated.step.noise.scale, rel=1e-6)
    steps = calibrate_steps(
        beta=1.5, scale=noise(1.5).scale, dimension=50, rate=0.01, epsilon=1.0, delta=DELTA
    )
    assert steps.achieved.upper <= 1.0


def test_a_ledger_keeps_vectors_within_their_budget():
    step = PoissonSampled(AdditiveNoise(noise(1.5), dimension=math.inf), 0.01)
    ledger = Accountant(epsilon=1.0, delta=DELTA)
    most = ledger.remaining(step)
    ledger.spend(step, times=most)
    assert ledger.epsilon(delta=DELTA).upper <= 1.0
    assert not ledger.can_afford(step)
    # Laplace noise in the l_2 norm: pure epsilon is that of the l_1 norm, sqrt(d) times larger
    pure = Accountant(epsilon=1.0, delta=0.0)
    assert not pure.can_afford(AdditiveNoise(Laplace(1.9), norm=2, dimension=4))
    assert pure.can_afford(AdditiveNoise(Laplace(2.1), norm=2, dimension=4))


def test_mixed_runs_are_bounded_by_what_their_parts_are():
    vector, number = AdditiveNoise(noise(1.5), dimension=20), AdditiveNoise(Gaussian(3.0))
    mixed = epsilon(Composed([(vector, 2), (number, 3)]), delta=DELTA)
    assert mixed.method == "certified score envelope"
    split = AdditiveNoise(noise(1.5), shift=((20 ** (-1 / 1.5), 20),))
    assert epsilon(Composed([(split, 2), (number, 3)]), delta=DELTA).lower <= mixed.upper
    assert mixed.lower <= mixed.upper


@pytest.mark.parametrize(
    ("beta", "norm"),
    [(1.0, 1.0), (1.5, 1.0), (3.0, 1.0), (2.0, 2.0), (1.5, 1.5), (1.0, math.inf), (3.0, 2.0)],
)
def test_replacing_a_sampled_vector_costs_no_more_than_the_answer(beta, norm):
    """Brute force over two records in the plane: the hockey stick of the two mixtures, as a plain sum."""
    rate = 0.25
    z = np.linspace(-9.0, 9.0, 901)
    x, y = np.meshgrid(z, z)
    area = (z[1] - z[0]) ** 2 / (2.0 * math.gamma(1.0 + 1.0 / beta)) ** 2

    def mixture(direction):
        centre = np.array(direction) / np.linalg.norm(direction, norm)
        moved = np.exp(-(np.abs(x - centre[0]) ** beta) - np.abs(y - centre[1]) ** beta)
        return (1.0 - rate) * np.exp(-(np.abs(x) ** beta) - np.abs(y) ** beta) + rate * moved

    step = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta, 1.0), norm=norm, dimension=2), rate)
    for at in (0.1, 0.5):
        claimed = delta(step, epsilon=at, adjacency=Adjacency.REPLACE)
        for one, other in (((1, 0), (-1, 0)), ((1, 1), (-1, -1)), ((1, 2), (2, -1)), ((1, 1), (1, -1))):
            found = float(np.sum(np.maximum(mixture(one) - math.exp(at) * mixture(other), 0.0))) * area
            assert found <= claimed.upper * (1 + 2e-3) + 1e-7  # the sum is that good


@pytest.mark.parametrize(("beta", "rate"), [(1.25, 0.01), (1.5, 0.001), (1.9, 0.05), (2.5, 0.01), (1.5, 0.4)])
def test_certified_delta_of_a_sampled_vector_covers_every_split_in_both_directions(beta, rate):
    """One sampled release of a split has its delta in terms of the unsampled one: docs/vector-releases.md."""
    step = AdditiveNoise(noise(beta), dimension=10)
    at = math.log1p(rate * math.expm1(0.8))
    removed = delta(PoissonSampled(step, rate), epsilon=at, adjacency=Adjacency.REMOVE).upper
    added_at = -0.5 * math.log1p(-rate)
    added = delta(PoissonSampled(step, rate), epsilon=added_at, adjacency=Adjacency.ADD).upper
    grow = math.exp(added_at)
    left = 1.0 - grow * (1.0 - rate)
    for parts in (1, 3, 10):
        split = AdditiveNoise(noise(beta), shift=((parts ** (-1.0 / beta) * (1 - 1e-12), parts),))
        assert rate * delta(split, epsilon=math.log((math.exp(at) - 1 + rate) / rate)).lower <= removed
        inner = math.log(grow * rate / left)
        # H_y(Q, P) = 1 - y + y H_{1/y}(P, Q) turns a negative epsilon into a positive one
        if inner >= 0.0:
            unsampled = delta(split, epsilon=inner).lower
        else:
            unsampled = -math.expm1(inner) + math.exp(inner) * delta(split, epsilon=-inner).lower
        assert left * unsampled <= added * (1 + 1e-9)


@pytest.mark.parametrize(
    ("beta", "rate", "times", "multiplier"), [(1.33, 0.16, 300, 6.0), (1.66, 0.01, 2000, 2.0)]
)
def test_private_training_in_the_norm_two_is_bounded_from_both_sides(beta, rate, times, multiplier):
    law = GeneralizedGaussian.from_noise_multiplier(beta=beta, noise_multiplier=multiplier)
    step = PoissonSampled(AdditiveNoise(law, norm=2.0, dimension=10**5), rate)
    found = epsilon(Composed(step, times=times), delta=1e-5)
    # a shift spread over very many coordinates is as good as Gaussian noise of the same Fisher information
    information = beta**2 * math.gamma((2.0 * beta - 1.0) / beta) / math.gamma(1.0 / beta)
    spread = PoissonSampled(AdditiveNoise(Gaussian(std=law.scale / math.sqrt(information))), rate)
    limit = epsilon(Composed(spread, times=times), delta=1e-5).estimate
    assert 0.99 * limit <= found.lower <= 1.001 * limit
    assert limit <= found.upper <= 1.10 * limit
    assert found.method == "certified renyi and gaussian"


def test_the_lower_end_of_sampled_vectors_is_below_what_draws_show():
    beta, coordinates, rate, times = 1.5, 20, 0.3, 10
    law = GeneralizedGaussian(beta=beta, scale=1.5)
    step = PoissonSampled(AdditiveNoise(law, norm=2.0, dimension=coordinates), rate)
    found = delta(Composed(step, times=times), epsilon=1.0, adjacency=Adjacency.REMOVE)
    rng, draws, each = np.random.default_rng(8), 100_000, coordinates**-0.5 / 1.5
    total = np.zeros(draws)
    for _ in range(times):
        shape = (draws, coordinates)
        noisy = rng.gamma(1.0 / beta, size=shape) ** (1.0 / beta) * rng.choice([-1.0, 1.0], shape)
        noisy += each * (rng.random(draws) < rate)[:, None]
        odds = (np.abs(noisy) ** beta - np.abs(noisy - each) ** beta).sum(axis=1)
        total += np.log1p(rate * np.expm1(odds))
    kept = np.where(total > 1.0, -np.expm1(np.minimum(1.0 - total, 0.0)), 0.0)
    error = kept.std() / math.sqrt(draws)
    assert found.upper >= kept.mean() - 5.0 * error
    one = delta(Composed(PoissonSampled(AdditiveNoise(law), rate), times=times), epsilon=1.0)
    assert one.upper < found.lower <= kept.mean() + 5.0 * error
