# SPDX-License-Identifier: Apache-2.0
"""Figure 3: label accuracy of GGNMax against beta at equal privacy, on the published votes of 250 teachers.

Every noise is calibrated exactly, and accuracy is the exact expectation over the noise. The paper's mean of
25 trials is computed too, for one budget, and must agree with it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggdp.mechanisms import Adjacency
from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp.selection import Votes, noisy_argmax, win_probabilities
from ggdp.selection.best_exponent import calibrated_noise
from ggdp.selection.votes import read_labels, read_votes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FLAT = 0.01  # of accuracy: "roughly equivalently"
_HEADLINE_BETAS = (1.0, 1.95, 2.42, 4.0)


def vote_files(name: str) -> tuple[str, str]:
    """The published histograms and the true labels of a dataset, inside the data folder."""
    return f"pate/{name}_250_teachers.npz", f"pate/{name}_test_labels.npy"


def published_votes(data: Path, name: str, num_queries: int | None) -> tuple[Votes, NDArray[np.int64]]:
    """Votes of 250 teachers and the true labels, the first queries of them."""
    histograms, labels = vote_files(name)
    votes = read_votes(data / histograms)
    votes = votes if num_queries is None else votes.first(num_queries)
    return votes, read_labels(data / labels, votes.num_queries)


def accuracies(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Accuracy on every dataset with the noise of one exponent and one budget."""
    if surroundings.data is None:
        raise ValueError("the votes are read from the data folder, and none was given")
    published = {
        name: published_votes(surroundings.data, name, num_queries)
        for name, num_queries in config["queries"].items()
    }
    budget = config["budget"]
    noise = calibrated_noise(
        config["beta"], budget["epsilon"], config["delta"], budget["votes"], Adjacency(budget["adjacency"])
    )
    found: dict[str, Any] = {"beta": noise.beta, "scale": noise.scale, "datasets": {}}
    rng = surroundings.rng
    for name, (votes, truth) in published.items():
        probs = win_probabilities(votes.counts, noise)
        row = {"accuracy": float(np.mean(probs[np.arange(len(truth)), truth]))}
        if config["trials"]:
            shares = [
                float(np.mean(noisy_argmax(votes.counts, noise, rng=rng) == truth))
                for _ in range(config["trials"])
            ]
            row["trials"] = float(np.mean(shares))
            row["standard_error"] = float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
        found["datasets"][name] = row
    return found


def _betas(settings: Settings) -> list[float]:
    grid = settings["betas"]
    return [round(float(beta), 6) for beta in np.linspace(grid["from"], grid["to"], grid["points"])]


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("delta", "queries", "data")}
    trials = settings["trials"]
    return [
        Cell(
            f"{__name__}:accuracies",
            {
                **shared,
                "beta": beta,
                "budget": budget,
                "trials": trials["count"] * (place == trials["budget"]),
            },
        )
        for place, budget in enumerate(settings["budgets"])
        for beta in _betas(settings)
    ]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    betas, count = _betas(settings), settings["betas"]["points"]
    curves = []
    for place, budget in enumerate(settings["budgets"]):
        rows = results[place * count : (place + 1) * count]
        for name in settings["queries"]:
            curve: dict[str, Any] = {"dataset": name, "budget": budget, "name": _named(budget)}
            curve |= {key: [row["datasets"][name][key] for row in rows] for key in rows[0]["datasets"][name]}
            curves.append(curve)
    return {"betas": betas, "curves": curves, "notes": _notes(betas, curves)}


def _named(budget: Mapping[str, Any]) -> str:
    votes = "one vote" if budget["votes"] == 1 else f"{budget['votes']} votes"
    return f"epsilon = {budget['epsilon']:g}, {votes}"


def _notes(betas: list[float], curves: list[dict[str, Any]]) -> list[str]:
    """What the paper did not look at: votes that share a budget, as PATE is used."""
    notes = []
    for curve in curves:
        if curve["budget"]["votes"] > 1:
            values = curve["accuracy"]
            best = int(np.argmax(values))
            notes.append(
                f"Beyond the paper: with {curve['name']} in one budget, {curve['dataset'].upper()} accuracy "
                f"is not flat: {100 * values[0]:.1f}% at beta = 1, {100 * values[best]:.1f}% at its best, "
                f"beta = {betas[best]:.2f}, and {100 * values[-1]:.1f}% at beta = {betas[-1]:g}."
            )
    return notes


