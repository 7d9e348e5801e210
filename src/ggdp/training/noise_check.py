# SPDX-License-Identifier: Apache-2.0
"""Tests of the first steps of a run: its noise against the law of the plan, its canaries against the batches.

Attacks bound epsilon from below, and where the certified epsilon is loose (beta > 2, some norms) even a step
with half the noise stays below it. So the parts of a step are tested themselves, which works for every beta.
"""

import itertools
import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.training.canaries import CanaryStep, Enough, Floats, Recipe, Train
from ggdp.training.plan import Plan
from ggdp.training.private import Private

_MOST_VALUES = 200_000  # of one parameter and step; a larger one is read at evenly spaced places
_ZERO_PROB = 2.0**-20  # that noise rounds to exactly 0; in float32 it is much smaller
_CLIP_MARGIN = 2.0**-8  # by which a clipped gradient may lie below clip_norm, as a share: float32 with TF32
_FEWEST_IN_TAIL = 20.0
_LOUD = 2.0**12  # factor of gradients that are to be clipped
_CLIP_SLACK = 1e-3  # rounding of sums that hold noise


@dataclass(frozen=True)
class LawTest:
    """One test of one part of the steps.

    Attributes:
        name: which.
        p_value: how probable a deviation at least as large is, if all is right; bounded from above.
        where: the parameter, steps or quantity that deviates most.
    """

    name: str
    p_value: float
    where: str


@dataclass(frozen=True)
class NoiseCheck:
    """What `check_noise` found.

    Attributes:
        tests: all of them, each with its p-value.
        level: a right run fails with at most this probability, all tests together.
        noise: the law that was tested.
        steps: how many were looked at.
        num_values: noisy numbers that were looked at.
    """

    tests: tuple[LawTest, ...]
    level: float
    noise: GeneralizedGaussian
    steps: int
    num_values: int

    @property
    def failures(self) -> tuple[LawTest, ...]:
        """The tests that a right run would pass, but for the stated level."""
        return tuple(test for test in self.tests if test.p_value < self.level / len(self.tests))

    @property
    def passed(self) -> bool:
        """No test failed."""
        return not self.failures


