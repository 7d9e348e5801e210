# SPDX-License-Identifier: Apache-2.0
"""docs/paper-statements.md: it is made from its table, what it names exists, and verdicts of its own hold."""

import importlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from scipy import optimize, special, stats

from ggdp import (
    AdditiveNoise,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    account,
    calibrate_scale,
    delta,
    epsilon,
)
from ggdp.cli import app
from ggdp_paper.figures import NAMES
from ggdp_paper.statements import VERDICTS, page, statements, verdicts_of_commands

HOME = Path(__file__).parents[2]
ROWS = statements()
COMMANDS = typer.main.get_command(app).list_commands(None)
RECORDS = HOME / "papers" / "generalized_gaussian" / "records"
COMMAND_VERDICTS = verdicts_of_commands(RECORDS)
SAME = {"agrees": "verified", "partly": "in part", "differs": "refuted", "undecided": "undecided"}


def test_the_page_is_made_from_the_table():
    assert (HOME / "docs" / "paper-statements.md").read_text() == page(RECORDS), (
        "make it again: python -m ggdp_paper.statements docs/paper-statements.md"
    )


def test_every_row_has_a_verdict_and_what_decided_is_named():
    assert len({(row.number, row.says) for row in ROWS}) == len(ROWS) > 120
    for row in ROWS:
        assert row.verdict in VERDICTS, row
        assert row.by or row.verdict in ("not tried", "definition"), row
        assert row.found or row.by, row


def test_every_definition_theorem_algorithm_figure_and_table_has_a_row():
    named = " ".join(row.number for row in ROWS)
    found = {kind: set() for kind in ("Definition", "Theorem", "Lemma", "Algorithm", "Figure", "Table")}
    for kind, first, link, last in re.findall(r"\b([A-Z][a-z]+?)s? (\d+)(?: (and|to) (\d+))?", named):
        if kind in found:
            found[kind] |= (
                set(range(int(first), int(last or first) + 1)) if link != "and" else {int(first), int(last)}
            )
    assert found["Definition"] == set(range(1, 10))
    assert found["Theorem"] | found["Lemma"] == set(range(1, 16))
    assert found["Algorithm"] == set(range(1, 8))
    assert found["Figure"] == set(range(1, 17))
    assert found["Table"] == {1}


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row.where}))
def test_what_implements_a_statement_is_there(name):
    if "/" in name:
        assert (HOME / name).is_file()
        return
    if name.startswith(("ggdp.torch", "ggdp.opacus", "ggdp_paper.tasks")):
        pytest.importorskip("opacus" if "opacus" in name else "torch")
    assert _found(name) is not None


