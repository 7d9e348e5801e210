# SPDX-License-Identifier: Apache-2.0
"""How batches are drawn: Poisson samples, fixed sizes, a largest size, allocation, shuffling.

Each mechanism describes what one draw does; `Composed(..., times=...)` repeats it. `Sampling` is the draw
alone, without saying what is released. docs/batches.md says for which neighbours each has a proof.
"""

from dataclasses import dataclass
from typing import Any

from ggdp import arguments
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.custom import CustomMechanism, PlainData

MOST_RECORDS = 10**12
MOST_ALLOCATED = 10**5  # steps of one allocation


@dataclass(frozen=True)
class PoissonSampled(PlainData):
    """A mechanism that is run on a random part of the records: each is kept with probability `rate`.

    Records are kept independently of each other (Poisson sampling). Because a record usually takes no part,
    epsilon is smaller than that of the mechanism on all records, as long as nobody learns which were kept.

    Args:
        mechanism: what is released from the records kept. Sample first, then compose:
            `Composed(PoissonSampled(step, rate=0.01), times=5000)`.
        rate: the probability of each record to be kept, in (0, 1].

    Raises:
        ValueError: the rate is out of range, or `mechanism` is a composition.

    >>> from ggdp import Gaussian, epsilon
    >>> step = AdditiveNoise(Gaussian(std=1.0))
    >>> round(epsilon(step, delta=1e-6).upper, 2)
    4.89
    >>> round(epsilon(PoissonSampled(step, rate=0.01), delta=1e-6).upper, 2)
    0.36
    """

    mechanism: AdditiveNoise | CustomMechanism
    rate: float

    def __post_init__(self) -> None:
        arguments.instance(
            "mechanism",
            self.mechanism,
            (AdditiveNoise, CustomMechanism),
            hint="sample each step, then compose: Composed(PoissonSampled(step, rate), times)",
        )
        object.__setattr__(self, "rate", arguments.real("rate", self.rate, above=0.0, most=1.0))


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

    @property
    def nominal(self) -> tuple[float, int]:
        """The rate and number of Poisson-sampled releases that cost about as much; for planning alone."""
        return 1.0, 1


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
        size = arguments.whole(
            "sample_size", self.sample_size, most=most, hint="a batch holds no more records than there are"
        )
        arguments.instance("replacement", self.replacement, bool)
        object.__setattr__(self, "population", population)
        object.__setattr__(self, "sample_size", size)

    @property
    def rate(self) -> float:
        """sample_size / population: how often a record takes part, on average."""
        return self.sample_size / self.population

    @property
    def nominal(self) -> tuple[float, int]:
        """Poisson sampling at the same rate."""
        return min(self.rate, 1.0), 1


@dataclass(frozen=True)
class _Truncated(Batched):
    """Poisson batches that are cut at a largest size."""

    rate: float
    largest_batch: int
    population: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rate", arguments.real("rate", self.rate, above=0.0, most=1.0))
        for name in ("largest_batch", "population"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name), most=MOST_RECORDS))


@dataclass(frozen=True)
class TruncatedPoisson(_Truncated):
    """Keep every record with probability `rate`; of a batch above `largest_batch`, keep that many.

    Which records are left out of a batch that is too large may be decided in any way; if they are chosen at
    random, `RandomlyTruncatedPoisson` costs less.

    Args:
        mechanism: one release.
        rate: the probability with which a record is kept, in (0, 1].
        largest_batch: what no batch exceeds, at least 1.
        population: records in the data set; neither neighbour has more than one more.
    """

    @property
    def nominal(self) -> tuple[float, int]:
        """Poisson sampling itself."""
        return self.rate, 1


@dataclass(frozen=True)
class RandomlyTruncatedPoisson(_Truncated):
    """Keep every record with probability `rate`; of a batch above `largest_batch`, keep that many by chance.

    All subsets of that size are equally likely. This is what `TruncatedPoisson` describes if the records that
    are left out are chosen at random; it costs little also where many batches are cut.

    Args:
        mechanism: one release.
        rate: the probability with which a record is kept, in (0, 1].
        largest_batch: what no batch exceeds, at least 1.
        population: records in the data set, the one record that neighbours differ in included.

    >>> from ggdp import Gaussian, epsilon
    >>> step = AdditiveNoise(Gaussian(std=2.0))
    >>> half_are_cut = RandomlyTruncatedPoisson(step, rate=0.05, largest_batch=50, population=1000)
    >>> round(epsilon(half_are_cut, delta=1e-6).upper, 2)
    1.24
    """

    @property
    def nominal(self) -> tuple[float, int]:
        """Poisson sampling at the rate at which a record takes part."""
        return min(self.rate, self.largest_batch / self.population), 1


