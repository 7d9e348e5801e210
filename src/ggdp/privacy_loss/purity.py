# SPDX-License-Identifier: Apache-2.0
"""Pure privacy, decided in exact arithmetic.

Laplace noise of scale b on a query of sensitivity s is (s/b)-private with delta = 0, and such releases are
private at the sum, to the last bit: one unit in the last place below, delta is positive. Doubles are
rational numbers, so the comparison is made with fractions.
"""

from fractions import Fraction

from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism


def is_pure(mechanism: Mechanism, epsilon: float, adjacency: Adjacency) -> bool:
    """Whether unsampled scalar Laplace releases make up the mechanism, with bounds that add up to epsilon."""
    composed = mechanism if isinstance(mechanism, Composed) else Composed(mechanism)
    total = Fraction(0)
    for step, times in composed.parts:
        if not isinstance(step, AdditiveNoise) or step.noise.beta != 1.0 or step.dimension != 1 or step.shift:
            return False
        total += times * Fraction(step.sensitivity) / Fraction(step.noise.scale)
    return total * (2 if adjacency is Adjacency.REPLACE else 1) <= Fraction(epsilon)
