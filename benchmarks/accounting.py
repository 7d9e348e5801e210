# SPDX-License-Identifier: Apache-2.0
"""Accountants side by side, in one process, on DP-SGD workloads: time, error, interval, memory.

    python benchmarks/accounting.py                       # all of it: about five minutes
    python benchmarks/accounting.py --only ggdp,dp_accounting --out table.md --out records.json

Every run builds a fresh accountant: nothing is cached between runs but what a library keeps by itself. A tool
that fails is reported with its error. The truth is computed apart from all of them, by mpmath at 30 digits
(accounting_truth.py). Seconds are of this machine and whoever else uses it; a ratio is to our own runs just
before and just after.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from accounting_truth import composed_gaussian_epsilon
from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled, epsilon


@dataclass(frozen=True)
class Workload:
    """Poisson-sampled Gaussian noise of standard deviation `noise_multiplier`, composed; sensitivity 1."""

    noise_multiplier: float
    rate: float
    times: int
    delta: float

    def __str__(self) -> str:
        return f"sigma {self.noise_multiplier:g}, q {self.rate:g}, T {self.times}, delta {self.delta:g}"


@dataclass(frozen=True)
class Answer:
    """What a tool says; None where it gives no such number."""

    lower: float | None
    estimate: float
    upper: float | None


@dataclass(frozen=True)
class Record:
    """One tool on one workload."""

    tool: str
    workload: str
    seconds: float | None = None
    estimate: float | None = None
    error: float | None = None
    upper_error: float | None = None
    width: float | None = None
    peak_mib: float | None = None
    slower: float | None = None
    failure: str | None = None


WORKLOADS = (
    Workload(0.8, 0.004, 2000, 1e-5),
    Workload(1.0, 0.01, 10_000, 1e-6),
    Workload(1.1, 0.001, 100_000, 1e-7),
    Workload(2.0, 0.02, 1000, 1e-6),
)


def ggdp(work: Workload) -> Answer:
    step = PoissonSampled(AdditiveNoise(Gaussian(std=work.noise_multiplier)), rate=work.rate)
    bounds = epsilon(Composed(step, times=work.times), delta=work.delta)
    return Answer(bounds.lower, bounds.estimate, bounds.upper)


def prv_accountant(work: Workload) -> Answer:
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    prv = PoissonSubsampledGaussianMechanism(work.rate, work.noise_multiplier)
    accountant = PRVAccountant(prv, 0.001, work.delta / 1000.0, max_self_compositions=work.times)
    return Answer(*accountant.compute_epsilon(work.delta, work.times))


def dp_accounting(work: Workload) -> Answer:
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-4)
    event = dp_event.PoissonSampledDpEvent(work.rate, dp_event.GaussianDpEvent(work.noise_multiplier))
    accountant.compose(event, work.times)
    upper = accountant.get_epsilon(work.delta)
    return Answer(None, upper, upper)


def dp_accounting_lower(work: Workload) -> float:
    """Its other side, for the width alone and not timed: PLDAccountant itself does not offer it."""
    from dp_accounting.pld import privacy_loss_distribution

    one = privacy_loss_distribution.from_gaussian_mechanism(
        work.noise_multiplier,
        pessimistic_estimate=False,
        value_discretization_interval=1e-4,
        use_connect_dots=False,
        sampling_prob=work.rate,
    )
    return float(one.self_compose(work.times).get_epsilon_for_delta(work.delta))


def opacus_prv(work: Workload) -> Answer:
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(work.noise_multiplier, work.rate, work.times)]
    upper = float(accountant.get_epsilon(work.delta))
    return Answer(None, upper, upper)


def opacus_rdp(work: Workload) -> Answer:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(work.noise_multiplier, work.rate, work.times)]
    upper = float(accountant.get_epsilon(work.delta))
    return Answer(None, upper, upper)


@dataclass(frozen=True)
class Tool:
    """A way to compute epsilon, and how often to time it."""

    name: str
    run: Callable[[Workload], Answer]
    runs: int
    package: str


TOOLS = (
    Tool("ggdp", ggdp, 15, "ggdp"),
    Tool("prv_accountant, eps_error 0.001", prv_accountant, 1, "prv-accountant"),
    Tool("dp_accounting PLD, interval 1e-4", dp_accounting, 3, "dp-accounting"),
    Tool("opacus PRV (its default eps_error 0.01)", opacus_prv, 3, "opacus"),
    Tool("opacus RDP", opacus_rdp, 3, "opacus"),
)


def measure(tool: Tool, work: Workload, truth: float) -> Record:
    """Median time of the runs, then one more under tracemalloc; a tool timed once is traced in that run."""
    seconds = []
    once = tool.runs == 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = None
            for _ in range(0 if once else tool.runs):
                start = time.perf_counter()
                answer = tool.run(work)
                seconds.append(time.perf_counter() - start)
            tracemalloc.start()
            start = time.perf_counter()
            traced = tool.run(work)
            if once:
                answer, seconds = traced, [time.perf_counter() - start]
            peak = tracemalloc.get_traced_memory()[1] / 2**20
            lower = answer.lower if tool.run is not dp_accounting else dp_accounting_lower(work)
    except Exception as failure:
        return Record(tool.name, str(work), failure=f"{type(failure).__name__}: {failure}")
    finally:
        tracemalloc.stop()
    return Record(
        tool=tool.name,
        workload=str(work),
        seconds=statistics.median(seconds),
        estimate=answer.estimate,
        error=abs(answer.estimate - truth),
        upper_error=answer.upper - truth if answer.upper is not None else None,
        width=answer.upper - lower if lower is not None and answer.upper is not None else None,
        peak_mib=peak,
    )


def beside_ours(tool: Tool, work: Workload, truth: float) -> Record:
    """`measure`, and how many times slower than our runs just before and just after: load comes and goes."""
    ours: list[float] = []
    _time_ours(work, ours)
    record = measure(tool, work, truth)
    _time_ours(work, ours)
    return (
        record if record.seconds is None else replace(record, slower=record.seconds / statistics.median(ours))
    )


def _time_ours(work: Workload, seconds: list[float]) -> None:
    for _ in range(9):
        start = time.perf_counter()
        ggdp(work)
        seconds.append(time.perf_counter() - start)


def markdown(records: list[Record], truths: dict[str, str]) -> str:
    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = []
    for workload, truth in truths.items():
        lines += [
            f"**{workload}**: epsilon {truth} (mpmath)",
            "",
            "| accountant | seconds | times ours | estimate's error | upper bound - truth | width | MiB |",
            "|---|---|---|---|---|---|---|",
        ]
        for one in records:
            if one.workload != workload:
                continue
            if one.failure:
                lines.append(f"| {one.tool} | failed: {one.failure} | | | | | |")
                continue
            lines.append(
                f"| {one.tool} | {shown(one.seconds, '.4g')} | {shown(one.slower, '.3g')} "
                f"| {shown(one.error, '.1e')} | {shown(one.upper_error, '+.1e')} | {shown(one.width, '.1e')} "
                f"| {shown(one.peak_mib, '.1f')} |"
            )
        lines.append("")
    return "\n".join(lines)


def surroundings() -> str:
    packages = ["numpy", "scipy", "prv-accountant", "dp-accounting", "opacus", "mpmath"]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"{processor()}, {os.cpu_count()} cores; Python {platform.python_version()}, {versions}."


def processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="beginnings of tools' names, separated by commas")
    parser.add_argument(
        "--out", type=Path, action="append", default=[], help="a .json or .md file; may repeat"
    )
    options = parser.parse_args()
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    tools = [tool for tool in TOOLS if tool.name.startswith(wanted)]
    for tool in tools:  # imports and one-time tables of every library, out of the way
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if tool.runs > 1:
                tool.run(WORKLOADS[-1])
    records, truths = [], {}
    for work in WORKLOADS:
        truth = composed_gaussian_epsilon(work.noise_multiplier, work.rate, work.times, work.delta)
        truths[str(work)] = f"{float(truth):.12g}"
        for tool in tools:
            records.append(beside_ours(tool, work, float(truth)))
            print(records[-1], file=sys.stderr, flush=True)
    table = f"{markdown(records, truths)}\n{surroundings()}\n"
    print(table)
    for path in options.out:
        data = {"surroundings": surroundings(), "truth": truths, "records": [asdict(one) for one in records]}
        path.write_text(json.dumps(data, indent=1) if path.suffix == ".json" else table, encoding="utf-8")
    return 1 if any(one.failure for one in records if one.tool == TOOLS[0].name) else 0


if __name__ == "__main__":
    sys.exit(main())
