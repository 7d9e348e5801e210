# SPDX-License-Identifier: Apache-2.0
"""Records: results as plain data, written for JSON and read back field by field.

Every record of the command line has one shape, {"kind", "version", ..., "results": [...]}, which
`record.schema.json` describes. `kind` is the name of the command, and `results` is a list. Wherever `epsilon`
stands, it is the three numbers of certified bounds; an epsilon that was asked for is `target_epsilon`.

The first half of this file writes records, the second half reads them: `Fields` checks each field as it is
read, and refuses a damaged one by its name.
"""

import decimal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp import __version__, arguments
from ggdp.accounting import AttackSuccess, Bounds, GaussianPrivacy
from ggdp.calibration import BestNoise, Calibrated, WeighedNoise, run_of
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency, Mechanism, Sampling

if TYPE_CHECKING:
    from ggdp.training.audit import AuditResult
    from ggdp.training.noise_check import NoiseCheck

SEED_CAVEAT = "noise from a seed can be removed by whoever knows or guesses it: this output is not private"
_NUM_BINS = 40  # of the histograms of an audit's scores
_MOST = {"epsilon": math.inf, "mu": math.inf}  # all other bounded numbers are probabilities


def rounded_up(number: float, digits: int = 10) -> str:
    """The number with so many significant digits, rounded up: an upper bound stays one in print.

    >>> rounded_up(1.00000000001), rounded_up(0.25)
    ('1.000000001', '0.25')
    """
    return _rounded(number, digits, decimal.ROUND_CEILING)


def probability(log_prob: float) -> str:
    """A probability from its logarithm, with four digits, also where it is smaller than any double.

    >>> probability(-1.0), probability(-10000.0)
    ('0.3679', '1.135e-4343')
    """
    with decimal.localcontext(prec=20):
        return f"{decimal.Decimal(log_prob).exp():.4g}"


def rounded_down(number: float, digits: int = 10) -> str:
    """The number with so many significant digits, rounded down: a lower bound stays one in print."""
    return _rounded(number, digits, decimal.ROUND_FLOOR)


def _rounded(number: float, digits: int, rounding: str) -> str:
    with decimal.localcontext(prec=digits, rounding=rounding):
        # From repr, the shortest decimal that reads back as this double.
        rounded = (+decimal.Decimal(repr(number))).normalize()
    return f"{rounded:f}" if 1e-4 <= abs(number) < 10.0**digits or number == 0.0 else f"{rounded:e}"


def norm_in_words(step: AdditiveNoise) -> str:
    """The norm in which the sensitivity of a step is measured."""
    matched = ", matched to the noise" if isinstance(step.norm, str) else ""
    return f"l_{step.p:.8g}{matched}"


@dataclass(frozen=True)
class Run:
    """A number of noisy steps, each on a Poisson sample, and which datasets are neighbours.

    Attributes:
        step: one step: the noise, the sensitivity, and for a vector its norm and dimension.
        rate: the probability with which a step takes each record.
        steps: how many steps there are.
        adjacency: which datasets are neighbours.
        sampling: how batches are drawn, where they are not Poisson samples.
    """

    step: AdditiveNoise
    rate: float
    steps: int
    adjacency: Adjacency
    sampling: Sampling | None = None

    @property
    def mechanism(self) -> Mechanism:
        """The run as a mechanism that can be accounted for."""
        return run_of(self.step, self.rate, self.steps, (), self.sampling)

    def to_dict(self) -> dict[str, Any]:
        """Every number that the cost depends on; norm and dimension are given for vectors only."""
        step, noise = self.step, self.step.noise
        return {
            "beta": noise.beta,
            "scale": noise.scale,
            "noise_multiplier": noise.scale / (math.sqrt(2.0) * step.sensitivity),
            "std": noise.std,
            "sensitivity": step.sensitivity,
            "rate": self.rate,
            "steps": self.steps,
            "adjacency": str(self.adjacency),
            **({"sampling": str(self.sampling)} if self.sampling is not None else {}),
            **(plain({"norm": step.norm, "dimension": step.dimension}) if step.dimension != 1 else {}),
        }


def record_of(kind: str, results: list[dict[str, Any]], **shared: Any) -> dict[str, Any]:
    """The record of a command: its results, and the fields that all of them share."""
    return {"kind": kind, "version": __version__, **shared, "results": results}