def _found(name):
    """The object of a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(f"{name} is no name of this project")


@pytest.mark.parametrize("name", sorted({name for row in ROWS for name in row.by}))
def test_what_decided_on_a_statement_is_there(name):
    program, *words = name.split()
    if program == "ggdp":
        assert words[0] in COMMANDS
        if words[0] == "reproduce":
            assert words[1].removesuffix(":") in NAMES
            assert ":" not in name or name in COMMAND_VERDICTS
        return
    file, _, test = name.partition("::")
    text = (HOME / file).read_text()
    assert not test or f"\ndef {test}(" in text


def test_no_row_says_anything_else_than_its_commands():
    """A row may be weaker, "in part", where it speaks of more than its commands ran."""
    for row in ROWS:
        said = {SAME[COMMAND_VERDICTS[name]] for name in row.by if name in COMMAND_VERDICTS}
        if said and row.verdict != "definition":
            assert row.verdict in (said if len(said) == 1 else {"in part", "undecided"}) | {"in part"}, (
                row,
                said,
            )


def test_every_verdict_of_a_command_has_a_row():
    assert set(COMMAND_VERDICTS) <= {name for row in ROWS for name in row.by}


# Verdicts that no figure gives.


def test_the_three_sigmas_of_the_paper_are_three_scales():
    x, beta, sigma = np.array([0.3, 1.7]), 1.5, 2.0
    rises = {
        "abstract": -((x / sigma) ** beta),
        "Definition 8": -(x**beta) / sigma,
        "code": -((x / (math.sqrt(2.0) * sigma)) ** beta),
    }
    noises = {
        "abstract": GeneralizedGaussian(beta, sigma),
        "Definition 8": GeneralizedGaussian.from_definition8_sigma(beta, sigma),
        "code": GeneralizedGaussian.from_noise_multiplier(beta, sigma),
    }
    for name, noise in noises.items():
        np.testing.assert_allclose(noise.logpdf(x) - noise.logpdf(0.0), rises[name], rtol=1e-12)
    assert len({noise.scale for noise in noises.values()}) == 3
    constant = beta / (2.0 * sigma ** (1.0 / beta) * special.gamma(1.0 / beta))
    assert noises["Definition 8"].pdf(0.0) == pytest.approx(constant, rel=1e-13)


def test_noise_of_algorithm_1_by_definition_8_does_not_scale_with_the_sensitivity():
    """The same query in units a hundred times smaller must cost the same, and does not."""

    def cost(unit, scale):
        return epsilon(AdditiveNoise(GeneralizedGaussian(1.5, scale), sensitivity=unit), delta=1e-5).estimate

    printed = [
        cost(unit, GeneralizedGaussian.from_definition8_sigma(1.5, 3.0 * unit).scale) for unit in (1.0, 100.0)
    ]
    ours = [
        cost(unit, GeneralizedGaussian.from_noise_multiplier(1.5, 3.0, unit).scale) for unit in (1.0, 100.0)
    ]
    assert printed[1] > 5.0 * printed[0]
    assert ours[1] == pytest.approx(ours[0], rel=1e-9)


def test_the_sigma_of_definition_5_spends_more_than_delta_at_a_large_epsilon():
    spent = {}
    for target in (1.0, 8.0, 10.0, 20.0):
        std = math.sqrt(2.0 * math.log(1.25 / 1e-5)) / target
        spent[target] = delta(AdditiveNoise(Gaussian(std=std)), epsilon=target)
        exact = stats.norm.cdf(0.5 / std - target * std)
        exact -= math.exp(target) * stats.norm.cdf(-0.5 / std - target * std)
        assert spent[target].estimate == pytest.approx(exact, rel=1e-6)
    assert spent[1.0].upper < 1e-5
    assert spent[8.0].upper < 1e-5
    assert spent[10.0].lower > 2.2e-5
    assert spent[20.0].lower > 1.5e-3


def test_sampling_amplifies_by_the_logarithm_of_a_mixture():
    pure = AdditiveNoise(Laplace(1.0))
    for rate in (0.5, 0.1, 1e-3):
        low, high = account(PoissonSampled(pure, rate)).largest_loss()
        assert low <= math.log1p(rate * math.expm1(1.0)) <= high * (1.0 + 1e-15)
        assert high < 2.0 * rate
    assert abs(math.log(1e-3)) > abs(math.log(0.1))  # the printed factor grows as the true cost vanishes


def test_the_sigma_solver_as_printed_ends_only_where_it_starts():
    """Laplace noise of scale sigma has epsilon = 1 / sigma; a solver that ends needs few questions."""

    def questions(target, most=200):
        asked = 0
        low = high = 1.0
        while 1.0 / low > target and asked < most:
            low, asked = low / 2.0, asked + 1
        while 1.0 / high < target and asked < most:
            high, asked = high * 2.0, asked + 1
        return asked

    assert questions(0.5) == questions(2.0) == 200
    assert questions(1.0) == 0


def test_beyond_beta_2_the_printed_diagonal_understates_the_worst_shift():
    def cost(*shift):
        noise = GeneralizedGaussian(3.0, 2.0)
        return delta(AdditiveNoise(noise, norm=3.0, shift=shift), epsilon=1.0)

    one, printed, diagonal = cost((1.0, 1)), cost((100**-0.5, 100)), cost((100 ** (-1.0 / 3.0), 100))
    assert (printed.estimate, one.estimate, diagonal.estimate) == pytest.approx(
        (0.0841, 0.1001, 0.4643), abs=1e-4
    )
    assert printed.upper < one.lower < one.upper < diagonal.lower


def test_the_exponent_of_lemma_15_is_positive_next_to_zero_and_falls_far_out():
    def exponent(x, order=3.0, beta=1.5):
        return -order * abs(x) ** beta + (order - 1.0) * abs(x - 1.0) ** beta

    assert exponent(-0.1) == pytest.approx(2.2125, abs=1e-4)
    far = np.array([-1e2, -1e4, -1e6])
    assert np.all(exponent(far) < -0.5 * np.abs(far) ** 1.5)


def test_the_central_limit_theorem_understates_epsilon():
    std, rate, steps = 1.0, 0.01, 1000
    mu = rate * math.sqrt(steps * math.expm1(1.0 / std**2))

    def excess(found):
        return (
            stats.norm.cdf(mu / 2 - found / mu)
            - math.exp(found) * stats.norm.cdf(-mu / 2 - found / mu)
            - 1e-5
        )

    approximate = optimize.brentq(excess, 0.0, 50.0)
    certified = epsilon(
        Composed(PoissonSampled(AdditiveNoise(Gaussian(std=std)), rate), times=steps), delta=1e-5
    )
    assert approximate == pytest.approx(1.618, abs=1e-3)
    assert certified.estimate == pytest.approx(1.828, abs=1e-3)
    assert certified.lower > approximate


def test_epsilon_at_the_longest_run_of_the_sweep():
    noise = AdditiveNoise(GeneralizedGaussian.from_noise_multiplier(1.0, 3.0))
    found = epsilon(Composed(PoissonSampled(noise, 512 / 32561), times=6400), delta=1e-6)
    assert found.lower == pytest.approx(1.2316, abs=1e-4)
    assert found.lower > 1.205


def test_sigma_of_definition_8_is_convex_in_beta_and_the_noise_multiplier_is_not():
    betas = np.arange(1.0, 5.1, 0.5)
    for target, falls_from in ((0.25, 3.0), (1.0, 3.5)):
        scales = [calibrate_scale(beta=beta, epsilon=target, delta=1e-5).step.noise.scale for beta in betas]
        bends = np.diff(np.array(scales), 2)  # around betas[1:-1]
        assert np.all(bends[betas[1:-1] < falls_from - 0.25] > 0.0)
        assert np.all(bends[betas[1:-1] >= falls_from] < 0.0)
        assert np.all(np.diff(np.array(scales) ** betas, 2) > 0.0)


def curves(votes):
    record = json.loads((RECORDS / "fig7.json").read_text())
    return [curve for curve in record["numbers"]["curves"] if curve["votes"] == votes]


def test_utility_at_a_fixed_gap_depends_on_beta():
    spreads = {
        (votes, classes): max(
            float(np.ptp(curve["utilities"], axis=0).max())
            for curve in curves(votes)
            if curve["classes"] == classes
        )
        for votes in (1, 200)
        for classes in (2, 25)
    }
    expected = {(1, 2): 0.34, (1, 25): 0.58, (200, 2): 0.06, (200, 25): 0.16}
    assert spreads == pytest.approx(expected, abs=0.01)


def test_the_best_beta_is_the_same_at_every_gap_for_one_vote_and_moves_for_many():
    def best(curve):
        utilities, betas = np.array(curve["utilities"]), np.array(curve["betas"])
        return set(betas[utilities.argmax(axis=0)][np.ptp(utilities, axis=0) > 1e-4].tolist())

    assert all(best(curve) == {1.0} for curve in curves(1))
    moves = {2: 0.0, 25: 0.0}
    for curve in curves(200):
        found = best(curve)
        moves[curve["classes"]] = max(moves[curve["classes"]], max(found) - min(found))
    assert moves == {2: 1.5, 25: 0.5}


def test_on_adult_curves_are_not_flatter_at_larger_sigma():
    spreads = {2.0: [], 2.5: [], 3.0: []}
    for panel in json.loads((RECORDS / "fig9.json").read_text())["numbers"]["panels"]:
        if panel["hyperparameter"] != "noise_multiplier":
            continue
        for budget in panel["budgets"]:
            rows = [100.0 * row["accuracy"] for row in budget["rows"] if row["beta"] <= 2.0]
            if len(rows) == 4:
                spreads[panel["value"]].append(max(rows) - min(rows))
    assert (min(spreads[2.0]), max(spreads[2.0])) == pytest.approx((0.02, 0.14), abs=0.006)
    assert (min(spreads[3.0]), max(spreads[3.0])) == pytest.approx((0.13, 0.38), abs=0.006)
