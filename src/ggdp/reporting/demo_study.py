# SPDX-License-Identifier: Apache-2.0
"""The demonstration's numbers: three noises of equal privacy, side by side on the example data.

Everything that is shown is computed here and handed on as one frozen record; tables and figures only read it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ggdp.accounting import epsilon
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Composed, PoissonSampled, release
from ggdp.reporting.example_data import READERS_BY_BRANCH, VOTES_BY_NAME
from ggdp.selection import noisy_argmax

BETAS = (1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Target:
    """What the demonstration asks for."""

    epsilon: float = 1.0
    delta: float = 1e-6
    training_noise_multiplier: float = 2.0
    training_rate: float = 0.01
    training_steps: tuple[int, ...] = (500, 1000, 2000, 3500, 5000)
    num_elections: int = 20_000


@dataclass(frozen=True)
class Case:
    """One exponent: the noise that meets the target, and what it does."""

    beta: float
    scale: float
    std: float
    achieved_epsilon: float
    training_epsilon: tuple[float, ...]
    released: tuple[float, ...]
    mean_absolute_error: float
    winner: str
    true_winner_prob: float


@dataclass(frozen=True)
class Study:
    """The whole demonstration, ready to print."""

    target: Target
    cases: tuple[Case, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a JSON record."""
        return asdict(self)


def demo_study(
    target: Target, *, rng: np.random.Generator | None = None, on_progress: Callable[[str], None] = print
) -> Study:
    """Calibrate, account, release and choose for every exponent; `on_progress` hears of each step."""
    return Study(target, tuple(_case(beta, target, rng, on_progress) for beta in BETAS))


NUM_PROGRESS_STEPS = 4 * len(BETAS)


def _case(
    beta: float, target: Target, rng: np.random.Generator | None, on_progress: Callable[[str], None]
) -> Case:
    on_progress(f"beta = {beta:g}: calibrating")
    calibrated = calibrate_scale(beta=beta, epsilon=target.epsilon, delta=target.delta)
    noise = calibrated.noise
    # One reader moves one count by one. In norm 1 the answer for one count holds for all twelve together.
    mechanism = AdditiveNoise(noise, sensitivity=1.0, norm=1.0)
    on_progress(f"beta = {beta:g}: accounting for a training run")
    training = tuple(_training_epsilon(beta, steps, target) for steps in target.training_steps)
    on_progress(f"beta = {beta:g}: releasing the counts")
    exact = np.array(list(READERS_BY_BRANCH.values()), dtype=np.float64)
    released = release(mechanism, exact, rng=rng)
    on_progress(f"beta = {beta:g}: choosing a winner")
    names, votes = list(VOTES_BY_NAME), np.array(list(VOTES_BY_NAME.values()))
    elections = noisy_argmax(np.tile(votes, (target.num_elections, 1)), noise, rng=rng)
    return Case(
        beta=beta,
        scale=noise.scale,
        std=noise.std,
        achieved_epsilon=calibrated.achieved.upper,
        training_epsilon=training,
        released=tuple(released.tolist()),
        mean_absolute_error=float(np.mean(np.abs(released - exact))),
        winner=names[int(noisy_argmax(votes, noise, rng=rng))],
        true_winner_prob=float(np.mean(elections == np.argmax(votes))),
    )


def _training_epsilon(beta: float, steps: int, target: Target) -> float:
    """Epsilon of DP-SGD, clipped where one coordinate answers for all: in l_1, and in l_2 at beta = 2."""
    noise = GeneralizedGaussian.from_noise_multiplier(beta, target.training_noise_multiplier)
    step = AdditiveNoise(noise, sensitivity=1.0, norm=2.0 if beta == 2.0 else 1.0)
    run = Composed(PoissonSampled(step, target.training_rate), times=steps)
    return epsilon(run, delta=target.delta).upper
