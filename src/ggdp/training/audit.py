# SPDX-License-Identifier: Apache-2.0
"""Audits: how large epsilon is at least, shown by an attack on a real run, beside the certified upper bound.

Canaries (`ggdp.training.canaries`) are put into the training set or left out by fair coins, an adversary who
sees every step guesses which, and the number of right guesses bounds epsilon from below. docs/audit.md has
the theorems, and says which faults which canaries find.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.mechanisms.batches import Sampling
from ggdp.search import arithmetic, halve
from ggdp.training.canaries import CanaryStep, Floats, Recipe, Train
from ggdp.training.plan import Plan
from ggdp.training.private import Private

METHODS = ("one-run", "independent-canaries", "repeated-runs")

ASSUMES = {
    "one-run": "nothing",
    "independent-canaries": "that noise on different weights and draws of different examples are independent",
    "repeated-runs": "that runs are independent of each other",
}
"""What the lower bound of each method rests on, beside the draw of the canaries."""

_CAUTION = 1e-6  # probabilities are computed to about 1e-10; each is moved by this share to the safe side
_FEWEST_GUESSES = 10
_ALONE = ("poisson", "allocation")  # batches in which every example is drawn without regard to others
_FIRST = 0.3  # share of the canaries or runs that choose the test; the others count
_THRESHOLDS = np.linspace(0.005, 0.995, 100)
_MOST_EPSILON = 200.0
# Of a score. The last bits of a sum in floating point tell more about its terms than real numbers do
# (Mironov 2012), which no epsilon here covers; an audit is about the rest.
_DIGITS = 5
_WEAKEST = 0.5  # the least confidence that may be asked for

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon that holds with a stated confidence, and the certified upper bound beside it.

    If the run is (epsilon, delta)-private, then `lower_epsilon` > epsilon happens with probability at most
    1 - confidence, over the coins of canaries and run. It is no `Bounds`, whose ends hold always.

    Attributes:
        lower_epsilon: epsilon at `delta` is at least this.
        confidence: with which that holds.
        delta: of both ends.
        num_canaries: canaries, or runs with one canary each.
        num_guesses: how many of them the adversary guessed; the bound counts only those.
        num_correct: how many guesses were right.
        certified: what the ledger of the run claims, at the same delta.
        method: see `METHODS`.
        plan: of the run.
        steps: how many private steps it took.
        included: which canaries were in the training set.
        scores: the evidence for it that the adversary saw, as a log likelihood ratio.
    """

    lower_epsilon: float
    confidence: float
    delta: float
    num_canaries: int
    num_guesses: int
    num_correct: int
    certified: Bounds
    method: str
    plan: Plan = field(repr=False)
    steps: int = field(repr=False)
    included: Bools = field(repr=False, compare=False)
    scores: Floats = field(repr=False, compare=False)

    @property
    def is_consistent(self) -> bool:
        """False where the attack shows more than the ledger claims: one of the two is wrong."""
        return self.lower_epsilon <= self.certified.upper

    @property
    def assumes(self) -> str:
        """What the lower bound rests on."""
        return ASSUMES[self.method]


