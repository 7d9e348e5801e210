import math
import tracemalloc

import mpmath
import numpy as np
import pytest

from ggdp.errors import CannotCertifyError
from ggdp.privacy_loss.panel_error import NODES_PER_PANEL, log_panel_error
from ggdp.privacy_loss.quadrature import certified_nodes
from ggdp.privacy_loss.shift_pair import ShiftPair
from pair_oracle import DIGITS, ExactPair

CASES = [  # pair, tilt, largest frequency
    (ShiftPair(2.0, 0.7, 0.0, 0.01), 5.0, 3.0),
    (ShiftPair(1.5, 0.35, 0.0, 0.01), 12.0, 30.0),
    (ShiftPair(1.5, 0.5, -0.5, 0.3), 3.0, 4.0),
    (ShiftPair(1.0, 0.35, 0.0, 0.01), 10.0, 20.0),
    (ShiftPair(1.25, 0.3, 0.0, 1.0), 2.0, 5.0),
    (ShiftPair(3.0, 0.4, 0.0, 1.0), 1.5, 6.0),
    (ShiftPair(1.1, 0.0, -0.5, 0.2), 4.0, 10.0),
    (ShiftPair(19.5, 0.0, -0.76, 1.2e-4), 0.13, 5.0),  # a shift whose odds span e^-60000 to e^70
]


@pytest.mark.parametrize(("pair", "tilt", "omega"), CASES)
def test_moments_lie_within_their_claimed_error_of_mpmath(pair, tilt, omega):
    with mpmath.workdps(30):
        exact = ExactPair(pair)
        real = exact.moment(mpmath.mpf(tilt)).real
        truth = complex(exact.moment(mpmath.mpc(tilt, omega)) / real)
    nodes = certified_nodes(pair, (tilt,), omega, (float(mpmath.log(real)),))
    value = np.sum(np.exp(nodes.log_mass + (tilt + 1j * omega) * nodes.loss - float(mpmath.log(real))))
    assert nodes.quadrature[0] < 1e-14
    assert abs(value - truth) <= nodes.quadrature[0] + nodes.roundoff[0] + 1e-15 * omega
    assert nodes.log_phi[0] == pytest.approx(float(mpmath.log(real)), abs=nodes.roundoff[0] + 1e-14)


@pytest.mark.parametrize(
    ("pair", "left", "right"),
    [
        (ShiftPair(2.0, 1.0, 0.0, 1.0), 1.0, 2.5),
        (ShiftPair(2.0, 1.0, 0.0, 0.05), -1.0, 3.0),
        (ShiftPair(1.5, 0.5, 0.0, 0.2), 0.6, 9.0),
        (ShiftPair(1.3, 0.5, -0.5, 0.2), 0.0, 0.5),
        (ShiftPair(4.0, 0.5, 0.0, 1.0), 0.0, 1.5),
        (ShiftPair(6.0, 0.8, 0.0, 0.3), 1.1, 1.6),  # sampled for certain, by the odds
        (ShiftPair(6.0, 0.0, -0.8, 0.3), 0.0, 1.2),  # not sampled for certain
    ],
)
def test_proved_panel_error_covers_the_actual_one_on_panels_far_too_wide(pair, left, right):
    """On these panels the rule is visibly wrong, so a bound that were too small would show."""
    tilt, omega = 2.0, 25.0
    log_bound = float(log_panel_error(pair, np.array([left]), np.array([right]), (tilt,), omega)[0, 0])
    nodes, weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    exact = ExactPair(pair)
    with mpmath.workdps(30):
        s = mpmath.mpc(tilt, omega)
        half, middle = mpmath.mpf(right - left) / 2, mpmath.mpf(right + left) / 2

        def f(z):
            return exact.mixture(z, exact.up) * mpmath.exp(s * exact.loss(z))

        truth = mpmath.quad(f, mpmath.linspace(left, right, 9))
        rule = half * sum(
            mpmath.mpf(float(w)) * f(middle + half * mpmath.mpf(float(x)))
            for x, w in zip(nodes, weights, strict=True)
        )
        error = float(abs(truth - rule))
    assert error > 1e-12
    assert log_bound >= np.log(error)


def test_a_hopeless_integral_is_refused_and_not_guessed():
    with pytest.raises(CannotCertifyError):
        certified_nodes(ShiftPair(2.0, 1.0, 0.0, 1.0), (1.0,), 1e9, (1.0,))


def test_digits_of_the_oracle_suffice():
    assert DIGITS >= 50


def test_noise_that_reaches_too_far_is_refused_before_panels_are_laid():
    """Adding a record that is next to always sampled: at a tilt of 1e14, 38 million panels took 7 GB."""
    pair = ShiftPair(2.0, 0.0, -1.0 / 1414.2, 1.0 - 1e-15)
    tracemalloc.start()
    with pytest.raises(CannotCertifyError, match="reaches too far"):
        certified_nodes(pair, (1e11,), 0.0, (math.log(1e15) * 1e11,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e6
