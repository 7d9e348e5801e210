# SPDX-License-Identifier: Apache-2.0
"""Records read back: what a report says of them, and that a damaged one is refused by the field's name."""

import copy
import json
import math

import pytest

from ggdp import AdditiveNoise, Adjacency, Bounds, GeneralizedGaussian
from ggdp.calibration import Calibrated
from ggdp.reporting.records import (
    Run,
    calibration_record,
    curve_record,
    delta_record,
    epsilon_record,
    noise_facts,
    record_of,
)
from ggdp.reporting.run_report import reports_of

NOISE = GeneralizedGaussian(1.5, 2.0)
ONE = Run(AdditiveNoise(NOISE), 1.0, 10, Adjacency.ADD_REMOVE)
SAMPLED = Run(AdditiveNoise(NOISE), 0.01, 10, Adjacency.ADD_REMOVE)
ANSWER = Bounds(1.0, 1.1, 1.2, "made up")
DELTAS = [1e-10, 1e-8, 1e-6, 1e-4]
CURVE = curve_record(SAMPLED, DELTAS, [Bounds(0.0, x, x, f"way {x:g}") for x in (4.0, 3.0, 2.0, 1.0)])
VOTED = {
    "seeded": False,
    "queries": 3,
    "answered": 2,
    "abstained": 1,
    "most_answers": 3,
    "threshold": None,
    "adjacency": "replace",
    "epsilon": {"lower": 1.0, "estimate": 1.1, "upper": 1.2},
    "delta": 1e-5,
    "method": "made up",
    "noise": {"votes": {"beta": 2.0, "scale": 2.0, "std": 1.4}},
    "private": {"data_dependent_epsilon": 0.7, "caveat": "secret", "expected_utility": 1, "accuracy": None},
}
TRAINED = {
    "task": "digits",
    "synthetic": False,
    "seeded": False,
    "adjacency": "add-remove",
    "delta": 1e-6,
    "epsilon": {"lower": 0.7, "estimate": 0.72, "upper": 0.75},
    "plan": {
        "noise": {"beta": 1.5, "scale": 0.3},
        "clip_norm": 0.1,
        "norm": "matched",
        "rate": 0.01,
        "steps": 300,
        "num_examples": 1000,
        "dimension": 4034,
        "delta": 1e-6,
        "max_epsilon": 2.0,
        "alongside": None,
    },
    "rows": [
        {"epoch": 1, "steps": 100, "epsilon": {"lower": 0.5, "upper": 0.55}, "score": 0.78},
        {"epoch": 2, "steps": 200, "epsilon": {"lower": 0.7, "upper": 0.75}, "score": 0.8},
    ],
    "stopped_by": "budget",
    "method": "made up",
    "caveats": [],
}
CALIBRATED = calibration_record(Calibrated(ONE.step, 1.0, 10, 1e-5, ANSWER, True), 1.3, Adjacency.ADD_REMOVE)
AUDITED = {
    "task": "digits",
    "synthetic": False,
    "seeded": False,
    "method": "one-run",
    "assumes": "nothing",
    "confidence": 0.95,
    "delta": 1e-6,
    "lower_epsilon": 0.9,
    "epsilon": {"lower": 1.9, "estimate": 2.0, "upper": 2.1},
    "certified_by": "made up",
    "is_consistent": True,
    "num_canaries": 100,
    "num_guesses": 50,
    "num_correct": 40,
    "beta": 2.0,
    "scale": 3.0,
    "clip_norm": 1.0,
    "norm": 2.0,
    "rate": 0.1,
    "steps": 10,
    "dimension": 110,
    "scores": {"edges": [-1.0, 0.0, 1.0], "included": [20, 30], "left_out": [30, 20]},
    "noise_check": {
        "passed": True,
        "level": 1e-6,
        "steps": 10,
        "values": 1000,
        "tests": [{"name": "tails", "p_value": 0.5, "where": "everywhere"}],
    },
}
WEIGHED = {"beta": 1.0, "log_loss": -3.0}
RECORDS = {
    "audit": AUDITED,
    "epsilon": epsilon_record(ONE, 1e-6, ANSWER),
    "delta": delta_record(ONE, 1.0, Bounds(0.1, 0.2, 0.3, "made up")),
    "curve": CURVE,
    "calibrate": CALIBRATED,
    "pate": VOTED,
    "train": TRAINED,
    "noise": noise_facts(NOISE),
    "release": {
        **epsilon_record(ONE, 1e-6, ANSWER),
        "column": "readers",
        "labels": {"branch": ["Abbey"]},
        "values": [3.5],
        "seeded": False,
    },
    "choose": {
        "steps": 10,
        "threshold": 2.0,
        "best": WEIGHED,
        "laplace": {"loss": 0.05, "log_loss": -3.0},
        "gaussian": None,
        "tried": [WEIGHED, WEIGHED | {"beta": 2.0}],
    },
    "simulate-argmax": {
        "target_epsilon": 1.0,
        "best_beta": 1.0,
        "noises": [{"beta": 1.0, "area": 0.9, "utility": [0.5, 0.9]}],
    },
    "demo": {
        "epsilon": {"lower": 0.9, "estimate": 0.95, "upper": 1.0},
        "delta": 1e-6,
        "method": "made up",
        "beta": 1.5,
        "scale": 2.0,
        "std_of_several": 12.0,
        "mean_absolute_error": 1.0,
        "winner": "Heron",
        "true_winner_prob": 0.5,
    },
}
SHARED = {
    "choose": {
        "target_epsilon": 1.0,
        "delta": 1e-5,
        "loss": "outside",
        "rate": 1.0,
        "sensitivity": 1.0,
        "adjacency": "add-remove",
    },
    "simulate-argmax": {"delta": 1e-5, "gaps": [0.1, 0.2]},
    "demo": {"target": {"target_epsilon": 1.0, "delta": 1e-6}},
}
GONE = object()
DAMAGE = ["x", None, -1, 3, 2.5, math.nan, math.inf, 10**400, True, {}, [], [[]], GONE]