def audit(
    model: nn.Module,
    optimizer: Optimizer,
    data_loader: DataLoader[Any],
    *,
    train: Train | None = None,
    method: str = "one-run",
    num_canaries: int = 1000,
    confidence: float = 0.95,
    audit_delta: float | None = None,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> AuditResult:
    """Train with canaries, attack, and compare what is shown with what is claimed.

    Model and optimizer are copied; yours stay as they are. The run is the one that `make_private` would give
    you with the same arguments, but that the model has a further weight for each canary and the training set
    the canaries that the coins put into it. Its certified epsilon is that of the run with these weights.

    Args:
        model: as `make_private` takes it, before it is made private.
        optimizer: of the model, likewise.
        data_loader: of the training set, likewise.
        train: a function of `Private` that trains with it, as your own loop does. If left out: gradient
            descent on batches (inputs, label) with the cross-entropy, to the end of the plan.
        method: "one-run": all canaries in one run, no assumption, weak at a delta above some 1e-4.
            "independent-canaries": the same run, each canary counted as an experiment of its own; the
            strongest, at a delta of some percent. "repeated-runs": as many runs as `num_canaries`, with one
            canary each.
        num_canaries: how many; more of them show more. Half of them come into the training set.
        confidence: of the lower bound, in [0.5, 1).
        audit_delta: at which epsilons are compared; the plan's own delta if left out.
        generator: for tests and repetition only; left out, everything is unpredictable.
        **settings: the other arguments of `make_private`: `beta`, `clip_norm`, `delta` and so on.

    Raises:
        ValueError: an argument is out of range, or `make_private` refuses the run.
    """
    arguments.one_of("method", method, METHODS)
    least = 2 * _FEWEST_GUESSES
    arguments.whole("num_canaries", num_canaries, least=least, most=10**7)
    arguments.real("confidence", confidence, least=_WEAKEST, below=1.0)
    delta = settings.get("delta")
    if delta is None:
        raise ValueError("delta must be given, as for make_private, got None")
    if audit_delta is not None:
        delta = arguments.real("audit_delta", audit_delta, above=0.0, most=0.5)
    if generator is not None:
        arguments.instance("generator", generator, torch.Generator)
    recipe = Recipe(model, optimizer, data_loader, settings, train)
    kind = _kind(settings.get("sampling"))
    if method == "independent-canaries" and kind not in _ALONE:
        raise ValueError(
            f"method must be 'one-run' or 'repeated-runs' where sampling is {kind!r}, got "
            "'independent-canaries': in such batches an example takes the place of another, so that canaries "
            "are not experiments of their own"
        )
    coins = np.random.default_rng(_seed(generator))
    attacked = _repeated if method == "repeated-runs" else _at_once
    private, included, scores = attacked(recipe, num_canaries, coins, generator)
    guessing = one_run_guesses if method == "one-run" else separated_guesses
    found = guessing(scores, included, delta=delta, confidence=confidence)
    return AuditResult(
        lower_epsilon=found.lower_epsilon,
        confidence=confidence,
        delta=delta,
        num_canaries=num_canaries,
        num_guesses=found.num_guesses,
        num_correct=found.num_correct,
        certified=private.accountant.epsilon(delta=delta),
        method=method,
        plan=private.plan,
        steps=private.optimizer.steps,
        included=included,
        scores=found.scores,
    )


def _kind(sampling: Sampling | str | None) -> str:
    return "poisson" if sampling is None else str(sampling).partition(":")[0]


def _seed(generator: torch.Generator | None) -> int | None:
    return None if generator is None else int(torch.randint(2**62, (), generator=generator))


def _child(generator: torch.Generator | None) -> torch.Generator | None:
    return None if generator is None else torch.Generator().manual_seed(_seed(generator) or 0)


def _at_once(
    recipe: Recipe, num_canaries: int, coins: np.random.Generator, generator: torch.Generator | None
) -> tuple[Private, Bools, Floats]:
    included = coins.random(num_canaries) < 0.5
    adversary = Adversary(num_canaries)
    private = recipe.run(num_canaries, np.flatnonzero(included), adversary.see, generator=_child(generator))
    return private, included, adversary.scores


def _repeated(
    recipe: Recipe, num_runs: int, coins: np.random.Generator, generator: torch.Generator | None
) -> tuple[Private, Bools, Floats]:
    included = coins.random(num_runs) < 0.5
    scores = []
    longest: Private | None = None
    for is_in in included.tolist():
        adversary = Adversary(1)
        private = recipe.run(1, np.arange(int(is_in)), adversary.see, generator=_child(generator))
        scores.append(adversary.scores)
        if longest is None:
            recipe = recipe.with_settings(noise=private.plan.noise)
        if longest is None or private.optimizer.steps > longest.optimizer.steps:
            longest = private  # a loop may stop early; the claim is that of the longest run
    fewest = min(len(found) for found in scores)
    if longest is None:
        raise ValueError("num_canaries must be at least 1, got no run")
    return longest, included, np.concatenate([found[:fewest] for found in scores], axis=1)


class Adversary:
    """Sees every step and collects evidence on each canary, as log likelihood ratios of some suspicions.

    With its canary in the training set, a noisy sum is shifted by clip_norm whenever the canary is in the
    batch, which happens with probability `rate`: in every step anew, as the plan says; or for two steps at a
    time; or for all steps at once, where a batch is used again. The last two find what the first would miss.
    Where an epoch is one draw, the canary is in one of its steps, whichever: that is a fourth.
    """

    def __init__(self, num_canaries: int) -> None:
        self._plan: Plan | None = None
        self._apart, self._in_pairs = np.zeros(num_canaries), np.zeros(num_canaries)
        self._all, self._held = np.zeros(num_canaries), np.zeros(num_canaries)
        self._steps = 0
        self._draw = self._in_draw = 0
        self._by_epoch, self._epoch = np.zeros(num_canaries), np.full(num_canaries, -math.inf)

    def see(self, private: Private, step: CanaryStep) -> None:
        """Take in what one step released."""
        self._plan = plan = private.plan
        scale, power = plan.noise.scale, plan.noise.beta
        loss = (
            np.abs(step.canaries / scale) ** power - np.abs((step.canaries - plan.clip_norm) / scale) ** power
        )
        self._apart += self._sampled(loss)
        self._all += loss
        self._held = self._held + loss
        self._steps += 1
        if step.draw != self._draw:
            self._by_epoch, self._in_draw = self._by_epoch + self._of_epoch(), 0
            self._epoch, self._draw = np.full_like(self._epoch, -math.inf), step.draw
        self._epoch, self._in_draw = np.logaddexp(self._epoch, loss), self._in_draw + 1
        if self._steps % 2 == 0:
            self._in_pairs += self._sampled(self._held)
            self._held = np.zeros_like(self._held)

    @property
    def scores(self) -> Floats:
        """A row for each suspicion that differs from those before it, a column for each canary."""
        last: Floats | float = self._sampled(self._held) if self._steps % 2 else 0.0
        rows = [self._apart, self._in_pairs + last, self._sampled(self._all)][: max(1, self._steps)]
        if self._plan is not None and self._plan.batches.steps_per_draw > 1:
            rows.append(self._by_epoch + self._of_epoch())
        return np.stack(rows)

    def _of_epoch(self) -> Floats:
        """log of the mean likelihood ratio over the steps of the present epoch that were seen."""
        return self._epoch - math.log(self._in_draw) if self._in_draw else np.zeros_like(self._epoch)

    def _sampled(self, loss: Floats) -> Floats:
        rate = 1.0 if self._plan is None else self._plan.rate
        left_out = math.log1p(-rate) if rate < 1.0 else -math.inf
        found: Floats = np.logaddexp(left_out, math.log(rate) + loss)
        return found


class Guesses(NamedTuple):
    """A lower bound on epsilon, and the guesses that it rests on."""

    lower_epsilon: float
    num_guesses: int
    num_correct: int
    scores: Floats


def one_run_guesses(scores: Floats, included: Bools, *, delta: float, confidence: float) -> Guesses:
    """Guess on the canaries with the strongest evidence.

    Which row of `scores` is used, and how many canaries are guessed (all of them, half, a quarter and so
    on), is chosen afterwards. For each choice the bound is computed at an equal share of the error that is
    allowed, so that all of them hold together.
    """
    scores, num = np.round(scores, _DIGITS), len(included)
    numbers = [num >> halving for halving in range(int(math.log2(num / _FEWEST_GUESSES)) + 1)]
    error = (1.0 - confidence) / (len(numbers) * len(scores))

    def guessed(row: Floats) -> Iterator[Guesses]:
        order = np.argsort(-np.abs(row), kind="stable")
        right = np.cumsum(((row > 0.0) == included)[order])
        for guesses in numbers:
            correct = int(right[guesses - 1])
            lower = one_run_lower_epsilon(num, guesses, correct, delta=delta, confidence=1.0 - error)
            yield Guesses(lower, guesses, correct, row)

    return max((found for row in scores for found in guessed(row)), key=lambda found: found.lower_epsilon)


def one_run_lower_epsilon(
    num_canaries: int, num_guesses: int, num_correct: int, *, delta: float, confidence: float
) -> float:
    """Epsilon at `delta` is at least this, if so many guesses about canaries in one run were right.

    Steinke, Nasr and Jagielski (2023), section 5 and Appendix D; docs/audit.md states it. The numbers below
    are one example of the authors', who print 0.673.

    >>> round(one_run_lower_epsilon(1000, 100, 75, delta=1e-4, confidence=0.95), 3)
    0.673
    """
    arguments.whole("num_canaries", num_canaries)
    arguments.whole("num_guesses", num_guesses, most=num_canaries)
    arguments.whole("num_correct", num_correct, least=0, most=num_guesses)
    arguments.real("delta", delta, least=0.0, most=1.0)
    error = 1.0 - arguments.real("confidence", confidence, least=_WEAKEST, below=1.0)

    def is_refuted(epsilon: float) -> bool:
        return one_run_p_value(num_canaries, num_guesses, num_correct, epsilon, delta) < error

    return _largest(is_refuted)


def one_run_p_value(
    num_canaries: int, num_guesses: int, num_correct: int, epsilon: float, delta: float
) -> float:
    """The most probable it is that an (epsilon, delta)-private run lets so many guesses be right.

    P(W >= v) + 2 m delta max over i of P(v > W >= v - i) / i, where W counts successes of r trials with
    probability e^epsilon / (1 + e^epsilon), m the canaries, r the guesses, v the right ones.
    """
    v, r, success = num_correct, num_guesses, special.expit(epsilon)
    if v == 0:
        return 1.0
    tail = special.betainc(v, r - v + 1, success)
    just_below = 0.0
    if delta > 0.0:
        k = np.arange(v - 1, -1, -1)
        choose = special.gammaln(r + 1) - special.gammaln(k + 1) - special.gammaln(r - k + 1)
        log_mass = choose + special.xlogy(k, success) + (r - k) * special.log_expit(-epsilon)
        just_below = float(np.max(np.cumsum(np.exp(log_mass)) / np.arange(1, v + 1)))
    return float((tail + 2.0 * num_canaries * delta * just_below) * (1.0 + _CAUTION))


def _largest(is_refuted: Callable[[float], bool]) -> float:
    """An epsilon that is refuted, by bisection; 0 if none is. Any refuted one is a lower bound."""
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < _MOST_EPSILON and is_refuted(high):
        low, high = high, 2.0 * high
    return halve(is_refuted, low, high, middle=arithmetic, halvings=50)[0]


def separated_guesses(scores: Floats, included: Bools, *, delta: float, confidence: float) -> Guesses:
    """Tell included canaries from others by a threshold.

    The canaries, or runs, must be independent experiments. The first of them choose row, threshold and
    direction; the others count, so that the choice costs no confidence.
    """
    scores, first = np.round(scores, _DIGITS), int(_FIRST * len(included))

    def tested(row: Floats, above: bool, threshold: float, part: slice) -> Guesses:
        beyond = row[part] > threshold if above else row[part] <= threshold
        likelier = included[part] if above else ~included[part]
        hits, alarms = int((beyond & likelier).sum()), int((beyond & ~likelier).sum())
        num_likelier = int(likelier.sum())
        num_other = len(beyond) - num_likelier
        lower = 0.0
        if num_likelier and num_other:
            lower = separated_lower_epsilon(
                hits, num_likelier, alarms, num_other, delta=delta, confidence=confidence
            )
        return Guesses(lower, len(beyond), hits + num_other - alarms, row)

    choices = [
        (row, above, float(threshold))
        for row in scores
        for above in (True, False)
        for threshold in np.quantile(row[:first], _THRESHOLDS)
    ]
    row, above, threshold = max(
        choices, key=lambda choice: tested(choice[0], choice[1], choice[2], slice(None, first)).lower_epsilon
    )
    return tested(row, above, threshold, slice(first, None))


def separated_lower_epsilon(
    hits: int, num_likelier: int, alarms: int, num_other: int, *, delta: float, confidence: float
) -> float:
    """Epsilon at `delta` is at least this, from how often one event happened in two worlds.

    P(event | likelier world) <= e^epsilon P(event | other) + delta. The two probabilities are bounded after
    Clopper and Pearson (1934), each with half of the error that is allowed.

    >>> round(separated_lower_epsilon(900, 1000, 100, 1000, delta=0.0, confidence=0.95), 2)
    1.99
    """
    arguments.whole("num_likelier", num_likelier)
    arguments.whole("num_other", num_other)
    arguments.whole("hits", hits, least=0, most=num_likelier)
    arguments.whole("alarms", alarms, least=0, most=num_other)
    arguments.real("delta", delta, least=0.0, most=1.0)
    error = (1.0 - arguments.real("confidence", confidence, least=_WEAKEST, below=1.0)) / 2.0
    at_least = special.betaincinv(hits, num_likelier - hits + 1, error) if hits else 0.0
    at_most = 1.0 - special.betaincinv(num_other - alarms, alarms + 1, error) if alarms < num_other else 1.0
    excess = at_least * (1.0 - _CAUTION) - delta
    return max(0.0, math.log(excess / (at_most * (1.0 + _CAUTION)))) if excess > 0.0 else 0.0
