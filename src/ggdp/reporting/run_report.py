# SPDX-License-Identifier: Apache-2.0
"""Any record of the command line, read back into what a report needs; what it does not know, it refuses."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.reporting.guarantee import Guarantee
from ggdp.reporting.rounding import rounded_down, rounded_up
from ggdp.reporting.training_record import CHOICE_CAVEAT, SEED_CAVEAT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = Mapping[str, Any]

KNOWN = "epsilon, delta, curve, calibrate, pate or train"

_TUNING = (
    "Not covered: settings that were chosen by looking at results on the same private data. Every run that "
    "was looked at is a release of its own, and this report counts one."
)
_MADE_UP = "The data were made up: this was a trial of the program."
_PROMISED = (
    "Not checked: that one record moves the released value by no more than the sensitivity in every step, "
    "that the value is one number, and that each step draws fresh noise. That is the caller's promise."
)
_SEEDED = (
    "The noise was drawn from a seed: whoever knows or guesses it can take the noise off again. This output "
    "is NOT private; what is proved below is true of a run with fresh noise."
)


@dataclass(frozen=True)
class Report:
    """One run, ready to be shown.

    Attributes:
        title: what was done.
        guarantee: what is promised; None where nothing is, for
        no_guarantee: this reason.
        settings: everything the promise depends on.
        proved: what is certified, and how.
        estimated: what is not.
        warnings: what the reader must not miss.
        private: what must not be published, by name; shown in a box of its own.
        private_note: why.
        pictures: drawn on demand, each with a caption.
    """

    title: str
    guarantee: Guarantee | None
    settings: Mapping[str, str]
    no_guarantee: str = "No upper bound could be certified."
    proved: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    private: Mapping[str, str] = field(default_factory=dict)
    private_note: str = ""
    pictures: tuple[tuple[Callable[[], "Figure"], str], ...] = ()


def reports_of(record: object) -> list[Report]:
    """The runs that a record holds.

    Raises:
        ValueError: It is no record of a known command, or a damaged one; the line says which.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"a record must be a JSON object of {KNOWN}, got {type(record).__name__}")
    several = record.get("results")
    if isinstance(several, list) and several and all(isinstance(one, Mapping) for one in several):
        return [_report_of(one) for one in several]
    return [_report_of(record)]


