# SPDX-License-Identifier: Apache-2.0
"""The options that several commands share, each declared once: name, meaning, range.

A value out of range is refused while the command line is read, in the words of `ggdp.arguments`.
"""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ggdp import arguments
from ggdp.atomic_file import file_to_replace
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import BETA, SCALE
from ggdp.mechanisms import Adjacency, Sampling
from ggdp.mechanisms.additive_noise import MOST_DIMENSION

T = TypeVar("T", int, float)
SENSITIVITY = {"least": 1e-90, "most": 1e90}
"""Where every noise multiplier that is accounted for has a scale that is covered."""


def number(option: str, **limits: float) -> Callable[[str], float]:
    """A parser of a real number within limits, as `arguments.real` understands them."""

    def parse(text: str) -> float:
        return _parsed(arguments.real, option, text, float, limits)

    return parse


def whole(option: str, **limits: int) -> Callable[[str], int]:
    """A parser of a whole number within limits, as `arguments.whole` understands them."""

    def parse(text: str) -> int:
        return _parsed(arguments.whole, option, text, int, limits)

    return parse


def _parsed(check: Callable[..., T], option: str, text: str, kind: Callable[[str], T], limits: Any) -> T:
    if not isinstance(text, str):
        text = str(text)  # a default
    value: object = text
    with contextlib.suppress(ValueError):  # the check refuses the text itself
        value = kind(text)
    if kind is float:
        value, limits = _as_typed(text, value, limits)
    elif value is text and "most" not in limits and text.strip().lstrip("+-").isdecimal():
        raise typer.BadParameter(
            f"{option} must be a whole number >= {limits['least']} of at most {sys.get_int_max_str_digits()} "
            f"digits, got one of {len(text.strip().lstrip('+-'))}"
        )
    try:
        return check(option, value, **limits)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _as_typed(text: str, value: object, limits: dict[str, float]) -> tuple[object, dict[str, float]]:
    """A number that no double holds as the text it is, with limits that leave it out."""
    has_digit = any(digit.isdecimal() and digit != "0" for digit in text.lower().partition("e")[0])
    if has_digit and value in (math.inf, -math.inf):
        largest = sys.float_info.max
        return text, {"least": -largest} | ({} if "below" in limits else {"most": largest}) | limits
    if has_digit and value == 0.0 and limits.get("above") == 0.0:
        return text, {"least": math.ulp(0.0)} | limits
    return value, limits


def _number(option: str, help_text: str, **limits: float) -> Any:
    return typer.Option(option, help=help_text, parser=number(option, **limits), metavar="NUMBER")


def _whole(option: str, help_text: str, **limits: int) -> Any:
    return typer.Option(option, help=help_text, parser=whole(option, **limits), metavar="WHOLE")


def norm(text: str) -> float | str:
    """A norm as `AdditiveNoise` takes it: a number from 1 to infinity, or the word matched."""
    if text == "matched":
        return text
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value >= 1.0 or isinstance(_as_typed(text, value, {})[0], str):
        raise typer.BadParameter(
            f"--norm must be a number in [1, inf], or matched, got {arguments.shown(text)}"
        )
    return value


def dimension(text: str) -> int | float:
    """A dimension as `AdditiveNoise` takes it: a whole number up to 10^9, or infinity."""
    if str(text) == "inf":  # a default comes as a number
        return math.inf
    try:
        return whole("--dimension", least=1, most=MOST_DIMENSION)(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message.replace("], got", "], or inf, got", 1)) from None


def sampling(text: str) -> Sampling:
    """How batches are drawn, as `Sampling.parse` understands it."""
    try:
        return Sampling.parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"--{error}") from None


def new_file(option: str, *endings: str) -> Callable[[str], Path]:
    """A parser of the name of a file to write; one that could not be written is refused before any work."""

    def parse(text: str) -> Path:
        path = Path(text)
        if not text:
            raise typer.BadParameter(f"{option} must be the name of a file, got ''")
        if endings and path.suffix.lower() not in endings:
            wanted = " or ".join(endings)
            raise typer.BadParameter(f"{option} must end in {wanted}, got {str(path)!r}")
        if not path.parent.is_dir():
            raise typer.BadParameter(f"{option} must be a file in a folder that exists, got {str(path)!r}")
        try:
            target = file_to_replace(path)
        except OSError as error:
            raise typer.BadParameter(
                f"{option} must be a file that can be written, got {str(path)!r}: {error.strerror}"
            ) from None
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise typer.BadParameter(
                f"{option} must be a file in a folder that can be written, got {str(path)!r}"
            )
        return path

    return parse


def new_folder(option: str) -> Callable[[str], Path]:
    """A parser of the name of a folder to write to, which may be new; refused where a file is in its way."""

    def parse(text: str) -> Path:
        path = Path(text)
        if not str(text):
            raise typer.BadParameter(f"{option} must be a folder, or the name of a new one, got ''")
        nearest = next(one for one in (path, *path.parents) if one.exists() or one == one.parent)
        if not nearest.is_dir():
            raise typer.BadParameter(
                f"{option} must be a folder, or the name of a new one, got {str(path)!r}, "
                "where a file is in the way"
            )
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise typer.BadParameter(f"{option} must be a folder that can be written, got {str(path)!r}")
        return path

    return parse


