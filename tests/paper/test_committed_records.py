# SPDX-License-Identifier: Apache-2.0
"""The committed records: as `expected/` says, private as they claim, and drawn as they say."""

import json
import math
from pathlib import Path

import pytest
from scipy import optimize, stats

from ggdp_paper.figures import NAMES, experiment_named
from ggdp_paper.record import differences, measured

PAPER = Path(__file__).parents[2] / "papers" / "generalized_gaussian"
RECORDS = {
    path.stem: record
    for path in sorted((PAPER / "records").glob("*.json"))
    if "figure"
    in (record := json.loads(path.read_text()))  # the others are of scripts that compare themselves
} | {  # those of a GPU are kept with the package
    name: kept
    for name in NAMES
    if experiment_named(name).needs_record
    and (kept := measured(experiment_named(name).config.settings["measured"])) is not None
}
EXPECTED = {path.stem: json.loads(path.read_text()) for path in sorted((PAPER / "expected").glob("*.json"))}


def delta_of(beta, scale, epsilon):
    """P(L > epsilon) - e^epsilon Q(L > epsilon) of one release, by SciPy alone; the loss falls in z."""
    P, Q = stats.gennorm(beta, scale=scale), stats.gennorm(beta, loc=1.0, scale=scale)

    def excess(z):
        return (abs(z - 1.0) ** beta - abs(z) ** beta) / scale**beta - epsilon

    if beta == 1.0:
        end = 0.5 * (1.0 - epsilon * scale)
    else:
        end = optimize.brentq(excess, -50.0 * scale - 50.0, 50.0 * scale + 50.0, xtol=1e-13)
    return P.cdf(end) - math.exp(epsilon) * Q.cdf(end)


def test_the_figures_that_need_no_other_machine_are_there():
    assert {"fig1", "fig2", "fig3", "fig5", "fig7"} <= set(RECORDS) <= set(NAMES)


@pytest.mark.parametrize("name", sorted(set(RECORDS) & set(EXPECTED)))
def test_a_committed_record_is_as_expected(name):
    assert len(EXPECTED[name]) >= 3
    assert differences(RECORDS[name]["headline"], EXPECTED[name]) == []


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_committed_record_is_a_full_run_of_the_present_settings_with_its_pictures(name):
    record, experiment = RECORDS[name], experiment_named(name)
    assert record["quick"] is False
    kept = {key: value for key, value in record["config"].items() if key != "data"}
    assert kept == experiment.config.chosen(False)
    for picture in record["pictures"]:
        assert (PAPER / "records" / f"{picture}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", sorted(set(RECORDS) - {"speed"}))  # a time is of its machine, as its cell is
def test_the_seeds_of_a_committed_record_are_those_of_the_present_cells(name):
    cells = experiment_named(name).cells(RECORDS[name]["config"])
    told = [" ".join(f"{word:08x}" for word in cell.entropy) for cell in cells]
    assert told == list(RECORDS[name]["seeds"].values())
    assert RECORDS[name]["seconds"]["cells"] == len(cells)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_the_verdicts_of_a_committed_record_follow_from_its_numbers(name):
    record, experiment = RECORDS[name], experiment_named(name)
    computed = experiment.findings(record["config"], record["numbers"])
    assert [found.agreement for found in computed.values()] == [
        finding["agreement"] for finding in record["findings"]
    ]
    assert experiment.headline(record["numbers"]) == record["headline"]


def test_the_noises_of_figure_1_have_the_privacy_they_claim():
    record = RECORDS["fig1"]
    for row in record["numbers"]["noises"]:
        assert 0.999e-5 <= delta_of(row["beta"], row["scale"], 1.0) <= 1.000001e-5


def test_the_crossings_of_figure_2_lie_on_its_line():
    record = RECORDS["fig2"]
    for curve in record["numbers"]["curves"]:
        scale = math.sqrt(2.0) * curve["sigma at the line"]
        assert 0.999e-5 <= delta_of(curve["beta"], scale, 4.0) <= 1.000001e-5


def test_in_the_matched_norm_epsilon_is_exact_and_beta_2_has_the_runs_of_the_other_norm():
    record, other = RECORDS["fig4_cifar10_matched"], RECORDS["fig4_cifar10"]
    for end in record["numbers"]["epsilon at the end of a run"]:
        assert 0.0 <= end["upper"] - end["lower"] <= 1e-9 * end["upper"]
    own = {seed for told, seed in record["seeds"].items() if "trained" in told}
    assert len(own) == 8
    assert len(own & set(other["seeds"].values())) == 2
    rows = {row["epsilon"]: row for row in _rows(record["numbers"]["budgets"], beta=2.0)}
    same = other["numbers"]["by noise multiplier"][0]
    assert same["noise_multiplier"] == 2.0
    for row in _rows(same["budgets"], beta=2.0):
        error = 2.0 * row["std"] + 1e-12  # of three runs, two of which are these
        assert rows[row["epsilon"]]["accuracy"] == pytest.approx(row["accuracy"], abs=error)


def test_on_reviews_laplace_noise_leads_in_the_smallest_budget_and_leaves_the_largest_ones_unused():
    numbers = RECORDS["fig4_imdb_multipliers"]["numbers"]
    laplace, gaussian = (list(_rows(numbers["budgets"], beta=beta)) for beta in (1.0, 2.0))
    ahead = [100.0 * (two["accuracy"] - one["accuracy"]) for one, two in zip(laplace, gaussian, strict=True)]
    assert ahead == pytest.approx([-4.1, 2.5, 1.9, 3.0], abs=0.05)
    assert all(row["runs"] == 3 for row in (*laplace, *gaussian))
    ends = {
        beta: [end["upper"] for end in numbers["epsilon at the end of a run"] if end["beta"] == beta]
        for beta in (1.0, 2.0)
    }
    assert max(ends[1.0]) == pytest.approx(2.32, abs=0.005)
    assert max(ends[2.0]) == pytest.approx(3.36, abs=0.005)


def _rows(budgets, beta):
    return (row for budget in budgets for row in budget["rows"] if row["beta"] == beta)
