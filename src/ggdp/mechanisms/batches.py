# SPDX-License-Identifier: Apache-2.0
"""How batches are drawn other than by Poisson sampling: fixed sizes, a largest size, allocation, shuffling.

Each class describes what one draw does; `Composed(..., times=...)` repeats it. docs/batches.md says for which
neighbours each has a proof, and what the proof is.
"""

from dataclasses import dataclass

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.custom import CustomMechanism, PlainData

MOST_RECORDS = 10**12
MOST_ALLOCATED = 10**5  # steps of one allocation


@dataclass(frozen=True)
class Batched(PlainData):
    """One release, or one epoch of them, on batches that are not Poisson samples."""

    mechanism: AdditiveNoise | CustomMechanism

    def __post_init__(self) -> None:
        arguments.instance(
            "mechanism",
            self.mechanism,
            (AdditiveNoise, CustomMechanism),
            hint="batch one release, then compose: Composed(FixedSizeSampled(step, ...), times)",
        )


@dataclass(frozen=True)
class FixedSizeSampled(Batched):
    """Run `mechanism` on `sample_size` of `population` records, all such batches equally likely.

    Args:
        mechanism: one release.
        sample_size: records in every batch, at least 1.
        population: records in the data set, the one record that neighbours differ in included.
        replacement: whether a record may be drawn several times, as by `sample_size` draws of one record
            each.

    >>> from ggdp import Gaussian
    >>> FixedSizeSampled(AdditiveNoise(Gaussian(std=1.0)), sample_size=256, population=50_000).rate
    0.00512
    """

    sample_size: int
    population: int
    replacement: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        population = arguments.whole("population", self.population, least=1, most=MOST_RECORDS)
        most = 10**6 if self.replacement else population
        size = arguments.whole("sample_size", self.sample_size, most=most, hint="as many as there are")
        arguments.instance("replacement", self.replacement, bool)
        object.__setattr__(self, "population", population)
        object.__setattr__(self, "sample_size", size)

    @property
    def rate(self) -> float:
        """sample_size / population: how often a record takes part, on average."""
        return self.sample_size / self.population


@dataclass(frozen=True)
class TruncatedPoisson(Batched):
    """Keep every record with probability `rate`; of a batch above `largest_batch`, keep that many.

    Which records are left out of a batch that is too large may be decided in any way.

    Args:
        mechanism: one release.
        rate: the probability with which a record is kept, in (0, 1].
        largest_batch: what no batch exceeds, at least 1.
        population: records in the data set; neither neighbour has more than one more.
    """

    rate: float
    largest_batch: int
    population: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rate", arguments.real("rate", self.rate, above=0.0, most=1.0))
        for name in ("largest_batch", "population"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name), most=MOST_RECORDS))


@dataclass(frozen=True)
class RandomAllocation(Batched):
    """`steps` releases in which every record takes part in `times_used`, chosen at random, alone.

    With `times_used` = 1 every record picks one of the steps: balls in bins. One `RandomAllocation` is all
    `steps` releases, an epoch; `Composed(RandomAllocation(...), times=epochs)` picks anew in every epoch.

    Args:
        mechanism: one release.
        steps: releases of an epoch.
        times_used: in how many of them a record takes part.
    """

    steps: int
    times_used: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = arguments.whole("steps", self.steps, most=MOST_ALLOCATED)
        used = arguments.whole("times_used", self.times_used, most=steps)
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "times_used", used)


@dataclass(frozen=True)
class Shuffled(Batched):
    """An epoch of `steps` releases: the records in random order, cut into `steps` batches of fixed sizes.

    Where a neighbour lacks the record, an empty one that contributes nothing stands in its place, so that
    all others stay where they are.

    Args:
        mechanism: one release.
        steps: batches of an epoch; 1 is a pass over everything at once.
    """

    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "steps", arguments.whole("steps", self.steps, most=MOST_ALLOCATED))
