# SPDX-License-Identifier: Apache-2.0
"""What `ggdp report` says of a training run (`train`) and of an attack on one (`audit`)."""

import itertools
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ggdp.mechanisms import AdditiveNoise
from ggdp.reporting import figures
from ggdp.reporting.guarantee import one_pair
from ggdp.reporting.pages import NO_BOUND, SEEDED, Report
from ggdp.reporting.records import SEED_CAVEAT, Fields, norm_in_words, rounded_down, rounded_up

CHOICE_CAVEAT = (
    "choosing settings, or the best epoch, by the test score is not part of epsilon; the score itself is "
    "computed on data that training does not see"
)
"""What every record of `train` says, and this page in words of its own."""

_COVERED = (
    "Everything computed from the noisy gradients is covered: the models of all epochs, not only the last. "
    "The number of examples is taken to be public."
)
_TUNING = (
    "Not covered: settings that were chosen by looking at results on the same private data. Every run that "
    "was looked at is a release of its own, and this report counts one."
)
_MADE_UP = "The data were made up: this was a trial of the program."
_NO_GUARANTEE = (
    "An audit promises nothing: it shows that epsilon is at least so large. The guarantee of a run is its "
    "certified epsilon, in the report of the run itself."
)


def training_report(result: Fields) -> Report:
    """A result of `train`: the certified epsilon of the model, and the course of the run."""
    plan, seeded = result.inside("plan"), result.truth("seeded")
    # One noisy sum of clipped gradients.
    step = AdditiveNoise(
        plan.inside("noise").noise(),
        plan.real("clip_norm", above=0.0),
        plan.extended("norm"),
        plan.whole("dimension", least=1),
    )
    delta, rows = plan.real("delta", least=0.0, most=1.0), result.listed("rows")
    for row in rows:
        row.whole("epoch", least=1)
        row.whole("steps", most=plan.whole("steps", least=1))
        row.bounds("epsilon")
        row.real("score", least=0.0, most=1.0)
    bounds = rows[-1].bounds("epsilon")
    _check_summary(result, bounds.upper, delta)
    made_up = (_MADE_UP,) if result.truth("synthetic") else ()
    # The caveats of every run are said elsewhere on the page.
    caveats = [text for text in result.texts("caveats") if text not in (CHOICE_CAVEAT, SEED_CAVEAT)]
    return Report(
        title=f"A model for {result.text('task')}, trained by beta-DP-SGD",
        guarantee=None if seeded else one_pair(bounds.upper, delta, result.adjacency()),
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings=_training_settings(result, step, rows[-1].whole("steps")),
        proved=(*bounds.proved(result.text("method")), _COVERED),
        estimated=("Scores are measurements on evaluation data, and say nothing about privacy.", _TUNING),
        warnings=(*made_up, *(f"Not covered: {text}." for text in caveats)),
        pictures=(
            (
                partial(figures.training_figure, _checked_summary(result, step)),
                "Certified epsilon and measured score after every epoch.",
            ),
        ),
    )


def _check_summary(result: Fields, epsilon: float | None, delta: float) -> None:
    """Refuse a record that has lost its last rows, because it would promise too much."""
    told = result.inside("epsilon").content.get("upper")
    if told != epsilon:
        raise ValueError(f"epsilon.upper must be {epsilon!r}, as in the last of rows, got {told!r}")
    if result.holds("delta") and result.value("delta") != delta:
        raise ValueError(f"delta must be {delta!r}, as in plan, got {result.value('delta')!r}")
    plan = result.inside("plan")
    if plan.holds("adjacency") and plan.adjacency() is not result.adjacency():
        raise ValueError(
            f"adjacency must be {str(plan.adjacency())!r}, as in plan, got {str(result.adjacency())!r}"
        )


def _checked_summary(result: Fields, step: AdditiveNoise) -> dict[str, Any]:
    """The result with its summary taken from plan and rows, which are checked, and not as it says itself."""
    plan, best = result.inside("plan"), max(result.listed("rows"), key=lambda row: row.real("score"))
    return {
        "rows": result.value("rows"),
        "task": result.text("task"),
        "synthetic": result.truth("synthetic"),
        "best": {"epoch": best.value("epoch"), "accuracy": best.value("score")},
        "beta": step.noise.beta,
        "target_epsilon": plan.real("max_epsilon", above=0.0) if plan.holds("max_epsilon") else None,
        "delta": plan.real("delta"),
        "rate": plan.real("rate"),
        "clip_norm": step.sensitivity,
        "norm": "inf" if step.p == math.inf else step.p,
    }


def _training_settings(result: Fields, step: AdditiveNoise, steps: int) -> dict[str, str]:
    plan, noise = result.inside("plan"), step.noise
    rate, examples = plan.real("rate", above=0.0, most=1.0), plan.whole("num_examples", least=1)
    batches = plan.text("sampling") if plan.holds("sampling") else "Poisson samples"
    settings = {
        "noise": f"beta = {noise.beta:g}, scale = {noise.scale:.6g}, on the sum of clipped gradients",
        "clipping": f"{step.sensitivity:g} (norm: {norm_in_words(step)})",
        "batches": f"{batches}, on average {rate:.6g} of {examples} examples",
        "steps": f"{steps} of {plan.whole('steps')} planned, stopped by the {result.text('stopped_by')}",
        "trainable parameters": f"{step.dimension}",
    }
    if plan.holds("alongside"):
        plan.inside("alongside")  # refused unless it is an object
        settings["also charged"] = "other releases on the same data, as the record lists them"
    return settings


