# SPDX-License-Identifier: Apache-2.0
"""Draw-and-add on a CUDA device: every launch variant checked against float64, timed, and held to the goals.

    PYTHONPATH=src python benchmarks/gpu_sampling.py --out results [--log2-size 28] [--kinds ordinary secure]

Times are medians of CUDA-event timings, in milliseconds, of 2^28 float32 elements noised in place; bandwidth
counts each element as read once and written once. `gpu_sampling.json` holds everything; the table is printed
last. The exit status is 1 if a variant draws wrong noise or a goal is missed.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ggdp import GeneralizedGaussian
from ggdp.torch import add_noise_, secure_generator
from ggdp.torch.fused import CHACHA_SHAPE, PHILOX_SHAPE, LaunchShape, launch
from kernel_reference import (
    FLOAT32_TOLERANCE,
    FLOAT64_TOLERANCE,
    element_words,
    expected_noise,
    largest_relative_error,
    random_key,
)

BETAS = [1.0, 1.25, 1.5, 2.0, 3.0, 8.0]
DEVICE = torch.device("cuda")
CHECKED = (1 << 20) + 5
NOISE = GeneralizedGaussian(1.5, 0.01)  # so small that thousands of additions leave the values ordinary

Run = Callable[[], object]
Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One way to launch; `law` is False for those that leave work out to show what it costs."""

    name: str
    secure: bool
    shape: LaunchShape
    num_rounds: int = 10
    fine_tail: bool = True
    law: bool = True


ORDINARY = [
    Variant("philox default", False, PHILOX_SHAPE),
    *(
        Variant(f"philox {blocks} blocks, {warps} warps", False, LaunchShape(blocks, warps))
        for blocks, warps in [(128, 4), (128, 2), (256, 2), (256, 8), (512, 4), (512, 8), (1024, 8)]
    ),
    Variant("philox degree 4", False, LaunchShape(256, 4, degree=4)),
    Variant("philox table in shared memory", False, LaunchShape(256, 4, shared=True)),
    Variant("philox 1024 blocks, shared memory", False, LaunchShape(1024, 8, shared=True)),
    Variant("philox without the fine tail", False, PHILOX_SHAPE, fine_tail=False, law=False),
    Variant("philox, 7 rounds", False, PHILOX_SHAPE, num_rounds=7, law=False),
]
SECURE = [
    Variant("chacha20 default", True, CHACHA_SHAPE),
    *(
        Variant(f"chacha20 span {blocks}, {warps} warps", True, LaunchShape(blocks, warps))
        for blocks, warps in [(128, 2), (128, 8), (64, 2), (256, 4), (256, 8), (512, 8)]
    ),
    Variant("chacha20 degree 4", True, LaunchShape(128, 4, degree=4)),
    Variant("chacha20 without the fine tail", True, CHACHA_SHAPE, fine_tail=False, law=False),
]
VARIANTS = {"ordinary": ORDINARY, "secure": SECURE}


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


def launcher(variant: Variant, target: torch.Tensor, noise: GeneralizedGaussian, first_block: int = 0) -> Run:
    """Return the launch with everything ready on the device."""
    key = torch.from_numpy(random_key(1, secure=variant.secure).view(np.int32)).to(DEVICE)
    options = {"add": True, "secure": variant.secure, "shape": variant.shape}
    options |= {"num_rounds": variant.num_rounds, "fine_tail": variant.fine_tail}
    return lambda: launch(target, noise, key, first_block, **options)


def relative_error(variant: Variant, noise: GeneralizedGaussian, dtype: torch.dtype = torch.float32) -> float:
    """Largest error of a million draws; the words come from plain NumPy, the quantile from float64."""
    first_block, drawn = 1 << 33, torch.zeros(CHECKED, device=DEVICE, dtype=dtype)
    launcher(variant, drawn, noise, first_block)()
    key, span = random_key(1, secure=variant.secure), variant.shape.blocks
    words = element_words(key, first_block, CHECKED, secure=variant.secure, span=span)
    expected = expected_noise(words, noise, DEVICE, narrow=dtype != torch.float64)
    return largest_relative_error(drawn, expected)


def time_variant(variant: Variant, target: torch.Tensor) -> Row:
    """A variant that does not compile is a finding, not the end of the run."""
    row: Row = {**asdict(variant), "ms": math.inf, "relative_error": None, "right": False}
    try:
        if variant.law:
            row["relative_error"] = relative_error(variant, NOISE)
        row["ms"] = milliseconds(launcher(variant, target, NOISE))
        row["right"] = not variant.law or row["relative_error"] < FLOAT32_TOLERANCE
    except Exception as problem:
        row["problem"] = repr(problem)[:2000]
    print(f"  {variant.name:38}{row['ms']:8.3f} ms   error {row['relative_error']}", flush=True)
    return row


def baselines(target: torch.Tensor) -> dict[str, float]:
    other = torch.empty_like(target)
    return {
        "copy": milliseconds(lambda: other.copy_(target)),
        "randn": milliseconds(lambda: other.normal_()),
        "add randn_like": milliseconds(lambda: target.add_(torch.randn_like(target))),
    }


