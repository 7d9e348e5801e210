# SPDX-License-Identifier: Apache-2.0
"""Draw noise_map.png: which noise has the smallest standard deviation, by dimension and number of releases.

python docs/figures/noise_map.py [--processes 6] [--full]    # resumes from noise_map.json beside it

Every cell of the map is one setting: dimension, releases, rate, epsilon, delta. For each noise it holds the
least standard deviation of a coordinate at sensitivity 1 in l_2. Without --full a coarse grid is filled.
"""

import argparse
import itertools
import json
import math
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import ggdp
from ggdp.reporting.canvas import panels, png

RECORD = Path(__file__).with_suffix(".json")
DIMENSIONS = (1, 2, 5, 10, 100, 10**4, 10**6)
TARGETS = ((1.0, 1e-6), (3.0, 1e-9), (0.3, 1e-5))
RATES = (1.0, 0.01)
FEW, MANY = (1, 3, 10, 100, 10_000), (1, 2, 3, 5, 7, 10, 20, 50, 100, 300, 1000, 10_000)
MIXTURES = ((0.5, 0.5), (0.9, 0.9), (0.5, 0.2))  # weight of the narrow part, and its share of the wide std


def staircase(epsilon):
    """The noise of least variance with pure privacy epsilon (Geng and Viswanath): log density and std."""
    decay = math.exp(-epsilon)
    widths = np.linspace(0.01, 0.99, 197)
    steps = np.arange(400)[:, None] if epsilon > 0.05 else np.arange(20_000)[:, None]

    def second_moment(width):
        third = lambda a, b: (b**3 - a**3) / 3.0  # noqa: E731
        parts = third(steps, steps + width) + decay * third(steps + width, steps + 1.0)
        return (parts * decay**steps).sum(0) * (1.0 - decay) / (width + decay * (1.0 - width))

    values = second_moment(widths)
    return math.sqrt(float(values.min()))


def filled(setting):
    """The standard deviations of one setting; None where no answer was certified."""
    dimension, steps, rate, epsilon, delta = setting
    run = {"epsilon": epsilon, "delta": delta, "steps": steps, "rate": rate}
    found = {}

    def attempt(name, compute):
        try:
            found[name] = compute()
        except (ValueError, ArithmeticError, RuntimeError):
            found[name] = None

    attempt("gaussian", lambda: ggdp.calibrate_scale(beta=2, **run).noise.std)
    if dimension == 1:
        attempt("laplace", lambda: ggdp.calibrate_scale(beta=1, **run).noise.std)
        attempt("independent", lambda: noted(found, ggdp.best_noise(**run)))
        if rate == 1.0:
            found["staircase"] = staircase(epsilon / steps)  # each of the releases purely private
        attempt("mixture", lambda: mixture(found["gaussian"], run))
    else:
        attempt("spherical", lambda: noted(found, ggdp.best_noise(**run, norm=2, dimension=dimension)))
        found["laplace"] = found.pop("laplace_std", None)
        if dimension in (2, 100) and rate == 1.0:
            vector = {"norm": 2, "dimension": dimension}
            attempt("independent", lambda: ggdp.calibrate_scale(beta=1.5, **run, **vector).noise.std)
    found.pop("laplace_std", None)
    return {"setting": list(setting), "std": found}


def noted(found, best):
    """The loss of a best noise, its exponent and Laplace noise noted."""
    found["beta"], found["laplace_std"] = best.beta, best.laplace_loss
    return best.loss


def mixture(gaussian, run):
    """The least std of a few Gaussian mixtures about zero, to half a percent."""
    least = math.inf
    for weight, share in MIXTURES:
        unit = math.sqrt(weight * share**2 + 1.0 - weight)

        def family(std, weight=weight, share=share, unit=unit):
            wide = std / unit
            step = ggdp.GaussianMixtureNoise(
                (weight, 1.0 - weight), (0.0, 0.0), (share * wide, wide), shift=1.0
            )
            step = step if run["rate"] == 1.0 else ggdp.PoissonSampled(step, run["rate"])
            return ggdp.Composed(step, times=run["steps"])

        ends = (0.1 * gaussian, 4.0 * gaussian)
        target = {"epsilon": run["epsilon"], "delta": run["delta"]}
        least = min(least, ggdp.calibrate_family(family, between=ends, relative=5e-3, **target).value)
    return least


def settings(full):
    """All settings of the coarse or of the full map."""
    targets, counts = (TARGETS, MANY) if full else (TARGETS[:1], FEW)
    grid = itertools.product(DIMENSIONS, counts, RATES, targets)
    return [(d, t, q, e, delta) for d, t, q, (e, delta) in grid if q == 1.0 or t >= 10]


def draw(cells):
    """Percent less noise than the Gaussian for the best noise, one panel with and one without sampling."""
    figure, axes = panels(2)
    for axis, rate in zip(axes, RATES, strict=True):
        shown = [c for c in cells if c["setting"][2] == rate and c["setting"][3:] == [1.0, 1e-6]]
        counts = sorted({c["setting"][1] for c in shown})
        table = np.full((len(DIMENSIONS), len(counts)), np.nan)
        for cell in shown:
            d, t = cell["setting"][:2]
            std = cell["std"]
            kinds = {k: std[k] for k in ("laplace", "gaussian", *NAMES) if std.get(k)}
            if not kinds or not std.get("gaussian"):
                continue
            best = min(kinds, key=kinds.get)
            saved = 100.0 * (1.0 - kinds[best] / std["gaussian"])
            best = "gaussian" if saved < 0.05 else best
            row, column = DIMENSIONS.index(d), counts.index(t)
            table[row, column] = saved
            axis.text(
                column, row, f"{NAMES.get(best, best)}\n{saved:.1f}%", ha="center", va="center", fontsize=6
            )
        axis.imshow(table, aspect="auto", cmap="YlGn", vmin=0.0, vmax=60.0)
        axis.set_xticks(range(len(counts)), labels=[f"{t:g}" for t in counts])
        axis.set_yticks(range(len(DIMENSIONS)), labels=[f"{d:g}" for d in DIMENSIONS])
        axis.set_xlabel("releases" if rate == 1.0 else f"releases, each on a sample of rate {rate:g}")
        axis.set_ylabel("dimension")
    RECORD.with_suffix(".png").write_bytes(png(figure))


NAMES = {
    "independent": "independent",
    "spherical": "spherical",
    "staircase": "staircase",
    "mixture": "mixture",
}


def main():
    """Fill what is missing, keep every cell as it comes, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    cells = json.loads(RECORD.read_text()) if RECORD.exists() else []
    done = {tuple(cell["setting"]) for cell in cells}
    todo = [one for one in settings(options.full) if one not in done]
    with ProcessPoolExecutor(options.processes) as pool:
        for cell in pool.map(filled, todo):
            cells.append(cell)
            RECORD.write_text(json.dumps(sorted(cells, key=lambda c: c["setting"]), indent=1) + "\n")
            print(cell, flush=True)
    draw(cells)


if __name__ == "__main__":
    main()