def check_noise(
    model: nn.Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    *,
    train: Train | None = None,
    num_canaries: int = 1000,
    first_steps: int = 20,
    level: float = 1e-6,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> NoiseCheck:
    """Run the first steps of a training run on gradients that are known, and test all that was added to them.

    The examples of the training set are given a gradient of zero, so that what a step releases for the
    parameters of the model is noise alone; canaries are given a large gradient on a weight of their own, so
    that what it releases for their weights is clip_norm or nothing, plus noise. Sampling, clipping and noise
    are the real ones.

    Tested are: the law of the noise, over all parameters and for each of them (Kolmogorov-Smirnov, by the
    inequality of Dvoretzky, Kiefer, Wolfowitz and Massart); its scale; its tails and its largest value;
    values without noise; the same noise in two steps or in two parameters; the size of a clipped canary; how
    often canaries are drawn, whether a batch is drawn twice, and the sizes of batches that are not Poisson
    samples, each against the law of `sampling`; and, in two more short runs, the size of
    your own examples' gradients when they are clipped. Every p-value is bounded for the sample at hand, not
    in the limit.

    Args:
        model: as `make_private` takes it, before it is made private.
        optimizer: of the model, likewise.
        data_loader: of the training set, likewise.
        train: as for `audit`.
        num_canaries: how many; they are all in the training set.
        first_steps: the run ends after so many.
        level: the probability with which a right run may fail.
        generator: for tests and repetition only.
        **settings: the other arguments of `make_private`: `beta`, `clip_norm`, `delta` and so on.

    Raises:
        ValueError: an argument is out of range, or `make_private` refuses the run.
    """
    arguments.whole("num_canaries", num_canaries, least=10, most=10**6)
    arguments.whole("first_steps", first_steps, most=1000)
    arguments.real("level", level, above=0.0, most=0.5)
    recipe = Recipe(model, optimizer, data_loader, settings, train)
    noises: list[dict[str, Floats]] = []
    steps: list[CanaryStep] = []

    def note(private: Private, step: CanaryStep) -> None:
        divisor = private.plan.expected_batch_size
        noises.append({name: _thinned(mean) * divisor for name, mean in step.means.items()})
        steps.append(replace(step, means={}))
        if len(steps) == first_steps:
            raise Enough

    private = recipe.run(num_canaries, np.arange(num_canaries), note, loudness=0.0, generator=generator)
    clipped = not settings.get("per_layer", False)  # else a canary is held to its layer's share of clip_norm
    dtype = next(private.model.parameters()).dtype
    by_name = {name: np.stack([noise[name] for noise in noises]) for name in noises[0]}
    tests = [
        *_tests(private.plan, by_name, steps, clipped, float(torch.finfo(dtype).eps)),
        _clipped_examples(recipe, private.plan, first_steps, generator),
    ]
    values = sum(part.size for part in by_name.values()) + num_canaries * len(steps)
    return NoiseCheck(tuple(tests), level, private.plan.noise, len(steps), values)


def _thinned(mean: torch.Tensor) -> Floats:
    flat = mean.detach().flatten()
    found: Floats = flat[:: max(1, -(-len(flat) // _MOST_VALUES))].double().cpu().numpy()
    return found


def _tests(
    plan: Plan, by_name: dict[str, Floats], steps: list[CanaryStep], clipped: bool, rounding: float
) -> Iterable[LawTest]:
    law, num_canaries = plan.noise, len(steps[0].canaries)
    absent = [np.delete(step.canaries, step.drawn) for step in steps]
    everything = np.concatenate([*(part.ravel() for part in by_name.values()), *absent])
    slack = rounding * _most_of_x_density(law)
    yield LawTest("law of the noise", _law_p_value(everything, law, slack), "all parameters")
    yield _worst("law for one parameter", {n: _law_p_value(part, law, slack) for n, part in by_name.items()})
    yield _scale(everything, law, rounding)
    yield _tails(everything, law, rounding)
    yield _largest(everything, law, rounding)
    yield _worst("values without noise", {n: _zeros_p_value(part) for n, part in by_name.items()})
    yield _reused_between_steps(by_name)
    yield _reused_between_parameters(by_name)
    if clipped:
        often = [np.bincount(step.drawn, minlength=num_canaries) for step in steps]
        present = np.concatenate(
            [
                (step.canaries - count * plan.clip_norm)[count > 0]
                for step, count in zip(steps, often, strict=True)
            ]
        )
        most = max(int(count.max(initial=0)) for count in often)
        margin = slack + most * _CLIP_MARGIN * plan.clip_norm * math.exp(float(law.logpdf(0.0)))
        yield LawTest("clipped canaries", _law_p_value(present, law, margin), f"{len(present)} canaries")
    yield _sampling_rate(plan, steps, num_canaries)
    yield _drawn_anew(plan, steps)
    if plan.batches.kind != "poisson":
        yield _batch_sizes(plan, steps)


def _sampling_rate(plan: Plan, steps: list[CanaryStep], num_canaries: int) -> LawTest:
    """How often canaries are drawn.

    Poisson draws and those with replacement are independent. Given the sizes of the batches, the others are
    negatively associated, and their moments at most those of independent draws (Hoeffding 1963, theorem 4;
    Joag-Dev and Proschan 1983).
    """
    drawn, tries, rate = sum(len(step.drawn) for step in steps), num_canaries * len(steps), plan.rate
    kind = plan.batches.kind
    if kind == "poisson":
        p_value = _binomial_p_value(drawn, tries, rate)
    elif kind == "with-replacement":
        p_value = _binomial_p_value(drawn, sum(step.size for step in steps), num_canaries / plan.num_examples)
    else:
        if kind != "allocation":
            rate = sum(step.size for step in steps) / (plan.num_examples * len(steps))
        p_value = _chernoff_p_value(drawn, tries, rate)
    told = f"{drawn} draws of {num_canaries} canaries in {len(steps)} steps, rate {rate:g}"
    return LawTest("sampling rate", p_value, told)


def _drawn_anew(plan: Plan, steps: list[CanaryStep]) -> LawTest:
    """Of the canaries in one step, how many are in the next one too, of the same epoch or of another draw."""
    pairs = list(zip(steps[::2], steps[1::2], strict=False))
    again = sum(len(np.intersect1d(one.drawn, other.drawn)) for one, other in pairs)
    counts = [len(np.unique(one.drawn)) for one, _ in pairs]
    expected = sum(
        count * _again_prob(plan, one, other) for count, (one, other) in zip(counts, pairs, strict=True)
    )
    chances = sum(counts)
    rate = expected / chances if chances else 0.0
    found = (_binomial_p_value if plan.batches.kind == "poisson" else _chernoff_p_value)(again, chances, rate)
    return LawTest("batches drawn anew", found, f"{again} of {chances} drawn again, expected {expected:.4g}")


def _again_prob(plan: Plan, one: CanaryStep, other: CanaryStep) -> float:
    """The probability that an example of one batch is in another."""
    batches = plan.batches
    if one.draw == other.draw and batches.kind in ("allocation", "shuffled"):
        used = int(batches.numbers[0]) if batches.kind == "allocation" else 1
        return (used - 1.0) / max(batches.steps_per_draw - 1.0, 1.0)
    if batches.kind == "with-replacement":
        return -math.expm1(other.size * math.log1p(-1.0 / plan.num_examples))
    return plan.rate if batches.kind in ("poisson", "allocation") else other.size / plan.num_examples


def _batch_sizes(plan: Plan, steps: list[CanaryStep]) -> LawTest:
    """Sizes that are fixed, or bounded, and how often an epoch has every canary."""
    batches, sizes = plan.batches, [step.size for step in steps]
    total, told = sum(sizes), f"{min(sizes)} to {max(sizes)} examples"
    if batches.kind in ("fixed-size", "with-replacement"):
        p_value = float(set(sizes) == {int(batches.numbers[0])})
    elif batches.kind == "truncated-poisson":
        largest, tries = int(batches.numbers[1]), plan.num_examples * len(steps)
        many = _upper_tail(total, tries, plan.rate)
        few = 1.0 if max(sizes) >= largest else _lower_tail(total, tries, plan.rate)
        p_value = min(1.0, 2.0 * min(many, few)) if max(sizes) <= largest else 0.0
    else:
        of_epoch: dict[int, list[CanaryStep]] = {}
        for step in steps:
            of_epoch.setdefault(step.draw, []).append(step)
        used = int(batches.numbers[0]) if batches.kind == "allocation" else 1
        is_right = batches.kind == "allocation" or max(sizes) - min(sizes) <= 1
        for epoch in of_epoch.values():
            often = np.bincount(
                np.concatenate([step.drawn for step in epoch]), minlength=len(steps[0].canaries)
            )
            whole = len(epoch) == batches.steps_per_draw
            is_right = is_right and bool((often <= used).all()) and (not whole or bool((often == used).all()))
        p_value = float(is_right)
        told += f", each canary in {used} of an epoch"
    return LawTest("batch sizes", p_value, told)


def _clipped_examples(recipe: Recipe, plan: Plan, steps: int, generator: torch.Generator | None) -> LawTest:
    """Steps on about one of the user's own examples: the sum of k of them is at most k clip_norm long.

    Two runs from one seed draw the same batches and the same noise. In one the examples have a gradient of
    zero, in the other a large one, so that all are clipped; the difference is the sum without its noise.
    """
    seed = secrets.randbits(62) if generator is None else int(torch.randint(2**62, (), generator=generator))
    num_own = plan.num_examples if plan.sampling is None else len(recipe.data_loader.dataset)  # type: ignore[arg-type]
    apart = recipe.with_settings(
        noise=plan.noise, norm=plan.norm, rate=1.0 / num_own, steps=steps, alongside=(), sampling=None
    )
    sums: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    counts: list[int] = []
    for loudness, seen in zip((0.0, _LOUD), sums, strict=True):

        def note(private: Private, step: CanaryStep, seen: list[torch.Tensor] = seen) -> None:
            flat = torch.cat([mean.detach().double().flatten() for mean in step.means.values()])
            seen.append(flat * private.plan.expected_batch_size)
            if seen is sums[1]:
                counts.append(step.num_examples)
            if len(seen) == steps:
                raise Enough

        again = torch.Generator().manual_seed(seed)
        apart.run(1, np.empty(0, np.int64), note, loudness=loudness, generator=again)
    lengths = [
        (float(torch.linalg.vector_norm(loud - silent, plan.p)) / (count * plan.clip_norm), count)
        for silent, loud, count in zip(*sums, counts, strict=True)
        if count
    ]
    longest, count = max(lengths, default=(0.0, 0))
    told = f"{longest:.4g} clip_norm for each of {count}" if lengths else "no example was drawn"
    return LawTest("clipped examples", 1.0 if longest <= 1.0 + _CLIP_SLACK else 0.0, told)


def _worst(name: str, p_values: dict[str, float]) -> LawTest:
    """Many tests as one, by the union bound."""
    where = min(p_values, key=lambda key: p_values[key])
    return LawTest(name, min(1.0, len(p_values) * p_values[where]), where)


def _law_p_value(values: Floats, law: GeneralizedGaussian, slack: float) -> float:
    """P(sup |empirical - law| >= seen) <= 2 exp(-2 n seen^2) for every n (Massart 1990).

    A law that is off by at most `slack`, as rounded values are, is taken for the right one.
    """
    count = values.size
    if count == 0:
        return 1.0
    expected = np.asarray(law.cdf(np.sort(values, axis=None)))
    above = np.arange(1, count + 1) / count - expected
    gap = float(max(above.max(), 1.0 / count - above.min())) - slack
    return min(1.0, 2.0 * math.exp(-2.0 * count * max(0.0, gap) ** 2))


def _most_of_x_density(law: GeneralizedGaussian) -> float:
    """The largest x * density(x), by which a relative change of x moves the distribution function."""
    peak = law.scale * (1.0 / law.beta) ** (1.0 / law.beta)
    return float(peak * math.exp(float(law.logpdf(peak))))


def _scale(values: Floats, law: GeneralizedGaussian, rounding: float) -> LawTest:
    """(|x| / scale)^beta has the Gamma law of shape 1 / beta; sums of n of them that of shape n / beta."""
    shape = values.size / law.beta
    total = float((np.abs(values / law.scale) ** law.beta).sum())
    allowed = law.beta * rounding + 1e-9
    large = float(special.gammaincc(shape, total * (1.0 - allowed)))
    small = float(special.gammainc(shape, total * (1.0 + allowed)))
    seen = law.scale * (total / shape) ** (1.0 / law.beta)
    return LawTest(
        "scale of the noise", min(1.0, 2.0 * min(large, small)), f"about {seen:.4g} for {law.scale:.4g}"
    )


def _tails(values: Floats, law: GeneralizedGaussian, rounding: float) -> LawTest:
    """Counts of |x| beyond thresholds of probability 1/10, 1/100 and so on."""
    size, magnitudes = values.size, np.abs(values)
    p_values: dict[str, float] = {}
    prob = 0.1
    while size * prob >= _FEWEST_IN_TAIL:
        threshold = float(law.isf(prob / 2.0))
        # Rounding may carry a value over the threshold; both sides of it are given that much.
        beyond = [int((magnitudes > threshold * (1.0 + sign * rounding)).sum()) for sign in (1.0, -1.0)]
        many = _upper_tail(beyond[0], size, prob)
        few = _lower_tail(beyond[1], size, prob)
        p_values[f"P(|x| > {threshold:.4g}) = {prob:g}, seen {beyond[0] / size:.3g}"] = min(
            1.0, 2.0 * min(many, few)
        )
        prob /= 10.0
    return _worst("tails", p_values) if p_values else LawTest("tails", 1.0, "too few values")


def _largest(values: Floats, law: GeneralizedGaussian, rounding: float) -> LawTest:
    size, most = values.size, float(np.abs(values).max())
    beyond_high = min(1.0, 2.0 * float(law.sf(most * (1.0 - rounding))))
    beyond_low = min(1.0, 2.0 * float(law.sf(most * (1.0 + rounding))))
    too_large = -math.expm1(size * math.log1p(-beyond_high)) if beyond_high < 1.0 else 1.0
    too_small = math.exp(size * math.log1p(-beyond_low)) if beyond_low < 1.0 else 0.0
    return LawTest("largest value", min(1.0, 2.0 * min(too_large, too_small)), f"{most:.6g}")


def _zeros_p_value(values: Floats) -> float:
    return _upper_tail(int((values == 0.0).sum()), values.size, _ZERO_PROB)


def _reused_between_steps(by_name: dict[str, Floats]) -> LawTest:
    """Signs of independent symmetric noise agree in any two steps with probability 1/2."""
    name = "the same noise in two steps"
    signs = np.concatenate([_signs(part) for part in by_name.values()], axis=1)
    steps, size = signs.shape
    if steps < 2:
        return LawTest(name, 1.0, "one step only")
    agreeing = (size + (signs @ signs.T).astype(np.float64)) / 2.0
    found = {
        f"steps {one + 1} and {other + 1}": _binomial_p_value(int(agreeing[one, other]), size, 0.5)
        for one in range(steps)
        for other in range(one)
    }
    return _worst(name, found)


def _reused_between_parameters(by_name: dict[str, Floats]) -> LawTest:
    name = "the same noise in two parameters"
    names, found = list(by_name), {}
    for one, other in itertools.pairwise(names):
        width = min(by_name[one].shape[1], by_name[other].shape[1])
        same = _signs(by_name[one][:, :width]) == _signs(by_name[other][:, :width])
        found[f"{one} and {other}"] = _binomial_p_value(int(same.sum()), same.size, 0.5)
    return _worst(name, found) if found else LawTest(name, 1.0, "one parameter only")


def _signs(values: Floats) -> NDArray[np.float32]:
    return np.where(values > 0.0, 1.0, -1.0).astype(np.float32)


def _binomial_p_value(count: int, size: int, prob: float) -> float:
    """Of a two-sided test of `count` successes in `size` trials."""
    return min(1.0, 2.0 * min(_upper_tail(count, size, prob), _lower_tail(count, size, prob)))


def _chernoff_p_value(count: int, size: int, prob: float) -> float:
    """Of a two-sided test, where the moments of the count are at most those of `size` independent trials of
    that mean probability."""
    if size == 0:
        return 1.0
    seen = count / size
    divergence = special.rel_entr(seen, prob) + special.rel_entr(1.0 - seen, 1.0 - prob)
    return min(1.0, 2.0 * math.exp(-size * float(divergence)))


def _upper_tail(count: int, size: int, prob: float) -> float:
    """P(at least `count` of `size`)."""
    return float(special.betainc(count, size - count + 1, prob)) if count > 0 else 1.0


def _lower_tail(count: int, size: int, prob: float) -> float:
    """P(at most `count` of `size`)."""
    return float(special.betaincc(count + 1, size - count, prob)) if count < size else 1.0
