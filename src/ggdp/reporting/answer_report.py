# SPDX-License-Identifier: Apache-2.0
"""The reports of `epsilon`, `delta` and `calibrate`: one certified number of a run of noisy steps."""

from ggdp.mechanisms import Adjacency
from ggdp.reporting.certified_number import certified_number
from ggdp.reporting.guarantee import Guarantee
from ggdp.reporting.noisy_steps import noise_picture, promise_of, run_in, settings_of
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Report, detection_picture


def answer_report(record: Fields) -> Report:
    """A record of `epsilon` or `delta`: one of the two is bounded, the other was given."""
    run = run_in(record)
    asked = "epsilon" if isinstance(record.value("epsilon"), dict) else "delta"
    bounds = certified_number(asked, record.inside(asked))
    if asked == "epsilon":
        promise = one_pair(bounds.upper, record.real("delta", least=0.0, most=1.0), run.adjacency)
    else:
        given = record.real("epsilon", least=0.0)
        promise = None if bounds.upper is None else one_pair(given, bounds.upper, run.adjacency)
    return Report(
        title=f"{asked.capitalize()} of a run of noisy steps, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings=settings_of(run),
        proved=bounds.sentences(record.text("method")),
        estimated=(*bounds.best_value(), promise_of(run)),
        pictures=(*noise_picture(run), *detection_picture(promise)),
    )


def calibration_report(record: Fields) -> Report:
    """A record of `calibrate`."""
    run = run_in(record)
    achieved, target = record.inside("achieved"), record.inside("target")
    bounds = certified_number("epsilon", achieved.inside("epsilon"))
    promise = one_pair(bounds.upper, achieved.real("delta", least=0.0, most=1.0), run.adjacency)
    epsilon, delta = target.real("epsilon", least=0.0), target.real("delta", least=0.0, most=1.0)
    goal = f"epsilon = {epsilon:g} at delta = {delta:g}"
    closest = (
        "Nothing better fits, to the tolerance of the search: no smaller noise, more steps or larger rate."
        if record.truth("sharp")
        else "The search stopped on the private side with room to spare: a better value may exist."
    )
    return Report(
        title=f"Noise calibrated to {goal}, beta = {run.step.noise.beta:g}",
        guarantee=promise,
        settings={"target": goal, **settings_of(run)},
        proved=bounds.sentences(achieved.text("method")),
        estimated=(closest, *bounds.best_value(), promise_of(run)),
        pictures=(*noise_picture(run), *detection_picture(promise)),
    )


def one_pair(
    epsilon: float | None, delta: float, adjacency: Adjacency, unit: str = "record"
) -> Guarantee | None:
    """The guarantee of a single pair; none where epsilon has no upper bound."""
    return None if epsilon is None else Guarantee(((epsilon, delta),), adjacency, unit)
