# SPDX-License-Identifier: Apache-2.0
"""The largest number of steps that fits a target."""

from ggdp import arguments
from ggdp.calibration.calibrated import Calibrated, run_of
from ggdp.calibration.search import CountAxis
from ggdp.calibration.solve import solve
from ggdp.calibration.target import Target
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism, PoissonSampled
from ggdp.privacy_loss.dominating import MOST_TIMES


def calibrate_steps(
    mechanism: AdditiveNoise | PoissonSampled | None = None,
    *,
    epsilon: float,
    delta: float,
    beta: float | None = None,
    scale: float | None = None,
    rate: float = 1.0,
    sensitivity: float = 1.0,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
) -> Calibrated:
    """The largest number of steps for which a run is (epsilon, delta)-private.

    Args:
        mechanism: one step; or, in its place,
        beta: exponent of the noise, in [1, 32], and
        scale: of the noise, and
        rate: Poisson sampling probability, in [1e-7, 1], and
        sensitivity: most one record moves a step's value.
        epsilon: the target, in [0, 2000].
        delta: the target, in [1e-100, 0.5].
        adjacency: which datasets are neighbours.

    Guarantees:
        1. `achieved.upper`, the certified upper bound of epsilon after `steps` steps, is at most `epsilon`.
        2. Where `sharp` is true, one step more certifiably exceeds the target, so that `steps` is the exact
           answer. Where it is false the accountant's bounds straddle the target there, and `steps` is the
           smaller candidate.

    Raises:
        ValueError: an argument is out of range, one step exceeds the target, or more than 10^7 fit.

    >>> calibrate_steps(beta=2, scale=1.4142135623730951, rate=0.01, epsilon=6.9, delta=1e-6).steps
    9980
    """
    target = Target(epsilon, delta, adjacency)
    step, rate = step_of(mechanism, beta, scale, sensitivity, rate)

    def at(count: float) -> Mechanism:
        return run_of(step, rate, round(count))

    target.check(at(1.0))
    found = solve(CountAxis(MOST_TIMES), at, target)
    if found.value is None or found.achieved is None:
        raise ValueError(
            f"{target} is exceeded by one step already; take more noise, a smaller rate, or a larger epsilon "
            "or delta"
        )
    if found.is_last:
        raise ValueError(
            f"{target} is met by {MOST_TIMES} steps, the most the accountant covers (epsilon at most "
            f"{found.achieved.upper:g}), so that the largest number is not known; ask for a smaller epsilon "
            "or delta"
        )
    return Calibrated(
        step=step,
        rate=rate,
        steps=round(found.value),
        delta=target.delta,
        achieved=found.achieved,
        sharp=found.sharp,
    )


def step_of(
    mechanism: AdditiveNoise | PoissonSampled | None,
    beta: float | None,
    scale: float | None,
    sensitivity: float,
    rate: float,
) -> tuple[AdditiveNoise, float]:
    """The noisy step and its sampling rate, from a mechanism or from numbers."""
    if mechanism is None:
        if beta is None or scale is None:
            raise ValueError(
                f"give mechanism, or beta and scale, got beta={beta!r}, scale={scale!r} and no mechanism"
            )
        step = AdditiveNoise(GeneralizedGaussian(beta, scale), sensitivity)
        return step, arguments.real("rate", rate, above=0.0, most=1.0)
    if (beta, scale, sensitivity, rate) != (None, None, 1.0, 1.0):
        raise ValueError(
            "give mechanism alone, or beta, scale, sensitivity and rate, got mechanism with "
            f"beta={beta!r}, scale={scale!r}, sensitivity={sensitivity!r}, rate={rate!r}"
        )
    hint = "give one step of Generalized Gaussian noise, sampled or not"
    arguments.instance("mechanism", mechanism, (AdditiveNoise, PoissonSampled), hint=hint)
    if isinstance(mechanism, AdditiveNoise):
        return mechanism, 1.0
    if not isinstance(mechanism.mechanism, AdditiveNoise):
        raise ValueError(
            f"mechanism must sample AdditiveNoise, got {type(mechanism.mechanism).__name__}; {hint}"
        )
    return mechanism.mechanism, mechanism.rate
