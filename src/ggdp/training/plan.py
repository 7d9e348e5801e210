# SPDX-License-Identifier: Apache-2.0
"""The plan of a private training run: the one object that sampler, noise and accountant are built from.

beta-DP-SGD (Algorithm 3 of the paper) repeats one release: of a Poisson sample of the examples, the sum of
per-example gradients, each clipped to `clip_norm` in the l_p norm, plus noise. Everything else in training
(learning rate, momentum, the division by the expected batch size) only processes what was released.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ggdp import arguments
from ggdp.accounting import Accountant, Bounds, Estimate, account, epsilon
from ggdp.accounting.engines.curve import MOST_EPSILON
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled
from ggdp.mechanisms.batches import Sampling
from ggdp.mechanisms.composed import Part, Step


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run of `steps` noisy sums of clipped gradients, each over a Poisson sample.

    Attributes:
        noise: added to every coordinate of the *sum* of clipped gradients.
        clip_norm: the most one example moves that sum, in the l_p norm.
        norm: p in [1, inf], or "matched" (see `AdditiveNoise`).
        rate: probability with which each example is in a batch, independently.
        steps: how many logical steps the run has; accumulated micro-batches are one.
        num_examples: size of the training set, taken to be public: rate * num_examples is the divisor.
        dimension: how many trainable parameters.
        delta: at which epsilon is reported.
        max_epsilon: the budget; a step that is not certified to fit is refused. None for no budget.
        alongside: other releases on the same data that the ledger holds from the start.
        sampling: how batches are drawn where they are no Poisson samples; `rate` is then the share of the
            examples that a batch has on average.
        adjacency: which training sets are neighbours.

    >>> plan = Plan(noise=GeneralizedGaussian(2.0, 2.83), clip_norm=1.0, norm=2.0, rate=0.01, steps=5000,
    ...     num_examples=60_000, dimension=25_000, delta=1e-6)
    >>> plan.expected_batch_size, plan.epochs, round(plan.epsilon().upper, 4)
    (600.0, 50.0, 1.6817)
    """

    noise: GeneralizedGaussian
    clip_norm: float
    norm: float | str
    rate: float
    steps: int
    num_examples: int
    dimension: int
    delta: float
    max_epsilon: float | None = None
    alongside: tuple[Part, ...] = ()
    sampling: Sampling | None = None
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    def __post_init__(self) -> None:
        arguments.real("clip_norm", self.clip_norm, above=0.0)
        arguments.real("rate", self.rate, above=0.0, most=1.0)
        arguments.whole("steps", self.steps)
        arguments.whole("num_examples", self.num_examples)
        arguments.whole("dimension", self.dimension, hint="the model has no trainable parameters")
        object.__setattr__(self, "norm", self._sum.norm)  # checked there

    @property
    def step(self) -> Step:
        """What the ledger records for one draw of the sampler: a logical step, or all those of an epoch."""
        if self.sampling is not None:
            return self.sampling.of(self._sum)
        return self._sum if self.rate == 1.0 else PoissonSampled(self._sum, self.rate)

    @property
    def batches(self) -> Sampling:
        """How batches are drawn."""
        return self.sampling or Sampling.poisson(self.rate)

    def draws(self, steps: int) -> int:
        """How many draws of the sampler so many steps take."""
        return -(-steps // self.batches.steps_per_draw)

    @property
    def p(self) -> float:
        """The norm as a number."""
        return self._sum.p

    @property
    def noise_multiplier(self) -> float:
        """scale / (sqrt(2) * clip_norm)."""
        return self.noise.scale / (math.sqrt(2.0) * self.clip_norm)

    @property
    def expected_batch_size(self) -> float:
        """The public divisor of the noisy sum."""
        return self.rate * self.num_examples

    @property
    def steps_per_epoch(self) -> int:
        """Steps in which every example is expected once."""
        per_draw = self.batches.steps_per_draw
        return per_draw if per_draw > 1 else max(1, round(1.0 / self.rate))

    @property
    def epochs(self) -> float:
        """How often each example is expected to be seen."""
        return self.steps * self.rate

    def mechanism(self, steps: int | None = None) -> Composed:
        """The run, or its first `steps` steps, with everything alongside."""
        return Composed([(self.step, self.draws(self.steps if steps is None else steps)), *self.alongside])

    def epsilon(self, steps: int | None = None) -> Bounds:
        """Certified epsilon at `delta`: exact for beta = 2 and for norm 1, by Renyi divergences elsewhere."""
        return epsilon(self.mechanism(steps), delta=self.delta, adjacency=self.adjacency)

    def epsilon_above(self, steps: int | None = None) -> float:
        """The upper end of `epsilon` alone, which is cheaper; infinite where none is certified."""
        return account(self.mechanism(steps), adjacency=self.adjacency).epsilon_above(delta=self.delta)

    def one_coordinate_epsilon(self, steps: int | None = None) -> Estimate:
        """What the paper reports: as if one coordinate were the worst case, which is not proved."""
        return epsilon(
            self.mechanism(steps), delta=self.delta, adjacency=self.adjacency, method="one-coordinate"
        )

    def ledger(self) -> Accountant:
        """A fresh accountant with the plan's budget, which has recorded everything alongside.

        Raises:
            ValueError: the accountant does not cover the steps of the plan, or the budget not one of them.
        """
        one = account(self.mechanism(1), adjacency=self.adjacency)  # refused here, and not at the first step
        if self.delta == 0.0:
            one.epsilon(delta=0.0)  # likewise, where losses have no bound
        budgeted = self.max_epsilon is not None
        accountant = Accountant(
            epsilon=self.max_epsilon, delta=self.delta if budgeted else None, adjacency=self.adjacency
        )
        for mechanism, count in self.alongside:
            accountant.step(mechanism, count)
        if not budgeted:
            return accountant
        if self.sampling is not None and accountant.can_afford(self.step, self.draws(self.steps)):
            return accountant  # one certificate for the whole run, where each is dear
        if not accountant.can_afford(self.step):
            raise ValueError(
                f"max_epsilon = {self.max_epsilon} at delta = {self.delta:g} does not allow one step, which "
                f"costs {self.epsilon_above(1):.4g}; take more noise or a larger budget"
            )
        return accountant

    def to_dict(self) -> dict[str, Any]:
        """Plain data for records and checkpoints."""
        plain = {**asdict(self), "noise": {"beta": self.noise.beta, "scale": self.noise.scale}}
        parts = Composed(self.alongside).to_dict() if self.alongside else None
        return {
            **plain,
            "alongside": parts,
            "sampling": None if self.sampling is None else str(self.sampling),
            "adjacency": str(self.adjacency),
        }

    @property
    def _sum(self) -> AdditiveNoise:
        return AdditiveNoise(self.noise, self.clip_norm, self.norm, self.dimension)


def plan_training(
    *,
    clip_norm: float,
    num_examples: int,
    dimension: int,
    delta: float,
    beta: float | None = None,
    target_epsilon: float | None = None,
    scale: float | None = None,
    noise_multiplier: float | None = None,
    noise: GeneralizedGaussian | None = None,
    max_epsilon: float | None = None,
    norm: float | str | None = None,
    rate: float | None = None,
    batch_size: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    alongside: Sequence[Part] = (),
    sampling: Sampling | str | None = None,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
) -> Plan:
    """The plan that these choices describe; of each pair or triple that says the same thing, exactly one.

    Args:
        clip_norm: the most one example moves the sum.
        num_examples: size of the training set, public.
        dimension: number of trainable parameters.
        delta: of the guarantee; 0 for pure privacy, with beta = 1 and norm = 1.
        beta: exponent of the noise, whose scale follows from one of
        target_epsilon: the smallest scale whose run is certified to cost no more; it is the budget too;
        scale: of the noise, in the units of clipped gradients;
        noise_multiplier: scale / (sqrt(2) * clip_norm).
        noise: in place of beta and scale, the noise as it is added to the sum.
        max_epsilon: a budget where the scale is given.
        norm: the p of the l_p norm in which gradients are clipped; 2 if left out. "matched" and p = beta need
            less noise on paper, but clip gradients of many parameters far more (docs/training.md).
        rate: Poisson sampling probability; or
        batch_size: its expectation, rate * num_examples.
        steps: of the run; or
        epochs: steps = epochs / rate, rounded up.
        alongside: other releases on the same data, which share the budget.
        sampling: how batches are drawn: a `Sampling`, its text ("fixed-size:256/50000"), or the name of a
            kind alone ("fixed-size"), whose numbers then follow from rate or batch_size and num_examples.
            Poisson samples if left out.
        adjacency: which training sets are neighbours: "add-remove", one example added or removed, or
            "replace", one example in place of another.

    Raises:
        ValueError: an argument is missing, doubled or out of range, or the target cannot be met.
    """
    num_examples = arguments.whole("num_examples", num_examples)
    arguments.one_of("adjacency", adjacency, [kind.value for kind in Adjacency])
    neighbours = Adjacency(adjacency)
    drawn = sampling_of(sampling, rate, batch_size, num_examples)
    rate = _rate(rate, batch_size, num_examples) if drawn is None else share_of(drawn, num_examples)
    steps = _steps(steps, epochs, rate)
    if (beta is None) == (noise is None):
        raise ValueError(
            f"give beta or noise, one of them, got beta={beta!r}, noise={noise!r}: beta is the exponent of "
            "noise whose scale is found, noise a GeneralizedGaussian with its scale"
        )
    clip_norm = arguments.real("clip_norm", clip_norm, above=0.0)
    given = GeneralizedGaussian(2.0 if beta is None else beta, 1.0)
    if noise is not None:
        arguments.instance("noise", noise, GeneralizedGaussian, hint="an exponent alone is beta=...")
        given = noise
        _only("noise", target_epsilon=target_epsilon, scale=scale, noise_multiplier=noise_multiplier)
    elif target_epsilon is not None:
        _only("target_epsilon", scale=scale, noise_multiplier=noise_multiplier, max_epsilon=max_epsilon)
        target_epsilon = arguments.real("target_epsilon", target_epsilon, above=0.0, most=MOST_EPSILON)
        found = calibrate_scale(
            beta=given.beta, epsilon=target_epsilon, delta=delta, rate=rate, steps=steps,
            sensitivity=clip_norm, norm=norm if norm is not None else 2.0, dimension=dimension,
            alongside=alongside, adjacency=neighbours, tolerance=None if drawn is None else _START,
        )  # fmt: skip
        given, max_epsilon = found.noise, target_epsilon
        if drawn is not None:
            if drawn.kind in ("fixed-size", "with-replacement"):  # another example fills the empty place
                given = GeneralizedGaussian(given.beta, 2.0 * given.scale)
            given = _calibrated(
                lambda noise: Plan(
                    noise=noise, clip_norm=clip_norm, norm=2.0 if norm is None else norm, rate=rate,
                    steps=steps, num_examples=num_examples, dimension=dimension, delta=delta,
                    alongside=tuple(alongside), sampling=drawn, adjacency=neighbours,
                ),
                given,
                target_epsilon,
            )  # fmt: skip
    else:
        given = GeneralizedGaussian(given.beta, _scale(scale, noise_multiplier, clip_norm))
    if max_epsilon is not None:
        max_epsilon = arguments.real("max_epsilon", max_epsilon, least=0.0, most=MOST_EPSILON)
    return Plan(
        noise=given,
        clip_norm=clip_norm,
        norm=2.0 if norm is None else norm,
        rate=rate,
        steps=steps,
        num_examples=num_examples,
        dimension=dimension,
        delta=_checked_delta(delta),
        max_epsilon=max_epsilon,
        alongside=tuple(alongside),
        sampling=drawn,
        adjacency=neighbours,
    )


def _checked_delta(delta: float) -> float:
    delta = arguments.real("delta", delta, least=0.0, most=0.5)
    hint = "or 0 for pure privacy, with beta = 1 and norm = 1"
    return arguments.real("delta", delta, least=1e-100, most=0.5, hint=hint) if delta else 0.0


_CLOSE = 2e-3  # how far below the target a calibrated epsilon may lie, as a part of it
_START = 1e-3  # how close the scale with Poisson samples is found, where it is only a start
_MOST_BEYOND = (
    1e3  # of the least scale with batches that are not Poisson samples to that with Poisson samples
)
_KINDS = ("poisson", "truncated-poisson", "fixed-size", "with-replacement", "allocation", "shuffled")


def sampling_of(
    given: Sampling | str | None, rate: float | None, batch_size: float | None, num_examples: int
) -> Sampling | None:
    """How batches are drawn; None is a Poisson sample of `rate` or `batch_size`.

    Raises:
        ValueError: it is about a data set of another size, or says what rate or batch_size says too.
    """
    if given is None or given == "poisson":
        return None
    if isinstance(given, str) and given in _KINDS:
        share = _rate(rate, batch_size, num_examples)
        size = max(1, round(share * num_examples))
        made = {
            "truncated-poisson": lambda: Sampling.truncated_poisson(
                share, min(num_examples, size + math.ceil(10.0 * math.sqrt(size)) + 20), num_examples
            ),
            "fixed-size": lambda: Sampling.fixed_size(size, num_examples),
            "with-replacement": lambda: Sampling.fixed_size(size, num_examples, replacement=True),
            "allocation": lambda: Sampling.random_allocation(max(1, round(1.0 / share))),
            "shuffled": lambda: Sampling.shuffled(max(1, round(1.0 / share))),
        }
        return made[given]()
    sampling = Sampling.parse(given) if isinstance(given, str) else given
    arguments.instance("sampling", sampling, Sampling, hint=f"or the name of a kind, {', '.join(_KINDS)}")
    if rate is not None or batch_size is not None:
        raise ValueError(
            f"rate and batch_size must be left out beside sampling={str(sampling)!r}, got rate={rate!r}, "
            f"batch_size={batch_size!r}: it says how large batches are; or give sampling={sampling.kind!r}"
        )
    sampling.of(AdditiveNoise(GeneralizedGaussian(2.0, 1.0)))  # which checks its numbers
    counted = sampling.kind in ("truncated-poisson", "fixed-size", "with-replacement")
    if counted and sampling.numbers[-1] != num_examples:
        raise ValueError(
            f"sampling must be of the {num_examples} examples of the training set, got {str(sampling)!r}; "
            f"give sampling={sampling.kind!r} and a batch_size, and its numbers follow"
        )
    if sampling.kind == "shuffled" and sampling.steps_per_draw > num_examples:
        raise ValueError(
            f"sampling must have at most one batch for each of the {num_examples} examples of the training "
            f"set, got {str(sampling)!r}"
        )
    return sampling if sampling.kind != "poisson" or sampling.numbers[0] < 1.0 else None


def share_of(sampling: Sampling, num_examples: int) -> float:
    """The part of the examples that a batch has on average."""
    first = float(sampling.numbers[0])
    if sampling.kind in ("fixed-size", "with-replacement"):
        return first / num_examples
    if sampling.kind in ("allocation", "shuffled"):
        return (first if sampling.kind == "allocation" else 1.0) / sampling.steps_per_draw
    return first


def _calibrated(
    plan_of: Callable[[GeneralizedGaussian], Plan], start: GeneralizedGaussian, target: float
) -> GeneralizedGaussian:
    """Noise whose plan is certified to cost no more than the target, and less than it by `_CLOSE` at most.

    An account of such batches takes up to a second, so that the search walks by the slope of log epsilon
    against log scale, and asks for upper ends alone. What it returns was asked.
    """
    low, high, slope = start.scale / _MOST_BEYOND, start.scale * _MOST_BEYOND, -1.2
    scale, seen = start.scale, (0.0, math.inf)
    met: float | None = None
    while high > low * (1.0 + _CLOSE):
        upper = plan_of(GeneralizedGaussian(start.beta, scale)).epsilon_above()
        here = math.log(scale), math.log(max(upper, 1e-300) / target) if upper < math.inf else math.inf
        if upper <= target:
            high = met = scale
            if here[1] >= -_CLOSE:
                break
        else:
            low = scale
        if math.isfinite(seen[1]) and math.isfinite(here[1]) and here[0] != seen[0]:
            learnt = (here[1] - seen[1]) / (here[0] - seen[0])
            slope = learnt if learnt < -0.1 else slope
        seen = here
        wanted = here[0] - (here[1] + 0.5 * _CLOSE) / slope if math.isfinite(here[1]) else math.inf
        middle = math.sqrt(low * high)
        scale = math.exp(wanted) if math.log(low) < wanted < math.log(high) else middle
    if met is None:
        raise ValueError(
            f"target_epsilon must be one that some noise is certified to meet, got {target}: a scale of "
            f"{high:.3g} is not; take fewer steps or a larger target"
        )
    return GeneralizedGaussian(start.beta, met)


def _rate(rate: float | None, batch_size: float | None, num_examples: int) -> float:
    if (rate is None) == (batch_size is None):
        raise ValueError(
            f"give rate or batch_size, one of them, got rate={rate!r}, batch_size={batch_size!r}"
        )
    if rate is not None:
        return arguments.real("rate", rate, above=0.0, most=1.0)
    hint = "the expected batch cannot be larger than the training set"
    return (
        arguments.real("batch_size", batch_size or 0, above=0.0, most=num_examples, hint=hint) / num_examples
    )


def _steps(steps: int | None, epochs: float | None, rate: float) -> int:
    if (steps is None) == (epochs is None):
        raise ValueError(f"give steps or epochs, one of them, got steps={steps!r}, epochs={epochs!r}")
    if steps is not None:
        return arguments.whole("steps", steps)
    expected = arguments.real("epochs", epochs or 0, above=0.0) / rate
    return math.ceil(expected * (1.0 - 1e-12))  # a quotient that rounding has lifted over a whole number


def _scale(scale: float | None, noise_multiplier: float | None, clip_norm: float) -> float:
    if scale is not None:
        _only("scale", noise_multiplier=noise_multiplier)
        return arguments.real("scale", scale, above=0.0)
    if noise_multiplier is None:
        raise ValueError(
            "give one of target_epsilon, scale and noise_multiplier beside beta, or noise with its "
            "scale, got none: there is no default amount of noise"
        )
    return math.sqrt(2.0) * arguments.real("noise_multiplier", noise_multiplier, above=0.0) * clip_norm


def _only(chosen: str, **others: float | None) -> None:
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name} must be left out beside {chosen}, got {value!r}: they say the same thing twice"
            )
