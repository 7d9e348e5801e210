# SPDX-License-Identifier: Apache-2.0
"""Draw-and-add on a CUDA device: checked against float64, timed beside PyTorch's own, and held to the goals.

    PYTHONPATH=src python benchmarks/gpu_sampling.py --out results [--log2-size 28]

Times are medians of CUDA-event timings, in milliseconds, of 2^28 float32 elements noised in place; bandwidth
counts each element as read once and written once. `gpu_sampling.json` and `gpu_sampling.md` hold the results.
The exit status is 1 if noise is wrong or a goal is missed.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ggdp import GeneralizedGaussian
from ggdp.distributions.pytorch.fused import CHACHA_SHAPE, PHILOX_SHAPE, launch
from ggdp.torch import add_noise_, secure_generator
from kernel_reference import (
    FLOAT32_TOLERANCE,
    FLOAT64_TOLERANCE,
    element_words,
    expected_noise,
    largest_relative_error,
    random_key,
)

BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DEVICE = torch.device("cuda")
CHECKED = (1 << 20) + 5
SCALE = 0.01  # so small that thousands of additions leave the values ordinary
NOISE = GeneralizedGaussian(1.5, SCALE)
SHAPES = {"ordinary": PHILOX_SHAPE, "secure": CHACHA_SHAPE}

Run = Callable[[], object]
Record = dict[str, Any]


def milliseconds(run: Run, repeats: int = 25) -> float:
    for _ in range(4):
        run()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)
    ]
    for before, after in events:
        before.record()
        run()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in events)


def launcher(kind: str, target: torch.Tensor, noise: GeneralizedGaussian, first_block: int = 0) -> Run:
    """Return the launch with everything ready on the device."""
    secure = kind == "secure"
    key = torch.from_numpy(random_key(1, secure=secure).view(np.int32)).to(DEVICE)
    return lambda: launch(target, noise, key, first_block, add=True, secure=secure, shape=SHAPES[kind])


def relative_error(kind: str, noise: GeneralizedGaussian, dtype: torch.dtype = torch.float32) -> float:
    """Largest error of a million draws; the words come from plain NumPy, the quantile from float64."""
    first_block, drawn = 1 << 33, torch.zeros(CHECKED, device=DEVICE, dtype=dtype)
    launcher(kind, drawn, noise, first_block)()
    secure = kind == "secure"
    words = element_words(random_key(1, secure=secure), first_block, CHECKED, secure=secure)
    expected = expected_noise(words, noise, DEVICE, narrow=dtype != torch.float64)
    return largest_relative_error(drawn, expected)


def add_randn_like(target: torch.Tensor) -> Run:
    return lambda: target.add_(torch.randn_like(target))


def baselines(target: torch.Tensor) -> dict[str, float]:
    other = torch.empty_like(target)
    return {
        "copy": milliseconds(lambda: other.copy_(target)),
        "randn": milliseconds(lambda: other.normal_()),
        "add randn_like": milliseconds(add_randn_like(target)),
    }


def public_call(kind: str, target: torch.Tensor) -> float:
    generator = secure_generator() if kind == "secure" else torch.Generator(DEVICE).manual_seed(1)
    return milliseconds(lambda: add_noise_(target, NOISE, generator=generator))


def measure(kind: str, target: torch.Tensor) -> Record:
    """Time and check all betas, then the public function."""
    noises = {beta: GeneralizedGaussian(beta, SCALE) for beta in BETAS}
    by_beta = {beta: milliseconds(launcher(kind, target, noise)) for beta, noise in noises.items()}
    errors = [relative_error(kind, noise) for noise in noises.values()]
    wide_error = relative_error(kind, NOISE, torch.float64)
    return {
        "ms_by_beta": by_beta,
        "slowest_ms": max(by_beta.values()),
        "public_call_ms": public_call(kind, target),
        "relative_error": {"float32": max(errors), "float64": wide_error},
        "right": max(errors) < FLOAT32_TOLERANCE and wide_error < FLOAT64_TOLERANCE,
    }


def by_dtype(size: int) -> dict[str, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    for dtype in DTYPES:
        target = torch.randn(size, device=DEVICE).to(dtype)
        times = {kind: milliseconds(launcher(kind, target, NOISE)) for kind in SHAPES}
        name = str(dtype).removeprefix("torch.")
        rows[name] = {"add randn_like": milliseconds(add_randn_like(target)), **times}
    return rows


def goals(record: Record) -> dict[str, tuple[float, float]]:
    """Return each goal's ratio and the largest allowed one, for the slowest beta."""
    base, (ordinary, secure) = record["baselines_ms"], (record[kind]["slowest_ms"] for kind in SHAPES)
    return {
        "ordinary / add randn_like": (ordinary / base["add randn_like"], 0.75),
        "ordinary / copy": (ordinary / base["copy"], 2.0),
        "secure / ordinary": (secure / ordinary, 2.0),
    }


