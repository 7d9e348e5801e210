# SPDX-License-Identifier: Apache-2.0
"""What the explorer answers: certified bounds of epsilon, noise of equal privacy, tails, and four pictures.

All numbers come from the functions that any program calls: `account`, `calibrate_scale`, `Risk`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.accounting import Bounds, PrivacyProfile, Risk, account
from ggdp.calibration import calibrate_scale
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, PoissonSampled
from ggdp.reporting import canvas
from ggdp.reporting.explorer.question import Question, run_of
from ggdp.reporting.records import rounded_down, rounded_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Answer:
    """A run of noisy steps and what it costs.

    Attributes:
        question: what was asked.
        step: one noisy step; its sensitivity is 1, so that noise is in units of the sensitivity.
        profile: of all steps together.
        epsilon: certified, at the delta asked.
    """

    question: Question
    step: AdditiveNoise
    profile: PrivacyProfile
    epsilon: Bounds

    @property
    def noise(self) -> GeneralizedGaussian:
        """The noise of every step, in units of the sensitivity."""
        return self.step.noise

    @property
    def noise_multiplier(self) -> float:
        """scale / sqrt(2); at beta = 2 the standard deviation."""
        if self.question.noise_multiplier is not None:
            return self.question.noise_multiplier
        return self.noise.scale / math.sqrt(2.0)

    @property
    def is_sharp(self) -> bool:
        """Whether the bounds are so close that the fast engines must have answered."""
        return self.epsilon.upper - self.epsilon.lower <= 1e-3 * self.epsilon.upper


def answer_of(question: Question) -> Answer:
    """The certified answer.

    Raises:
        ValueError: something is out of range, no noise meets the target, or epsilon is too large.
        ArithmeticError: no method certifies an answer.
    """
    if question.target_epsilon is not None:
        found = calibrate_scale(epsilon=question.target_epsilon, **run_of(question))
        profile = account(found.mechanism, adjacency=question.adjacency)
        return Answer(question, found.step, profile, found.achieved)
    assert question.noise_multiplier is not None
    noise = GeneralizedGaussian.from_noise_multiplier(question.beta, question.noise_multiplier)
    step = AdditiveNoise(noise, norm=question.norm, dimension=question.dimension)
    run = Composed(PoissonSampled(step, question.rate), times=question.steps)
    profile = account(run, adjacency=question.adjacency)
    return Answer(question, step, profile, profile.epsilon(delta=question.delta))


def sentence(error: BaseException) -> str:
    """An error as one sentence, in the words of the page."""
    text = " ".join(str(error).split()) or type(error).__name__
    for name, word in (
        ("noise_multiplier", "noise multiplier"),
        ("times must", "steps must"),
        ("dimension must", "numbers per step must"),
        ("and dimension=inf", "and any number of numbers"),
        ("give the dimension", "give their number"),
    ):
        text = text.replace(name, word)
    return f"{text[:1].upper()}{text[1:]}."


# --- what is shown of an answer


def facts(answer: Answer) -> dict[str, str]:
    """The numbers of the headline, as text. Bounds are rounded to their own side, amounts of noise up."""
    epsilon, noise = answer.epsilon, answer.noise
    width = epsilon.upper - epsilon.lower
    return {
        "epsilon": rounded_up(epsilon.upper, 6),
        "lower": rounded_down(epsilon.lower),
        "upper": rounded_up(epsilon.upper),
        "width": f"{width:.1e}" if width > 0.0 else "0",
        "percent": f"{100.0 * width / epsilon.upper:.2g}%" if width > 0.0 else "0%",
        "method": epsilon.method,
        "noise multiplier": rounded_up(answer.noise_multiplier, 6),
        "scale": rounded_up(noise.scale, 6),
        "standard deviation": f"{noise.std:.6g}",
    }


def run_in_words(answer: Answer) -> str:
    """What is released and how it is protected, for a reader who did not turn the knobs."""
    question, step = answer.question, answer.step
    many = "1 step" if question.steps == 1 else f"{question.steps:,} steps"
    sampled = "" if question.rate == 1.0 else f" on a random {100.0 * question.rate:.4g}% of the records"
    size = "any number of numbers" if math.isinf(question.dimension) else f"{question.dimension:,} numbers"
    vector = f"{size}, which one record changes by at most 1 in the l_{step.p:.4g} norm"
    released = "one number, which one record changes by at most 1" if question.dimension == 1 else vector
    each = "releases" if question.steps == 1 else "each release"
    return f"{many}{sampled}, {each} {released}; {NEIGHBOURS[question.adjacency]}."


NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "privacy of a record that is added or removed",
    Adjacency.ADD: "privacy of a record that is added",
    Adjacency.REMOVE: "privacy of a record that is removed",
    Adjacency.REPLACE: "privacy of a record that is replaced by another",
}


@dataclass(frozen=True)
class Rival:
    """Laplace or Gaussian noise that is as private; without noise where none is found, and why."""

    name: str
    noise: GeneralizedGaussian | None
    reason: str = ""


def rivals_of(answer: Answer) -> list[Rival]:
    """Laplace and Gaussian noise with the same epsilon at the same delta, for the same run in the same norm.

    That of the two which the answer already has is left out.
    """
    others = [(name, beta) for name, beta in _NAMED if beta != answer.noise.beta]
    return [_rival(answer, name, beta) for name, beta in others]


_NAMED = (("Laplace", 1.0), ("Gaussian", 2.0))


def _rival(answer: Answer, name: str, beta: float) -> Rival:
    run = {**run_of(answer.question), "beta": beta, "norm": answer.step.p}
    try:
        return Rival(name, calibrate_scale(epsilon=answer.epsilon.upper, **run).noise)
    except (ValueError, ArithmeticError) as error:
        return Rival(name, None, sentence(error))


def comparison(answer: Answer, rivals: Sequence[Rival]) -> list[str]:
    """What Laplace and Gaussian noise of equal privacy would need, in words."""
    told = []
    for rival in rivals:
        if rival.noise is None:
            told.append(f"{rival.name} noise of equal privacy is not known here. {rival.reason}")
            continue
        more = 100.0 * (rival.noise.std / answer.noise.std - 1.0)
        amount = f"{abs(more):.1f}% {'more' if more > 0 else 'less'}" if abs(more) >= 0.05 else "as much"
        told.append(
            f"{rival.name} noise of equal privacy has {amount} noise: "
            f"its standard deviation is {rival.noise.std:.4g}."
        )
    return told


@dataclass(frozen=True)
class TailRow:
    """How often noise exceeds `t` in size, for each noise by its name; None where there is no such noise."""

    t: float
    weights: dict[str, float | None]


def tail_rows(answer: Answer, rivals: Sequence[Rival]) -> list[TailRow]:
    """P(|noise| > t) for t at about 1, 2, 3, 5 and 8 standard deviations, in units of the sensitivity."""
    places = [float(f"{multiple * answer.noise.std:.2g}") for multiple in (1, 2, 3, 5, 8)]
    noises = _noises(answer, rivals)
    names = [label(answer), *(rival.name for rival in rivals)]
    return [
        TailRow(t, {name: float(noises[name].tail_weight(t)) if name in noises else None for name in names})
        for t in places
    ]


def label(answer: Answer) -> str:
    """The noise of the answer by name."""
    known = {beta: name for name, beta in _NAMED}
    return known.get(answer.noise.beta, f"beta = {answer.noise.beta:g}")


def _noises(answer: Answer, rivals: Sequence[Rival]) -> dict[str, GeneralizedGaussian]:
    """All noises that there are, this one first."""
    known = {rival.name: rival.noise for rival in rivals if rival.noise is not None}
    return {label(answer): answer.noise, **known}


_RATES = (0.0, 0.001, 0.01, *(k / 20.0 for k in range(1, 20)), 0.99, 0.999, 1.0)
_FEW_RATES = (0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0)


def trade_off_of(answer: Answer) -> list[tuple[float, Bounds]]:
    """The least false negative rate of any attacker, at each of several false positive rates.

    There are few of them where only the slow methods for vectors certify an answer.
    """
    rates = _RATES if answer.is_sharp else _FEW_RATES
    return list(zip(rates, Risk(answer.profile).trade_off_curve(rates), strict=True))


def attack_in_words(trade_off: Sequence[tuple[float, Bounds]]) -> str:
    """What the trade-off means at one false alarm in a hundred."""
    missed = dict(trade_off)[0.01]
    found = min(100.0 * (1.0 - missed.lower), 100.0)
    return (
        "An attacker who accuses 1% of the people who are not in the data "
        f"finds at most {rounded_up(found, 3)}% of those who are."
    )


# --- pictures, each as an SVG file


def curve_picture(answer: Answer) -> bytes:
    """Draw delta against the certified bounds of epsilon, and the place that was asked."""
    delta = answer.question.delta
    least = 1e-12 if delta == 0.0 else max(min(1e-12, delta / 100.0), 1e-100)
    deltas = np.geomspace(least, 1e-2, 17 if answer.is_sharp else 9).tolist()
    bounds = [answer.profile.epsilon_or_infinity(delta=one) for one in deltas]
    drawn = [(one, at) for one, at in zip(deltas, bounds, strict=True) if math.isfinite(at.upper)]
    figure, axes = _panel()
    uppers, places = [at.upper for _, at in drawn], [one for one, _ in drawn]
    axes.fill_betweenx(places, [at.lower for _, at in drawn], uppers, color=canvas.COLOURS[0], alpha=0.2)
    axes.plot(uppers, places, ".-", color=canvas.COLOURS[0], linewidth=2.0)
    if delta > 0.0:
        axes.plot([answer.epsilon.upper], [delta], "o", color=canvas.COLOURS[1], markersize=8)
    axes.set_yscale("log")
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epsilon, certified")
    axes.set_ylabel("delta")
    return canvas.svg(figure)


def density_picture(answer: Answer, rivals: Sequence[Rival]) -> bytes:
    """Draw the densities of this noise and of Laplace and Gaussian noise of equal privacy."""
    noises = _noises(answer, rivals)
    end = max(float(noise.isf(0.005)) for noise in noises.values())
    x = np.linspace(-end, end, 401)
    figure, axes = _panel()
    for (name, noise), style in zip(noises.items(), _styles(answer, noises), strict=True):
        axes.plot(x, noise.pdf(x), label=name, **style)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(-end, end)
    axes.set_xlabel("noise, in units of the sensitivity")
    axes.set_ylabel("density")
    axes.legend(frameon=False, loc="upper right", handlelength=1.6)
    return canvas.svg(figure)


def tail_picture(answer: Answer, rivals: Sequence[Rival]) -> bytes:
    """Draw how often noise is larger than t, against t, on a logarithmic axis."""
    noises = _noises(answer, rivals)
    end = max(float(noise.isf(0.5e-9)) for noise in noises.values())
    t = np.linspace(0.0, end, 301)
    figure, axes = _panel()
    for (name, noise), style in zip(noises.items(), _styles(answer, noises), strict=True):
        axes.plot(t, np.maximum(noise.tail_weight(t), 1e-300), label=name, **style)
    axes.set_yscale("log")
    axes.set_ylim(1e-9, 1.5)
    axes.set_xlim(0.0, end)
    axes.set_xlabel("t, in units of the sensitivity")
    axes.set_ylabel("P(|noise| > t)")
    axes.legend(frameon=False, loc="upper right", handlelength=1.6)
    return canvas.svg(figure)


def trade_off_picture(trade_off: Sequence[tuple[float, Bounds]]) -> bytes:
    """Draw the least false negative rate against the false positive rate; nobody can be in the shaded area.

    The shaded area is a stair. The line joins its corners; a convex curve may lie below that line.
    """
    rates, missed = [rate for rate, _ in trade_off], [bounds.lower for _, bounds in trade_off]
    figure, axes = _panel()
    axes.fill_between(rates, 0.0, missed, step="pre", color=canvas.COLOURS[0], alpha=0.12, linewidth=0.0)
    axes.plot(rates, missed, ".-", color=canvas.COLOURS[0], linewidth=1.2, label="best attacker")
    axes.plot([0.0, 1.0], [1.0, 0.0], color="#7f7f7f", linestyle=":", label="blind guessing")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("false negative rate")
    axes.legend(frameon=False, loc="upper right")
    return canvas.svg(figure)


def _panel() -> tuple["Figure", Any]:
    """One empty panel, so small that its letters are read on a phone."""
    figure, (axes,) = canvas.panels(1)
    figure.set_size_inches(4.6, 3.1)
    axes.locator_params(axis="x", nbins=6)
    return figure, axes


def _styles(answer: Answer, noises: Sequence[str] | dict[str, GeneralizedGaussian]) -> list[dict[str, Any]]:
    """A line for each noise: this one wide and blue, Laplace and Gaussian thin, each with its own dashes."""
    own = {"color": canvas.COLOURS[0], "linestyle": "-", "linewidth": 2.6}
    others = {
        "Laplace": {"color": canvas.COLOURS[1], "linestyle": "--", "linewidth": 1.6},
        "Gaussian": {"color": canvas.GAUSSIAN_COLOUR, "linestyle": "-.", "linewidth": 1.6},
    }
    return [own if name == label(answer) else others[name] for name in noises]
