# SPDX-License-Identifier: Apache-2.0
"""How batches that are not Poisson samples are accounted for: as steps that bound them from above and below.

| batches | add-remove | replace |
|---|---|---|
| fixed size, without replacement | exact | two ends |
| fixed size, with replacement | exact, for numbers and Gaussian noise | refused |
| Poisson cut at a largest size | exact up to what is charged | the same |
| the same, by a random choice | two ends; exact up to what is charged if cuts are very rare | the same |
| random allocation | exact for one use, two ends for several | refused |
| shuffled | two ends | two ends |

docs/batches.md has the proofs.
"""

import functools
import math
from dataclasses import replace
from typing import cast

import numpy as np
from scipy.special import gammaln

from ggdp.accounting.batch_steps import (
    AllocatedStep,
    Batches,
    Choice,
    CountStep,
    EitherWayStep,
    RepeatedStep,
    choice,
    exactly,
    replacement,
    single_pair,
)
from ggdp.accounting.steps import CellStep, NoiseStep, Steps, steps_of
from ggdp.accounting.truncated import Chances, randomly_truncated
from ggdp.errors import NoDominatingPairError
from ggdp.mechanisms import (
    AdditiveNoise,
    Adjacency,
    Batched,
    Composed,
    FixedSizeSampled,
    PoissonSampled,
    RandomAllocation,
    RandomlyTruncatedPoisson,
    Shuffled,
    TruncatedPoisson,
)
from ggdp.numerics import UNIT_ROUNDOFF
from ggdp.privacy_loss.custom import Replaceable

_SHARES = (1.0, 1.6, 2.5)  # thresholds tried by `CountStep`, as shares of log(steps)
_RARELY = 1e-40  # probability that a batch is cut below which a charge changes nothing
_MOST_TERMS = 20_000  # terms of a binomial tail that are added up


def with_batches(plain: Steps, batched: list[tuple[Batched, int]], adjacency: Adjacency) -> Steps:
    """The steps of a composition: `plain`, and those of its parts with batches."""
    found = [_batches(step, times, adjacency) for step, times in batched]
    whole = _together(plain, found)
    if all(one.also is None for one in found):
        return whole
    return replace(whole, also=_together(plain, [one.also or one for one in found]))


def _together(plain: Steps, found: list[Batches]) -> Steps:
    above = replace(
        plain,
        noisy=plain.noisy + tuple(step for one in found for step in one.noisy),
        custom=plain.custom + tuple(step for one in found for step in one.custom),
        charge=math.fsum(one.charge for one in found),
    )
    return replace(above, below=_below(plain, found))


def _below(plain: Steps, batched: list[Batches]) -> tuple[Steps, ...]:
    """Compositions that cost no more, one for each choice of steps; none if the steps above are exact."""
    if all(found.below is None for found in batched):
        return ()
    options = [found.below or ((found.noisy, found.custom),) for found in batched]
    compositions = []
    for index in range(max(map(len, options))):
        chosen = [option[min(index, len(option) - 1)] for option in options]
        noisy = plain.noisy + tuple(step for steps, _ in chosen for step in steps)
        custom = plain.custom + tuple(step for _, steps in chosen for step in steps)
        compositions.append(Steps(noisy, custom, plain.directions))
    return tuple(compositions)


@functools.singledispatch
def _batches(step: Batched, times: int, adjacency: Adjacency) -> Batches:
    raise ValueError(
        f"mechanism must be batches with an accountant, got {type(step).__name__}; FixedSizeSampled, "
        "TruncatedPoisson, RandomAllocation and Shuffled have one"
    )


@_batches.register
def _(step: TruncatedPoisson, times: int, adjacency: Adjacency) -> Batches:
    records = step.population + (adjacency is not Adjacency.REPLACE)
    return _charged(step, records, times, adjacency)


def _charged(
    step: TruncatedPoisson | RandomlyTruncatedPoisson, records: int, times: int, adjacency: Adjacency
) -> Batches:
    """Poisson samples, with a charge for the batches of a number of records that are cut."""
    plain = steps_of(Composed(PoissonSampled(step.mechanism, step.rate), times=times), adjacency)
    charge = times * binomial_tail(records, step.rate, step.largest_batch)
    return Batches(plain.noisy, plain.custom, None, charge)


@_batches.register
def _(step: RandomlyTruncatedPoisson, times: int, adjacency: Adjacency) -> Batches:
    if step.rate == 1.0 and step.largest_batch < step.population:
        every = FixedSizeSampled(step.mechanism, step.largest_batch, step.population)
        return _batches(every, times, adjacency)
    charged = _charged(step, step.population, times, adjacency)
    release = step.mechanism
    replaceable = (
        release.shift is None if isinstance(release, AdditiveNoise) else isinstance(release, Replaceable)
    )
    if charged.charge <= _RARELY or not replaceable:  # how far two records are apart must be known
        return charged
    chances = Chances.of(step)
    if chances is None:
        return charged
    try:
        uncut = charged.noisy[0] if charged.noisy else cast(CellStep, charged.custom[0])
        return replace(randomly_truncated(step, uncut, adjacency, chances), also=charged)
    except NoDominatingPairError:
        return charged


