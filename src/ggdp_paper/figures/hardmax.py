# SPDX-License-Identifier: Apache-2.0
"""Figures 7 and 8: hardmax utility of simulated votes against the runner-up gap, and its area against beta.

Utilities are exact, where the paper takes the mean of 50 trials. The histograms of 25 classes are random:
they come from the seeds in the settings, and the spread over the seeds is the error bar.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ggdp.mechanisms import Adjacency
from ggdp.reporting import canvas
from ggdp.selection import calibrated_noise, hardmax_utility, runner_up_histograms, simulate_argmax
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.figures.pate_accuracy import grid_noise
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_BLOCKS = 25  # of neighbouring gaps, in the record and in the picture
_MUCH_CLOSER = 0.5  # times as far from 2 as with few classes
_SUBSTANTIAL = 0.05  # of utility: "a substantial impact"
_VISIBLE = 1e-4  # of utility: less is no difference
_PEAK_ERROR = 0.005  # of a best exponent between grid points 1/4 apart: a grid 0.03 apart moved none by more


Pair = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The curves of few and of many classes, of one budget."""


def utilities(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Areas and utilities of all exponents, for so many classes, one budget and one set of histograms."""
    found = simulate_argmax(
        num_classes=config["classes"],
        epsilons=[config["epsilon"]],
        delta=config["delta"],
        betas=_grid(config["betas"]),
        gaps=_grid(config["gaps"]),
        times=config["votes"],
        rng=np.random.default_rng(config["histogram_seed"]),
    )
    return {
        "betas": list(found.betas),
        "scales": [noise.scale for noise in found.noises[0]],
        "areas": [_area(found.gaps, row, config["area_to"]) for row in found.utilities[0]],
        "gaps": _block_means(found.gaps).tolist(),
        "utilities": _block_means(found.utilities[0]).tolist(),
    }


def _area(gaps: NDArray[np.float64], utility: NDArray[np.float64], most: float) -> float:
    """Mean utility over the gaps up to `most`."""
    inside = gaps <= most * (1.0 + 1e-9)
    return float(np.trapezoid(utility[inside], gaps[inside]) / np.ptp(gaps[inside]))


def grid_areas(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Areas of one vote with noise calibrated exactly, and with sigma from the paper's grid."""
    gaps = np.array([gap for gap in _grid(config["gaps"]) if gap <= config["area_to"] * (1.0 + 1e-9)])
    rng = np.random.default_rng(config["histogram_seed"])
    histograms = runner_up_histograms(config["classes"], gaps, rng=rng)
    rows: dict[str, list[Any]] = {"exact": [], "grid": [], "sigmas": []}
    betas = _grid(config["betas"])
    for beta in betas:
        exact = calibrated_noise(beta, config["epsilon"], config["delta"], 1, Adjacency.ADD_REMOVE)
        rounded = grid_noise(beta, config["epsilon"], config["delta"], config["sigmas"])
        rows["sigmas"].append(None if rounded is None else rounded.scale / np.sqrt(2.0))
        for name, noise in {"exact": exact, "grid": rounded}.items():
            utility = None if noise is None else hardmax_utility(histograms, noise)
            rows[name].append(None if utility is None else _area(gaps, utility, config["area_to"]))
    return {"classes": config["classes"], "epsilon": config["epsilon"], "betas": betas, **rows}


def _block_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over neighbouring gaps: each gap has a histogram of its own, which is its own chance."""
    size = max(1, values.shape[-1] // _NUM_BLOCKS)
    kept = values[..., : values.shape[-1] // size * size]
    return np.asarray(kept.reshape(*kept.shape[:-1], -1, size).mean(axis=-1))


def _grid(grid: Mapping[str, Any]) -> list[float]:
    return [float(value) for value in np.linspace(grid["from"], grid["to"], grid["points"])]


def _curves(settings: Settings) -> list[tuple[dict[str, Any], list[int]]]:
    """Every curve of areas, with the seeds of its histograms; two classes leave nothing to chance."""
    return [
        (
            {"classes": classes, "votes": budget["votes"], "epsilon": epsilon, "betas": budget["betas"]},
            settings["histogram_seeds"][: 1 if classes == 2 else None],
        )
        for classes in settings["classes"]
        for budget in settings["budgets"]
        for epsilon in budget["epsilons"]
    ]


def _cells(settings: Settings) -> list[Cell]:
    shared = {name: settings[name] for name in ("delta", "gaps", "area_to")}
    seeded_as = "ggdp.reproduction.hardmax:utilities"
    seed = settings["histogram_seeds"][0]
    of_grid = [
        Cell(
            f"{__name__}:grid_areas",
            {
                **shared,
                "classes": classes,
                "epsilon": epsilon,
                "betas": settings["grid"]["betas"],
                "sigmas": settings["grid"]["sigmas"],
                "histogram_seed": seed,
            },
        )
        for classes in settings["classes"]
        for epsilon in settings["grid"]["epsilons"]
    ]
    return [
        Cell(f"{__name__}:utilities", {**shared, **curve, "histogram_seed": seed}, seeded_as=seeded_as)
        for curve, seeds in _curves(settings)
        for seed in seeds
    ] + of_grid


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    rest = iter(results)
    curves = []
    for curve, seeds in _curves(settings):
        runs = [next(rest) for _ in seeds]
        areas = np.array([run["areas"] for run in runs])
        errors = np.std(areas, axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0.0 * areas[0]
        mean = areas.mean(axis=0)
        curves.append(
            {
                "name": f"{curve['classes']} classes, {curve['votes']} votes",
                **{key: curve[key] for key in ("classes", "votes", "epsilon")},
                **{key: runs[0][key] for key in ("betas", "scales", "gaps")},
                "utilities": np.mean([run["utilities"] for run in runs], axis=0).round(5).tolist(),
                "areas": mean.tolist(),
                "areas by histograms": areas.tolist(),
                "standard errors": errors.tolist(),
                "best beta": runs[0]["betas"][int(np.argmax(mean))],
                "best exponents": [best_exponent(runs[0]["betas"], run["areas"]) for run in runs],
            }
        )
    return {"curves": curves, "grid": list(rest)}


def best_exponent(betas: list[float], areas: list[float]) -> float:
    """Where a smooth curve through the areas is highest: between the exponents tried, or at an end.

    >>> best_exponent([1.0, 2.0, 3.0, 4.0], [0.0, 3.0, 4.0, 3.0])
    3.0
    """
    from scipy.interpolate import CubicSpline

    curve = CubicSpline(betas, areas)
    turns = curve.derivative().roots(extrapolate=False)
    candidates = [betas[0], betas[-1], *turns[np.isfinite(turns)]]
    return round(float(max(candidates, key=curve)), 6)


def _headline(numbers: Numbers) -> dict[str, float]:
    found = {}
    for curve in numbers["curves"]:
        first = np.array(curve["areas by histograms"][0])
        name = f"{curve['name']}, epsilon = {curve['epsilon']:g}"
        found[f"{name}, best beta"] = curve["betas"][int(np.argmax(first))]
        found[f"{name}, largest area"] = float(first.max())
    return found


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    few, many = settings["classes"][0], settings["classes"][-1]
    pairs = list(zip(_of_classes(numbers, few), _of_classes(numbers, many), strict=True))
    return {
        "two classes": _few_classes([curve for curve, _ in pairs]),
        "many classes": Finding(
            f"The best exponent with {few} and {many} classes: "
            f"{_told_of(pairs, _best)}. Much closer is at most {_MUCH_CLOSER:g} times as far from 2.",
            Agreement.of_all(_is_much_closer(*pair) for pair in pairs),
        ),
        "laplace": _gaussian_against_laplace(numbers["curves"]),
        "more classes": Finding(
            f"From the best exponent to the worst, the area with {few} and {many} classes changes by "
            f"{_told_of(pairs, lambda curve: f'{np.mean(_impacts(curve)):.3f}')}.",
            Agreement.of_all(_unanimous(_impacts(more) > _impacts(less)) for less, more in pairs),
        ),
        "fixed gap": _at_fixed_gaps(numbers["curves"]),
        "same beta": _same_beta(numbers["curves"]),
        "jagged": _jagged(numbers["grid"]),
    }


def _at_fixed_gaps(curves: Sequence[Mapping[str, Any]]) -> Finding:
    """How far utility moves with the exponent at one gap, at most."""
    spreads = [float(np.ptp(curve["utilities"], axis=0).max()) for curve in curves if curve["classes"] == 2]
    told = ", ".join(
        f"{100.0 * float(np.ptp(curve['utilities'], axis=0).max()):.0f} points ({curve['name']}, epsilon = "
        f"{curve['epsilon']:g})"
        for curve in curves
    )
    found = f"At the gap where it matters most, utilities of the exponents differ by {told}."
    return Finding(found, Agreement.of_all(spread <= _SUBSTANTIAL for spread in spreads))


def _same_beta(curves: Sequence[Mapping[str, Any]]) -> Finding:
    """Over how many steps of the grid of exponents the best one moves with the gap, where it matters."""
    told, verdicts = [], []
    for curve in curves:
        utilities, betas = np.array(curve["utilities"]), np.array(curve["betas"])
        matters = np.ptp(utilities, axis=0) > _VISIBLE
        best = betas[utilities.argmax(axis=0)[matters]]
        told.append(f"{best.min():g} to {best.max():g} ({curve['name']}, epsilon = {curve['epsilon']:g})")
        verdicts.append(bool(np.ptp(best) <= betas[1] - betas[0] + 1e-9))
    return Finding(
        f"The best exponent over the gaps: {', '.join(told)}. The same is within one step of the exponents "
        "tried.",
        Agreement.of_all(verdicts),
    )


def _jagged(rows: Sequence[Mapping[str, Any]]) -> Finding:
    """Whether rounding sigma to the grid moves areas more, the larger the exponent."""
    told, verdicts = [], []
    for row in rows:
        kept = [place for place, area in enumerate(row["grid"]) if area is not None]
        betas = np.array(row["betas"])[kept]
        moved = np.abs(np.array([row["grid"][place] - row["exact"][place] for place in kept]))
        early, late = (float(moved[part].mean()) for part in (betas <= 2.0, betas > 2.0))
        verdicts.append(late > early)
        told.append(
            f"{early:.1e} up to beta = 2 and {late:.1e} beyond ({row['classes']} classes, epsilon = "
            f"{row['epsilon']:g})"
        )
    found = f"Sigma from the grid in place of the exact one moves the area, on average, by {'; '.join(told)}."
    return Finding(found, Agreement.of_all(verdicts))


def _of_classes(numbers: Numbers, classes: int) -> list[Mapping[str, Any]]:
    return [curve for curve in numbers["curves"] if curve["classes"] == classes]


def _told_of(pairs: list[Pair], told: Callable[[Mapping[str, Any]], str]) -> str:
    return ", ".join(f"{told(few)} and {told(many)} ({_budget(few)})" for few, many in pairs)


def _best(curve: Mapping[str, Any]) -> str:
    return f"{np.mean(curve['best exponents']):.2f}"


def _few_classes(curves: list[Mapping[str, Any]]) -> Finding:
    told = ", ".join(f"{_best(curve)} ({_budget(curve)})" for curve in curves)
    bests = [best for curve in curves for best in curve["best exponents"]]  # two classes: one each
    return Finding(f"The best exponent: {told}.", Agreement.of_all(1.5 <= best < 2.0 for best in bests))


def _is_much_closer(few: Mapping[str, Any], many: Mapping[str, Any]) -> bool | None:
    """Whether the best exponent of many classes is much closer to 2, whichever histograms were drawn.

    None where the histograms disagree, or the best exponents are not known well enough.
    """
    (limit,) = _MUCH_CLOSER * np.abs(np.array(few["best exponents"]) - 2.0)
    distances = np.abs(np.array(many["best exponents"]) - 2.0)
    error = (1.0 + _MUCH_CLOSER) * _PEAK_ERROR
    close, far = distances + error <= limit, distances - error > limit
    return None if not np.all(close | far) else _unanimous(close)


def _gaussian_against_laplace(curves: list[Mapping[str, Any]]) -> Finding:
    verdicts = [_gaussian_wins(curve) for curve in curves]
    share = f"{verdicts.count(True)} of {len(curves)} settings"
    told = f"The Gaussian has a larger area than Laplace noise in {share}"
    lost = [_votes(curve) for curve, wins in zip(curves, verdicts, strict=True) if wins is False]
    if lost:
        told += f"; it loses with {', '.join(sorted(set(lost)))}"
    if None in verdicts:
        told += f"; {verdicts.count(None)} cannot be told"
    return Finding(f"{told}.", Agreement.of_all(verdicts))


def _gaussian_wins(curve: Mapping[str, Any]) -> bool | None:
    """Whether beta = 2 has more area than beta = 1; None where histograms disagree or one was not tried."""
    if not {1.0, 2.0} <= set(curve["betas"]):
        return None
    laplace, gaussian = (
        np.array(curve["areas by histograms"])[:, curve["betas"].index(beta)] for beta in (1.0, 2.0)
    )
    return _unanimous(gaussian > laplace)


def _impacts(curve: Mapping[str, Any]) -> NDArray[np.float64]:
    """How far the choice of the exponent moves the area, for each set of histograms."""
    return np.asarray(np.ptp(np.array(curve["areas by histograms"]), axis=1))


def _unanimous(holds: NDArray[np.bool_]) -> bool | None:
    return bool(holds[0]) if np.all(holds == holds[0]) else None


def _budget(curve: Mapping[str, Any]) -> str:
    return f"{_votes(curve)}, epsilon = {curve['epsilon']:g}"


def _votes(curve: Mapping[str, Any]) -> str:
    return "one vote" if curve["votes"] == 1 else f"{curve['votes']} votes in a budget"


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    return {
        f"fig7_{classes}_classes_{budget['votes']}_votes": hardmax_figure(
            [
                curve
                for curve in numbers["curves"]
                if (curve["classes"], curve["votes"]) == (classes, budget["votes"])
            ],
            delta=settings["delta"],
        )
        for classes in settings["classes"]
        for budget in settings["budgets"]
    }


_SHOWN_BETAS = (1.0, 1.25, 2.0, 3.0, 4.0)


def hardmax_figure(curves: Sequence[Mapping[str, Any]], *, delta: float) -> "Figure":
    """Left, the utilities of the middle epsilon; right, the areas of all, with error bars, the best marked.

    A curve has `classes`, `votes`, `epsilon`, `betas`, `gaps`, `utilities` [beta, gap], `areas`,
    `standard errors` and `best beta`.
    """
    figure, (left, right) = canvas.panels(2)
    shown = curves[len(curves) // 2]
    places = [place for place, beta in enumerate(shown["betas"]) if beta in _SHOWN_BETAS]
    styles = canvas.styles_of([shown["betas"][place] for place in places])
    for place, style in zip(places, styles, strict=True):
        left.plot(100.0 * np.asarray(shown["gaps"]), shown["utilities"][place], **style)
    left.set_xlabel("runner-up gap (% of the largest count)")
    left.set_ylabel("chance that the true winner wins")
    votes = "one vote" if shown["votes"] == 1 else f"{shown['votes']} votes in a budget"
    title = f"{shown['classes']} classes, {votes}, epsilon = {shown['epsilon']:g}"
    left.set_title(title, fontsize="medium", loc="left", pad=18)
    left.legend(frameon=False, fontsize="small")
    for number, curve in enumerate(curves):
        style = canvas.style_number(number)
        right.errorbar(
            curve["betas"],
            curve["areas"],
            yerr=curve["standard errors"],
            capsize=2,
            label=f"epsilon = {curve['epsilon']:g}",
            **style,
        )
        best = curve["betas"].index(curve["best beta"])
        right.plot([curve["best beta"]], [curve["areas"][best]], "o", color=style["color"], clip_on=False)
    canvas.mark_exponents(right, curves[0]["betas"][0], curves[0]["betas"][-1])
    right.set_xlabel("beta, the exponent of the noise (no unit)")
    right.set_ylabel("area under the curve (1 is the most)")
    right.set_title(f"delta = {delta:g}; a dot marks the best", fontsize="medium", loc="left", pad=18)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 3}
    right.legend(frameon=False, fontsize="small", **below)
    figure.set_figheight(3.8)
    return figure


EXPERIMENT = Experiment(
    name="fig7",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
