# SPDX-License-Identifier: Apache-2.0
"""The demonstration's numbers: noises of equal privacy, and of equal std, side by side.

Everything that is shown is computed here and handed on as one frozen record; tables and figures only read it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ggdp.accounting import Bounds, epsilon
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Composed, PoissonSampled, release
from ggdp.reporting.example_data import READERS_BY_BRANCH, VOTES_BY_NAME
from ggdp.reporting.privacy_records import bounds_record, record_of
from ggdp.selection import noisy_argmax

BETAS = (1.0, 1.5, 2.0)


@dataclass(frozen=True)
class Target:
    """What the demonstration asks for.

    Attributes:
        epsilon: of one release, and of all of `num_releases` together.
        delta: likewise.
        num_releases: how many releases share the budget in the second comparison.
        training_std: of the noise of the training run, the same for every exponent; gradients are clipped to
            1 in the l_1 norm.
        training_rate: its sampling rate.
        training_steps: after which its epsilon is told.
        num_elections: how often the vote is repeated.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    num_releases: int = 10
    training_std: float = 2.0
    training_rate: float = 0.01
    training_steps: tuple[int, ...] = (500, 1000, 2000, 3500, 5000)
    num_elections: int = 20_000

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a JSON record."""
        plain = asdict(self)
        return {"target_epsilon": plain.pop("epsilon"), **plain}


@dataclass(frozen=True)
class Case:
    """One exponent: the noise that meets the target, and what it does.

    Attributes:
        beta: the exponent.
        scale: of the noise for one release.
        std: its standard deviation.
        achieved: its certified epsilon.
        std_of_several: the standard deviation that each of `num_releases` releases needs.
        training: epsilon of the training run after each of its numbers of steps.
        released: the counts with noise.
        mean_absolute_error: theirs.
        winner: of one noisy vote.
        true_winner_prob: how often the true winner wins.
    """

    beta: float
    scale: float
    std: float
    achieved: Bounds
    std_of_several: float
    training: tuple[Bounds, ...]
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
        """The record, with a result for each exponent."""
        return record_of("demo", [self._result(case) for case in self.cases], target=self.target.to_dict())

    def _result(self, case: Case) -> dict[str, Any]:
        plain = {field.name: getattr(case, field.name) for field in fields(case)}
        steps = zip(self.target.training_steps, plain.pop("training"), strict=True)
        return {
            "epsilon": bounds_record(plain.pop("achieved")),
            "delta": self.target.delta,
            "method": case.achieved.method,
            **plain,
            "released": list(case.released),
            "training": [{"steps": count, "epsilon": bounds_record(bounds)} for count, bounds in steps],
        }


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
    several = calibrate_scale(
        beta=beta, epsilon=target.epsilon, delta=target.delta, steps=target.num_releases
    )
    # One reader moves one count by one. In norm 1 the answer for one count holds for all twelve together.
    mechanism = AdditiveNoise.histogram(noise)
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
        achieved=calibrated.achieved,
        std_of_several=several.noise.std,
        training=training,
        released=tuple(released.tolist()),
        mean_absolute_error=float(np.mean(np.abs(released - exact))),
        winner=names[int(noisy_argmax(votes, noise, rng=rng))],
        true_winner_prob=float(np.mean(elections == np.argmax(votes))),
    )


def _training_epsilon(beta: float, steps: int, target: Target) -> Bounds:
    """Epsilon of DP-SGD, clipped in l_1, where one coordinate answers for all whatever the exponent."""
    step = AdditiveNoise(GeneralizedGaussian.from_std(beta, target.training_std), sensitivity=1.0, norm=1.0)
    return epsilon(Composed(PoissonSampled(step, target.training_rate), times=steps), delta=target.delta)