def bounds_record(bounds: Bounds) -> dict[str, float | None]:
    """The three numbers of bounds; one that is infinite is null, because JSON has no infinity."""
    numbers = {"lower": bounds.lower, "estimate": bounds.estimate, "upper": bounds.upper}
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def epsilon_record(run: Run, delta: float, answer: Bounds) -> dict[str, Any]:
    """Epsilon of a run at a delta."""
    return {"epsilon": bounds_record(answer), "delta": delta, "method": answer.method, **run.to_dict()}


def delta_record(run: Run, epsilon: float, answer: Bounds) -> dict[str, Any]:
    """Delta of a run at an epsilon."""
    told = {"delta": bounds_record(answer), "target_epsilon": epsilon, "method": answer.method}
    return {**told, **run.to_dict()}


def curve_record(run: Run, deltas: list[float], answers: list[Bounds]) -> dict[str, Any]:
    """Epsilon of a run at each delta."""
    points = [
        {"epsilon": bounds_record(answer), "delta": delta, "method": answer.method}
        for delta, answer in zip(deltas, answers, strict=True)
    ]
    return {"curve": points, **run.to_dict()}


def risk_record(
    run: Run,
    attacks: Sequence[AttackSuccess],
    curve: Sequence[tuple[float, Bounds]],
    gaussian: GaussianPrivacy,
    epsilon: Bounds,
    delta: float,
) -> dict[str, Any]:
    """What attackers can achieve against a run, at one prior and several false positive rates.

    Args:
        run: the run.
        attacks: one for each false positive rate; at least one.
        curve: false positive rates, and bounds of the false negative rate at each.
        gaussian: mu and the regret.
        epsilon: bounds at `delta`.
        delta: where epsilon was asked.
    """
    return {
        "attacks": [
            {
                "false_positive_rate": one.false_positive_rate,
                "true_positive_rate": bounds_record(one.true_positive_rate),
                "posterior": bounds_record(one.posterior),
            }
            for one in attacks
        ],
        "advantage": bounds_record(attacks[0].advantage),
        "prior": attacks[0].prior,
        "bayes_accuracy": bounds_record(attacks[0].bayes_accuracy),
        "mu": bounds_record(gaussian.mu),
        "regret": bounds_record(gaussian.regret),
        "least_delta": gaussian.least_delta,
        "trade_off": [
            {"false_positive_rate": rate, "false_negative_rate": bounds_record(found)}
            for rate, found in curve
        ],
        **epsilon_record(run, delta, epsilon),
    }


def calibration_record(found: Calibrated, epsilon: float, adjacency: Adjacency) -> dict[str, Any]:
    """What a calibration found, the epsilon it was asked for, and the epsilon it achieves."""
    run = Run(found.step, found.rate, found.steps, adjacency, found.sampling)
    achieved = epsilon_record(run, found.delta, found.achieved)
    return {**achieved, "target_epsilon": epsilon, "sharp": found.sharp}


def weighed_record(one: WeighedNoise) -> dict[str, Any]:
    """A noise that meets a target, the epsilon it achieves and its loss, also as a logarithm, which does not
    underflow.
    """
    return {
        "beta": one.beta,
        "scale": one.scale,
        "std": one.noise.std,
        "epsilon": bounds_record(one.calibrated.achieved),
        "method": one.calibrated.achieved.method,
        "loss": one.loss,
        "log_loss": one.log_loss,
    }


def choice_record(
    best: BestNoise, tried: Sequence[WeighedNoise], threshold: float | None = None
) -> dict[str, Any]:
    """The best noise for a number of steps, the losses of Laplace and Gaussian noise, and others tried."""
    beside = {"laplace": best.log_laplace_loss, "gaussian": best.log_gaussian_loss}
    return {
        "steps": best.calibrated.steps,
        **({} if threshold is None else {"threshold": threshold}),
        "best": weighed_record(best),
        **{
            name: {"loss": math.exp(log_loss), "log_loss": log_loss} if math.isfinite(log_loss) else None
            for name, log_loss in beside.items()
        },
        "tried": [weighed_record(one) for one in tried],
    }


