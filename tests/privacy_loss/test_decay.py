import numpy as np
import pytest

from ggdp.accounting.engines.tilt import TiltPlan
from ggdp.privacy_loss.decay import decay
from ggdp.privacy_loss.quadrature import certified_nodes
from ggdp.privacy_loss.shift_pair import ShiftPair

CASES = [
    # a peak inside of a cell, e^1000 times as high as the density at its ends: its mass was taken for 6e-7
    (ShiftPair(1.0104203076611473, 0.2326660802261347, 0.0, 1.2943377068265606e-06), 4.237e9),
    (ShiftPair(2.0, 1.0, 0.0, 0.01), 5.0),
    (ShiftPair(1.5, 0.35, 0.0, 0.01), 12.0),
    (ShiftPair(1.5, 0.5, -0.5, 0.3), 3.0),
    (ShiftPair(1.0, 0.35, 0.0, 0.01), 10.0),
    (ShiftPair(1.0, 0.35, -0.35, 0.5), 2.0),
    (ShiftPair(1.25, 0.3, 0.0, 1.0), 2.0),
    (ShiftPair(8.0, 0.3, 0.0, 1.0), 0.1),
    (ShiftPair(1.1, 0.0, -0.5, 0.2), 4.0),
]


@pytest.mark.parametrize(("pair", "tilt"), CASES)
def test_characteristic_function_never_exceeds_its_bound(pair, tilt):
    log_phi = TiltPlan.of(((pair, 1),)).log_phis(tilt)[0]
    log_phi = certified_nodes(pair, (tilt,), 1e-3, (log_phi,)).log_phi[0]
    bound = decay(pair, tilt, log_phi)
    assert bound.mass.sum() + bound.outside >= 1.0 - 1e-9
    deviation = certified_nodes(pair, (tilt,), 1e-3, (log_phi,)).deviation
    for size in (1.0, 3.0, 10.0, 40.0):
        omega = size / deviation
        nodes = certified_nodes(pair, (tilt,), 2.5 * omega, (log_phi,))
        mass, variation = bound.coefficients(omega)
        for further in (1.0, 1.7, 2.5):  # the coefficients hold from omega on
            value = abs(np.sum(nodes.share * np.exp(1j * further * omega * nodes.loss)))
            assert value <= mass + variation / (further * omega)


def test_bound_of_smooth_noise_vanishes_and_that_of_laplace_keeps_its_atoms():
    smooth = decay(ShiftPair(2.0, 0.5, 0.0, 1.0), 1.0, 0.5)
    assert sum(x for x in smooth.coefficients(1e9)) < 1e10
    mass, variation = smooth.coefficients(1e6)
    assert mass + variation / 1e6 < 1e-3
    pair = ShiftPair(1.0, 0.5, 0.0, 1.0)
    log_phi = certified_nodes(pair, (1.0,), 0.0, (0.2,)).log_phi[0]
    mass, _ = decay(pair, 1.0, log_phi).coefficients(1e6)
    # both atoms of the tilted loss: e^{0.5} / 2 and e^{-0.5} e^{-0.5} / 2, over phi
    assert mass == pytest.approx((0.5 * np.exp(0.5) + 0.5 * np.exp(-1.0)) / np.exp(log_phi), rel=1e-6)
