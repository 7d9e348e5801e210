# SPDX-License-Identifier: Apache-2.0
"""Draw noise_map.png: which noise has the smallest standard deviation, by dimension and number of releases.

python docs/figures/noise_map.py --processes 6    # fills what is missing in noise_map.json, and draws
python docs/figures/noise_map.py --coarse         # fills a few cells: one target, few numbers of releases
python docs/figures/noise_map.py --draw           # draws what is there
python docs/figures/noise_map.py --fill           # fills, and does not draw

Every cell of the map is one setting: dimension, releases, rate, epsilon, delta. For each noise it holds the
least standard deviation of a coordinate at sensitivity 1 in l_2. About 1300 CPU seconds in all.
"""

import argparse
import itertools
import json
import math
import signal
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

import ggdp

RECORD = Path(__file__).with_suffix(".json")
DIMENSIONS = (1, 2, 5, 10, 100, 10**4, 10**6)
TARGETS = ((1.0, 1e-6), (3.0, 1e-9))
COUNTS = {1.0: (1, 3, 10, 30, 100, 1000, 10_000), 0.01: (10, 100, 1000, 10_000)}  # by rate
COARSE = {1.0: (1, 10, 100, 10_000), 0.01: (1000,)}
LONGEST = 60  # seconds for one noise of a cell
KINDS = ("spherical", "independent", "staircase", "mixture", "logistic")
MIXTURES = ((0.5, 0.5), (0.5, 0.2))  # weight of the narrow part, and its share of the wide std


def staircase_std(loss, width):
    """The std of staircase noise (Geng and Viswanath) for sensitivity 1, of which no loss exceeds `loss`.

    Its density is proportional to e^(-k loss) at distances from zero in [k, k + width) and to e^(-(k+1) loss)
    in [k + width, k + 1), k = 0, 1, ...; the sums over k are in closed form.
    """
    decay, left = math.exp(-loss), -math.expm1(-loss)
    none, one, two = 1.0 / left, decay / left**2, decay * (1.0 + decay) / left**3  # of decay^k, k .., k^2 ..

    def inside(part):  # the integral of x^2 over [k, k + part), summed
        return two * part + one * part**2 + none * part**3 / 3.0

    moment = (left * inside(width) + decay * inside(1.0)) * left / (width + decay * (1.0 - width))
    return np.sqrt(moment)


def staircase(gaussian, run):
    """The least std of staircase noise, of the best width for one release and of width 1/2, to half a
    percent.

    Its density falls with the distance, so that the longest shift, 1, is the worst. With width <= 1/2 the two
    laws then differ by a loss of `loss`, 0 or -`loss`, and are a pair on three outcomes.
    """
    widths = np.linspace(0.001, 0.5, 1000)

    def family(flat, half):
        loss = 1.0 / flat
        width = 0.5 if half else float(widths[np.argmin(staircase_std(loss, widths))])
        decay = math.exp(-loss)
        top = 0.5 * -math.expm1(-loss) / (width + decay * (1.0 - width))
        less, same = 0.5 + top * width, top * decay * (1.0 - 2.0 * width)
        law = np.array([less, same, decay * less]) / (less + same + decay * less)
        step = ggdp.OutcomeProbabilities(tuple(law), tuple(law[::-1]))
        return width, composed(step, run)

    found = []
    for half in (False, True):
        ends = (0.05 / run["epsilon"], 1.001 * run["steps"] / run["epsilon"])  # purely private
        value = least(lambda flat, half=half: family(flat, half)[1], ends, run)
        found.append(float(staircase_std(1.0 / value, family(value, half)[0])))
    return min(found)


def logistic(gaussian, run):
    """The least std of logistic noise, known by its density alone, to half a percent."""

    def family(std):
        scale = math.sqrt(3.0) / math.pi * std
        law = ggdp.Density(lambda x: -np.logaddexp(x / scale, 0.0) * 2.0 + x / scale - math.log(scale))
        return composed(ggdp.DensityPair(law.shifted(1.0), law), run)

    return least(family, (0.3 * gaussian, 2.0 * gaussian), run)


def composed(step, run):
    """All releases of a run."""
    step = step if run["rate"] == 1.0 else ggdp.PoissonSampled(step, run["rate"])
    return ggdp.Composed(step, times=run["steps"])


def least(family, ends, run):
    """The least parameter of a family that meets the target, strictly inside of a range."""
    target = {"epsilon": run["epsilon"], "delta": run["delta"]}
    value = ggdp.calibrate_family(family, between=ends, relative=5e-3, **target).value
    if value == ends[0]:
        raise ValueError(f"{value:g} lies at the lower end of the range searched")
    return value


def out_of_time(*_):
    """Called by the alarm."""
    raise TimeoutError


