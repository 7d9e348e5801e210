# SPDX-License-Identifier: Apache-2.0
"""What a noisy vote costs: descriptions that turn into what the accountant understands.

docs/argmax.md says why this is right: publishing an index is post-processing of publishing all noisy counts,
and the loss of moving several counts is the sum of the independent losses of moving each.
"""

from dataclasses import dataclass

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.accounting import epsilon as epsilon_of
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, Mechanism


@dataclass(frozen=True)
class NoisyArgmax:
    """Publish the index of the largest count after noise on each (GGNMax).

    Under `REPLACE` a voter changes its vote: one count rises by one and another falls by one, an exact
    composition of two one-coordinate shifts. Otherwise a voter comes or goes, and one count moves by one.

    Guarantees:
        1. The accountant's bounds for `as_mechanism()` hold for the index, and for all noisy counts together.

    >>> from ggdp import GeneralizedGaussian
    >>> round(NoisyArgmax(GeneralizedGaussian(beta=1.5, scale=1.0)).epsilon(delta=1e-6).upper, 3)
    5.589
    """

    noise: GeneralizedGaussian
    adjacency: Adjacency = Adjacency.REPLACE

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    @property
    def counts_moved(self) -> int:
        """How many counts one voter can move, each by one."""
        return 2 if self.adjacency is Adjacency.REPLACE else 1

    def as_mechanism(self, times: int = 1) -> Mechanism:
        """The same privacy loss as additive noise, `times` over; ask about it with the default adjacency.

        Without sampling a shift costs the same in both directions, by symmetry of the noise.
        """
        return Composed(AdditiveNoise(self.noise, sensitivity=1.0, norm=1.0), times=self.counts_moved * times)

    def epsilon(self, *, delta: float, times: int = 1) -> Bounds:
        """Certified epsilon of `times` noisy votes."""
        return epsilon_of(self.as_mechanism(times), delta=delta)


@dataclass(frozen=True)
class NoisyThreshold:
    """Publish whether the largest count plus noise reaches a threshold.

    One voter moves the largest count by at most one, whether it comes, goes or changes its vote, so this is a
    scalar release of sensitivity 1 under every adjacency, and only one bit of it is shown.
    """

    noise: GeneralizedGaussian

    def __post_init__(self) -> None:
        arguments.instance("noise", self.noise, GeneralizedGaussian)

    def as_mechanism(self, times: int = 1) -> Mechanism:
        """The same privacy loss as additive noise, `times` over; ask about it with the default adjacency."""
        return Composed(AdditiveNoise(self.noise, sensitivity=1.0, norm=1.0), times=times)

    def epsilon(self, *, delta: float, times: int = 1) -> Bounds:
        """Certified epsilon of `times` checks."""
        return epsilon_of(self.as_mechanism(times), delta=delta)
