# SPDX-License-Identifier: Apache-2.0
"""The largest Poisson sampling rate that fits a target."""

from ggdp import arguments
from ggdp.calibration.calibrated import Calibrated, run_of
from ggdp.calibration.search import LogAxis
from ggdp.calibration.solve import resolution, solve
from ggdp.calibration.steps import step_of
from ggdp.calibration.target import Target
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism
from ggdp.privacy_loss.dominating import RATE


def calibrate_rate(
    mechanism: AdditiveNoise | None = None,
    *,
    epsilon: float,
    delta: float,
    beta: float | None = None,
    scale: float | None = None,
    steps: int = 1,
    sensitivity: float = 1.0,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> Calibrated:
    """The largest Poisson sampling rate for which a run is (epsilon, delta)-private.

    Args:
        mechanism: one step, before sampling; or, in its place,
        beta: exponent of the noise, in [1, 32], and
        scale: of the noise, and
        sensitivity: most one record moves a step's value.
        epsilon: the target, in [0, 2000].
        delta: the target, in [1e-100, 0.5].
        steps: number of steps, at most 10^7.
        adjacency: which datasets are neighbours.

    Guarantees:
        1. `achieved.upper`, the certified upper bound of epsilon at `rate`, is at most `epsilon`.
        2. The rate is 1, or one larger by 4e-7 relative was tried, and no bound certifies that it meets the
           target; where `sharp` is true, a bound certifies that it does not.

    Raises:
        ValueError: an argument is out of range, or the rate would have to be below 1e-7.

    >>> found = calibrate_rate(beta=2, scale=2.0, steps=1000, epsilon=1.0, delta=1e-6)
    >>> round(found.rate, 6), found.sharp
    (0.008747, True)
    """
    target = Target(epsilon, delta, adjacency)
    if mechanism is not None:
        arguments.instance("mechanism", mechanism, AdditiveNoise, hint="the rate is what is asked for")
    step, _ = step_of(mechanism, beta, scale, sensitivity, 1.0)
    steps = arguments.whole("steps", steps)

    def at(rate: float) -> Mechanism:
        return run_of(step, rate, steps)

    target.check(at(1.0))
    found = solve(LogAxis(RATE.least, RATE.most, resolution(steps)), at, target)
    if found.value is None or found.achieved is None:
        raise ValueError(
            f"{target} is exceeded even at rate {RATE.least:g}, the smallest that the accountant covers; "
            "take more noise, fewer steps, or a larger epsilon or delta"
        )
    return Calibrated(
        step=step,
        rate=found.value,
        steps=steps,
        delta=target.delta,
        achieved=found.achieved,
        sharp=found.sharp,
    )
