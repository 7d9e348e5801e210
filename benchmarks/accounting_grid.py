# SPDX-License-Identifier: Apache-2.0
"""A sweep of random settings over everything the accountant says it covers.

    python benchmarks/accounting_grid.py --count 500 --seed 1 --out grid.json

Per case: method, relative width of epsilon, the CPU time of the slowest of all questions asked about it (each
is asked afresh, with nothing kept from the one before), and whether the answer can be true:

- no NaN, lower <= estimate <= upper;
- twice the times never costs less: lower(times) <= upper(2 times);
- the round trip: delta at epsilon's upper end is not certainly above the delta asked for, nor certainly
  below it at the lower end;
- where an answer by other means exists (one release; Gaussian noise without sampling) the truth, by mpmath at
  60 digits, lies inside the bounds; losses that are bounded (Laplace) bound epsilon.

The last line is the verdict; the exit status is 1 if any answer was wrong.
"""

import argparse
import json
import math
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting_truth import gaussian_log_delta, one_release_log_delta, pure_epsilon
from ggdp import AdditiveNoise, Adjacency, Composed, GeneralizedGaussian, PoissonSampled
from ggdp.accounting import Bounds, delta, epsilon
from ggdp.errors import EpsilonTooLargeError

LONGEST_S = 20
WIDE, SLOW_S = 1e-5, 5.0
MOST_MEMORY = 3 << 30  # address space; what asks for more gets a MemoryError, and the case is reported


@dataclass(frozen=True)
class Part:
    """One kind of release: beta, noise multiplier, rate, times."""

    beta: float
    noise_multiplier: float
    rate: float
    times: int

    def step(self) -> AdditiveNoise | PoissonSampled:
        noise = GeneralizedGaussian(beta=self.beta, scale=math.sqrt(2.0) * self.noise_multiplier)
        step = AdditiveNoise(noise)
        return step if self.rate == 1.0 else PoissonSampled(step, self.rate)

    def snippet(self) -> str:
        noise = (
            f"AdditiveNoise(GeneralizedGaussian(beta={self.beta!r}, scale=2**0.5*{self.noise_multiplier!r}))"
        )
        return noise if self.rate == 1.0 else f"PoissonSampled({noise}, {self.rate!r})"


@dataclass(frozen=True)
class Setting:
    """One question: what is released, delta, adjacency."""

    parts: tuple[Part, ...]
    delta: float
    adjacency: str

    @property
    def times(self) -> int:
        return sum(part.times for part in self.parts)

    @property
    def is_one_release(self) -> bool:
        return self.times == 1

    @property
    def is_gaussian(self) -> bool:
        return all(part.beta == 2.0 and part.rate == 1.0 for part in self.parts)

    def scaled(self, factor: float) -> "Setting":
        """The same with every part released so many times as often."""
        return replace(self, parts=tuple(replace(p, times=max(int(p.times * factor), 1)) for p in self.parts))

    def mechanism(self) -> Composed:
        return Composed([(part.step(), part.times) for part in self.parts])

    def snippet(self) -> str:
        steps = ", ".join(f"({part.snippet()}, {part.times})" for part in self.parts)
        return f"epsilon(Composed([{steps}]), delta={self.delta!r}, adjacency=Adjacency({self.adjacency!r}))"


