# SPDX-License-Identifier: Apache-2.0
"""Vectors that are dominated by one number with noise of its own: its score lies above that of every shift.

`privacy_loss.envelope_noise` makes the number's noise for a beta, a norm and a number of coordinates. It is
symmetric and log-concave, so what is proved for one coordinate of Generalized Gaussian noise holds for it:
sampling, replacement and composition (docs/vector-releases.md, "Score envelope").
"""

import math
from dataclasses import dataclass, replace

from ggdp.accounting.engines.atoms import Enclosed
from ggdp.accounting.steps import NoiseStep, Steps
from ggdp.mechanisms import Adjacency
from ggdp.privacy_loss.cells import replaced
from ggdp.privacy_loss.envelope_noise import dominating_cells

NAME = "score envelope"
_LEAST_BETA = 1.01
_LEAST_P = 1.01
_MOST_TIMES, _MOST_WIDE = (
    100,
    16,
)  # releases and coordinates beyond which, for beta < 2, other bounds are better


@dataclass(frozen=True)
class EnvelopeStep:
    """A release of a number that dominates a vector without a known worst shift.

    Attributes:
        beta: exponent of the vector's noise.
        p: the norm of its shifts.
        dimension: how many coordinates it has.
        length: the largest length of a shift, in units of the scale.
        rate: the probability with which each record takes part.
        times: how often it is released.
        seen: a direction that is fixed for this step; the direction that is asked for is then ignored.
    """

    beta: float
    p: float
    dimension: int
    length: float
    rate: float
    times: int
    seen: Adjacency | None = None

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pair above the number. It stands for the pair below too, which is not used.

        Raises:
            CannotCertifyError: the shift is so long or so short that no useful bound is known.
        """
        direction = self.seen or direction
        cells = dominating_cells(self.beta, self.p, self.dimension, self.length)
        if self.rate < 1.0:  # without sampling all directions are the same, since the noise is symmetric
            if direction is Adjacency.REPLACE:
                cells = replaced(cells, self.rate)
            else:
                cells = cells.sampled(self.rate)
                cells = cells.reversed if direction is Adjacency.ADD else cells
        above = cells.above()
        return Enclosed(above, above, self.times)


def is_of_use(steps: Steps) -> bool:
    """Whether this bound may be the best one for every vector without a worst shift."""
    return all(
        step.noise.noise.beta > 2.0 or step.times <= _MOST_TIMES or step.noise.dimension <= _MOST_WIDE
        for step in steps.noisy
        if step.worst_shift is None
    )


def enveloped(steps: Steps) -> Steps | None:
    """The steps with a number in place of every vector without a worst shift; None if that is not covered."""
    known, numbers = [], []
    for step in steps.noisy:
        if step.worst_shift is not None:
            known.append(step)
            continue
        number = _number(step)
        if number is None:
            return None
        numbers.append(number)
    return replace(steps, noisy=tuple(known), custom=(*steps.custom, *numbers))


def _number(step: NoiseStep) -> EnvelopeStep | None:
    noise = step.noise
    p, dimension, sensitivity = noise.p, noise.dimension, noise.sensitivity
    if noise.shift is not None:  # any norm is valid for a known shift; this one gives the smallest bound
        sizes = [(abs(value), count) for value, count in noise.shift if value]
        p, dimension = 2.0, sum(count for _, count in sizes)
        sensitivity *= math.sqrt(math.fsum(count * size**2 for size, count in sizes)) * (1.0 + 1e-14)
    if noise.noise.beta < _LEAST_BETA or p < _LEAST_P or math.isinf(dimension):
        return None
    length = sensitivity / noise.noise.scale * (1.0 + 1e-15)
    return EnvelopeStep(noise.noise.beta, p, int(dimension), length, step.rate, step.times, step.seen)
