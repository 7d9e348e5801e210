# SPDX-License-Identifier: Apache-2.0
"""Figure 3: label accuracy of GGNMax against beta at equal privacy, on the published votes of 250 teachers.

Every noise is calibrated exactly, and accuracy is the exact expectation over the noise. The paper's mean of
25 trials is computed too, for one budget, and that of fewer and more trials; and so is accuracy with noise
from the paper's evenly spaced grid of sigma, the least of which that meets the budget.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggdp.accounting import epsilon
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Adjacency
from ggdp.selection import (
    Votes,
    calibrated_noise,
    noisy_argmax,
    read_labels,
    read_votes,
    win_probabilities,
)
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.accuracy import accuracy_figure
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FLAT = 0.01  # of accuracy: "roughly equivalently"
_MINIMAL = 0.1 * _FLAT  # of accuracy: "minimal effect"
_DROP_AROUND = (2.3, 2.9)  # of beta: "around 2.6"
_LEAST_SIGMA = 0.02  # below, the accountant has no answer; no budget of the figure is met there
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
        row: dict[str, Any] = {"accuracy": float(np.mean(probs[np.arange(len(truth)), truth]))}
        if config["trials"]:
            row["shares"] = [
                float(np.mean(noisy_argmax(votes.counts, noise, rng=rng, exact=False) == truth))
                for _ in range(config["trials"])
            ]
        found["datasets"][name] = row
    return found


def grid_noise(
    beta: float, budget: float, delta: float, grid: Mapping[str, Any]
) -> GeneralizedGaussian | None:
    """The least noise with sigma on an evenly spaced grid for which one vote meets the budget, if any."""
    for sigma in np.linspace(grid["from"], grid["to"], grid["points"]):
        noise = GeneralizedGaussian.from_noise_multiplier(beta, float(sigma))
        if sigma >= _LEAST_SIGMA and epsilon(AdditiveNoise(noise), delta=delta).upper <= budget:
            return noise
    return None


def on_grid(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Accuracy of one vote with the noise of one exponent from the paper's grid, for every budget."""
    if surroundings.data is None:
        raise ValueError("the votes are read from the data folder, and none was given")
    queries = {
        name: published_votes(surroundings.data, name, num_queries)
        for name, num_queries in config["queries"].items()
    }
    found: dict[str, Any] = {"beta": config["beta"], "sigmas": [], "datasets": {}}
    noises = [
        grid_noise(config["beta"], budget, config["delta"], config["grid"])
        for budget in config["grid"]["epsilons"]
    ]
    found["sigmas"] = [None if noise is None else noise.scale / np.sqrt(2.0) for noise in noises]
    for name, (votes, truth) in queries.items():
        found["datasets"][name] = [
            None
            if noise is None
            else float(np.mean(win_probabilities(votes.counts, noise)[np.arange(len(truth)), truth]))
            for noise in noises
        ]
    return found


def _betas(settings: Settings) -> list[float]:
    grid = settings["betas"]
    return [round(float(beta), 6) for beta in np.linspace(grid["from"], grid["to"], grid["points"])]


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("delta", "queries", "data")}
    num_trials, tried = max(_trial_counts(settings)), settings["trials"]["budget"]
    calibrated = [
        Cell(
            f"{__name__}:accuracies",
            {
                **shared,
                "beta": beta,
                "budget": budget,
                "trials": num_trials if place == tried else 0,
            },
            seeded_as="ggdp.reproduction.pate_accuracy:accuracies",
        )
        for place, budget in enumerate(settings["budgets"])
        for beta in _betas(settings)
    ]
    return calibrated + [
        Cell(f"{__name__}:on_grid", {**shared, "beta": beta, "grid": settings["grid"]})
        for beta in _betas(settings)
    ]