def filled(setting):
    """The standard deviations of one setting; None where no answer was certified in time."""
    dimension, steps, rate, epsilon, delta = setting
    run = {"epsilon": epsilon, "delta": delta, "steps": steps, "rate": rate}
    found = {}
    signal.signal(signal.SIGALRM, out_of_time)

    def attempt(name, compute):
        signal.alarm(LONGEST)
        try:
            found[name] = compute()
        except (ValueError, ArithmeticError, RuntimeError, TimeoutError):
            found[name] = None
        finally:
            signal.alarm(0)

    attempt("gaussian", lambda: ggdp.calibrate_scale(beta=2, **run).noise.std)
    if dimension == 1:
        attempt("laplace", lambda: ggdp.calibrate_scale(beta=1, **run).noise.std)
        attempt("independent", lambda: noted(found, ggdp.best_noise(**run)))
        for name, compute in (("staircase", staircase), ("mixture", mixture), ("logistic", logistic)):
            attempt(name, lambda compute=compute: compute(found["gaussian"], run))
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
    found = []
    for weight, share in MIXTURES:
        unit = math.sqrt(weight * share**2 + 1.0 - weight)

        def family(std, weight=weight, share=share, unit=unit):
            wide, weights = std / unit, (weight, 1.0 - weight)
            return composed(
                ggdp.GaussianMixtureNoise(weights, (0.0, 0.0), (share * wide, wide), shift=1.0), run
            )

        try:
            found.append(least(family, (0.3 * gaussian, 2.0 * gaussian), run))
        except ValueError:
            continue  # it needs more noise than twice the Gaussian's
    if not found:
        raise ValueError("every mixture needs more than twice the Gaussian's noise")
    return min(found)


def settings(coarse):
    """All settings of the map, or the coarse one's, those that take longest first."""
    grid = itertools.product(DIMENSIONS, COUNTS, TARGETS)
    found = [(d, t, q, e, delta) for d, q, (e, delta) in grid for t in COUNTS[q]]
    if coarse:
        found = [one for one in found if one[1] in COARSE[one[2]] and one[3:] == TARGETS[0]]
    return sorted(found, key=lambda one: (one[0] > 1, one[2], -one[1]))


def best(std):
    """The best noise of a cell, in words, and the share of the Gaussian's noise that it saves."""
    kinds = {k: std[k] for k in KINDS if std.get(k)}
    if not kinds or not std["gaussian"]:
        return "?", math.nan
    kind = min(kinds, key=kinds.get)
    saved = 1.0 - kinds[kind] / std["gaussian"]
    if saved < 5e-4:
        return "Gaussian", 0.0
    if kind == "independent" and "spherical" in std:
        return "independent", saved
    if kind in ("spherical", "independent"):
        return f"beta {std['beta']:.3g}", saved
    return kind, saved


def draw(cells):
    """The best noise of every cell and what it saves against the Gaussian, by target and rate."""
    from ggdp.reporting.canvas import panels, png

    shown = list(dict.fromkeys((tuple(cell["setting"][3:]), cell["setting"][2]) for cell in cells))
    shown.sort(key=lambda one: (one[0], -one[1]))
    figure, axes = panels(len(shown), rows=-(-len(shown) // 2))
    figure.set_size_inches(11.0, 3.8 * -(-len(shown) // 2))
    for axis, (target, rate) in zip(axes, shown, strict=True):
        some = [cell for cell in cells if cell["setting"][2:] == [rate, *target]]
        counts = sorted({cell["setting"][1] for cell in some})
        table = np.full((len(DIMENSIONS), len(counts)), np.nan)
        for cell in some:
            row, column = DIMENSIONS.index(cell["setting"][0]), counts.index(cell["setting"][1])
            name, table[row, column] = best(cell["std"])
            text = name if name in ("Gaussian", "?") else f"{name}\n-{100.0 * table[row, column]:.2g}%"
            ink = "white" if table[row, column] > 0.5 else "black"
            axis.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
        axis.imshow(table, aspect="auto", cmap="YlGn", vmin=0.0, vmax=0.9)
        axis.grid(visible=False)
        axis.set_xticks(range(len(counts)), labels=[f"{t:g}" for t in counts])
        axis.set_yticks(range(len(DIMENSIONS)), labels=[f"{d:g}" for d in DIMENSIONS])
        axis.set_xlabel("releases" if rate == 1.0 else f"releases, each on a sample of rate {rate:g}")
        axis.set_ylabel("dimension")
        axis.set_title(f"epsilon = {target[0]:g}, delta = {target[1]:g}", fontsize=9)
    RECORD.with_suffix(".png").write_bytes(png(figure))


def main():
    """Fill what is missing, keep every cell as it comes, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further cell after this")
    parser.add_argument("--coarse", action="store_true", help="fill only the coarse map")
    parser.add_argument("--draw", action="store_true", help="only draw what the record has")
    parser.add_argument("--fill", action="store_true", help="only fill, where matplotlib is not at hand")
    options = parser.parse_args()
    cells = json.loads(RECORD.read_text()) if RECORD.exists() else []
    done = {tuple(cell["setting"]) for cell in cells}
    todo = [] if options.draw else [one for one in settings(options.coarse) if one not in done]
    end = time.monotonic() + options.seconds
    with ProcessPoolExecutor(options.processes) as pool:
        futures = [pool.submit(filled, one) for one in todo]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            cells.append(future.result())
            lines = [json.dumps(cell) for cell in sorted(cells, key=lambda cell: cell["setting"])]
            RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n")
            print(len(cells), "cells", flush=True)
            if time.monotonic() > end:
                for waiting in futures:
                    waiting.cancel()
    if not options.fill:
        draw(cells)


if __name__ == "__main__":
    main()
