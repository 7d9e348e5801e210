# SPDX-License-Identifier: Apache-2.0
"""The claim on sampling speed: the published method, a Gaussian and our sampler, side by side in one run.

The published sampler draws from a Gamma distribution; so does SciPy's gennorm, which stands for it on a CPU.
One cell times everything, in interleaved rounds, so that a busy machine slows all alike. What needs a GPU is
read from the record that ships with the package.
"""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ggdp.distributions import GeneralizedGaussian
from ggdp.reporting import canvas
from ggdp_paper.experiment import Agreement, Experiment, Finding, Numbers, Settings
from ggdp_paper.record import measured
from ggdp_paper.sweep import Cell, Surroundings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, GAUSSIAN, SCIPY = "ggdp", "numpy standard_normal", "scipy gennorm.rvs"
_PAPERS_RATIO = 1.3
_MOST_RATIO = 1.35  # what still rounds to the paper's "about 1.3"
_DEVICE_DRAWS = 2**28  # of the record of a GPU


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
        drawn = {name: run() for name, run in runs.items()}
        rounds = [
            {name: _nanoseconds(run) / count for name, run in runs.items()} for _ in range(config["rounds"])
        ]
        rows.append({"beta": beta, **{name: [times[name] for times in rounds] for name in runs}})
    kind = type(drawn[SCIPY])
    return {"machine": machine(), "scipy returns": f"{kind.__module__}.{kind.__name__}", "rows": rows}