def _new_file(option: str, help_text: str, *endings: str) -> Any:
    return typer.Option(option, help=help_text, parser=new_file(option, *endings), metavar="FILE")


Beta = Annotated[
    float,
    _number(
        "--beta",
        "Exponent of the noise, in [1, 64]; 1 is Laplace, 2 Gaussian.",
        least=BETA.least,
        most=BETA.most,
    ),
]
Betas = Annotated[
    list[float],
    _number(
        "--beta",
        "Exponent of the noise, in [1, 32]; 1 is Laplace, 2 Gaussian. Give it again for a comparison.",
        least=1.0,
        most=32.0,
    ),
]
Scale = Annotated[
    float | None,
    _number(
        "--scale",
        "Size of the noise: its density is proportional to exp(-(|x|/scale)^beta).",
        least=SCALE.least,
        most=SCALE.most,
    ),
]
NoiseMultiplier = Annotated[
    float | None,
    _number(
        "--noise-multiplier",
        "Size of the noise as scale / (sqrt(2) * sensitivity), > 0; for beta 2, std / sensitivity.",
        above=0.0,
    ),
]
Std = Annotated[
    float | None, _number("--std", "Size of the noise as its standard deviation, > 0.", above=0.0)
]
Sensitivity = Annotated[
    float,
    _number(
        "--sensitivity", "Sensitivity: the most that one record can change the value, > 0.", **SENSITIVITY
    ),
]
Norm = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="How the change of several numbers is measured: the p of the l_p norm, p >= 1, inf, or matched "
        "(a norm slightly below beta); beta if left out. It does not matter for one number.",
        parser=norm,
        metavar="P",
    ),
]
Dimension = Annotated[
    float,
    typer.Option(
        "--dimension",
        help="How many numbers are released together, as gradients are; up to 10^9, or inf.",
        parser=dimension,
        metavar="WHOLE",
    ),
]
Rate = Annotated[
    float,
    _number(
        "--rate",
        "Poisson sampling rate: the probability of each record to be in a step, in (0, 1].",
        above=0.0,
        most=1.0,
    ),
]
SamplingChoice = Annotated[
    str | None,
    typer.Option(
        "--sampling",
        help="How batches are drawn, in place of --rate: fixed-size:SIZE/RECORDS, "
        "with-replacement:SIZE/RECORDS, truncated-poisson:RATE/LARGEST/RECORDS, "
        "allocation:USES/STEPS or shuffled:STEPS of an epoch.",
        parser=sampling,
        metavar="KIND:NUMBERS",
    ),
]
Steps = Annotated[int, _whole("--steps", "How many times the mechanism runs, >= 1.", least=1)]
Epsilon = Annotated[
    float, _number("--epsilon", "Privacy parameter epsilon, >= 0; smaller is more private.", least=0.0)
]
Delta = Annotated[float, _number("--delta", "Privacy parameter delta, in (0, 1).", above=0.0, below=1.0)]
DeltaOrZero = Annotated[
    float,
    _number(
        "--delta",
        "Privacy parameter delta, in (0, 1), for example 1e-6; or 0, for Laplace noise.",
        least=0.0,
        below=1.0,
    ),
]
Seed = Annotated[
    int | None,
    _whole(
        "--seed", "Repeatable noise, for tests. Noise from a seed is NOT private.", least=0, most=2**63 - 1
    ),
]
AdjacencyChoice = Annotated[
    Adjacency,
    typer.Option("--adjacency", help="Which datasets are neighbours: how one record changes between them."),
]
Plot = Annotated[
    Path | None, _new_file("--plot", "Draw a picture and write it to this file, png or svg.", ".png", ".svg")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def check_apart(files: Mapping[str, Path | None]) -> None:
    """Refuse two names of one file: the later one is written, and the earlier one would be lost."""
    seen: dict[str, str] = {}
    for name, path in files.items():
        if path is None:
            continue
        file = os.path.realpath(path)
        if file in seen:
            raise ValueError(
                f"{name} must be another file than {seen[file]}, got {str(path)!r}; name a new file"
            )
        seen[file] = name


def noise_from(
    beta: float,
    scale: float | None,
    noise_multiplier: float | None,
    std: float | None,
    sensitivity: float = 1.0,
) -> GeneralizedGaussian:
    """The noise that exactly one of --scale, --noise-multiplier and --std describes."""
    given = {"--scale": scale, "--noise-multiplier": noise_multiplier, "--std": std}
    named = [option for option, value in given.items() if value is not None]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        raise ValueError(f"exactly one of --scale, --noise-multiplier, --std must be given, got {got}")
    if scale is not None:
        return GeneralizedGaussian(beta, scale)
    try:
        if noise_multiplier is not None:
            return GeneralizedGaussian.from_noise_multiplier(beta, noise_multiplier, sensitivity)
        return GeneralizedGaussian.from_std(beta, std or 0.0)
    except ValueError as error:  # which is about the scale that follows
        raise ValueError(
            f"{named[0]} must give a scale that is covered, got {given[named[0]]:g}: {error}"
        ) from None
