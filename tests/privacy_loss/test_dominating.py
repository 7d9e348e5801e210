"""The pairs of docs/adjacency.md against brute force over records."""

import numpy as np
import pytest

from ggdp import AdditiveNoise, Adjacency, Composed, GeneralizedGaussian, PoissonSampled
from ggdp.accounting.steps import steps_of
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.shift_pair import ShiftPair

GRID = np.linspace(-14.0, 14.0, 560_001)


def _density(beta: float, shift: float, rate: float):
    noise = GeneralizedGaussian(beta, 1.0)
    return (1.0 - rate) * noise.pdf(GRID) + rate * noise.pdf(GRID - shift)


def _divergence(p, q, alpha: float) -> float:
    """The hockey-stick divergence by a plain sum over a fine grid, which knows nothing of thresholds."""
    return float(np.maximum(p - alpha * q, 0.0).sum() * (GRID[1] - GRID[0]))


@pytest.mark.parametrize(("beta", "rate"), [(1.0, 0.7), (1.4, 0.15), (2.0, 0.7), (3.0, 0.15)])
def test_no_pair_of_records_exceeds_the_replacement_pair(beta, rate):
    shift = 0.8
    worst = ShiftPair(beta, shift, -shift, rate)
    densities = {
        share: _density(beta, share * shift, rate) for share in (-1.0, -0.9, -0.5, 0.0, 0.3, 0.5, 1.0)
    }
    for alpha in (0.4, 0.8, 1.0, 1.3, 2.0):
        bound = float(hockey_stick(worst, np.array([np.log(alpha)])).value[0])
        for one, other in [(1.0, 0.5), (0.5, 1.0), (-0.5, -1.0), (0.3, -0.9), (1.0, 0.0), (0.0, 1.0)]:
            assert _divergence(densities[one], densities[other], alpha) <= bound + 1e-6
        attained = _divergence(densities[1.0], densities[-1.0], alpha)
        assert attained == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("beta", [1.0, 1.4, 2.0, 3.0])
def test_smaller_records_are_dominated_in_both_directions(beta):
    rate, shift = 0.2, 0.9
    for alpha in (0.5, 1.0, 1.5):
        t = np.array([np.log(alpha)])
        remove = float(hockey_stick(ShiftPair(beta, shift, 0.0, rate), t).value[0])
        add = float(hockey_stick(ShiftPair(beta, 0.0, -shift, rate), t).value[0])
        still = _density(beta, 0.0, rate)
        for part in (-1.0, -0.4, 0.3, 1.0):
            moved = _density(beta, part * shift, rate)
            assert _divergence(moved, still, alpha) <= remove + 1e-6
            assert _divergence(still, moved, alpha) <= add + 1e-6


def test_directions_are_composed_apart_and_equal_ones_once():
    step = AdditiveNoise(GeneralizedGaussian(1.5, 2.0))
    assert steps_of(step, Adjacency.ADD_REMOVE).pairs() == [((ShiftPair(1.5, 0.5, 0.0, 1.0), 1),)]
    sampled = Composed(PoissonSampled(step, 0.1), times=7)
    remove, add = steps_of(sampled, Adjacency.ADD_REMOVE).pairs()
    assert remove == ((ShiftPair(1.5, 0.5, 0.0, 0.1), 7),)
    assert add == ((ShiftPair(1.5, 0.0, -0.5, 0.1), 7),)
    assert steps_of(step, Adjacency.REPLACE).pairs() == [((ShiftPair(1.5, 1.0, 0.0, 1.0), 1),)]


def test_settings_beyond_the_declared_ranges_are_refused_by_name():
    for mechanism, name in [
        (AdditiveNoise(GeneralizedGaussian(33.0, 2.0)), "beta"),
        (AdditiveNoise(GeneralizedGaussian(2.0, 0.02)), "noise_multiplier"),
        (PoissonSampled(AdditiveNoise(GeneralizedGaussian(2.0, 2.0)), 1e-8), "rate"),
        (Composed(AdditiveNoise(GeneralizedGaussian(2.0, 2.0)), times=10**8), "times"),
    ]:
        with pytest.raises(ValueError, match=name):
            steps_of(mechanism, Adjacency.REMOVE).pairs()
