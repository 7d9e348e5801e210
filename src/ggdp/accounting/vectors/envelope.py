# SPDX-License-Identifier: Apache-2.0
"""Vectors that one number dominates, its noise made for that: its score lies above that of every shift.

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
_MOST_TIMES = 100  # releases beyond which, measured, other bounds are as good or better


@dataclass(frozen=True)
class EnvelopeStep:
    """A release of a number that dominates a vector without a known worst shift.

    Attributes:
        beta: exponent of the vector's noise.
        p: the norm of its shifts.
        dimension: how many coordinates it has.
        length: of the shifts, in units of the scale.
        rate: the probability with which each record takes part.
        times: how often it is released.
        seen: the direction it is seen from, whichever is asked for.
    """

    beta: float
    p: float
    dimension: int
    length: float
    rate: float
    times: int
    seen: Adjacency | None = None

    def enclosed(self, direction: Adjacency) -> Enclosed:
        """The discrete pair above the number; it stands for the one below too, which nothing is read off.

        Raises:
            CannotCertifyError: the shift is too long, or too short, to say more than nothing.
        """
        direction = self.seen or direction
        whole = dominating_cells(self.beta, self.p, self.dimension, self.length)
        if direction is Adjacency.REPLACE and self.rate < 1.0:
            above = replaced(whole, self.rate).above()
        else:
            cells = whole.sampled(self.rate)
            above = (cells.reversed if direction is Adjacency.ADD else cells).above()
        return Enclosed(above, above, self.times)


def enveloped(steps: Steps) -> Steps | None:
    """Every vector that has no worst shift made a number; None where that is not covered, or of no use."""
    known, numbers = [], []
    for step in steps.noisy:
        if step.worst_shift is not None:
            known.append(step)
            continue
        number = _number(step)
        if number is None:
            return None
        numbers.append(number)
    if sum(number.times for number in numbers) > _MOST_TIMES:
        return None
    return replace(steps, noisy=tuple(known), custom=(*steps.custom, *numbers))


def _number(step: NoiseStep) -> EnvelopeStep | None:
    noise = step.noise
    p, dimension, sensitivity = noise.p, noise.dimension, noise.sensitivity
    if noise.shift is not None:  # any norm would do; in this one rotations cost least
        sizes = [(abs(value), count) for value, count in noise.shift if value]
        p, dimension = 2.0, sum(count for _, count in sizes)
        sensitivity *= math.sqrt(math.fsum(count * size**2 for size, count in sizes)) * (1.0 + 1e-14)
    if noise.noise.beta < _LEAST_BETA or p < _LEAST_P or math.isinf(dimension):
        return None
    length = sensitivity / noise.noise.scale * (1.0 + 1e-15)
    return EnvelopeStep(noise.noise.beta, p, int(dimension), length, step.rate, step.times, step.seen)