def _report_of(record: Record) -> Report:
    for names, reader in _READERS:
        if names <= set(record):
            try:
                return reader(record)
            except (KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(
                    f"the record looks like one of {'/'.join(sorted(names))} but cannot be read: "
                    f"{type(error).__name__} {error}"
                ) from None
    held = ", ".join(sorted(map(str, record))[:8]) or "nothing"
    raise ValueError(f"a record must be the --json output of {KNOWN}, got an object with {held}")


def _answer(record: Record) -> Report:
    """A record of `epsilon` or `delta`: one of the two is bounded, the other was given."""
    asked = "epsilon" if isinstance(record["epsilon"], Mapping) else "delta"
    bounds = record[asked]
    upper = bounds["upper"]
    point = (upper, record["delta"]) if asked == "epsilon" else (record["epsilon"], upper)
    promise = None if upper is None else Guarantee((point,), Adjacency(record["adjacency"]))
    return Report(
        title=f"{asked.capitalize()} of a run of noisy steps",
        guarantee=promise,
        settings=_run_settings(record),
        proved=_sandwich(asked, bounds, record["method"]),
        estimated=(*_best_value(asked, bounds), _PROMISED),
        pictures=(*_noise_picture(record), *_detection_picture(promise)),
    )


def _curve(record: Record) -> Report:
    known = [point for point in record["curve"] if point["epsilon"]["upper"] is not None]
    points = tuple((point["epsilon"]["upper"], point["delta"]) for point in known)
    promise = Guarantee(points, Adjacency(record["adjacency"])) if points else None
    widest = max((point["epsilon"]["upper"] - point["epsilon"]["lower"] for point in known), default=math.nan)

    def drawn() -> "Figure":
        from ggdp.reporting.curve_figure import curve_figure

        return curve_figure([dict(record)])

    methods = ", ".join(sorted({point["method"] for point in known}))
    return Report(
        title="Privacy curve of a run of noisy steps",
        guarantee=promise,
        settings=_run_settings(record),
        proved=(
            f"All {len(points)} pairs (epsilon, delta) hold at once, by certified upper bounds (method: "
            f"{methods}); upper and lower bounds are at most {widest:.2g} apart.",
        ),
        estimated=(_PROMISED,),
        pictures=((drawn, "Certified upper bounds of epsilon at each delta."), *_detection_picture(promise)),
    )


def _calibrated(record: Record) -> Report:
    achieved, target = record["achieved"], record["target"]
    bounds = achieved["epsilon"]
    promise = Guarantee(((bounds["upper"], achieved["delta"]),), Adjacency(record["adjacency"]))
    goal = f"epsilon = {target['epsilon']:g} at delta = {target['delta']:g}"
    closest = (
        "Nothing better fits, to the tolerance of the search: no smaller noise, more steps or larger rate."
        if record["sharp"]
        else "The search stopped on the private side with room to spare: a better value may exist."
    )
    return Report(
        title=f"Noise calibrated to {goal}",
        guarantee=promise,
        settings={"target": goal, **_run_settings(record)},
        proved=_sandwich("epsilon", bounds, achieved["method"]),
        estimated=(closest, *_best_value("epsilon", bounds), _PROMISED),
        pictures=(*_noise_picture(record), *_detection_picture(promise)),
    )


def _pate(record: Record) -> Report:
    shown, secret = record["publishable"], record["private"]
    bounds, delta = shown["achieved"]["epsilon"], shown["achieved"]["delta"]
    adjacency = Adjacency(shown["adjacency"])
    promise = Guarantee(((bounds["upper"], delta),), adjacency, unit="teacher's vote")
    kept = None if record.get("seeded") else promise
    settings = {
        name.replace("_", " "): str(shown[name])
        for name in ("queries", "answered", "abstained", "most_answers", "threshold")
    }
    for name, noise in shown["noise"].items():
        settings[f"noise of the {name}"] = ", ".join(f"{key} = {value:.6g}" for key, value in noise.items())
    private = {
        name.replace("_", " "): f"{secret[name]:.6g}"
        for name in ("data_dependent_epsilon", "expected_utility", "accuracy")
        if secret.get(name) is not None
    }
    return Report(
        title="Labels by private vote",
        guarantee=kept,
        settings=settings,
        proved=_sandwich("epsilon", bounds, "composition of all threshold checks and answers"),
        estimated=(
            "Not checked: that each private record trained one teacher at most, so that one record moves one "
            "teacher's vote in each query. Whoever splits the records must see to that.",
        ),
        no_guarantee=_SEEDED,
        private=private,
        private_note=str(secret["caveat"]),
        pictures=_detection_picture(kept),
    )


def _trained(record: Record) -> Report:
    plan, rows = record["plan"], record["rows"]
    last, delta = rows[-1], plan["delta"]
    promise = Guarantee(((last["epsilon"], delta),), Adjacency(record["adjacency"]))
    promised = None if record.get("seeded") else promise
    noise, norm = plan["noise"], plan["norm"]
    settings = {
        "noise": f"beta = {noise['beta']:g}, scale = {noise['scale']:.6g}, on the sum of clipped gradients",
        "clipping": f"{plan['clip_norm']:g} in the l_p norm, p = {norm}",
        "sampling rate": f"{plan['rate']:.6g} (Poisson), {plan['num_examples']} examples",
        "steps": f"{last['steps']} of {plan['steps']} planned, stopped by the {record['stopped_by']}",
        "trainable parameters": str(plan["dimension"]),
    }
    if plan.get("alongside"):
        settings["also charged"] = "other releases on the same data, as the record lists them"

    def drawn() -> "Figure":
        from ggdp.reporting.training_figure import training_figure

        return training_figure(dict(record))

    bounds = {"lower": last["epsilon_lower"], "upper": last["epsilon"]}
    return Report(
        title=f"A model for {record['task']}, trained by beta-DP-SGD",
        guarantee=promised,
        no_guarantee=_SEEDED,
        settings=settings,
        proved=(
            *_sandwich("epsilon", bounds, record["method"]),
            "Everything computed from the noisy gradients is covered: the models of all epochs, not only the "
            "last. The number of examples is taken to be public.",
        ),
        estimated=("Scores are measurements on evaluation data, and say nothing about privacy.", _TUNING),
        warnings=(*((_MADE_UP,) if record["synthetic"] else ()), *_uncovered(record["caveats"])),
        pictures=(
            (drawn, "Certified epsilon and measured score after every epoch."),
            *_detection_picture(promised),
        ),
    )


def _uncovered(caveats: Sequence[str]) -> tuple[str, ...]:
    """The caveats of the task itself; those of every run are said elsewhere on the page."""
    return tuple(f"Not covered: {text}." for text in caveats if text not in (CHOICE_CAVEAT, SEED_CAVEAT))


_READERS: tuple[tuple[frozenset[str], Callable[[Record], Report]], ...] = (
    (frozenset({"publishable", "private"}), _pate),
    (frozenset({"plan", "rows"}), _trained),
    (frozenset({"curve", "adjacency"}), _curve),
    (frozenset({"target", "achieved"}), _calibrated),
    (frozenset({"epsilon", "delta", "method", "adjacency"}), _answer),
)


def _run_settings(record: Record) -> dict[str, str]:
    return {
        "noise": f"beta = {record['beta']:g}, scale = {record['scale']:.8g}, std = {record['std']:.8g}",
        "noise multiplier": f"{record['noise_multiplier']:.8g}",
        "sensitivity": f"{record['sensitivity']:g}",
        "sampling rate": f"{record['rate']:.8g}",
        "steps": f"{record['steps']}",
    }


def _sandwich(name: str, bounds: Record, method: str) -> tuple[str, ...]:
    upper = bounds["upper"]
    if upper is None:
        return (f"No upper bound of {name} could be certified (method: {method}).",)
    return (
        f"The true {name} is at most {rounded_up(upper, 8)} and at least {rounded_down(bounds['lower'], 8)}: "
        f"certified, all numerical error included (method: {method}).",
    )


def _best_value(name: str, bounds: Record) -> tuple[str, ...]:
    value = bounds.get("estimate")
    if value is None:
        return ()
    return (f"The best single value of {name} is {value:.8g}; publish the upper bound.",)


def _noise_picture(record: Record) -> tuple[tuple[Callable[[], "Figure"], str], ...]:
    def drawn() -> "Figure":
        from ggdp.reporting.density_figure import density_figure

        return density_figure(
            [GeneralizedGaussian(record["beta"], record["scale"])],
            "the noise of one step",
            unit="released value",
        )

    return ((drawn, "The density of the noise, on a linear and on a logarithmic axis."),)


def _detection_picture(promise: Guarantee | None) -> tuple[tuple[Callable[[], "Figure"], str], ...]:
    if promise is None:
        return ()

    def drawn() -> "Figure":
        from ggdp.reporting.detection_figure import detection_figure

        return detection_figure(promise)

    return ((drawn, "What the guarantee leaves to a membership test: no test lies in the shaded region."),)