def audit_report(result: Fields) -> Report:
    """A result of `audit`: what an attack has shown, beside what is certified."""
    upper, lower = result.bounds("epsilon").upper, result.real("lower_epsilon", least=0.0)
    delta, assumes = result.real("delta", least=0.0, most=1.0), result.text("assumes")
    confidence, method = result.real("confidence", least=0.5, most=1.0), result.text("certified_by")
    _check_verdict(result, "is_consistent", upper is None or lower <= upper, "the two bounds say")
    _check_scores(result.inside("scores"))
    settings = _audit_settings(result)
    content = result.content
    findings: list[str] = []
    warnings: list[str] = []
    (findings if content["is_consistent"] else warnings).append(verdict(content))
    if result.holds("noise_check"):
        settings |= _check_settings(result.inside("noise_check"))
        check = content["noise_check"]
        (findings if check["passed"] else warnings).append(check_verdict(check))
    if result.truth("synthetic"):
        warnings.append(_MADE_UP)
    certified = (
        "No upper bound of epsilon is certified."
        if upper is None
        else f"Certified: epsilon is at most {rounded_up(upper, 6)} at delta = {delta:g} (method: {method})."
    )
    shown = (
        f"Shown by the attack: epsilon is at least {rounded_down(lower, 4)} at delta = {delta:g}, with a "
        f"confidence of {100.0 * confidence:g}%. The bound assumes {assumes}."
    )
    caption = "What the adversary saw of canaries, and the two bounds on epsilon."
    return Report(
        title=f"Audit of a private training run on {result.text('task')}, beta = {result.real('beta'):g}",
        guarantee=None,
        no_guarantee=_NO_GUARANTEE,
        settings=settings,
        proved=(certified,),
        estimated=(shown, *findings),
        warnings=tuple(warnings),
        pictures=((partial(figures.audit_figure, content), caption),),
    )


def verdict(result: Mapping[str, Any]) -> str:
    """One sentence on an attack: whether it contradicts what is certified."""
    lower, upper = result["lower_epsilon"], result["epsilon"]["upper"]
    if result["is_consistent"]:
        return "The attack shows no more than is certified."
    return (
        f"CONTRADICTION: the attack shows epsilon >= {rounded_down(lower, 4)}, more than the "
        f"{rounded_up(upper, 4)} that is certified. The run does not do what its ledger says."
    )


def check_verdict(check: Mapping[str, Any]) -> str:
    """One sentence on the tests of the steps."""
    if check["passed"]:
        return f"All {len(check['tests'])} tests of noise, clipping and sampling pass."
    allowed = check["level"] / len(check["tests"])
    failed = [f"{one['name']} ({one['where']})" for one in check["tests"] if one["p_value"] < allowed]
    return f"FAILED: {'; '.join(failed)}. The steps do not do what the plan says."


def _check_verdict(fields: Fields, name: str, found: bool, why: str) -> None:
    """Refuse a verdict that the record's own numbers contradict."""
    if fields.truth(name) != found:
        must, got = str(found).lower(), str(not found).lower()
        raise ValueError(f"{fields.place}.{name} must be {must}, as {why}, got {got}")


def _check_scores(scores: Fields) -> None:
    edges = scores.values("edges")
    if not all(one < other for one, other in itertools.pairwise(edges)):
        raise ValueError(f"{scores.place}.edges must be numbers that rise, got others")
    for name in ("included", "left_out"):
        held = len(scores.values(name, least=0.0))
        if held != len(edges) - 1:
            raise ValueError(f"{scores.place}.{name} must hold {len(edges) - 1} counts, got {held}")


def _audit_settings(result: Fields) -> dict[str, str]:
    canaries = result.whole("num_canaries", least=1)
    guesses = result.whole("num_guesses", most=canaries)
    beta, scale = result.real("beta", least=1.0), result.real("scale", above=0.0)
    norm = "inf" if result.value("norm") == "inf" else f"{result.real('norm', least=1.0):.4g}"
    return {
        "method": f"{result.text('method')}, {canaries} canaries",
        "guesses": f"{result.whole('num_correct', most=guesses)} of {guesses} were right",
        "noise": f"beta = {beta:g}, scale = {scale:.6g}, on the sum of clipped gradients",
        "clipping": f"{result.real('clip_norm', above=0.0):g} (norm: l_{norm})",
        "sampling rate": f"{result.real('rate', above=0.0, most=1.0):.6g} (Poisson)",
        "steps": f"{result.whole('steps', least=1)}",
        "trainable parameters": f"{result.whole('dimension', least=1)}, one for each canary among them",
        "randomness": "from a seed" if result.truth("seeded") else "unpredictable",
    }


def _check_settings(check: Fields) -> dict[str, str]:
    """The tests of the steps, each with its p-value; refused if their verdict is not that of the p-values."""
    tests, level = check.listed("tests"), check.real("level", above=0.0, most=1.0)
    p_values = [one.real("p_value", least=0.0, most=1.0) for one in tests]
    passed = all(p_value >= level / len(tests) for p_value in p_values)
    _check_verdict(check, "passed", passed, "its tests say")
    told = (
        f"{len(tests)} on {check.whole('values', least=1)} numbers of {check.whole('steps', least=1)} steps; "
        f"a right run fails with probability {level:g}"
    )
    each = zip(tests, p_values, strict=True)
    return {
        "tests of the steps": told,
        **{f"test: {one.text('name')}": f"p = {p_value:.3g}, {one.text('where')}" for one, p_value in each},
    }