def _nanoseconds(run: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - start


def machine() -> dict[str, str]:
    """What decides a time beside the settings: the processor, and the packages that are timed."""
    import scipy

    return {"cpu": _processor(), "numpy": np.__version__, "scipy": scipy.__version__}


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _cells(settings: Settings) -> list[Cell]:
    config = {name: settings[name] for name in ("betas", "draws", "rounds")}
    # A time belongs to its machine: on another one the kept cell is not found, and the clock runs again.
    return [Cell(f"{__name__}:timings", {**config, "machine": machine()})]


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    (result,) = results
    rows = []
    for row in result["rows"]:
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
    found = {
        "machine": result["machine"],
        "scipy returns": result["scipy returns"],
        "rows": rows,
        "device": measured(settings["measured"]),
    }
    return found | {"notes": list(_notes(settings, found))}


def _notes(settings: Settings, numbers: Numbers) -> Iterator[str]:
    """Our own sampler, of which the paper says nothing."""
    yield (
        f"Our own sampler, {_on_the_cpu(settings, numbers)}: {_span(numbers, OURS, '.2f')} times as long as "
        "NumPy's Gaussian (medians of the rounds; below 1 is faster)."
    )
    record = numbers["device"]
    if record is not None:
        times = record["milliseconds"]
        yield (
            f"Our own sampler on {record['machine']}: the kernel adds noise to 2^28 numbers in "
            f"{times['ggdp, ordinary']:g} ms, where drawing as many Gaussians takes torch.randn "
            f"{times['torch.randn']:g} ms. Read from the record of that run ({record['command']})."
        )


def _on_the_cpu(settings: Settings, numbers: Numbers) -> str:
    here = numbers["machine"]
    return (
        f"{settings['draws']} numbers at a time on one thread of {here['cpu']} "
        f"(numpy {here['numpy']}, scipy {here['scipy']})"
    )


def _span(numbers: Numbers, sampler: str, form: str) -> str:
    ratios = [row["ratios"][sampler] for row in numbers["rows"]]
    return f"{min(ratios):{form}} to {max(ratios):{form}}"


def _headline(numbers: Numbers) -> dict[str, float]:
    return {f"ratio to a Gaussian, beta = {row['beta']:g}": row["ratios"][OURS] for row in numbers["rows"]}


def _findings(settings: Settings, numbers: Numbers) -> dict[str, Finding]:
    slower = [_is_slower(row["quartiles"][SCIPY]) for row in numbers["rows"]]
    return {
        "ratio": _published_sampler(settings, numbers, slower),
        "scipy": Finding(
            f"gennorm.rvs, {_on_the_cpu(settings, numbers)}: {_span(numbers, SCIPY, '.1f')} times as long as "
            f"NumPy's Gaussian, {_seconds(settings, numbers, SCIPY)} for a thousand times that against "
            f"{_seconds(settings, numbers, GAUSSIAN)}. The paper names no limit; more than the "
            f"{_PAPERS_RATIO:g} times that it reports for its own sampler counts as too long.",
            Agreement.of_all(slower),
        ),
        "device": _on_a_device(numbers),
    }


def _is_slower(quartiles: list[float]) -> bool | None:
    """Whether a ratio is above the paper's; None where the middle half of the rounds has it on both sides."""
    low, high = quartiles
    return None if low <= _MOST_RATIO < high else low > _MOST_RATIO


def _seconds(settings: Settings, numbers: Numbers, sampler: str) -> str:
    seconds = [1e-6 * row["nanoseconds"][sampler] * settings["draws"] for row in numbers["rows"]]
    return f"{min(seconds):.3g} to {max(seconds):.3g} s"


def _published_sampler(settings: Settings, numbers: Numbers, slower: list[bool | None]) -> Finding:
    """The paper's sampler where it runs: on a GPU by its own code, on a CPU by the same method in SciPy."""
    found = (
        f"The same method on a CPU is SciPy's gennorm.rvs, {_on_the_cpu(settings, numbers)}: "
        f"{_span(numbers, SCIPY, '.1f')} times as long as NumPy's Gaussian (medians of the rounds)."
    )
    verdicts = [None if value is None else not value for value in slower]
    record = numbers["device"]
    if record is None:
        return Finding(f"{found} On a GPU it was not measured.", Agreement.of_all(verdicts))
    gamma, gaussian = (record["milliseconds"][name] for name in ("published, Gamma-based", "torch.randn"))
    found = (
        f"On {record['machine']}, the published sampler, which draws from a Gamma distribution, takes "
        f"{gamma:g} ms for 2^28 numbers and torch.randn {gaussian:g} ms, a ratio of {gamma / gaussian:.1f} "
        f"(from a record kept with the package). {found}"
    )
    return Finding(found, Agreement.of_all([gamma <= _MOST_RATIO * gaussian, *verdicts]))


def _on_a_device(numbers: Numbers) -> Finding:
    """SciPy draws into main memory, and drawing there is slower than a Gaussian drawn on the GPU."""
    record = numbers["device"]
    if record is None:
        return Finding("Not measured here: it needs a GPU.", Agreement.UNDECIDED)
    gaussian = record["milliseconds"]["torch.randn"]
    times = [1e-6 * row["nanoseconds"][SCIPY] * _DEVICE_DRAWS for row in numbers["rows"]]
    on_cpu = numbers["scipy returns"] == "numpy.ndarray"
    found = (
        f"gennorm.rvs returns a {numbers['scipy returns']}{', which lies in main memory' if on_cpu else ''}. "
        f"For 2^28 numbers it needs {1e-3 * min(times):.3g} to {1e-3 * max(times):.3g} s on one thread of "
        f"{numbers['machine']['cpu']}, the way to the GPU not counted; on {record['machine']}, torch.randn "
        f"draws as many Gaussians in {gaussian:g} ms."
    )
    return Finding(found, Agreement.of_all([on_cpu, *(time > _MOST_RATIO * gaussian for time in times)]))


def _pictures(settings: Settings, numbers: Numbers) -> dict[str, "Figure"]:
    machine = f"{numbers['machine']['cpu']}, one thread"
    return {"speed": speed_figure(numbers["rows"], numbers["device"], machine=machine, ratio=_PAPERS_RATIO)}


def speed_figure(
    rows: Sequence[Mapping[str, Any]], device: Mapping[str, Any] | None, *, machine: str, ratio: float
) -> "Figure":
    """Draw rows with `beta`, `ratios` and `quartiles` by sampler; bars of a device's `milliseconds`.

    `machine` is where the rows were timed, and `ratio` what the paper reports.
    """
    figure, panels = canvas.panels(1 if device is None else 2)
    left = panels[0]
    betas = [row["beta"] for row in rows]
    for number, name in enumerate(rows[0]["ratios"]):
        middle = [row["ratios"][name] for row in rows]
        low = [value - row["quartiles"][name][0] for value, row in zip(middle, rows, strict=True)]
        high = [row["quartiles"][name][1] - value for value, row in zip(middle, rows, strict=True)]
        marker = canvas.MARKERS[number]
        style = canvas.style_number(number)
        left.errorbar(betas, middle, yerr=[low, high], marker=marker, capsize=3, label=name, **style)
    left.axhline(1.0, color=canvas.GAUSSIAN_COLOUR, linewidth=1.2, label="NumPy's Gaussian")
    left.axhline(ratio, color="#7f7f7f", linestyle=":", label=f"the paper: {ratio:g}")
    left.set_yscale("log")
    left.set_yticks([0.5, 1.0, 2.0, 4.0, 8.0], labels=["0.5", "1", "2", "4", "8"])
    left.set_yticks([], minor=True)
    left.set_xlabel("beta, the exponent of the noise (no unit)")
    left.set_ylabel("time / time of NumPy's Gaussian")
    left.set_title(machine, fontsize="medium", loc="left")
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}
    left.legend(frameon=False, fontsize="small", **below)
    figure.set_figheight(4.0)
    if device is not None:
        _bars(panels[1], device["milliseconds"])
    return figure


def _bars(axes: Any, milliseconds: Mapping[str, float]) -> None:
    names = list(milliseconds)[::-1]
    values = [milliseconds[name] for name in names]
    colours = [
        canvas.GAUSSIAN_COLOUR if "randn" in name else canvas.COLOURS["ggdp" not in name] for name in names
    ]
    axes.tick_params(axis="y", labelsize="small")
    axes.barh(names, values, color=colours)
    axes.set_xscale("log")
    axes.set_xlim(0.2, 40.0)
    axes.set_xticks([0.2, 0.5, 1.0, 2.0, 5.0, 10.0], labels=["0.2", "0.5", "1", "2", "5", "10"])
    axes.set_xticks([], minor=True)
    for name, value in zip(names, values, strict=True):
        axes.annotate(f" {value:g}", (value, name), va="center", fontsize="small")
    axes.set_xlabel("milliseconds for 2^28 numbers")
    axes.set_title("one H200, from its record", fontsize="medium", loc="left")


EXPERIMENT = Experiment(
    name="speed",
    cells=_cells,
    numbers=_numbers,
    headline=_headline,
    findings=_findings,
    pictures=_pictures,
)