def dtype_rows(variant: Variant, size: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        target = torch.randn(size, device=DEVICE).to(dtype)
        base = milliseconds(lambda target=target: target.add_(torch.randn_like(target)))
        rows[str(dtype)] = {"ms": milliseconds(launcher(variant, target, NOISE)), "add randn_like": base}
    rows["torch.float64"]["relative_error"] = relative_error(variant, NOISE, torch.float64)
    return rows


def public_call(target: torch.Tensor, *, secure: bool) -> float:
    generator = secure_generator() if secure else torch.Generator(DEVICE).manual_seed(1)
    return milliseconds(lambda: add_noise_(target, NOISE, generator=generator))


def measure(variants: list[Variant], target: torch.Tensor) -> Row:
    """Time every variant, then the best and the default one over all betas, and the best over all dtypes."""
    rows = [time_variant(variant, target) for variant in variants]
    usable = [(row["ms"], variant) for row, variant in zip(rows, variants, strict=True) if row["right"]]
    best = min((pair for pair in usable if pair[1].law), key=lambda pair: pair[0])[1]
    by_beta = {}
    for beta in BETAS:
        noise = GeneralizedGaussian(beta, NOISE.scale)
        by_beta[beta] = {
            "ms": milliseconds(launcher(best, target, noise)),
            "default_ms": milliseconds(launcher(variants[0], target, noise)),
            "relative_error": relative_error(best, noise),
        }
    dtypes = dtype_rows(best, target.numel() // 4)
    wrong = any(row["ms"] < math.inf and not row["right"] for row in rows)
    wrong |= dtypes["torch.float64"]["relative_error"] > FLOAT64_TOLERANCE
    wrong |= any(row["relative_error"] > FLOAT32_TOLERANCE for row in by_beta.values())
    return {
        "variants": rows,
        "best": best.name,
        "by_beta": by_beta,
        "slowest_ms": max(row["ms"] for row in by_beta.values()),
        "slowest_default_ms": max(row["default_ms"] for row in by_beta.values()),
        "public_call_ms": public_call(target, secure=best.secure),
        "dtypes_quarter_size": dtypes,
        "wrong": wrong,
    }


def summary(kind: str, row: Row, size: int) -> list[str]:
    times = "  ".join(f"{beta:g}: {times['ms']:.3f}" for beta, times in row["by_beta"].items())
    dtypes = "  ".join(
        f"{name.removeprefix('torch.')} {times['ms']:.3f} ({times['add randn_like']:.3f})"
        for name, times in row["dtypes_quarter_size"].items()
    )
    return [
        f"{kind}: best is {row['best']}; ms by beta: {times}",
        f"  default, slowest beta {row['slowest_default_ms']:.3f} ms; "
        f"public call {row['public_call_ms']:.3f} ms; "
        f"best moves {8 * size / row['slowest_ms'] / 1e9:.2f} TB/s",
        f"  quarter size by dtype, and add randn_like: {dtypes}",
    ]


def goals(record: Row) -> dict[str, tuple[float, float]]:
    """Return each goal's ratio and the largest allowed one, for the slowest beta of the fastest variant."""
    base, found = record["baselines_ms"], {}
    if "ordinary" in record:
        ordinary = record["ordinary"]["slowest_ms"]
        found["ordinary / add randn_like"] = (ordinary / base["add randn_like"], 0.75)
        found["ordinary / copy"] = (ordinary / base["copy"], 2.0)
        if "secure" in record:
            found["secure / ordinary"] = (record["secure"]["slowest_ms"] / ordinary, 2.0)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--log2-size", type=int, default=28)
    parser.add_argument("--kinds", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    target = torch.randn(1 << options.log2_size, device=DEVICE)
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    record: Row = {"device": torch.cuda.get_device_name(), "versions": versions, "size": target.numel()}
    record["baselines_ms"] = baselines(target)
    for kind in options.kinds:
        print(kind, flush=True)
        record[kind] = measure(VARIANTS[kind], target)
    record["goals"] = goals(record)
    (options.out / "gpu_sampling.json").write_text(json.dumps(record, indent=1) + "\n")
    print(f"\n{record['device']}, {versions}, 2^{options.log2_size} float32")
    print("baselines: " + ", ".join(f"{name} {took:.3f} ms" for name, took in record["baselines_ms"].items()))
    for kind in options.kinds:
        print("\n".join(summary(kind, record[kind], target.numel())))
    for name, (ratio, most) in record["goals"].items():
        print(f"{name}: {ratio:.2f}, at most {most:g}: {'met' if ratio <= most else 'MISSED'}")
    wrong = any(record[kind]["wrong"] for kind in options.kinds)
    print("some noise is WRONG" if wrong else "all noise checked is right")
    return int(wrong or any(ratio > most for ratio, most in record["goals"].values()))


if __name__ == "__main__":
    sys.exit(main())
