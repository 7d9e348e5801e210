# SPDX-License-Identifier: Apache-2.0
"""Vectors that are dominated by one number, by the order of scores.

`privacy_loss.matched_norm` verifies, for noise of 1 < beta < 2 and up to a number added to delta, that a
shift v is dominated by one coordinate moved by |v|_m, m slightly below beta, and by one moved by a factor
times |v|_beta. So a step whose sensitivity is in an l_p norm with p <= m costs what one number costs; for
larger p |v|_m <= d^(1/m - 1/p) |v|_p, and the same with beta in place of m, stretch it.

For a record replaced under sampling what is added to delta may come from either law, and is multiplied by
1 + e^epsilon; so that it stays too small to see, the answer has to be an epsilon of at most 50.

In norms above beta another order of scores helps, which needs no verification: for 1 <= beta <= 2 a score is
below a centred Gaussian variable with the same E|s| in convex order. So in the l_2 norm the noise is at least
as private as Gaussian noise with the same density at its centre, std = scale sqrt(2/pi) Gamma(1 + 1/beta), in
every dimension (docs/vector-releases.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ggdp.accounting.steps import Steps
from ggdp.distributions import Gaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.mechanisms.additive_noise import matched_exponent
from ggdp.privacy_loss.dominating import NOISE_MULTIPLIER
from ggdp.privacy_loss.matched_norm import LEAST_BETA, MOST_BETA, domination, own_norm_stretch

NAME, GAUSSIAN = "score order", "gaussian"
_MOST_STRETCH = 1.12  # factor above which other bounds are better
_MOST_REPLACED = 50.0


@dataclass(frozen=True)
class OneNumber:
    """Releases of numbers that dominate releases of vectors.

    Attributes:
        steps: the vectors replaced by numbers.
        delta: what has to be added to their delta.
        exact: whether the bound is tight, because no sensitivity was raised noticeably.
        largest_epsilon: the largest epsilon at which adding `delta` is enough.
    """

    steps: Steps
    delta: float
    exact: bool
    largest_epsilon: float = math.inf


def one_number(steps: Steps) -> OneNumber | None:
    """Numbers in place of all vectors without a worst shift; None if that is not proved, or of no use."""
    return _replaced(steps, _number)


def gaussian(steps: Steps) -> OneNumber | None:
    """Numbers with Gaussian noise in place of all vectors without a worst shift; None if one has beta > 2."""
    return _replaced(steps, _gaussian_number)


Number = tuple[AdditiveNoise, float, bool]
"""One number in place of a vector, the delta that has to be added, and whether the bound is tight."""


def _replaced(steps: Steps, number_for: Callable[[AdditiveNoise], Number | None]) -> OneNumber | None:
    noisy = []
    spent, all_exact, largest = 0.0, True, math.inf
    for step in steps.noisy:
        if step.worst_shift is not None:
            noisy.append(step)
            continue
        number = number_for(step.noise)
        if number is None:
            return None
        changed, delta, exact = number
        if step.rate < 1.0 and Adjacency.REPLACE in steps.directions and delta > 0.0:
            delta, largest = delta * (1.0 + math.exp(_MOST_REPLACED)), _MOST_REPLACED
        spent, all_exact = spent + step.times * delta, all_exact and exact
        noisy.append(replace(step, noise=changed))
    return OneNumber(replace(steps, noisy=tuple(noisy)), spent * (1.0 + 1e-9), all_exact, largest)


def _number(step: AdditiveNoise) -> Number | None:
    beta = step.noise.beta
    if not LEAST_BETA <= beta <= MOST_BETA:
        return None
    if step.shift is not None:
        return _known_number(step)
    wide = float(step.dimension)
    ways = [
        (wide ** max(1.0 / exponent - 1.0 / step.p, 0.0), exponent, stretch)
        for exponent, stretch in ((matched_exponent(beta), 1.0), (beta, own_norm_stretch(beta)))
    ]
    longer, exponent, stretch = min(ways, key=lambda way: way[0] * way[2])
    if longer * stretch > _MOST_STRETCH:
        return None
    length = longer * step.sensitivity / step.noise.scale
    proved = domination(beta, exponent, stretch, length, wide)
    if proved is None:
        return None
    sensitivity = step.sensitivity * longer * proved.stretch * (1.0 + 1e-15)
    exact = longer * stretch == 1.0 and proved.stretch < 1.0 + 1e-9
    return replace(step, sensitivity=sensitivity, dimension=1), proved.delta, exact


def _known_number(step: AdditiveNoise) -> Number | None:
    """For a known shift: as far as it is long in the matched norm."""
    sizes = [(abs(value), count) for value, count in step.shift or () if value]
    exponent, largest = matched_exponent(step.noise.beta), max(size for size, _ in sizes)
    length = math.fsum(count * (size / largest) ** exponent for size, count in sizes) ** (1.0 / exponent)
    length *= largest * (1.0 + 1e-14)
    unit = step.sensitivity / step.noise.scale
    count = float(sum(count for _, count in sizes))
    proved = domination(step.noise.beta, exponent, 1.0, length * unit, count)
    if proved is None:
        return None
    number = AdditiveNoise(step.noise, step.sensitivity, shift=((length * proved.stretch, 1),))
    return number, proved.delta, False


def _gaussian_number(step: AdditiveNoise) -> Number | None:
    """|v|_2 <= d^(1/2 - 1/p) |v|_p for p >= 2, and <= |v|_p for p <= 2."""
    if step.noise.beta > 2.0:
        return None
    std = step.noise.scale * math.sqrt(2.0 / math.pi) * math.gamma(1.0 + 1.0 / step.noise.beta)
    noise = Gaussian(std * (1.0 - 1e-14))
    if step.shift is not None:
        length = math.sqrt(math.fsum(count * value**2 for value, count in step.shift))
        return AdditiveNoise(noise, step.sensitivity, shift=((length, 1),)), 0.0, False
    longer = step.sensitivity * float(step.dimension) ** max(0.5 - 1.0 / step.p, 0.0)
    if noise.std < NOISE_MULTIPLIER.least * longer:
        return None
    # less noise costs more: what is certified at the end of the range holds beyond it
    return AdditiveNoise(Gaussian(min(noise.std, NOISE_MULTIPLIER.most * longer)), longer), 0.0, False