@dataclass(frozen=True)
class RandomAllocation(Batched):
    """An epoch of `steps` releases; each record is in `times_used` of them, drawn independently of others.

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

    @property
    def nominal(self) -> tuple[float, int]:
        """Poisson sampling with the same mean."""
        return self.times_used / self.steps, self.steps


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


@dataclass(frozen=True)
class Sampling:
    """A way to draw batches of records, such as a Poisson sample; it does not say what is released on them.

    Make one by name, `Sampling.fixed_size(sample_size=256, population=50_000)`, or from text,
    `Sampling.parse("fixed-size:256/50000")`; `of(mechanism)` is then the mechanism on such batches.

    >>> from ggdp import Gaussian
    >>> sampling = Sampling.random_allocation(steps=200)
    >>> sampling.of(AdditiveNoise(Gaussian(std=1.0))).steps, str(sampling)
    (200, 'allocation:1/200')
    """

    kind: str
    numbers: tuple[float, ...]

    def __post_init__(self) -> None:
        arguments.one_of("kind", self.kind, list(_KINDS))
        wanted = _KINDS[self.kind][1]
        if len(self.numbers) != len(wanted):
            raise ValueError(f"numbers must be {', '.join(wanted)} for {self.kind}, got {self.numbers!r}")

    @classmethod
    def poisson(cls, rate: float) -> "Sampling":
        """Every record with probability `rate`."""
        return cls("poisson", (rate,))

    @classmethod
    def truncated_poisson(cls, rate: float, largest_batch: int, population: int) -> "Sampling":
        """A Poisson sample cut at a largest size."""
        return cls("truncated-poisson", (rate, largest_batch, population))

    @classmethod
    def fixed_size(cls, sample_size: int, population: int, replacement: bool = False) -> "Sampling":
        """`sample_size` of `population` records."""
        kind = "with-replacement" if replacement else "fixed-size"
        return cls(kind, (sample_size, population))

    @classmethod
    def random_allocation(cls, steps: int, times_used: int = 1) -> "Sampling":
        """Every record in `times_used` of the `steps` batches of an epoch."""
        return cls("allocation", (times_used, steps))

    @classmethod
    def shuffled(cls, steps: int) -> "Sampling":
        """Every epoch the records in random order, cut into `steps` batches."""
        return cls("shuffled", (steps,))

    @classmethod
    def parse(cls, text: str) -> "Sampling":
        """The sampling that `str` wrote: a kind, a colon, and its numbers with a slash between them.

        Raises:
            ValueError: the kind is unknown, or a number is missing or out of range.
        """
        kind, _, rest = str(text).partition(":")
        if kind not in _KINDS:
            raise ValueError(
                f"sampling must be one of {', '.join(_FORMS.values())}, got {arguments.shown(text)}"
            )
        wanted, parts = _KINDS[kind][1], rest.split("/")
        try:
            numbers = [int(part) if part.strip().isdigit() else float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) != len(wanted):
            raise ValueError(f"sampling must be {_FORMS[kind]} with numbers, got {arguments.shown(text)}")
        return cls(kind, tuple(numbers))

    @classmethod
    def behind(cls, mechanism: "PoissonSampled | Batched") -> "Sampling":
        """How the batches of a mechanism are drawn: `Sampling.behind(sampling.of(release))` is `sampling`."""
        for kind, (made, names) in _KINDS.items():
            replacement = getattr(mechanism, "replacement", False)
            if type(mechanism) is made and (kind == "with-replacement") == replacement:
                return cls(kind, tuple(getattr(mechanism, name) for name in names))
        raise ValueError(f"mechanism must be one on batches, got {type(mechanism).__name__}")

    def __str__(self) -> str:
        return f"{self.kind}:{'/'.join(f'{number!r}' for number in self.numbers)}"

    @property
    def steps_per_draw(self) -> int:
        """How many releases one mechanism of this sampling stands for: the steps of an epoch, or 1."""
        return int(self.numbers[-1]) if self.kind in ("allocation", "shuffled") else 1

    def draws(self, steps: int) -> int:
        """How many mechanisms of this sampling so many steps are.

        Raises:
            ValueError: an epoch would not be whole.
        """
        if steps % self.steps_per_draw:
            raise ValueError(
                f"steps must be a multiple of {self.steps_per_draw}, the steps of an epoch of {self}, got "
                f"{steps}: a record's place in an epoch is drawn once for all of it"
            )
        return steps // self.steps_per_draw

    def of(self, mechanism: AdditiveNoise | CustomMechanism) -> "PoissonSampled | Batched":
        """The mechanism on batches that are drawn in this way."""
        made, names = _KINDS[self.kind]
        fields: dict[str, Any] = dict(zip(names, self.numbers, strict=True))
        if self.kind == "with-replacement":
            fields["replacement"] = True
        try:
            return made(mechanism, **fields)
        except ValueError as error:
            if str(error).partition(" ")[0] in names:
                shown = arguments.shown(str(self)).strip("'")
                raise ValueError(f"sampling must have numbers that fit, got {shown}: {error}") from None
            raise


_KINDS: dict[str, tuple[type[PoissonSampled] | type[Batched], tuple[str, ...]]] = {
    "poisson": (PoissonSampled, ("rate",)),
    "truncated-poisson": (TruncatedPoisson, ("rate", "largest_batch", "population")),
    "fixed-size": (FixedSizeSampled, ("sample_size", "population")),
    "with-replacement": (FixedSizeSampled, ("sample_size", "population")),
    "allocation": (RandomAllocation, ("times_used", "steps")),
    "shuffled": (Shuffled, ("steps",)),
}
_FORMS = {
    "poisson": "poisson:RATE",
    "truncated-poisson": "truncated-poisson:RATE/LARGEST/RECORDS",
    "fixed-size": "fixed-size:SIZE/RECORDS",
    "with-replacement": "with-replacement:SIZE/RECORDS",
    "allocation": "allocation:USES/STEPS",
    "shuffled": "shuffled:STEPS",
}
"""What `Sampling.parse` reads, for people."""
