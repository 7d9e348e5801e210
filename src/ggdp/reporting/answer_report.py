# SPDX-License-Identifier: Apache-2.0
"""The reports of `epsilon`, `delta`, `calibrate` and `release`: one certified number of noisy steps."""

from dataclasses import replace

from ggdp.mechanisms import Adjacency
from ggdp.reporting.certified_number import CertifiedNumber, certified_number
from ggdp.reporting.guarantee import Guarantee
from ggdp.reporting.noisy_steps import noise_picture, promise_of, run_in, settings_of
from ggdp.reporting.privacy_records import Run
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import NO_BOUND, SEEDED, Report, detection_picture


def epsilon_report(record: Fields) -> Report:
    """A result of `epsilon`."""
    run, bounds, promise = _certified(record)
    return _answer("Epsilon of a run of noisy steps", record, run, bounds, promise)


def delta_report(record: Fields) -> Report:
    """A result of `delta`."""
    run = run_in(record)
    bounds = certified_number("delta", record.inside("delta"))
    given = record.real("target_epsilon", least=0.0)
    promise = None if bounds.upper is None else one_pair(given, bounds.upper, run.adjacency)
    return _answer("Delta of a run of noisy steps", record, run, bounds, promise)


def calibration_report(record: Fields) -> Report:
    """A result of `calibrate`."""
    run, bounds, promise = _certified(record)
    goal = f"epsilon = {record.real('target_epsilon', least=0.0):g} at delta = {record.real('delta'):g}"
    closest = (
        "Nothing better fits, to the tolerance of the search: no smaller noise, more steps or larger rate."
        if record.truth("sharp")
        else "The search stopped on the private side with room to spare: a better value may exist."
    )
    found = _answer(f"Noise calibrated to {goal}", record, run, bounds, promise)
    return replace(found, settings={"target": goal, **found.settings}, estimated=(closest, *found.estimated))


def release_report(record: Fields) -> Report:
    """A result of `release`: the cost of one step, whose output are the released numbers."""
    run, bounds, promise = _certified(record)
    seeded = record.truth("seeded")
    found = _answer("Numbers released with noise", record, run, bounds, None if seeded else promise)
    column = {"column": record.text("column")} if record.holds("column") else {}
    labels = (
        {"labels, without noise": ", ".join(record.inside("labels").content)}
        if record.holds("labels")
        else {}
    )
    count = {"released numbers": str(len(record.values("values")))}
    return replace(
        found,
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings={**column, **labels, **count, **found.settings},
    )


def _certified(record: Fields) -> tuple[Run, CertifiedNumber, Guarantee | None]:
    run, bounds = run_in(record), certified_number("epsilon", record.inside("epsilon"))
    delta = record.real("delta", least=0.0, most=1.0)
    return run, bounds, one_pair(bounds.upper, delta, run.adjacency)


def _answer(
    title: str, record: Fields, run: Run, bounds: CertifiedNumber, promise: Guarantee | None
) -> Report:
    return Report(
        title=f"{title}, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings=settings_of(run),
        proved=bounds.sentences(record.text("method")),
        estimated=(*bounds.best_value(), promise_of(run)),
        pictures=(*noise_picture(run), *detection_picture(promise)),
    )


def one_pair(
    epsilon: float | None, delta: float, adjacency: Adjacency, unit: str = "record"
) -> Guarantee | None:
    """The guarantee of a single pair; none where epsilon has no upper bound."""
    return None if epsilon is None else Guarantee(((epsilon, delta),), adjacency, unit)