def vector(norm, dimension, adjacency=Adjacency.ADD_REMOVE, rate=1.0):
    run = Run(AdditiveNoise(NOISE, 1.0, norm, dimension), rate, 10, adjacency)
    return epsilon_record(run, 1e-6, ANSWER)


def whole(name, *results):
    """The record of a command with these results."""
    return record_of(name, list(results), **SHARED.get(name, {}))


def report_of(record, name="epsilon"):
    (report,) = reports_of(json.loads(json.dumps(whole(name, record))))
    return report


def damaged(record, path, value):
    """The record with another value at this path, or without what is there."""
    changed = copy.deepcopy(record)
    at = changed
    for step in path[:-1]:
        at = at[step]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return changed


def paths(value, path=()):
    """Where a record can be damaged: every field and every place of a list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*path, name)
        yield from paths(one, (*path, name))


@pytest.mark.parametrize(
    ("norm", "dimension", "norm_told", "dimension_told"),
    [
        (2, 1000, "l_2", "1,000"),
        (math.inf, 2, "l_inf", "2"),
        ("matched", math.inf, "l_1.4583333, matched to the noise", "any"),
    ],
)
def test_of_a_vector_norm_and_dimension_are_told_and_promised(norm, dimension, norm_told, dimension_told):
    report = report_of(vector(norm, dimension))
    assert report.settings["norm of the sensitivity"] == norm_told
    assert report.settings["dimension"] == dimension_told
    promise = report.estimated[-1]
    assert f"moves the released vector by no more than the sensitivity (norm: {norm_told})" in promise
    assert ("numbers at most" in promise) == (dimension != math.inf)
    assert "each number of it in each step gets noise of its own" in promise
    assert "one number," not in promise


def test_of_one_number_neither_is_told_and_that_it_is_one_is_promised():
    report = report_of(RECORDS["epsilon"])
    assert not {"norm of the sensitivity", "dimension"} & set(report.settings)
    assert "moves the released value by no more than the sensitivity" in report.estimated[-1]
    assert "that the value is one number" in report.estimated[-1]


@pytest.mark.parametrize(("rate", "told"), [(1.0, False), (0.5, True)])
def test_sampling_is_promised_where_the_proof_needs_it(rate, told):
    assert (
        "takes each record with the sampling rate" in report_of(vector(2, 10, rate=rate)).estimated[-1]
    ) == told


def test_a_curve_quotes_a_usual_delta_and_counts_its_pairs():
    report = report_of(CURVE, "curve")
    assert report.guarantee.points[0] == (2.0, 1e-6)
    assert sorted(report.guarantee.points) == [(1.0, 1e-4), (2.0, 1e-6), (3.0, 1e-8), (4.0, 1e-10)]
    assert report.proved[0].startswith("All 4 pairs (epsilon, delta) hold at once")


def test_a_curve_says_where_it_has_no_bound():
    part = damaged(CURVE, ("curve", 2, "epsilon", "upper"), None)
    report = report_of(part, "curve")
    assert len(report.guarantee.points) == 3
    assert report.proved[1] == "At 1 of 4 deltas no upper bound of epsilon could be certified."
    for position in (0, 1, 3):
        part = damaged(part, ("curve", position, "epsilon", "upper"), None)
    report = report_of(part, "curve")
    assert report.guarantee is None
    assert report.proved == ("At 4 of 4 deltas no upper bound of epsilon could be certified.",)
    assert report.pictures == ()


@pytest.mark.parametrize("name", ["epsilon", "delta", "curve", "calibrate"])
def test_exponents_are_told_apart_by_their_titles(name):
    other = json.loads(json.dumps(RECORDS[name])) | {"beta": 2.0}
    titles = [report.title for report in reports_of(whole(name, RECORDS[name], other))]
    assert [title.rpartition(", ")[2] for title in titles] == ["beta = 1.5", "beta = 2"]


@pytest.mark.parametrize("name", ["calibrate", "pate"])
def test_a_bound_that_is_null_is_no_guarantee(name):
    report = report_of(damaged(RECORDS[name], ("epsilon", "upper"), None), name)
    assert report.guarantee is None
    assert "No upper bound of epsilon" in report.proved[0]


@pytest.mark.parametrize(
    ("name", "path", "value", "told"),
    [
        ("epsilon", ("epsilon", "upper"), -1, r"epsilon.upper must be a number in \[0, inf\), got -1"),
        ("epsilon", ("epsilon", "upper"), "x", "epsilon.upper must be a number .* got 'x'"),
        ("epsilon", ("epsilon", "upper"), math.nan, "epsilon.upper must be a number .* got nan"),
        ("epsilon", ("epsilon", "upper"), GONE, "epsilon.upper is missing$"),
        ("epsilon", ("epsilon", "lower"), None, r"epsilon.lower is missing \(null\)$"),
        ("epsilon", ("epsilon", "lower"), 1.3, r"epsilon.lower must be a number in \(-inf, 1.2\], got 1.3"),
        ("epsilon", ("delta",), 3, r"delta must be a number in \[0, 1\], got 3"),
        ("epsilon", ("delta",), "1e-5", "delta must be a number .* got '1e-5'"),
        ("epsilon", ("adjacency",), "sideways", "adjacency must be one of add-remove, .* got 'sideways'"),
        ("delta", ("delta", "upper"), 1.5, r"delta.upper must be a number in \[0, 1\], got 1.5"),
        ("curve", ("curve",), [], "curve must hold at least one object, got an empty list"),
        ("curve", ("curve", 1, "delta"), 0, r"curve\[1\].delta must be a number in \(0, 1\], got 0"),
        ("calibrate", ("delta",), 3, "delta must be"),
        ("calibrate", ("sharp",), "no", "sharp must be of type bool, got str"),
        ("pate", ("seeded",), GONE, "seeded is missing"),
        ("pate", ("noise", "votes", "scale"), "x", "noise.votes.scale must be"),
        ("train", ("rows", 1, "epsilon"), None, r"rows\[1\].epsilon is missing \(null\)"),
        ("train", ("rows", 0), {}, r"rows\[0\].epoch is missing"),
        ("release", ("values",), [], "values must hold at least one number, got an empty list"),
        ("release", ("values", 0), "x", r"values\[0\] must be a number .* got 'x'"),
        ("simulate-argmax", ("noises", 0, "utility"), [1.0], r"noises\[0\].utility must hold 2 numbers"),
        ("choose", ("tried",), [], "tried must hold at least one object"),
        ("demo", ("winner",), 3, "winner must be of type str"),
        ("train", ("rows", 0, "score"), None, r"rows\[0\].score is missing"),
        ("train", ("rows", 1), GONE, "epsilon.upper must be 0.55, as in the last of rows, got 0.75"),
        ("train", ("plan", "delta"), 1e-5, "delta must be 1e-05, as in plan, got 1e-06"),
        ("train", ("caveats",), "text", "caveats must be of type list, got str"),
        ("train", ("plan", "alongside"), "x", "plan.alongside must be of type dict"),
    ],
)  # fmt: skip
def test_a_damaged_field_is_refused_by_its_name(name, path, value, told):
    with pytest.raises(ValueError, match=told):
        reports_of(whole(name, damaged(RECORDS[name], path, value)))


@pytest.mark.parametrize("missing", ["norm", "dimension"])
def test_half_a_vector_is_refused(missing):
    for value in (GONE, None):
        with pytest.raises(ValueError, match=f"{missing} is missing"):
            reports_of(whole("epsilon", damaged(vector(2, 10), (missing,), value)))


@pytest.mark.parametrize("name", RECORDS)
def test_no_damage_is_told_by_anything_but_a_value_error(name):
    record = json.loads(json.dumps(RECORDS[name]))
    refused = 0
    for path in paths(record):
        for value in DAMAGE:
            try:
                (report,) = reports_of(whole(name, damaged(record, path, value)))
            except ValueError:
                refused += 1
                continue
            for epsilon, delta in () if report.guarantee is None else report.guarantee.points:
                assert 0.0 <= epsilon < math.inf
                assert 0.0 <= delta <= 1.0
    assert refused > 3 * len(record)


def test_an_unknown_record_is_told_what_is_known():
    with pytest.raises(ValueError, match=r"a JSON object with kind and results, got colour, size"):
        reports_of({"size": 1, "colour": 2})
    with pytest.raises(ValueError, match=r"kind must be one of noise, release, .*, got 'colour'"):
        reports_of({"kind": "colour", "results": [{}]})


def test_of_several_the_damaged_one_is_named():
    with pytest.raises(ValueError, match=r"results\[1\].rate must be a number in \(0, 1\], got 7"):
        reports_of(whole("curve", CURVE, CURVE | {"rate": 7}))


def test_an_audit_that_contradicts_its_claim_warns_and_never_guarantees():
    report = report_of(AUDITED, "audit")
    assert report.guarantee is None
    assert report.warnings == ()
    contradicted = {**AUDITED, "lower_epsilon": 2.5, "is_consistent": False}
    assert "CONTRADICTION: the attack shows epsilon >= 2.5" in report_of(contradicted, "audit").warnings[0]
    failed = damaged(AUDITED, ("noise_check", "tests", 0, "p_value"), 1e-9)
    failed = damaged(failed, ("noise_check", "passed"), False)
    assert "FAILED: tails (everywhere)" in report_of(failed, "audit").warnings[0]


def test_a_test_named_like_a_setting_does_not_hide_it():
    named = damaged(AUDITED, ("noise_check", "tests", 0, "name"), "sampling rate")
    settings = report_of(named, "audit").settings
    assert settings["sampling rate"] == "0.1 (Poisson)"
    assert settings["test: sampling rate"] == "p = 0.5, everywhere"


@pytest.mark.parametrize("path", [("is_consistent",), ("noise_check", "passed")])
def test_an_audit_whose_verdict_is_not_that_of_its_numbers_is_refused(path):
    with pytest.raises(ValueError, match="must be true, as"):
        report_of(damaged(AUDITED, path, False), "audit")


def test_losses_are_told_as_they_are_and_not_by_their_logarithms():
    unlikely = RECORDS["choose"] | {"best": WEIGHED | {"log_loss": -10_000.0}}
    settings = report_of(unlikely, "choose").settings
    assert settings["its loss"] == "1.135e-4343"
    assert settings["loss of Laplace noise"] == f"{math.exp(-3.0):.4g}"
