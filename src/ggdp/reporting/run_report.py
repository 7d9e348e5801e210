# SPDX-License-Identifier: Apache-2.0
"""What `ggdp report` says of a record: one function for each kind, and `reports_of` that chooses among them.

The kinds `train` and `audit` are in `training_report`. Everything that is shown is checked as it is read, so
that a damaged record is refused and never turned into a guarantee.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ggdp.arguments import shown
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.reporting import figures
from ggdp.reporting.guarantee import Guarantee, one_pair, risk_sentences
from ggdp.reporting.pages import NO_BOUND, SEEDED, Picture, Report
from ggdp.reporting.records import CertifiedNumber, Fields, Run, norm_in_words, probability, rounded_up
from ggdp.reporting.training_report import audit_report, training_report

USUAL_DELTA = 1e-6
"""Of the pairs of a curve the one nearest to this delta is quoted, because that is what people ask for."""

_NO_DATA = "No private data were read for this page: it is about noise alone."
_VOTE_COUNTS = ("teachers", "queries", "answered", "abstained", "most_answers")
_PRIVATE = {
    "data_dependent_epsilon": "data-dependent epsilon",
    "expected_utility": "chance that the plurality wins, mean",
    "accuracy": "answered labels that are true",
}
_WHATEVER_THE_VOTES = (
    "Epsilon holds whatever the votes are: every threshold check is charged, and as many answers as were "
    "allowed."
)
_PUBLISHABLE = "May be published: the labels, and everything on this page outside the box marked PRIVATE."
_ONE_TEACHER = (
    "Not checked: that each private record trained one teacher at most, so that one record moves one "
    "teacher's vote in each query. Whoever splits the records must see to that."
)


def reports_of(record: object) -> list[Report]:
    """One report for each result of a record.

    Raises:
        ValueError: It is no record of a known command, or a damaged one; the message names the field.
    """
    if not isinstance(record, dict) or "kind" not in record or "results" not in record:
        held = ", ".join(sorted(map(str, record))[:8]) if isinstance(record, dict) else shown(record)
        raise ValueError(f"a record must be a JSON object with kind and results, got {held or 'nothing'}")
    top = Fields(record)
    kind = top.text("kind")
    if kind in _READERS:
        return [_READERS[kind](result) for result in top.listed("results")]
    if kind in _READERS_OF_SHARED:
        return [_READERS_OF_SHARED[kind](result, top) for result in top.listed("results")]
    raise ValueError(f"kind must be one of {', '.join(KNOWN)}, got {kind!r}")


def epsilon_report(result: Fields) -> Report:
    """A result of `epsilon`."""
    run, bounds, promise = _certified(result)
    return _answer("Epsilon of a run of noisy steps", result, run, bounds, promise)


def delta_report(result: Fields) -> Report:
    """A result of `delta`."""
    run, bounds = result.run(), result.bounds("delta")
    given = result.real("target_epsilon", least=0.0)
    promise = None if bounds.upper is None else one_pair(given, bounds.upper, run.adjacency)
    return _answer("Delta of a run of noisy steps", result, run, bounds, promise)


def calibration_report(result: Fields) -> Report:
    """A result of `calibrate`."""
    run, bounds, promise = _certified(result)
    goal = f"epsilon = {result.real('target_epsilon', least=0.0):g} at delta = {result.real('delta'):g}"
    closest = (
        "Nothing better fits, to the tolerance of the search: no smaller noise, more steps or larger rate."
        if result.truth("sharp")
        else "The search stopped on the private side with room to spare: a better value may exist."
    )
    found = _answer(f"Noise calibrated to {goal}", result, run, bounds, promise)
    return replace(found, settings={"target": goal, **found.settings}, estimated=(closest, *found.estimated))


def release_report(result: Fields) -> Report:
    """A result of `release`: the cost of one step, whose output is the released numbers."""
    run, bounds, promise = _certified(result)
    seeded = result.truth("seeded")
    found = _answer("Numbers released with noise", result, run, bounds, None if seeded else promise)
    settings = {"released numbers": str(len(result.values("values"))), **found.settings}
    if result.holds("labels"):
        settings = {"labels, without noise": ", ".join(result.inside("labels").content), **settings}
    if result.holds("column"):
        settings = {"column": result.text("column"), **settings}
    return replace(found, no_guarantee=SEEDED if seeded else NO_BOUND, settings=settings)


def _certified(result: Fields) -> tuple[Run, CertifiedNumber, Guarantee | None]:
    run, bounds = result.run(), result.bounds("epsilon")
    return run, bounds, one_pair(bounds.upper, result.real("delta", least=0.0, most=1.0), run.adjacency)


def _answer(
    title: str, result: Fields, run: Run, bounds: CertifiedNumber, promise: Guarantee | None
) -> Report:
    """The report of one certified number of a run."""
    on_each = "" if run.step.dimension == 1 else " on each number"
    return Report(
        title=f"{title}, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings=_settings_of(run),
        proved=bounds.proved(result.text("method")),
        estimated=(*bounds.best_value(), _taken_on_trust(run)),
        pictures=(_density_picture(run.step.noise, f"the noise{on_each} of one step", on_each),),
    )


def curve_report(result: Fields) -> Report:
    """A result of `curve`: many pairs (epsilon, delta) that hold at once."""
    run, points = result.run(), result.listed("curve")
    deltas = [point.real("delta", above=0.0, most=1.0) for point in points]
    bounds = [point.bounds("epsilon") for point in points]
    methods = [point.text("method") for point in points]
    pairs = [(one.upper, delta) for one, delta in zip(bounds, deltas, strict=True) if one.upper is not None]
    pairs.sort(key=lambda pair: abs(math.log(pair[1] / USUAL_DELTA)))
    drawn = partial(figures.curve_figure, [result.content])
    return Report(
        title=f"Privacy curve of a run of noisy steps, beta = {run.step.noise.beta:g}",
        guarantee=Guarantee(tuple(pairs), run.adjacency) if pairs else None,
        settings=_settings_of(run),
        proved=_proved_of_curve(bounds, methods),
        estimated=(_taken_on_trust(run),),
        pictures=((drawn, "Certified upper bounds of epsilon at each delta."),) if pairs else (),
    )


def _proved_of_curve(bounds: Sequence[CertifiedNumber], methods: Sequence[str]) -> tuple[str, ...]:
    widths = [one.upper - one.lower for one in bounds if one.upper is not None]
    missing = len(bounds) - len(widths)
    without = (f"At {missing} of {len(bounds)} deltas no upper bound of epsilon could be certified.",)
    if not widths:
        return without
    named = {method for one, method in zip(bounds, methods, strict=True) if one.upper is not None}
    all_hold = f"All {len(widths)} pairs (epsilon, delta) hold at once"
    return (
        f"{'The pair (epsilon, delta) holds' if len(widths) == 1 else all_hold}, by certified upper bounds "
        f"(method: {', '.join(sorted(named))}); upper and lower bounds are at most {max(widths):.2g} apart.",
        *(without if missing else ()),
    )


def risk_report(result: Fields) -> Report:
    """A result of `risk`: what attackers can achieve, and epsilon after it."""
    run, epsilon, promise = _certified(result)
    for point in result.listed("trade_off"):
        point.real("false_positive_rate", above=0.0, most=1.0)
        point.inside("false_negative_rate").real("lower", least=0.0, most=1.0)
    if promise is not None and run.adjacency is not Adjacency.ADD:  # there the positive has no record
        promise = replace(promise, detections=tuple(_detections(result)))
    drawn = partial(figures.trade_off_figure, [result.content])
    return Report(
        title=f"Risk of a run of noisy steps, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings=_settings_of(run),
        proved=(*risk_sentences(result), *epsilon.proved(result.text("method"))),
        estimated=(_taken_on_trust(run),),
        pictures=((drawn, "The trade-off curve: no attacker's error rates lie below it."),),
    )


def _detections(result: Fields) -> list[tuple[float, float]]:
    """Certified pairs (false positive rate, most detections) of a result of `risk`."""
    found = []
    for attack in result.listed("attacks"):
        most = attack.bounds("true_positive_rate").upper
        if most is not None:
            found.append((attack.real("false_positive_rate", above=0.0, most=1.0), most))
    for point in result.listed("trade_off"):
        missed = point.bounds("false_negative_rate").lower
        rate = point.real("false_positive_rate", above=0.0, most=1.0)
        found.append((rate, min(math.nextafter(1.0 - missed, 2.0), 1.0)))
    return found


def _settings_of(run: Run) -> dict[str, str]:
    """Everything that the cost of the run depends on."""
    noise, step = run.step.noise, run.step
    multiplier = noise.scale / (math.sqrt(2.0) * step.sensitivity)
    vector = {"norm of the sensitivity": norm_in_words(step), "dimension": _dimension(run)}
    return {
        "noise": f"beta = {noise.beta:g}, scale = {noise.scale:.8g}, std = {noise.std:.8g}",
        "noise multiplier": f"{multiplier:.8g}",
        "sensitivity": f"{step.sensitivity:g}",
        **(vector if step.dimension != 1 else {}),
        **({"sampling rate": f"{run.rate:.8g}"} if run.sampling is None else {"batches": str(run.sampling)}),
        "steps": f"{run.steps}",
    }


def _taken_on_trust(run: Run) -> str:
    """What the certificate assumes and nothing here can check."""
    moved, size = "the released value by no more than the sensitivity", "that the value is one number, "
    fresh = "each step draws fresh noise"
    if run.step.dimension != 1:
        moved = f"the released vector by no more than the sensitivity (norm: {norm_in_words(run.step)})"
        size = f"that the vector has {_dimension(run)} numbers at most, "
        fresh = "each number of it in each step gets noise of its own"
    sampled = "that a step takes each record with the sampling rate, independently, " * (run.rate < 1.0)
    if run.sampling is not None:
        sampled = f"that batches are drawn as {run.sampling} says, "
    return (
        f"Not checked: that one record, added or removed, moves {moved} in every step, "
        f"{size * (run.step.dimension != math.inf)}{sampled}and that {fresh}. "
        "That is the caller's promise."
    )


def _dimension(run: Run) -> str:
    return "any" if run.step.dimension == math.inf else f"{run.step.dimension:,}"


def noise_report(result: Fields) -> Report:
    """A result of `noise`."""
    noise = result.noise()
    return Report(
        title=f"Generalized Gaussian noise, beta = {noise.beta:g}, scale = {noise.scale:.6g}",
        guarantee=None,
        no_guarantee="",
        settings={name.replace("_", " "): f"{result.real(name):.10g}" for name in result.content},
        estimated=(
            _NO_DATA,
            "What it costs to add such noise depends on the sensitivity; the command ggdp epsilon tells.",
        ),
        pictures=(_density_picture(noise),),
    )


def choice_report(result: Fields, top: Fields) -> Report:
    """A result of `choose`: one number of steps, and of `--loss outside` one threshold."""
    name, best = top.text("loss"), result.inside("best")
    if name not in figures.LOSSES:
        raise ValueError(f"loss must be one of {', '.join(figures.LOSSES)}, got {name!r}")
    for one in (best, *result.listed("tried")):
        one.real("beta", least=1.0)
        one.real("log_loss")
    beside = {
        f"loss of {one.capitalize()} noise": probability(result.inside(one).real("log_loss"))
        for one in ("laplace", "gaussian")
        if result.holds(one)
    }
    record = {"loss": name, "results": [result.content]}
    drawn = partial(figures.choice_figure, [("noises of equal privacy", record)])
    threshold = {"threshold": f"{result.real('threshold', above=0.0):g}"} if name == "outside" else {}
    level = {"level": f"{top.real('level', above=0.0, most=1.0):g}"} if top.holds("level") else {}
    vector = {}
    if top.holds("dimension"):
        endless = top.value("dimension") == "inf"
        size = "any number of" if endless else f"{top.whole('dimension', least=1)}"
        words = f"{size} numbers, the sensitivity is in norm {top.value('norm')}"
        vector = {"vector": words + (f", {top.text('noise')} noise" if top.holds("noise") else "")}
    steps = result.whole("steps", least=1)
    return Report(
        title=f"The noise with the smallest error, for {steps} release{'' if steps == 1 else 's'}",
        guarantee=None,
        no_guarantee="",
        settings={
            **_target(top),
            "what is to be small": figures.LOSSES[name],
            **threshold,
            **level,
            "sampling rate": f"{top.real('rate', above=0.0, most=1.0):g}",
            "steps": f"{steps}",
            "sensitivity": f"{top.real('sensitivity', above=0.0):g}",
            **vector,
            "neighbours": str(top.adjacency()),
            "best beta": f"{best.real('beta'):.4g}",
            "its loss": probability(best.real("log_loss")),
            **beside,
        },
        proved=("The best noise and every one drawn have a certified epsilon at or below the target.",),
        estimated=(
            _NO_DATA,
            "That no other exponent has a smaller loss is a search's result, no proof; the two losses named "
            "after Laplace and Gaussian are estimates.",
        ),
        pictures=((drawn, "The loss against beta; the dot is the least."),),
    )


def simulation_report(result: Fields, top: Fields) -> Report:
    """A result of `simulate-argmax`: one epsilon."""
    epsilon, delta = result.real("target_epsilon", above=0.0), top.real("delta", least=0.0, most=1.0)
    gaps, areas = top.values("gaps"), []
    for noise in result.listed("noises"):
        noise.real("beta", least=1.0)
        areas.append(noise.real("area"))
        held = len(noise.values("utility"))
        if held != len(gaps):
            raise ValueError(f"{noise.place}.utility must hold {len(gaps)} numbers, as gaps, got {held}")
    record = {"delta": delta, "gaps": gaps, "results": [result.content]}
    drawn = partial(figures.simulation_figure, record)
    return Report(
        title=f"Simulated votes, epsilon = {epsilon:g}",
        guarantee=None,
        no_guarantee="",
        settings={
            "target": f"epsilon = {epsilon:g} at delta = {delta:g}",
            "best beta": f"{result.real('best_beta'):.4g}",
            "area there, 1 is the most": f"{max(areas):.6f}",
        },
        proved=("Every noise compared is calibrated to the target by a certified bound.",),
        estimated=(_NO_DATA, "Utilities are computed, not sampled; the votes are simulated."),
        pictures=((drawn, "The chance that the true winner wins, and its area against beta."),),
    )


def demo_report(result: Fields, top: Fields) -> Report:
    """A result of `demo`: one exponent on the example data."""
    noise, bounds = result.noise(), result.bounds("epsilon")
    delta = result.real("delta", least=0.0, most=1.0)
    return Report(
        title=f"Demonstration, beta = {noise.beta:g}",
        guarantee=one_pair(bounds.upper, delta, Adjacency.ADD_REMOVE),
        settings={
            **_target(top.inside("target")),
            "noise": f"scale = {noise.scale:.6g}, std = {noise.std:.6g}",
            "std where several releases share the budget": f"{result.real('std_of_several', above=0.0):.6g}",
            "mean absolute error of the counts": f"{result.real('mean_absolute_error', least=0.0):.4g}",
            "winner": result.text("winner"),
            "how often the winner is the true one": f"{100.0 * result.real('true_winner_prob'):.1f}%",
        },
        proved=bounds.proved(result.text("method")),
        estimated=("The data are made up; errors and winners are of one draw of the noise.",),
        pictures=(_density_picture(noise),),
    )


def _target(fields: Fields) -> dict[str, str]:
    epsilon, delta = fields.real("target_epsilon", least=0.0), fields.real("delta", least=0.0, most=1.0)
    return {"target": f"epsilon = {epsilon:g} at delta = {delta:g}"}


def _density_picture(
    noise: GeneralizedGaussian, title: str = "the density of the noise", on_each: str = ""
) -> Picture:
    drawn = partial(figures.density_figure, [noise], title, unit="released value")
    return drawn, f"The density of the noise{on_each}, on a linear and on a logarithmic axis."


def pate_report(result: Fields, private_pictures: tuple[Picture, ...] = ()) -> Report:
    """A result of `pate`; pictures of the votes themselves go into the box of what is private."""
    seeded, bounds = result.truth("seeded"), result.bounds("epsilon")
    delta = result.real("delta", least=0.0, most=1.0)
    promise = None if seeded else one_pair(bounds.upper, delta, result.adjacency(), "teacher's vote")
    publishable = () if promise is None else (_PUBLISHABLE,)
    return Report(
        title="Labels by private vote",
        guarantee=promise,
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings=public_rows(result),
        proved=(*bounds.proved(result.text("method")), _WHATEVER_THE_VOTES, *publishable),
        estimated=(_ONE_TEACHER,),
        private=private_rows(result),
        private_note=result.inside("private").text("caveat"),
        private_pictures=private_pictures,
    )


def public_rows(result: Fields) -> dict[str, str]:
    """What may be published of a result of `pate`, as names and text."""
    rows = {name.replace("_", " "): str(result.whole(name)) for name in _VOTE_COUNTS if result.holds(name)}
    rows["threshold"] = f"{result.real('threshold'):g}" if result.holds("threshold") else "none"
    noises = result.inside("noise")
    for name in noises.content:
        noise = noises.inside(name)
        told = (f"{key} = {noise.real(key):.6g}" for key in noise.content)
        rows[f"noise of the {name}"] = ", ".join(told)
    return rows


def private_rows(result: Fields) -> dict[str, str]:
    """What must not be published of a result of `pate`, as names and text."""
    secret = result.inside("private")
    return {told: rounded_up(secret.real(name), 7) for name, told in _PRIVATE.items() if secret.holds(name)}


_READERS: dict[str, Callable[[Fields], Report]] = {
    "noise": noise_report,
    "release": release_report,
    "epsilon": epsilon_report,
    "delta": delta_report,
    "calibrate": calibration_report,
    "curve": curve_report,
    "risk": risk_report,
    "pate": pate_report,
    "train": training_report,
    "audit": audit_report,
}
_READERS_OF_SHARED: dict[str, Callable[[Fields, Fields], Report]] = {
    "choose": choice_report,
    "simulate-argmax": simulation_report,
    "demo": demo_report,
}
"""Readers that also need the fields which all results of a record share."""

KNOWN = (*_READERS, *_READERS_OF_SHARED)