def _trial_counts(settings: Settings) -> list[int]:
    """The paper's number of trials and the others, of which it is the first."""
    return [settings["trials"]["count"], *settings["trials"]["others"]]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    betas, count = _betas(settings), settings["betas"]["points"]
    curves = []
    for place, budget in enumerate(settings["budgets"]):
        rows = results[place * count : (place + 1) * count]
        for name in settings["queries"]:
            found = [row["datasets"][name] for row in rows]
            curve: dict[str, Any] = {"dataset": name, "budget": budget, "name": _named(budget)}
            curve["accuracy"] = [row["accuracy"] for row in found]
            if "shares" in found[0]:
                shares = np.array([row["shares"] for row in found])
                curve["by trials"] = [_first_trials(shares, num) for num in _trial_counts(settings)]
            curves.append(curve)
    grid = _grid_curves(settings, results[len(settings["budgets"]) * count :])
    notes = [*_notes(betas, curves), *_trial_notes(curves)]
    return {"betas": betas, "curves": curves, "grid": grid, "notes": notes}


def _grid_curves(settings: Settings, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A curve for each dataset and budget; None where no sigma of the grid meets the budget."""
    return [
        {
            "dataset": name,
            "epsilon": budget,
            "sigmas": [row["sigmas"][place] for row in rows],
            "accuracy": [row["datasets"][name][place] for row in rows],
        }
        for place, budget in enumerate(settings["grid"]["epsilons"])
        for name in settings["queries"]
    ]


def _first_trials(shares: NDArray[np.float64], num_trials: int) -> dict[str, Any]:
    """Mean and deviation over the first trials, at every exponent."""
    first = shares[:, :num_trials]
    return {
        "trials": num_trials,
        "means": first.mean(axis=1).tolist(),
        "stds": first.std(axis=1, ddof=1).tolist(),
    }


def _standard_errors(tried: Mapping[str, Any]) -> NDArray[np.float64]:
    return np.asarray(np.array(tried["stds"]) / np.sqrt(tried["trials"]))


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


def _trial_notes(curves: list[dict[str, Any]]) -> list[str]:
    """That trials and expectation are of the same thing; the paper has trials alone."""
    notes = []
    for curve in curves:
        if "by trials" in curve:
            tried = curve["by trials"][0]
            errors = _standard_errors(tried)
            apart = np.abs(np.subtract(curve["accuracy"], tried["means"]))
            notes.append(
                f"Trials against the exact expectation: with {curve['name']}, the mean of {tried['trials']} "
                f"trials on {curve['dataset'].upper()} is off by at most {100 * apart.max():.3f} percentage "
                f"points, and by {np.max(apart / np.maximum(errors, 1e-12)):.1f} of its standard errors."
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
        if "by trials" in curve:
            apart = np.abs(np.subtract(curve["accuracy"], curve["by trials"][0]["means"]))
            found[f"{curve['dataset']}, trials against expectation, most"] = float(apart.max())
    return found


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    betas = np.array(numbers["betas"])
    single = [curve for curve in numbers["curves"] if curve["budget"]["votes"] == 1]
    values = [np.array(curve["accuracy"]) for curve in single]
    early = betas <= 2.5
    spreads = [float(np.ptp(curve[early])) for curve in values]
    falls = [float(curve[early][-1] - curve[-1]) for curve in values]
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
        "dip": _drop(betas, values, "exactly calibrated noise"),
        "grid": _effect_of_grid(betas, numbers["grid"]),
        "trials": _effect_of_trials(numbers),
    }


def _effect_of_grid(betas: NDArray[np.float64], curves: list[dict[str, Any]]) -> Finding:
    """Whether noise from the grid has the drop that exactly calibrated noise has not."""
    whole = [np.array(curve["accuracy"]) for curve in curves if None not in curve["accuracy"]]
    ends = []
    for curve in curves:
        if None in curve["accuracy"] and curve["dataset"] == curves[0]["dataset"]:
            first = betas[curve["accuracy"].index(None)]
            ends.append(f"from beta = {first:.2f} on at epsilon = {curve['epsilon']:g}")
    told = f" No sigma of the grid meets the budget {' and '.join(ends)}." if ends else ""
    if not whole:
        return Finding(f"The grid holds no whole curve.{told}", Agreement.UNDECIDED)
    found = _drop(betas, whole, "sigma from the paper's grid")
    return Finding(found.found + told, found.agreement)


def _drop(betas: NDArray[np.float64], curves: list[NDArray[np.float64]], noise: str) -> Finding:
    """A drop is a step down that is more than twice as large as the steps before and after it."""
    low, high = _DROP_AROUND
    near = (betas[1:-2] >= low) & (betas[2:-1] <= high)  # steps that have neighbours
    if not near.any():
        return Finding(
            "The exponents tried lie too far apart to show a drop around 2.6.", Agreement.UNDECIDED
        )
    verdicts = []
    for values in curves:
        falls = -np.diff(values)
        steep = (falls[1:-1] > 2.0 * falls[:-2]) & (falls[1:-1] > 2.0 * falls[2:]) & (falls[1:-1] > 0.0)
        verdicts.append(bool(np.any(steep & near)))
    found = (
        f"With {noise}, {verdicts.count(True) or 'none'} of the {len(curves)} curves of one "
        "vote drops around 2.6, that is by a step more than twice as large as the steps beside it."
    )
    return Finding(found, Agreement.of_all(verdicts))


def _effect_of_trials(numbers: Numbers) -> Finding:
    """The paper's number of trials against the others, at every exponent."""
    told, verdicts = [], []
    for curve in (curve for curve in numbers["curves"] if "by trials" in curve):
        usual, *others = curve["by trials"]
        for other in others:
            mean, std = (
                float(np.max(np.abs(np.subtract(usual[key], other[key])))) for key in ("means", "stds")
            )
            told.append(
                f"on {curve['dataset'].upper()}, {other['trials']} trials in place of {usual['trials']} move "
                f"the mean by up to {100 * mean:.3f} and the standard deviation by up to {100 * std:.3f}"
            )
            verdicts += [mean <= _MINIMAL, std <= _MINIMAL]
    if not told:
        return Finding("One number of trials was tried.", Agreement.UNDECIDED)
    found = (
        f"In percentage points, over all exponents: {'; '.join(told)}. Minimal is up to {100 * _MINIMAL:g}."
    )
    return Finding(found, Agreement.of_all(verdicts))


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    def panels(many: bool) -> list[tuple[str, list[dict[str, Any]]]]:
        shown = [curve for curve in numbers["curves"] if (curve["budget"]["votes"] > 1) is many]
        return [
            (
                f"{name.upper()}, delta = {settings['delta']:g}",
                [
                    {"label": curve["name"], "betas": numbers["betas"], "values": curve["accuracy"]}
                    | (
                        {
                            "points": curve["by trials"][0]["means"],
                            "errors": _standard_errors(curve["by trials"][0]).tolist(),
                        }
                        if "by trials" in curve
                        else {}
                    )
                    for curve in shown
                    if curve["dataset"] == name
                ],
            )
            for name in settings["queries"]
        ]

    def grid_panels() -> list[tuple[str, list[dict[str, Any]]]]:
        return [
            (
                f"{name.upper()}, sigma from the paper's grid",
                [
                    {
                        "label": f"epsilon = {curve['epsilon']:g}",
                        "betas": [beta for beta, value in zip(*both, strict=True) if value is not None],
                        "values": [value for value in curve["accuracy"] if value is not None],
                    }
                    for curve in numbers["grid"]
                    if curve["dataset"] == name and (both := (numbers["betas"], curve["accuracy"]))
                ],
            )
            for name in settings["queries"]
        ]

    label = "label accuracy, exact expectation (%)"
    return {
        "fig3_grid": accuracy_figure(grid_panels(), label),
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