def binomial_tail(count: int, rate: float, most: int) -> float:
    """An upper bound of the probability that of `count` independent events of probability `rate` more than
    `most` happen: the terms one by one, and beyond the last a geometric series."""
    if most >= count:
        return 0.0
    if rate == 1.0 or most < rate * count:
        return 1.0
    k = np.arange(most + 1, min(count, most + _MOST_TERMS) + 1, dtype=float)
    sizes = [gammaln(count + 1.0), gammaln(k + 1.0), gammaln(count - k + 1.0)]
    log_term = sizes[0] - sizes[1] - sizes[2] + k * math.log(rate) + (count - k) * math.log1p(-rate)
    slip = 64.0 * UNIT_ROUNDOFF * (sizes[0] + 1.0 + count * abs(math.log(rate)))  # every term is that good
    ratio = (count - k[-1]) / (k[-1] + 1.0) * rate / (1.0 - rate)
    rest = ratio / (1.0 - ratio) * math.exp(log_term[-1]) if ratio < 1.0 else math.inf
    if slip > 1.0:  # of so many events not one digit is known
        return 1.0
    return min((float(np.exp(log_term).sum()) + rest) * math.exp(slip + 1e-9) + 1e-300, 1.0)


@_batches.register
def _(step: FixedSizeSampled, times: int, adjacency: Adjacency) -> Batches:
    if step.replacement:
        return _with_replacement(step, times, adjacency)
    replaced = replacement(step.mechanism, step.rate, times, "FixedSizeSampled")
    if adjacency is not Adjacency.REPLACE:
        if step.sample_size == step.population:
            raise ValueError(
                f"sample_size must be less than population, {step.population}, where neighbours have one "
                f"record less, got {step.sample_size}: they could not fill the batch; ask for the adjacency "
                "'replace'"
            )
        return exactly(replaced)
    if step.sample_size == step.population:
        return exactly(replaced)
    directions = (Adjacency.REMOVE, Adjacency.ADD)
    below = tuple(choice(replace(replaced, seen=direction)) for direction in directions)
    if isinstance(replaced, NoiseStep) and isinstance(step.mechanism, AdditiveNoise):
        below += (choice(NoiseStep(step.mechanism, step.rate, times, Adjacency.REPLACE)),)
    return Batches(custom=(EitherWayStep(replaced),), below=below)


def _with_replacement(step: FixedSizeSampled, times: int, adjacency: Adjacency) -> Batches:
    """The record is drawn K times, with K binomial, and moves the value K times as far: docs/batches.md."""
    noise = step.mechanism
    if adjacency is Adjacency.REPLACE:
        raise ValueError(
            "adjacency must be add-remove, add or remove for batches drawn with replacement, got replace: no "
            "pair is known to dominate; draw without replacement, or as a Poisson sample"
        )
    if not isinstance(noise, AdditiveNoise):
        raise ValueError(
            f"mechanism must be AdditiveNoise for batches drawn with replacement, got "
            f"{type(noise).__name__}: what several copies of a record do is not known; draw without "
            "replacement"
        )
    if step.population == 1:
        raise ValueError("population must be at least 2 where neighbours have one record less, got 1")
    pair = single_pair(cast(NoiseStep, replacement(noise, 1.0, times, "FixedSizeSampled")), Adjacency.REMOVE)
    if noise.dimension != 1 and pair.beta != 2.0:
        raise ValueError(
            "dimension must be 1, or beta 2, for batches drawn with replacement, got "
            f"dimension={noise.dimension} and beta={pair.beta:g}: the worst shifts of one and of several "
            "copies are not known to be the same; draw without replacement"
        )
    exact = RepeatedStep(pair, step.sample_size, step.population, times)
    ever = -math.expm1(step.sample_size * math.log1p(-1.0 / step.population)) * (1.0 - 1e-12)
    # several draws of the record count as one
    once = replacement(noise, ever, times, "FixedSizeSampled")
    return Batches(custom=(exact,), below=(choice(exact), choice(once)))


@_batches.register
def _(step: RandomAllocation, times: int, adjacency: Adjacency) -> Batches:
    if adjacency is Adjacency.REPLACE:
        raise ValueError(
            "adjacency must be add-remove, add or remove for RandomAllocation, got replace: no pair is known "
            "that dominates the replacement of a record that is allocated at random; shuffled batches have a "
            "bound, without amplification"
        )
    plain = steps_of(Composed(step.mechanism, times=times * step.times_used), adjacency)
    each = step.steps // step.times_used
    if each == 1 and step.times_used == step.steps:
        return Batches(plain.noisy, plain.custom)
    one = _only_step(plain)
    above = choice(one if each == 1 else AllocatedStep(one, each, times * step.times_used))
    if step.times_used == 1:
        return Batches(*above)
    below = tuple(((), (CountStep(one, step.steps, step.times_used, 0, share, times),)) for share in _SHARES)
    return Batches(*above, below=below)


def _only_step(plain: Steps) -> NoiseStep | CellStep:
    """The step of one release."""
    return plain.noisy[0] if plain.noisy else cast(CellStep, plain.custom[0])


def _one_coordinate(one: NoiseStep | CellStep) -> NoiseStep | CellStep:
    """A step with one dominating pair that costs no more: its shift is in one coordinate."""
    if isinstance(one, CellStep) or one.noise.dimension == 1 or one.noise.noise.beta == 2.0:
        return one
    if one.noise.shift is None:
        return replace(one, noise=replace(one.noise, dimension=1))
    return one


@_batches.register
def _(step: Shuffled, times: int, adjacency: Adjacency) -> Batches:
    plain = steps_of(Composed(step.mechanism, times=times), adjacency)
    if step.steps == 1:
        return Batches(plain.noisy, plain.custom)
    one = _only_step(plain)
    flat = _one_coordinate(one)
    below: list[Choice] = [((), (AllocatedStep(replace(flat, times=1), step.steps, times),))]
    if adjacency is not Adjacency.REPLACE and isinstance(flat, NoiseStep):
        below += [((), (CountStep(flat, step.steps, 1, 1, share, times),)) for share in _SHARES]
    return Batches(plain.noisy, plain.custom, tuple(below))
