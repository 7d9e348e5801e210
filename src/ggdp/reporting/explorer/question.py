# SPDX-License-Identifier: Apache-2.0
"""What the explorer asks: the settings of its knobs, a link that restores them, the same question elsewhere.

`Settings` hold what the user typed, so that a link restores it letter by letter, right or wrong.
`question_of` reads it, and refuses what it cannot read in one sentence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from ggdp import arguments
from ggdp.mechanisms import Adjacency
from ggdp.mechanisms.additive_noise import MOST_DIMENSION


@dataclass(frozen=True)
class Settings:
    """What the knobs say, each as text.

    Attributes:
        find: "epsilon" of a known noise, or the least "noise" for a target epsilon.
        beta: the exponent of the noise.
        noise: the noise multiplier, used where epsilon is to be found.
        epsilon: the target, used where noise is to be found.
        delta: of the guarantee.
        rate: the probability with which a step takes each record; a fraction such as 256/60000 will do.
        steps: how many steps, or releases.
        dimension: how many numbers a step releases; "any" for a guarantee that holds for any number.
        norm: of the sensitivity of a vector: "beta" for the exponent, "matched", "inf", or a number.
        adjacency: which datasets are neighbours.
    """

    find: str = "noise"
    beta: str = "1.5"
    noise: str = "1"
    epsilon: str = "1"
    delta: str = "1e-6"
    rate: str = "1"
    steps: str = "1"
    dimension: str = "1"
    norm: str = "beta"
    adjacency: str = "add-remove"


PRESETS = {
    "One release": Settings(),
    "Ten releases": Settings(steps="10"),
    "Histogram": Settings(beta="1", delta="0", dimension="any", norm="1"),
    "DP-SGD training": Settings(
        find="epsilon", beta="2", noise="1", rate="0.01", steps="1000", dimension="1000000"
    ),
}
"""Examples to start from; the first one is shown when the page opens."""


@dataclass(frozen=True)
class Knob:
    """A number to turn: what it is called, what it means, and where its slider stops."""

    name: str
    label: str
    meaning: str
    stops: tuple[float, ...]

    def nearest(self, text: str) -> float:
        """The stop nearest to what is typed, in its logarithm; the first one where that is no number."""
        try:
            value = _number(self.label, text)
        except ValueError:
            return self.stops[-1] if text.strip() == ANY else self.stops[0]
        if not value > 0.0:
            return self.stops[0]
        return min(self.stops, key=lambda stop: abs(math.log(stop) - math.log(min(value, 1e300))))


ANY = "any"


def _decades(first: int, last: int, digits: Sequence[float]) -> tuple[float, ...]:
    """The digits in each decade, and the first number of the decade after the last."""
    stops = [float(f"{digit}e{power}") for power in range(first, last) for digit in digits]
    return (*stops, float(f"1e{last}"))


_FINE = (1, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)

KNOBS = (
    Knob(
        "beta",
        "Exponent beta",
        "Shape of the noise: 1 is Laplace, 2 is Gaussian, more has lighter tails. From 1 to 32.",
        (*(round(1.0 + 0.05 * k, 2) for k in range(61)), 4.5, 5.0, 6.0, 7.0, 8.0, 12.0, 16.0, 32.0),
    ),
    Knob(
        "noise",
        "Noise multiplier",
        "Amount of noise. For Gaussian noise it is the standard deviation divided by the sensitivity, the "
        "most that one record can change the result.",
        tuple(stop for stop in _decades(-1, 2, _FINE) if stop >= 0.3),
    ),
    Knob(
        "epsilon",
        "Target epsilon",
        "The privacy you want. Smaller is more private: 0.1 is strict, 1 is common, 10 is weak.",
        (*(stop for stop in _decades(-2, 1, _FINE) if stop >= 0.05), 12.0, 15.0, 20.0),
    ),
    Knob(
        "delta",
        "Delta",
        "Roughly the chance that the guarantee fails. Take less than 1 / number of records; Laplace noise "
        "allows 0.",
        _decades(-12, -2, (1, 2, 5)),
    ),
    Knob(
        "steps",
        "Steps",
        "How many results are released, or how many steps a training run has.",
        _decades(0, 6, (1, 2, 3, 5, 7)),
    ),
    Knob(
        "rate",
        "Sampling rate",
        "Chance that a step uses a given record: batch size / number of records, such as 256/60000. 1 means "
        "that every step uses all records.",
        _decades(-5, 0, (1, 2, 3, 5, 7)),
    ),
    Knob(
        "dimension",
        "Numbers per step",
        "How many numbers one step releases: 1 for a count, the number of parameters for a model, or any.",
        _decades(0, 9, (1,)),
    ),
)

FIND = {
    "How much noise do I need?": "noise",
    "What does my noise cost?": "epsilon",
}
NORMS = {
    "l_beta, p = the exponent": "beta",
    "l_1, sum of changes": "1",
    "l_2, Euclidean length": "2",
    "l_inf, largest change": "inf",
    "matched to the noise": "matched",
}
ADJACENCIES = {
    "one record added or removed": "add-remove",
    "one record added": "add",
    "one record removed": "remove",
    "one record replaced": "replace",
}


def to_query(settings: Settings) -> str:
    """The settings as the query string of a link.

    >>> to_query(Settings(rate="256/60000"))[:60]
    'find=noise&beta=1.5&noise=1&epsilon=1&delta=1e-6&rate=256%2F'
    """
    return urlencode({field.name: getattr(settings, field.name) for field in fields(Settings)})


def from_query(query: Mapping[str, object]) -> Settings:
    """The settings of a link; what it does not name is as in the first example, other names are ignored.

    A name that is given twice counts as given once, the last time.
    """
    given: dict[str, str] = {}
    for field in fields(Settings):
        value = query.get(field.name)
        if isinstance(value, list | tuple):
            value = value[-1] if value else None
        if value is not None:
            given[field.name] = str(value)[:40]
    return Settings(**given)


@dataclass(frozen=True)
class Question:
    """The settings as numbers; `noise_multiplier` or `target_epsilon` is None, the one that is looked for."""

    beta: float
    noise_multiplier: float | None
    target_epsilon: float | None
    delta: float
    rate: float
    steps: int
    dimension: int | float
    norm: float | str | None
    adjacency: Adjacency


def question_of(settings: Settings) -> Question:
    """Read the settings.

    Raises:
        ValueError: one of them cannot be read, or is out of range; the sentence names it.
    """
    arguments.one_of("find", settings.find, list(FIND.values()))
    arguments.one_of("adjacency", settings.adjacency, [str(one) for one in Adjacency])
    known = settings.find == "epsilon"
    return Question(
        beta=arguments.real("beta", _number("beta", settings.beta), least=1.0, most=32.0),
        noise_multiplier=_positive("noise multiplier", settings.noise) if known else None,
        target_epsilon=None if known else _positive("target epsilon", settings.epsilon),
        delta=arguments.real("delta", _number("delta", settings.delta), least=0.0, below=1.0),
        rate=arguments.real("sampling rate", _number("sampling rate", settings.rate), above=0.0, most=1.0),
        steps=_whole("steps", settings.steps, 10**7),
        dimension=_dimension(settings.dimension),
        norm=_norm(settings.norm),
        adjacency=Adjacency(settings.adjacency),
    )


def _number(name: str, text: str) -> float:
    """A number, or a fraction of two."""
    above, _, below = text.partition("/")
    try:
        value = float(above) / (float(below) if below or "/" in text else 1.0)
    except (ValueError, ArithmeticError):
        raise ValueError(f"{name} must be a number, such as 0.5 or 1e-6, got {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {text!r}")
    return value


def _positive(name: str, text: str) -> float:
    return arguments.real(name, _number(name, text), above=0.0)


def _whole(name: str, text: str, most: int) -> int:
    value = _number(name, text)
    if not value.is_integer():
        raise ValueError(f"{name} must be a whole number in [1, {most}], got {text!r}")
    return arguments.whole(name, int(value), most=most)


def _dimension(text: str) -> int | float:
    if text.strip().lower() in (ANY, "inf"):
        return math.inf
    return _whole("numbers per step", text, MOST_DIMENSION)


def _norm(text: str) -> float | str | None:
    if text in ("beta", "matched"):
        return None if text == "beta" else text
    return math.inf if text == "inf" else arguments.real("norm", _number("norm", text), least=1.0)


def run_of(question: Question) -> dict[str, Any]:
    """The arguments of `calibrate_scale`, all but epsilon."""
    return {
        "beta": question.beta,
        "delta": question.delta,
        "rate": question.rate,
        "steps": question.steps,
        "norm": question.norm,
        "dimension": question.dimension,
        "adjacency": question.adjacency,
    }


# --- the same numbers elsewhere


def python_lines(question: Question) -> str:
    """A program that prints the same numbers."""
    adjacency = question.adjacency.name
    if question.target_epsilon is not None:
        given = {"epsilon": question.target_epsilon, **run_of(question)}
        words = [f"{name}={_literal(value)}" for name, value in given.items() if not _is_default(name, value)]
        also = ", Adjacency" if question.adjacency is not Adjacency.ADD_REMOVE else ""
        inside = ",\n    ".join(words)
        return (
            f"from ggdp import calibrate_scale{also}\n\n"
            f"found = calibrate_scale(\n    {inside},\n)\n"
            "print(found.achieved)  # certified bounds of epsilon\n"
            "print(found.noise_multiplier, found.scale, found.noise.std)\n"
        )
    is_default = question.adjacency is Adjacency.ADD_REMOVE
    vector = "".join(
        f", {name}={_literal(value)}"
        for name, value in (("norm", question.norm), ("dimension", question.dimension))
        if not _is_default(name, value)
    )
    names = ["AdditiveNoise", "Composed", "GeneralizedGaussian", "PoissonSampled", "account"]
    imported = ", ".join(names if is_default else ["Adjacency", *names])
    asked = "" if is_default else f", adjacency=Adjacency.{adjacency}"
    return (
        f"from ggdp import {imported}\n\n"
        f"noise = GeneralizedGaussian.from_noise_multiplier({_literal(question.beta)}, "
        f"{_literal(question.noise_multiplier)})\n"
        f"step = PoissonSampled(AdditiveNoise(noise{vector}), rate={_literal(question.rate)})\n"
        f"profile = account(Composed(step, times={question.steps}){asked})\n"
        f"print(profile.epsilon(delta={_literal(question.delta)}))  # certified bounds\n"
    )


def command_line(question: Question) -> str:
    """A command that prints the same numbers."""
    if question.target_epsilon is not None:
        words = ["ggdp calibrate", f"--epsilon {_plain(question.target_epsilon)}"]
    else:
        words = ["ggdp epsilon", f"--noise-multiplier {_plain(question.noise_multiplier)}"]
    for name, value in run_of(question).items():
        if not _is_default(name, value):
            words.append(f"--{name} {_plain(value)}")
    return " ".join(words)


_DEFAULTS = {"rate": 1.0, "steps": 1, "norm": None, "dimension": 1, "adjacency": Adjacency.ADD_REMOVE}


def _is_default(name: str, value: object) -> bool:
    return name in _DEFAULTS and value == _DEFAULTS[name]


def _plain(value: object) -> str:
    """A value as a command takes it, with all its digits."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def _literal(value: object) -> str:
    """A value as Python reads it."""
    if isinstance(value, Adjacency):
        return f"Adjacency.{value.name}"
    if isinstance(value, str):
        return f'"{value}"'
    return 'float("inf")' if value == math.inf else _plain(value)
