# SPDX-License-Identifier: Apache-2.0
"""Which exponent finds the true winner of a vote most often, at equal privacy.

`wrong_winner` is the loss with which `best_noise` finds the exponent for given histograms. `simulate_argmax`
compares exponents on the paper's simulated votes: hardmax utility against the runner-up gap, and the area
under that curve. Utilities are exact, so the only randomness is in the simulated histograms, and with two
classes there is none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ggdp import arguments
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import Adjacency
from ggdp.numerics import Array
from ggdp.selection.aggregation import calibrate_ggnmax
from ggdp.selection.argmax import histograms_from
from ggdp.selection.win_probability import evaluations, hardmax_utility

THIRD_OVER_SECOND = 0.95
_MOST_DRAWS = 1e8  # of votes for a class, until all histograms have their sum: two seconds
_MOST_EVALUATIONS = 4e9  # of the noise's law: two or three minutes
_FEWEST_EACH = 40.0  # for one class of one histogram


def wrong_winner(histograms: ArrayLike) -> Callable[[GeneralizedGaussian], float]:
    """The chance that a wrong class wins a noisy vote, as a loss for `best_noise`.

    It is the chance that no class with the largest count wins, the mean over the histograms, exact to 1e-10.
    A voter who comes or goes moves one count by one, as in the paper. Where a voter may change its vote, give
    `best_noise` the shift (1, -1). The answer depends on the counts and is as private as they are.

    Args:
        histograms: counts, [queries, classes]; one histogram or many.

    >>> from ggdp import best_noise
    >>> loss = wrong_winner([[60, 40]])
    >>> found = best_noise(epsilon=1.0, delta=1e-5, steps=100, loss=loss)  # of a hundred votes
    >>> 1.4 < found.beta < 1.9, round(found.loss, 2)
    (True, 0.35)
    """
    counts = histograms_from("histograms", histograms)

    def wrong(noise: GeneralizedGaussian) -> float:
        return max(1.0 - float(np.mean(hardmax_utility(counts, noise))), 0.0)

    return wrong


def calibrated_noise(
    beta: float, epsilon: float, delta: float, times: int, adjacency: Adjacency
) -> GeneralizedGaussian:
    """The least noise with exponent `beta` for which `times` noisy votes are (epsilon, delta)-private."""
    times = arguments.whole("times", times)
    if Adjacency(adjacency) is Adjacency.REPLACE:
        return calibrate_ggnmax(beta=beta, epsilon=epsilon, delta=delta, times=times).noise
    return calibrate_scale(beta=beta, epsilon=epsilon, delta=delta, steps=times).noise


@dataclass(frozen=True, eq=False)
class ArgmaxSimulation:
    """Utilities of equally private noises over simulated votes.

    Attributes:
        gaps: runner-up gaps r, as a part of the largest count.
        epsilons: the privacy of each comparison.
        delta: likewise.
        noises: [epsilon][beta].
        utilities: probability that the true winner wins, [epsilon, beta, gap].
    """

    gaps: Array
    epsilons: tuple[float, ...]
    delta: float
    noises: tuple[tuple[GeneralizedGaussian, ...], ...]
    utilities: Array

    @property
    def betas(self) -> tuple[float, ...]:
        """The exponents compared."""
        return tuple(noise.beta for noise in self.noises[0])

    @property
    def areas(self) -> Array:
        """Area under utility against gap over the range of gaps, so that 1 is the most; [epsilon, beta]."""
        return np.asarray(np.trapezoid(self.utilities, self.gaps, axis=2) / np.ptp(self.gaps))

    @property
    def best_betas(self) -> tuple[float, ...]:
        """The exponent with the largest area, for each epsilon."""
        return tuple(self.betas[int(place)] for place in np.argmax(self.areas, axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "delta": self.delta,
            "gaps": self.gaps.tolist(),
            "results": [
                {
                    "target_epsilon": epsilon,
                    "best_beta": best,
                    "noises": [
                        {
                            "beta": noise.beta,
                            "scale": noise.scale,
                            "std": noise.std,
                            "area": float(area),
                            "utility": row.tolist(),
                        }
                        for noise, area, row in zip(noises, areas, rows, strict=True)
                    ],
                }
                for epsilon, best, noises, areas, rows in zip(
                    self.epsilons, self.best_betas, self.noises, self.areas, self.utilities, strict=True
                )
            ],
        }


def simulate_argmax(
    *,
    num_classes: int,
    epsilons: Sequence[float],
    delta: float,
    betas: Sequence[float],
    gaps: Sequence[float],
    num_votes: int = 1000,
    times: int = 1,
    rng: Rng | None = None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    on_progress: Callable[[str], None] = lambda step: None,
) -> ArgmaxSimulation:
    """Exact hardmax utility at each gap, for the least noise of each exponent that meets each epsilon.

    Args:
        num_classes: 2, or at least 6.
        epsilons: privacy of `times` noisy votes together, one curve each.
        delta: likewise.
        betas: exponents to compare.
        gaps: rising runner-up gaps, each in [0, 1).
        num_votes: votes in a histogram.
        times: how many noisy votes share the budget. One favours beta = 1; many, beta near 2.
        rng: draws the histograms; needed for more than two classes.
        adjacency: by default a voter comes or goes, and one count moves by one, as in the paper; REPLACE if
            a voter may change its vote.
        on_progress: hears of each noise.

    Raises:
        ValueError: an argument is out of range, or the comparison would take more than some minutes.
    """
    rising = arguments.finite_array("gaps", np.asarray(gaps))
    if rising.ndim != 1 or len(rising) < 2 or np.any(np.diff(rising) <= 0.0):
        raise ValueError("gaps must be at least two rising numbers")
    curves = len(epsilons) * len(betas)
    _affordable(curves * len(rising) * num_classes * _FEWEST_EACH)
    histograms = runner_up_histograms(num_classes, rising, num_votes=num_votes, rng=rng)
    noises: list[list[GeneralizedGaussian]] = []
    utilities = np.empty((len(epsilons), len(betas), len(rising)))
    for row, epsilon in enumerate(epsilons):
        noises.append([])
        for column, beta in enumerate(betas):
            on_progress(f"epsilon = {epsilon:g}, beta = {beta:.3g}")
            noises[-1].append(calibrated_noise(beta, epsilon, delta, times, adjacency))
            _affordable(curves * evaluations(histograms, noises[-1][-1]))
            utilities[row, column] = hardmax_utility(histograms, noises[-1][-1])
    return ArgmaxSimulation(
        rising, tuple(map(float, epsilons)), float(delta), tuple(map(tuple, noises)), utilities
    )


def _affordable(work: float) -> None:
    """Refuse what would take far longer than anybody waits."""
    if work > _MOST_EVALUATIONS:
        raise ValueError(
            f"the comparison must need at most {_MOST_EVALUATIONS:g} values of the noise's law, which take "
            f"minutes, got about {work:.2g}: take fewer histograms (gaps), classes, exponents or epsilons"
        )


def runner_up_histograms(
    num_classes: int, gaps: Array, *, num_votes: int = 1000, rng: Rng | None = None
) -> Array:
    """One histogram for each gap r, [gaps, classes]; counts are real numbers and sum to `num_votes`.

    Two classes: x_1 = (1 - r) x_0. More (Appendix "Simulations"): x_2 = 0.95 x_1, x_0 + x_1 + (n-3) x_2 / 2
    is the number of votes; the next n - 4 are uniform whole numbers in [0, x_2], the last takes what is
    left, and all are drawn again until that lies in [0, x_1].

    >>> runner_up_histograms(2, np.array([0.1])).round(1).tolist()
    [[526.3, 473.7]]
    """
    num_votes = arguments.whole("num_votes", num_votes)
    r = arguments.array("gaps", gaps, least=0.0, most=1.0)
    if num_classes == 2:
        first = num_votes / (2.0 - r)
        return np.stack([first, (1.0 - r) * first], axis=1)
    num_classes = arguments.whole("num_classes", num_classes, least=6, hint="or 2")
    if rng is None:
        raise ValueError("rng must be given for more than two classes, whose histograms are random")
    second_over_first = 1.0 - r
    half_rest = 0.5 * (num_classes - 3) * THIRD_OVER_SECOND
    first = num_votes / (1.0 + second_over_first * (1.0 + half_rest))
    second = second_over_first * first
    third = THIRD_OVER_SECOND * second
    head = np.stack([first, second, third], axis=1)
    rest = np.empty((len(r), num_classes - 3))
    open_rows = np.arange(len(r))
    draws = 0.0
    while draws < _MOST_DRAWS:
        draws += len(open_rows) * num_classes
        most = np.floor(third[open_rows]) + 1.0
        # Uniform whole numbers in [0, x_2], by scaling uniform doubles.
        middle = np.floor(rng.random((len(open_rows), num_classes - 4)) * most[:, None])
        last = num_votes - head[open_rows].sum(axis=1) - middle.sum(axis=1)
        fits = (last >= 0.0) & (last <= second[open_rows])
        rest[open_rows[fits]] = np.concatenate([middle, last[:, None]], axis=1)[fits]
        open_rows = open_rows[~fits]
        if len(open_rows) == 0:
            return np.concatenate([head, rest], axis=1)
    raise ValueError(
        f"num_votes must be enough for {num_classes} classes, got {num_votes}, of which a gap of "
        f"{r[open_rows[0]]:g} leaves too few; take more votes, fewer classes or smaller gaps"
    )
