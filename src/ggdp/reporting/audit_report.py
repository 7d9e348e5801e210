# SPDX-License-Identifier: Apache-2.0
"""An audit as plain data, and the report of it: what an attack has shown beside what is certified."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.reporting.certified_number import certified_number
from ggdp.reporting.privacy_records import bounds_record
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Picture, Report
from ggdp.reporting.rounding import rounded_down, rounded_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ggdp.training.audit import AuditResult
    from ggdp.training.noise_check import NoiseCheck

_BINS = 40
_NO_GUARANTEE = (
    "An audit promises nothing: it shows that epsilon is at least so large. The guarantee of a run is its "
    "certified epsilon, in the report of the run itself."
)


def audit_record(
    name: str, found: "AuditResult", checked: "NoiseCheck | None", *, seeded: bool, synthetic: bool
) -> dict[str, Any]:
    """The result of an audit, for JSON.

    Args:
        name: what was trained.
        found: what `audit` returned.
        checked: what `check_noise` returned, if it was asked.
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
        "norm": "inf" if plan.p == math.inf else plan.p,
        "rate": plan.rate,
        "steps": found.steps,
        "dimension": plan.dimension,
        "scores": _histogram(found),
        "noise_check": None if checked is None else _check_record(checked),
    }


def _histogram(found: "AuditResult") -> dict[str, list[float]]:
    low, high = np.quantile(found.scores, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    clipped = np.clip(found.scores, edges[0], edges[-1])
    counts = [np.histogram(clipped[chosen], edges)[0] for chosen in (found.included, ~found.included)]
    return {"edges": edges.tolist(), "included": counts[0].tolist(), "left_out": counts[1].tolist()}


def _check_record(checked: "NoiseCheck") -> dict[str, Any]:
    tests = [{"name": one.name, "p_value": one.p_value, "where": one.where} for one in checked.tests]
    return {
        "passed": checked.passed,
        "level": checked.level,
        "steps": checked.steps,
        "values": checked.num_values,
        "tests": tests,
    }


def verdict(record: dict[str, Any]) -> str:
    """One sentence on the attack: whether it contradicts the claim."""
    lower, upper = record["lower_epsilon"], record["epsilon"]["upper"]
    if record["is_consistent"]:
        return "The attack shows no more than is certified."
    return (
        f"CONTRADICTION: the attack shows epsilon >= {rounded_down(lower, 4)}, more than the "
        f"{rounded_up(upper, 4)} that is certified. The run does not do what its ledger says."
    )


def check_verdict(check: dict[str, Any]) -> str:
    """One sentence on the steps."""
    if check["passed"]:
        return f"All {len(check['tests'])} tests of noise, clipping and sampling pass."
    allowed = check["level"] / len(check["tests"])
    failed = [f"{one['name']} ({one['where']})" for one in check["tests"] if one["p_value"] < allowed]
    return f"FAILED: {'; '.join(failed)}. The steps do not do what the plan says."


def audit_report(fields: Fields) -> Report:
    """A result of `audit`."""
    record = _checked(fields)
    upper = record["epsilon"]["upper"]
    confidence = f"{100.0 * record['confidence']:g}%"
    check = record["noise_check"]
    contradicts = () if record["is_consistent"] else (verdict(record),)
    fails = () if check is None or check["passed"] else (check_verdict(check),)
    made_up = ("The data were made up: this was a trial of the program.",) if record["synthetic"] else ()
    certified = "No upper bound of epsilon is certified." if upper is None else (
        f"Certified: epsilon is at most {rounded_up(upper, 6)} at delta = {record['delta']:g} "
        f"(method: {record['certified_by']})."
    )  # fmt: skip
    return Report(
        title=f"Audit of a private training run on {record['task']}, beta = {record['beta']:g}",
        guarantee=None,
        no_guarantee=_NO_GUARANTEE,
        settings=_settings(record),
        proved=(certified,),
        estimated=(
            f"Shown by the attack: epsilon is at least {rounded_down(record['lower_epsilon'], 4)} at delta = "
            f"{record['delta']:g}, with a confidence of {confidence}. The bound assumes {record['assumes']}.",
            *(() if contradicts else (verdict(record),)),
            *(() if check is None or fails else (check_verdict(check),)),
        ),
        warnings=(*contradicts, *fails, *made_up),
        pictures=(_picture(record),),
    )


def _checked(fields: Fields) -> dict[str, Any]:
    upper = certified_number("epsilon", fields.inside("epsilon")).upper
    lower = fields.real("lower_epsilon", least=0.0)
    canaries = fields.whole("num_canaries", least=1)
    guesses = fields.whole("num_guesses", most=canaries)
    record = {
        "task": fields.text("task"),
        "synthetic": fields.truth("synthetic"),
        "seeded": fields.truth("seeded"),
        "method": fields.text("method"),
        "assumes": fields.text("assumes"),
        "confidence": fields.real("confidence", least=0.5, most=1.0),
        "delta": fields.real("delta", least=0.0, most=1.0),
        "lower_epsilon": lower,
        "epsilon": {"upper": upper},
        "certified_by": fields.text("certified_by"),
        "is_consistent": upper is None or lower <= upper,
        "num_canaries": canaries,
        "num_guesses": guesses,
        "num_correct": fields.whole("num_correct", most=guesses),
        "beta": fields.real("beta", least=1.0),
        "scale": fields.real("scale", above=0.0),
        "clip_norm": fields.real("clip_norm", above=0.0),
        "norm": fields.value("norm") if fields.value("norm") == "inf" else fields.real("norm", least=1.0),
        "rate": fields.real("rate", above=0.0, most=1.0),
        "steps": fields.whole("steps", least=1),
        "dimension": fields.whole("dimension", least=1),
        "scores": _scores(fields.inside("scores")),
        "noise_check": _noise_check(fields.inside("noise_check")) if fields.holds("noise_check") else None,
    }
    if fields.truth("is_consistent") != record["is_consistent"]:
        raise ValueError(
            f"is_consistent must be {str(record['is_consistent']).lower()}, as the two bounds say, got "
            "another value"
        )
    return record


def _scores(scores: Fields) -> dict[str, list[float]]:
    edges = _numbers(scores, "edges", least=-math.inf)
    if not all(one < other for one, other in itertools.pairwise(edges)):
        raise ValueError("scores.edges must be numbers that rise, got others")
    found = {"edges": edges}
    for name in ("included", "left_out"):
        found[name] = _numbers(scores, name, least=0.0)
        if len(found[name]) != len(edges) - 1:
            raise ValueError(f"scores.{name} must hold {len(edges) - 1} counts, got {len(found[name])}")
    return found


def _numbers(fields: Fields, name: str, least: float) -> list[float]:
    values = fields.value(name)
    if not isinstance(values, list) or not values:
        raise ValueError(f"scores.{name} must be a list of numbers, got {type(values).__name__}")
    one_by_one = Fields({f"{name}[{place}]": value for place, value in enumerate(values)}, "scores")
    return [one_by_one.real(key, least=least) for key in one_by_one.content]


def _noise_check(check: Fields) -> dict[str, Any]:
    tests: list[dict[str, Any]] = [
        {
            "name": one.text("name"),
            "p_value": one.real("p_value", least=0.0, most=1.0),
            "where": one.text("where"),
        }
        for one in check.listed("tests")
    ]
    level = check.real("level", above=0.0, most=1.0)
    passed = all(one["p_value"] >= level / len(tests) for one in tests)
    if check.truth("passed") != passed:
        raise ValueError(
            f"noise_check.passed must be {str(passed).lower()}, as its tests say, got another value"
        )
    return {
        "tests": tests,
        "level": level,
        "passed": passed,
        "steps": check.whole("steps", least=1),
        "values": check.whole("values", least=1),
    }


def _settings(record: dict[str, Any]) -> dict[str, str]:
    check = record["noise_check"]
    settings = {
        "method": f"{record['method']}, {record['num_canaries']} canaries",
        "guesses": f"{record['num_correct']} of {record['num_guesses']} were right",
        "noise": f"beta = {record['beta']:g}, scale = {record['scale']:.6g}, on the sum of clipped gradients",
        "clipping": f"{record['clip_norm']:g} (norm: l_{_short(record['norm'])})",
        "sampling rate": f"{record['rate']:.6g} (Poisson)",
        "steps": f"{record['steps']}",
        "trainable parameters": f"{record['dimension']}, one for each canary among them",
        "randomness": "from a seed" if record["seeded"] else "unpredictable",
    }
    if check is not None:
        settings["tests of the steps"] = (
            f"{len(check['tests'])} on {check['values']} numbers of {check['steps']} steps; a right run fails"
            f" with probability {check['level']:g}"
        )
        for one in check["tests"]:
            settings[one["name"]] = f"p = {one['p_value']:.3g}, {one['where']}"
    return settings


def _short(norm: float | str) -> str:
    return norm if isinstance(norm, str) else f"{norm:.4g}"


def _picture(record: dict[str, Any]) -> Picture:
    def drawn() -> "Figure":
        return audit_figure(record)

    return drawn, "What the adversary saw of canaries, and the two bounds on epsilon."


def audit_figure(record: dict[str, Any]) -> "Figure":
    """Draw a record: the evidence on canaries that were in or left out, and the two bounds on epsilon."""
    from ggdp.reporting import canvas

    figure, (evidence, bounds) = canvas.panels(2)
    scores = record["scores"]
    for number, (name, label) in enumerate((("included", "in the training set"), ("left_out", "left out"))):
        style = canvas.style_number(number)
        counts: Sequence[float] = scores[name]
        total = sum(counts) or 1.0
        evidence.stairs([count / total for count in counts], scores["edges"], label=label, **style)
    evidence.set_xlabel("evidence that the canary is in (log likelihood ratio)")
    evidence.set_ylabel("share of the canaries")
    evidence.legend(frameon=False, fontsize="small")
    guessed = f"{record['num_correct']} of {record['num_guesses']} guesses right"
    evidence.set_title(guessed, fontsize="medium", loc="left")
    lower, upper = record["lower_epsilon"], record["epsilon"]["upper"]
    shown = canvas.COLOURS[2] if record["is_consistent"] else canvas.COLOURS[1]
    bounds.bar([0], [lower], width=0.5, color=shown)
    names = [f"shown, {100.0 * record['confidence']:g}% confidence"]
    if upper is not None:
        bounds.bar([1], [upper], width=0.5, color=canvas.COLOURS[0])
        names.append("certified, at most")
    bounds.set_xticks(range(len(names)), names)
    for place, value in enumerate([lower] if upper is None else [lower, upper]):
        bounds.annotate(f"{value:.3g}", (place, value), ha="center", va="bottom")
    bounds.set_ylabel(f"epsilon, delta = {record['delta']:g}")
    bounds.margins(y=0.15)
    title = "consistent" if record["is_consistent"] else "CONTRADICTION"
    bounds.set_title(title, fontsize="medium", loc="left")
    return figure