def noise_facts(noise: GeneralizedGaussian, sensitivity: float = 1.0) -> dict[str, float]:
    """The facts about one noise; `exceeded_with_prob_p` is the t with P(|X| > t) = p.

    >>> noise_facts(GeneralizedGaussian(beta=1.0, scale=2.0))["std"]
    2.8284271247461903
    """
    named = ("mean", "std", "variance", "kurtosis", "entropy", "fisher_information")
    exceeded = {"0.5": 0.25, "0.05": 0.025, "0.001": 0.0005, "1e-9": 0.5e-9}  # p, and the half on one side
    return {
        "beta": noise.beta,
        "scale": noise.scale,
        "noise_multiplier": noise.scale / (math.sqrt(2.0) * sensitivity),
        **{name: getattr(noise, name) for name in named},
        **{f"exceeded_with_prob_{p}": float(noise.isf(half)) for p, half in exceeded.items()},
    }


def plain(value: Any) -> Any:
    """The value with infinity as the text "inf", because JSON has no infinity."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return "inf" if value == math.inf else value


def audit_record(
    name: str, found: "AuditResult", checked: "NoiseCheck | None", *, seeded: bool, synthetic: bool
) -> dict[str, Any]:
    """The result of an audit.

    Args:
        name: what was trained.
        found: what `audit` returned.
        checked: what `check_noise` returned, if it was called.
        seeded: whether the randomness came from a seed.
        synthetic: whether the data were made up.
    """
    plan = found.plan
    return {
        "task": name,
        "synthetic": synthetic,
        "seeded": seeded,
        "method": found.method,
        "assumes": found.assumes,
        "confidence": found.confidence,
        "delta": found.delta,
        "lower_epsilon": found.lower_epsilon,
        "epsilon": bounds_record(found.certified),
        "certified_by": found.certified.method,
        "is_consistent": found.is_consistent,
        "num_canaries": found.num_canaries,
        "num_guesses": found.num_guesses,
        "num_correct": found.num_correct,
        "beta": plan.noise.beta,
        "scale": plan.noise.scale,
        "clip_norm": plan.clip_norm,
        "norm": plain(plan.p),
        "rate": plan.rate,
        "steps": found.steps,
        "dimension": plan.dimension,
        "scores": _histogram(found),
        "noise_check": None if checked is None else _check_record(checked),
    }


def _histogram(found: "AuditResult") -> dict[str, list[float]]:
    low, high = np.quantile(found.scores, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1.0, _NUM_BINS + 1)
    clipped = np.clip(found.scores, edges[0], edges[-1])
    counts = [np.histogram(clipped[chosen], edges)[0] for chosen in (found.included, ~found.included)]
    return {"edges": edges.tolist(), "included": counts[0].tolist(), "left_out": counts[1].tolist()}


def _check_record(checked: "NoiseCheck") -> dict[str, Any]:
    return {
        "passed": checked.passed,
        "level": checked.level,
        "steps": checked.steps,
        "values": checked.num_values,
        "tests": [{"name": one.name, "p_value": one.p_value, "where": one.where} for one in checked.tests],
    }


@dataclass(frozen=True)
class CertifiedNumber:
    """Certified bounds of epsilon or of delta, read from a record: the truth lies in [lower, upper].

    Attributes:
        name: epsilon or delta.
        upper: None where no upper bound could be certified; `lower` and `estimate` then mean nothing.
        lower: no more than the truth.
        estimate: the best single value, where the record has one.
    """

    name: str
    upper: float | None
    lower: float = 0.0
    estimate: float | None = None

    def proved(self, method: str) -> tuple[str, ...]:
        """The bounds as a sentence, with the method that proved them."""
        if self.upper is None:
            return (f"No upper bound of {self.name} could be certified (method: {method}).",)
        return (
            f"The true {self.name} is at most {rounded_up(self.upper, 8)} and at least "
            f"{rounded_down(self.lower, 8)}: certified, all numerical error included (method: {method}).",
        )

    def best_value(self) -> tuple[str, ...]:
        """The estimate as a sentence, where there is one."""
        if self.estimate is None:
            return ()
        return (f"The best single value of {self.name} is {self.estimate:.8g}; publish the upper bound.",)


@dataclass(frozen=True)
class Fields:
    """One JSON object of a record, whose fields are checked as they are read.

    Attributes:
        content: the object.
        place: where in the record it stands, for messages; empty at the top.

    >>> Fields({"epsilon": {"upper": -1}}).inside("epsilon").real("upper", least=0.0)
    Traceback (most recent call last):
    ...
    ValueError: epsilon.upper must be a number in [0, inf), got -1
    """

    content: Mapping[str, Any]
    place: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def holds(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.content.get(name) is not None

    def value(self, name: str) -> Any:
        """The field as it is, for a caller that checks it; never null."""
        if not self.holds(name):
            raise ValueError(f"{self._named(name)} is missing" + " (null)" * (name in self))
        return self.content[name]

    def real(
        self, name: str, *, least: float = -math.inf, most: float = math.inf, above: float = -math.inf
    ) -> float:
        """A finite number in [least, most], greater than `above`."""
        return arguments.real(self._named(name), self.value(name), least=least, most=most, above=above)

    def whole(self, name: str, *, least: int = 0, most: int | None = None) -> int:
        """A whole number in [least, most]."""
        return arguments.whole(self._named(name), self.value(name), least=least, most=most)

    def text(self, name: str) -> str:
        """Text."""
        return _text(self._named(name), self.value(name))

    def truth(self, name: str) -> bool:
        """True or false."""
        return bool(self._of_type(name, bool))

    def inside(self, name: str) -> "Fields":
        """The object under this name."""
        return Fields(self._of_type(name, dict), self._named(name))

    def values(self, name: str, *, least: float = -math.inf) -> list[float]:
        """A list of finite numbers >= least, at least one."""
        return [arguments.real(place, one, least=least) for place, one in self._items(name, "number")]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, which may be empty."""
        return tuple(_text(place, one) for place, one in self._items(name))

    def listed(self, name: str) -> list["Fields"]:
        """A list of objects, at least one."""
        items = self._items(name, "object")
        for place, one in items:
            arguments.instance(place, one, dict)
        return [Fields(one, place) for place, one in items]

    def adjacency(self) -> Adjacency:
        """The field `adjacency`: which datasets are neighbours."""
        value = self.value("adjacency")
        arguments.one_of(self._named("adjacency"), value, [str(one) for one in Adjacency])
        return Adjacency(value)

    def bounds(self, name: str) -> CertifiedNumber:
        """Bounds of epsilon, of delta or of a risk, as `bounds_record` wrote them."""
        bounds = self.inside(name)
        if "upper" in bounds and not bounds.holds("upper"):  # an infinite bound is written as null
            return CertifiedNumber(name, None)
        upper = bounds.real("upper", least=0.0, most=_MOST.get(name, 1.0))
        lower = bounds.real("lower", most=upper)
        estimate = bounds.real("estimate", least=lower, most=upper) if bounds.holds("estimate") else None
        return CertifiedNumber(name, upper, lower, estimate)

    def noise(self) -> GeneralizedGaussian:
        """The noise that the fields `beta` and `scale` describe."""
        return GeneralizedGaussian(self.real("beta"), self.real("scale"))

    def run(self) -> Run:
        """The run that `Run.to_dict` described."""
        sensitivity, noise = self.real("sensitivity", above=0.0), self.noise()
        vector = ("norm", "dimension") if "norm" in self or "dimension" in self else ()
        step = AdditiveNoise(noise, sensitivity, *map(self.extended, vector))
        rate, steps = self.real("rate", above=0.0, most=1.0), self.whole("steps", least=1)
        return Run(step, rate, steps, self.adjacency())

    def extended(self, name: str) -> Any:
        """The field with the text "inf" as a number; the caller checks it."""
        value = self.value(name)
        return math.inf if value == "inf" else value

    def _items(self, name: str, kind: str = "") -> list[tuple[str, Any]]:
        """The members of a list, each with its place; if they have a kind, at least one is needed."""
        found = self._of_type(name, list)
        if kind and not found:
            raise ValueError(f"{self._named(name)} must hold at least one {kind}, got an empty list")
        return [(f"{self._named(name)}[{position}]", one) for position, one in enumerate(found)]

    def _of_type(self, name: str, kind: type) -> Any:
        value = self.value(name)
        arguments.instance(self._named(name), value, kind)
        return value

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def _text(name: str, value: object) -> str:
    arguments.instance(name, value, str)
    text = str(value)
    # JSON can spell half a character, which no file and no picture can hold.
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{name} must be text that can be written, got {arguments.shown(value)}")
    return text