@dataclass
class Outcome:
    """What the accountant said to one setting, and what is wrong with it."""

    setting: Setting
    seconds: float = math.nan
    delta_seconds: float = math.nan
    slowest: float = 0.0
    method: str = ""
    lower: float = math.nan
    estimate: float = math.nan
    upper: float = math.nan
    checked_by: str = "round trip"
    peak_mib: float = math.nan
    wrong: list[str] = field(default_factory=list)
    failed: str = ""
    raised: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Relative width; 0 for an epsilon of exactly 0, infinite where there is no upper bound."""
        if math.isinf(self.upper):
            return math.inf
        return (self.upper - self.lower) / self.upper if self.upper > 0.0 else 0.0

    @property
    def bad(self) -> bool:
        """Wrong, or without an answer to one of the questions."""
        return bool(self.wrong or self.raised or (self.failed and self.failed != "refused"))

    @property
    def complaints(self) -> list[str]:
        return ([self.failed] if self.failed else []) + self.wrong + self.raised + self.warned

    @property
    def allowed_width(self) -> float:
        return 1e-6 if self.setting.times >= 20 else 1e-5


def draw(rng: np.random.Generator, mixed: float) -> Setting:
    """Log-uniform over the declared domain, with extra weight on the corners people use.

    A share `mixed` of the settings composes several kinds of release: two to forty of them, each with a beta,
    noise, rate and number of its own, or steps of a training run whose noise or rate changes on the way.
    """
    if rng.random() >= mixed:
        parts = [_draw_part(rng, 1e7)]
    elif rng.random() < 0.7:
        several = round(_log_uniform(rng, 2.0, 40.0))
        parts = [_draw_part(rng, 1e7 / several) for _ in range(several)]
    else:  # one run in stages
        several = round(_log_uniform(rng, 2.0, 40.0))
        first = _draw_part(rng, 1e7 / several)
        parts = [
            replace(
                first,
                noise_multiplier=min(first.noise_multiplier * _log_uniform(rng, 0.7, 1.4), 1000.0),
                rate=first.rate if first.rate == 1.0 else min(first.rate * _log_uniform(rng, 1.0, 2.0), 1.0),
            )
            for _ in range(several)
        ]
    return Setting(
        parts=tuple(parts),
        delta=_log_uniform(rng, 1e-100, 0.5),
        adjacency=str(rng.choice([kind.value for kind in Adjacency])),
    )


def _draw_part(rng: np.random.Generator, most: float) -> Part:
    beta = float(rng.choice([1.0, 2.0])) if rng.random() < 0.3 else _log_uniform(rng, 1.0, 32.0)
    return Part(
        beta=beta,
        noise_multiplier=_log_uniform(rng, 0.3, 1000.0),
        rate=1.0 if rng.random() < 0.2 else _log_uniform(rng, 1e-7, 1.0),
        times=1 if rng.random() < 0.1 else round(_log_uniform(rng, 1.0, most)),
    )


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def ask(setting: Setting, outcome: Outcome) -> Bounds:
    """epsilon, timed."""
    return _timed(
        outcome,
        lambda: epsilon(setting.mechanism(), delta=setting.delta, adjacency=Adjacency(setting.adjacency)),
    )


def ask_delta(setting: Setting, at: float, outcome: Outcome) -> Bounds:
    """delta, timed."""
    return _timed(
        outcome, lambda: delta(setting.mechanism(), epsilon=at, adjacency=Adjacency(setting.adjacency))
    )


def _timed(outcome: Outcome, question: Callable[[], Bounds]) -> Bounds:
    """Ask one question, which is ended after `LONGEST_S` seconds."""
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    start = time.process_time()
    try:
        return question()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.slowest = max(outcome.slowest, time.process_time() - start)


def examine(setting: Setting) -> Outcome:
    """Ask, time, and look for contradictions."""
    outcome = Outcome(setting)
    try:
        bounds = ask(setting, outcome)
    except Exception as error:
        outcome.seconds = outcome.slowest
        outcome.failed = "refused" if isinstance(error, EpsilonTooLargeError) else _described(error)
        outcome.method = "refused" if outcome.failed == "refused" else "failed"
        if outcome.failed == "refused":
            outcome.wrong += _refusal_is_right(setting)
        return outcome
    outcome.seconds = outcome.slowest
    outcome.method = bounds.method
    outcome.lower, outcome.estimate, outcome.upper = bounds.lower, bounds.estimate, bounds.upper
    if not bounds.lower <= bounds.estimate <= bounds.upper:
        outcome.wrong.append(f"not a sandwich: {bounds}")
    for check in (_monotone, _round_trip, _pure, _truth):
        try:
            outcome.wrong += check(setting, bounds, outcome)
        except Exception as error:
            outcome.raised.append(f"{check.__name__.strip('_')} raised {_described(error)}")
    outcome.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return outcome


def _monotone(setting: Setting, bounds: Bounds, outcome: Outcome) -> list[str]:
    more = 2 * setting.times <= 10**7
    try:
        other = ask(setting.scaled(2.0 if more else 0.5), outcome)
    except ValueError as error:
        if more and isinstance(error, EpsilonTooLargeError):
            return []
        raise
    few, many = (bounds, other) if more else (other, bounds)
    return [] if few.lower <= many.upper else [f"falls with times: {few} at fewer, {many} at more"]


def _round_trip(setting: Setting, bounds: Bounds, outcome: Outcome) -> list[str]:
    found = []
    start = time.process_time()
    if bounds.upper <= 2000.0:
        at_upper = ask_delta(setting, bounds.upper, outcome)
        outcome.delta_seconds = time.process_time() - start
        if at_upper.lower > setting.delta * (1.0 + 1e-12):
            found.append(
                f"delta at epsilon's upper end is at least {at_upper.lower!r}, asked {setting.delta!r}"
            )
    if bounds.lower > 0.0:
        at_lower = ask_delta(setting, bounds.lower, outcome)
        if at_lower.upper < setting.delta * (1.0 - 1e-12):
            found.append(
                f"delta at epsilon's lower end is at most {at_lower.upper!r}, asked {setting.delta!r}"
            )
    return found


def _pure(setting: Setting, bounds: Bounds, outcome: Outcome) -> list[str]:
    most = pure_epsilon(setting)
    if not math.isfinite(most) or most > 2000.0:
        return []
    found = []
    if bounds.upper > most * (1.0 + 1e-12):
        found.append(f"epsilon's upper end {bounds.upper!r} exceeds the largest loss {most!r}")
    beyond = ask_delta(setting, min(most * (1.0 + 1e-12), 2000.0), outcome)
    if beyond.upper != 0.0 and most * (1.0 + 1e-12) <= 2000.0:
        found.append(f"delta beyond the largest loss {most!r} is {beyond}")
    return found


def _truth(setting: Setting, bounds: Bounds, outcome: Outcome) -> list[str]:
    """delta by other means, at both ends of epsilon's interval."""
    if setting.is_one_release:
        true_log_delta, outcome.checked_by = one_release_log_delta, "mpmath, one release"
    elif setting.is_gaussian:
        true_log_delta, outcome.checked_by = gaussian_log_delta, "mpmath, Gaussian"
    else:
        return []
    found = []
    target = math.log(setting.delta)
    if bounds.lower > 0.0 and (value := true_log_delta(setting, bounds.lower, setting.delta)) < 0.0:
        found.append(
            f"lower {bounds.lower!r} is above the truth: log delta there is {value:.3g} off {target:.3f}"
        )
    if math.isfinite(bounds.upper) and (value := true_log_delta(setting, bounds.upper, setting.delta)) > 0.0:
        found.append(
            f"upper {bounds.upper!r} is below the truth: log delta there is {value:.3g} off {target:.3f}"
        )
    return found


