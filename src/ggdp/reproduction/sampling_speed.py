# SPDX-License-Identifier: Apache-2.0
"""The claim on sampling speed: our sampler, NumPy's Gaussian and SciPy's gennorm, side by side in one run.

One cell times everything, in interleaved rounds, so that a busy machine slows all alike. What needs a GPU is
read from the record that ships with the package.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.distributions import GeneralizedGaussian
from ggdp.reproduction.cell import Cell, Surroundings
from ggdp.reproduction.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp.reproduction.measured import measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, GAUSSIAN, SCIPY = "ggdp", "numpy standard_normal", "scipy gennorm.rvs"
_PAPERS_RATIO = 1.3


def timings(config: Mapping[str, Any], surroundings: Surroundings) -> dict[str, Any]:
    """Nanoseconds per draw of one thread: for each sampler and exponent, a list of rounds."""
    from scipy import stats

    count, rng = config["draws"], surroundings.rng
    normal, rows = rng.standard_normal, []
    for beta in config["betas"]:
        noise = GeneralizedGaussian(beta, 1.3)
        runs: dict[str, Callable[[], object]] = {
            GAUSSIAN: lambda: normal(count),
            OURS: lambda noise=noise: noise.sample((count,), rng=rng),  # type: ignore[misc]
            SCIPY: lambda beta=beta: stats.gennorm.rvs(beta, scale=1.3, size=count, random_state=rng),  # type: ignore[misc]
        }
        for run in runs.values():
            run()
        rounds = [
            {name: _nanoseconds(run) / count for name, run in runs.items()} for _ in range(config["rounds"])
        ]
        rows.append({"beta": beta, **{name: [times[name] for times in rounds] for name in runs}})
    return {"rows": rows}


def _nanoseconds(run: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def _cells(settings: Settings) -> list[Cell]:
    return [Cell(f"{__name__}:timings", {name: settings[name] for name in ("betas", "draws", "rounds")})]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    rows = []
    for row in results[0]["rows"]:
        gaussian = np.array(row[GAUSSIAN])
        ratios = {name: np.array(row[name]) / gaussian for name in (OURS, SCIPY)}
        rows.append(
            {
                "beta": row["beta"],
                "nanoseconds": {name: float(np.median(row[name])) for name in (OURS, GAUSSIAN, SCIPY)},
                "ratios": {name: float(np.median(values)) for name, values in ratios.items()},
                "quartiles": {
                    name: [float(value) for value in np.quantile(values, (0.25, 0.75))]
                    for name, values in ratios.items()
                },
            }
        )
    return {"rows": rows, "device": measured(settings["measured"])}


def _headline(numbers: Numbers) -> dict[str, float]:
    return {f"ratio to a Gaussian, beta = {row['beta']:g}": row["ratios"][OURS] for row in numbers["rows"]}


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    rows = numbers["rows"]
    ours = [row["ratios"][OURS] for row in rows]
    scipy = [row["ratios"][SCIPY] for row in rows]
    return {
        "ratio": Finding(
            f"On this CPU, {settings['draws']} numbers at a time, our sampler takes {min(ours):.2f} to "
            f"{max(ours):.2f} times as long as NumPy's Gaussian (medians of the rounds; below 1 is faster).",
            Agreement.of(max(ours) <= _PAPERS_RATIO),
        ),
        "scipy": Finding(
            f"gennorm.rvs takes {min(scipy):.1f} to {max(scipy):.1f} times as long as NumPy's Gaussian.",
            Agreement.of(max(scipy) > _PAPERS_RATIO),
        ),
        "device": _on_a_device(numbers["device"]),
    }


def _on_a_device(record: Mapping[str, Any] | None) -> Finding:
    if record is None:
        return Finding("Not measured here: it needs a GPU.", Agreement.UNDECIDED)
    times = record["milliseconds"]
    ours, gaussian = times["ggdp, ordinary"], times["torch.randn"]
    gamma = times["published, Gamma-based"]
    return Finding(
        f"On {record['machine']}: our kernel adds noise to 2^28 numbers in {ours:g} ms, where drawing as "
        f"many Gaussians takes torch.randn {gaussian:g} ms; the Gamma-based sampler of the published code "
        f"takes {gamma:g} ms, {gamma / gaussian:.0f} times as long as torch.randn. Read from the record of "
        f"that run ({record['command']}).",
        Agreement.of(ours <= _PAPERS_RATIO * gaussian),
    )


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    from ggdp.reporting.speed_figure import speed_figure

    return {"speed": speed_figure(numbers["rows"], numbers["device"], ratio=_PAPERS_RATIO)}


EXPERIMENT = Experiment(
    name="speed",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