def _headline(numbers: Numbers) -> dict[str, float]:
    betas = np.array(numbers["betas"])
    places = sorted({int(np.argmin(np.abs(betas - beta))) for beta in _HEADLINE_BETAS})
    found = {}
    for curve in numbers["curves"]:
        for place in places:
            name = f"{curve['dataset']}, {curve['name']}, beta = {betas[place]:.3g}"
            found[name] = curve["accuracy"][place]
        if "trials" in curve:
            apart = np.abs(np.subtract(curve["accuracy"], curve["trials"]))
            found[f"{curve['dataset']}, trials against expectation, most"] = float(apart.max())
    return found


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    betas = np.array(numbers["betas"])
    single = [curve for curve in numbers["curves"] if curve["budget"]["votes"] == 1]
    values = [np.array(curve["accuracy"]) for curve in single]
    early = betas <= 2.5
    spreads = [float(np.ptp(curve[early])) for curve in values]
    falls = [float(curve[early][-1] - curve[-1]) for curve in values]
    # A dip is a point below both its neighbours.
    inner = [curve[1:-1] < np.minimum(curve[:-2], curve[2:]) for curve in values]
    num_dips = int(sum(np.count_nonzero(dips) for dips in inner))
    tried = [curve for curve in numbers["curves"] if "trials" in curve]
    errors = [
        abs(exact - mean) / max(error, 1e-12)
        for curve in tried
        for exact, mean, error in zip(
            curve["accuracy"], curve["trials"], curve["standard_error"], strict=True
        )
    ]
    return {
        "flat": Finding(
            f"One vote: over beta in [1, 2.5] accuracy moves by {100 * min(spreads):.2f} to "
            f"{100 * max(spreads):.2f} percentage points.",
            Agreement.of(max(spreads) <= _FLAT),
        ),
        "falling": Finding(
            f"One vote: from beta = {betas[early][-1]:.2g} to {betas[-1]:g} it falls by "
            f"{100 * min(falls):.2f} to {100 * max(falls):.2f} percentage points.",
            Agreement.of(min(falls) > 0.0 and max(falls) <= _FLAT),
        ),
        "dip": Finding(
            f"With exactly calibrated noise {num_dips or 'none'} of the inner points of the one-vote curves "
            "lies below both neighbours" + (": the drop was an artefact." if num_dips == 0 else "."),
            Agreement.of(num_dips == 0),
        ),
        "trials": Finding(
            f"The mean of {settings['trials']['count']} trials lies within {max(errors):.1f} standard errors "
            f"of the exact expectation at all {len(errors)} points; a standard error is at most "
            f"{100 * max(max(curve['standard_error']) for curve in tried):.3f} percentage points.",
            Agreement.of(max(errors) <= 4.5),
        ),
    }


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.accuracy_figure import accuracy_figure

    def panels(many: bool) -> list[tuple[str, list[dict[str, Any]]]]:
        shown = [curve for curve in numbers["curves"] if (curve["budget"]["votes"] > 1) is many]
        return [
            (
                f"{name.upper()}, delta = {settings['delta']:g}",
                [
                    {"label": curve["name"], "betas": numbers["betas"], "values": curve["accuracy"]}
                    | (
                        {"points": curve["trials"], "errors": curve["standard_error"]}
                        if "trials" in curve
                        else {}
                    )
                    for curve in shown
                    if curve["dataset"] == name
                ],
            )
            for name in settings["queries"]
        ]

    label = "label accuracy, exact expectation (%)"
    return {
        "fig3": accuracy_figure(panels(many=False), label),
        "fig3_many_votes": accuracy_figure(panels(many=True), label),
    }


def _files(settings: Settings) -> tuple[str, ...]:
    return tuple(file for name in settings["queries"] for file in vote_files(name))


EXPERIMENT = Experiment(
    name="fig3",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
    files=_files,
)