def _refusal_is_right(setting: Setting) -> list[str]:
    """A question is refused for an epsilon above 2000; where delta(2000) is known it must be too large."""
    if setting.is_one_release:
        value = one_release_log_delta(setting, 2000.0, setting.delta)
    elif setting.is_gaussian:
        value = gaussian_log_delta(setting, 2000.0, setting.delta)
    else:
        return (
            [f"refused, but no loss exceeds {pure_epsilon(setting)!r}"]
            if pure_epsilon(setting) <= 2000.0
            else []
        )
    return [] if value > 0.0 else ["refused although epsilon is below 2000"]


def _described(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} ({Path(place.filename).name}:{place.lineno})"


class TooLongError(Exception):
    """A question took longer than `LONGEST_S`."""


def guarded(setting: Setting) -> Outcome:
    """`examine`, with the warnings that were heard; no question takes longer than `LONGEST_S` seconds."""

    def stop(signum: int, frame: object) -> None:
        raise TooLongError(f"no answer after {LONGEST_S} s")

    signal.signal(signal.SIGPROF, stop)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        outcome = examine(setting)
    places = {f"{Path(one.filename).name}:{one.lineno}: {one.message}" for one in heard}
    outcome.warned = sorted(places)
    return outcome


def summary(outcomes: list[Outcome]) -> str:
    answered = [one for one in outcomes if not one.failed]
    failed = [one for one in outcomes if one.raised or (one.failed and one.failed != "refused")]
    warned = [one for one in outcomes if one.warned]
    refused = [one for one in outcomes if one.failed == "refused"]
    wrong = [one for one in outcomes if one.wrong]
    lines = [
        f"{len(outcomes)} settings: {len(answered)} answered, {len(refused)} refused as epsilon > 2000, "
        f"{len(failed)} raised an error, {len(wrong)} contradicted, {len(warned)} with warnings",
        "answered by: "
        + ", ".join(f"{name} {n}" for name, n in Counter(o.method for o in answered).most_common()),
        "checked by: "
        + ", ".join(f"{name} {n}" for name, n in Counter(o.checked_by for o in answered).most_common()),
    ]
    for name, group, allowed in (
        ("times >= 20", [o for o in answered if o.setting.times >= 20], 1e-6),
        ("times < 20", [o for o in answered if o.setting.times < 20], 1e-5),
    ):
        good = sum(one.width <= allowed for one in group)
        lines.append(f"{name}: {good} of {len(group)} have relative width <= {allowed:g}")
    if answered:
        for name, times in (
            ("epsilon", [o.seconds for o in answered]),
            ("delta", [o.delta_seconds for o in answered]),
            ("slowest question", [o.slowest for o in answered]),
        ):
            known = [value for value in times if math.isfinite(value)]
            at = np.percentile(known, [50, 90, 99, 100])
            lines.append(
                f"seconds, {name}: "
                + ", ".join(f"p{p} {v:.3f}" for p, v in zip((50, 90, 99, 100), at, strict=True))
            )
        lines.append(f"peak memory {max(one.peak_mib for one in answered):.0f} MiB")
    for title, group in (
        ("WRONG", wrong),
        ("RAISED", failed),
        ("WARNED", warned),
        ("WIDE", sorted((o for o in answered if o.width > o.allowed_width), key=lambda o: -o.width)),
        ("SLOW (> 3 s)", sorted((o for o in answered if o.slowest > 3.0), key=lambda o: -o.slowest)),
    ):
        lines += ["", f"{title}: {len(group)}"]
        for one in group:
            lines.append(
                f"- width {one.width:.2e}, {one.seconds:.3f} s, slowest {one.slowest:.3f} s, {one.method}, "
                f"[{one.lower:.6g}, {one.estimate:.6g}, {one.upper:.6g}]"
            )
            lines += [f"    {text}" for text in one.complaints]
            lines.append(f"    {one.setting.snippet()}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, help="drawn and printed when absent")
    parser.add_argument("--mixed", type=float, default=0.3, help="share of compositions of several kinds")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th setting of the seed's,")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one: runs side by side")
    parser.add_argument("--out", type=Path, help="write every case as JSON")
    parser.add_argument("--merge", type=Path, nargs="+", help="ask nothing: sum up files written by --out")
    options = parser.parse_args()
    if options.merge:
        outcomes = [_read(one) for path in options.merge for one in json.loads(path.read_text("utf-8"))]
        print(summary(outcomes))
        print(verdict(outcomes))
        return 1 if any(one.bad for one in outcomes) else 0
    seed = options.seed if options.seed is not None else int(np.random.SeedSequence().entropy % 2**32)
    rng = np.random.default_rng(seed)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    outcomes = []
    settings = [draw(rng, options.mixed) for _ in range(options.count)]
    for place in range(options.first, options.count, options.every):
        one = guarded(settings[place])
        outcomes.append(one)
        if options.out:  # after every setting, so that a run that is ended leaves what it has
            options.out.write_text(json.dumps([asdict(o) for o in outcomes], indent=1), encoding="utf-8")
        if one.bad:
            print(f"{place}: {one.complaints} {one.setting.snippet()}", file=sys.stderr, flush=True)
    print(f"seed {seed}")
    print(summary(outcomes))
    print(verdict(outcomes))
    return 1 if any(one.bad for one in outcomes) else 0


def verdict(outcomes: list[Outcome]) -> str:
    """Counts of what the goals are about: none wrong, none above 5 s, at most 1% wider than 1e-5."""
    bad, wide = sum(one.bad for one in outcomes), sum(one.width > WIDE for one in outcomes)
    slow = sum(one.slowest > SLOW_S for one in outcomes)
    return (
        f"\n{'FAILED' if bad else 'ok'}: of {len(outcomes)} settings {bad} wrong or without an answer, "
        f"{slow} with a question that took more than {SLOW_S:g} s, {wide} wider than {WIDE:g}"
    )


def _read(written: dict[str, Any]) -> Outcome:
    """An outcome from its JSON."""
    setting = written.pop("setting")
    parts = tuple(Part(**part) for part in setting.pop("parts"))
    return Outcome(Setting(parts, **setting), **written)


if __name__ == "__main__":
    sys.exit(main())