def markdown(record: Record) -> str:
    """Return the tables of `benchmarks/README.md`."""
    size, versions = record["size"], record["versions"]
    copy_ms = record["baselines_ms"]["copy"]
    times = {name: dict.fromkeys(BETAS, took) for name, took in record["baselines_ms"].items()}
    times |= {f"ggdp, {kind}": record[kind]["ms_by_beta"] for kind in SHAPES}
    lines = [
        f"{record['device']}, PyTorch {versions['torch']}, Triton {versions['triton']}; {size} elements",
        "",
        "| ms | " + " | ".join(f"beta {beta:g}" for beta in BETAS) + " | TB/s | part of copy's bandwidth |",
        "|---|" + "---|" * (len(BETAS) + 2),
    ]
    for name, row in times.items():
        slowest = max(row.values())
        cells = " | ".join(f"{row[beta]:.3f}" for beta in BETAS)
        passes = {"randn": 4, "add randn_like": 20}.get(name, 8)  # bytes an element makes the memory move
        bandwidth = passes * size / slowest / 1e9
        lines.append(f"| {name} | {cells} | {bandwidth:.2f} | {bandwidth * copy_ms * 1e9 / (8 * size):.0%} |")
    lines += ["", "| ms, a quarter of the elements | " + " | ".join(record["dtypes"]) + " |"]
    lines += ["|---|" + "---|" * len(record["dtypes"])]
    for name in ("add randn_like", *SHAPES):
        cells = " | ".join(f"{row[name]:.3f}" for row in record["dtypes"].values())
        lines.append(f"| {name} | {cells} |")
    lines += ["", "| goal | ratio | at most | |", "|---|---|---|---|"]
    for name, (ratio, most) in record["goals"].items():
        lines.append(f"| {name} | {ratio:.2f} | {most:g} | {'met' if ratio <= most else 'MISSED'} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log2-size", type=int, default=28)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    target = torch.randn(1 << options.log2_size, device=DEVICE)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    record: Record = {"device": torch.cuda.get_device_name(), "versions": versions, "size": target.numel()}
    record["baselines_ms"] = baselines(target)
    record |= {kind: measure(kind, target) for kind in SHAPES}
    record["dtypes"] = by_dtype(target.numel() // 4)
    record["goals"] = goals(record)
    (options.out / "gpu_sampling.json").write_text(json.dumps(record, indent=1) + "\n")
    (options.out / "gpu_sampling.md").write_text(markdown(record))
    print(markdown(record))
    for kind in SHAPES:
        print(
            f"{kind}: public call {record[kind]['public_call_ms']:.3f} ms, {record[kind]['relative_error']}"
        )
    wrong = not all(record[kind]["right"] for kind in SHAPES)
    print("some noise is WRONG" if wrong else "all noise checked is right")
    return int(wrong or any(ratio > most for ratio, most in record["goals"].values()))


if __name__ == "__main__":
    sys.exit(main())
