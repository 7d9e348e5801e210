# SPDX-License-Identifier: Apache-2.0
"""The report of `train`: the model's certified epsilon, what it rests on, and the course of the run."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ggdp.mechanisms import AdditiveNoise
from ggdp.reporting.answer_report import one_pair
from ggdp.reporting.certified_number import CertifiedNumber, certified_number
from ggdp.reporting.noisy_steps import extended, noise_in, norm_of
from ggdp.reporting.privacy_records import SEED_CAVEAT
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import NO_BOUND, SEEDED, Picture, Report, detection_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHOICE_CAVEAT = (
    "choosing settings, or the best epoch, by the test score is not part of epsilon; the score itself is "
    "computed on data that training does not see"
)
"""What every record of `train` says, and this page in words of its own."""

_TUNING = (
    "Not covered: settings that were chosen by looking at results on the same private data. Every run that "
    "was looked at is a release of its own, and this report counts one."
)
_MADE_UP = "The data were made up: this was a trial of the program."


def training_report(record: Fields) -> Report:
    """A record of `train`."""
    plan, seeded = record.inside("plan"), record.truth("seeded")
    step, delta = _step_in(plan), plan.real("delta", least=0.0, most=1.0)
    rows = [_row(row, plan.whole("steps", least=1)) for row in record.listed("rows")]
    last = rows[-1]
    bounds: CertifiedNumber = last["epsilon"]
    _check_summary(record, bounds.upper, delta)
    promise = None if seeded else one_pair(bounds.upper, delta, record.adjacency())
    made_up = (_MADE_UP,) if record.truth("synthetic") else ()
    return Report(
        title=f"A model for {record.text('task')}, trained by beta-DP-SGD",
        guarantee=promise,
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings=_settings(record, step, last["steps"]),
        proved=(
            *bounds.sentences(record.text("method")),
            "Everything computed from the noisy gradients is covered: the models of all epochs, not only the "
            "last. The number of examples is taken to be public.",
        ),
        estimated=("Scores are measurements on evaluation data, and say nothing about privacy.", _TUNING),
        warnings=(*made_up, *_uncovered(record.texts("caveats"))),
        pictures=(_course_picture(record, step, rows), *detection_picture(promise)),
    )


def _step_in(plan: Fields) -> AdditiveNoise:
    """One noisy sum of clipped gradients."""
    clip_norm = plan.real("clip_norm", above=0.0)
    norm = extended(plan.value("norm"))
    return AdditiveNoise(noise_in(plan.inside("noise")), clip_norm, norm, plan.whole("dimension", least=1))


def _row(row: Fields, planned: int) -> dict[str, Any]:
    return {
        "epoch": row.whole("epoch", least=1),
        "steps": row.whole("steps", most=planned),
        "epsilon": certified_number("epsilon", row.inside("epsilon")),
        "score": row.real("score", least=0.0, most=1.0),
    }


def _check_summary(record: Fields, epsilon: float | None, delta: float) -> None:
    """Refuse a record that has lost its last rows: it would promise too much."""
    told = record.inside("epsilon").content.get("upper")
    if told != epsilon:
        raise ValueError(f"epsilon.upper must be {epsilon!r}, as in the last of rows, got {told!r}")
    if record.holds("delta") and record.value("delta") != delta:
        raise ValueError(f"delta must be {delta!r}, as in plan, got {record.value('delta')!r}")


def _settings(record: Fields, step: AdditiveNoise, steps: int) -> dict[str, str]:
    plan, noise = record.inside("plan"), step.noise
    rate, examples = plan.real("rate", above=0.0, most=1.0), plan.whole("num_examples", least=1)
    settings = {
        "noise": f"beta = {noise.beta:g}, scale = {noise.scale:.6g}, on the sum of clipped gradients",
        "clipping": f"{step.sensitivity:g} (norm: {norm_of(step)})",
        "sampling rate": f"{rate:.6g} (Poisson), {examples} examples",
        "steps": f"{steps} of {plan.whole('steps')} planned, stopped by the {record.text('stopped_by')}",
        "trainable parameters": f"{step.dimension}",
    }
    if plan.holds("alongside"):
        plan.inside("alongside")  # refused unless it is an object
        settings["also charged"] = "other releases on the same data, as the record lists them"
    return settings


def _uncovered(caveats: Sequence[str]) -> tuple[str, ...]:
    """The caveats of the task itself; those of every run are said elsewhere on the page."""
    return tuple(f"Not covered: {text}." for text in caveats if text not in (CHOICE_CAVEAT, SEED_CAVEAT))


def _course_picture(record: Fields, step: AdditiveNoise, rows: Sequence[dict[str, Any]]) -> Picture:
    # Only what was checked is drawn: the record's own summary says the same things a second time.
    plan, best = record.inside("plan"), max(rows, key=lambda row: row["score"])
    shown = {
        "rows": [row | {"epsilon": {"upper": row["epsilon"].upper}} for row in rows],
        "best": {"epoch": best["epoch"], "accuracy": best["score"]},
        "beta": step.noise.beta,
        "target_epsilon": plan.real("max_epsilon", above=0.0) if plan.holds("max_epsilon") else None,
        "delta": plan.real("delta"),
        "synthetic": record.truth("synthetic"),
        "task": record.text("task"),
        "rate": plan.real("rate"),
        "clip_norm": step.sensitivity,
        "norm": "inf" if step.p == math.inf else step.p,
    }

    def drawn() -> "Figure":
        from ggdp.reporting.training_figure import training_figure

        return training_figure(shown)

    return drawn, "Certified epsilon and measured score after every epoch."
