# SPDX-License-Identifier: Apache-2.0
"""How much an audit shows: of right runs, over several seeds, and of runs with planted faults.

    python benchmarks/audit.py                     # the table of docs/audit.md: about two minutes
    python benchmarks/audit.py --seeds 20 --canaries 30000

Every row is one setting of twenty steps (one, if the rate is 1) with 20,000 canaries, at a confidence of
99.9% and delta = 0.05, by the method "independent-canaries". *right* is the largest lower bound over the
seeds; the other columns are those of one run with a fault in it. A lower bound above the claim refutes it.
"""

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ggdp.torch import AuditResult, add_noise_, audit
from ggdp.training import batch_draws, private
from ggdp.training.randomness import Randomness

SETTINGS = [
    (1.0, 1.0, 0.35, 0.1),
    (1.5, "matched", 0.5, 0.05),
    (2.0, 2.0, 0.6, 0.05),
    (2.0, 2.0, 1.0, 1.0),
    (3.0, 2.0, 0.6, 0.05),
]


def _half_the_noise(own, tensors, noise):
    add_noise_(tensors, dataclasses.replace(noise, scale=noise.scale / 2.0), generator=own.noise)


@contextlib.contextmanager
def planted(fault: str) -> Iterator[None]:
    """Run with this fault."""
    positions, clipping, drawn = batch_draws.poisson_positions, private.Clipping, []

    def again(*arguments):
        drawn.append(drawn[-1] if len(drawn) % 2 else positions(*arguments))
        return drawn[-1]

    patches = {
        "right": (),
        "half the noise": (Randomness, "add_noise_", _half_the_noise),
        "twice the clip": (private, "Clipping", lambda clip, *more: clipping(2.0 * clip, *more)),
        "twice the rate": (
            batch_draws,
            "poisson_positions",
            lambda count, rate, source: positions(count, min(1.0, 2.0 * rate), source),
        ),
        "batches used twice": (batch_draws, "poisson_positions", again),
    }
    with mock.patch.object(*patches[fault]) if patches[fault] else contextlib.nullcontext():
        yield


FAULTS = ("half the noise", "twice the clip", "twice the rate", "batches used twice")


def audited(setting: tuple, fault: str, seed: int, canaries: int) -> AuditResult:
    """One audit of a small model."""
    beta, norm, noise_multiplier, rate = setting
    generator = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(50, 3, generator=generator), torch.arange(50) % 2)
    model = nn.Linear(3, 2)
    with planted(fault):
        return audit(
            model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=5), beta=beta,
            clip_norm=1.0, norm=norm,
            noise_multiplier=noise_multiplier, rate=rate, steps=20 if rate < 1.0 else 1,
            delta=1e-5, method="independent-canaries", num_canaries=canaries, audit_delta=0.05,
            confidence=0.999,
            generator=generator,
        )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--canaries", type=int, default=20_000)
    options = parser.parse_args()
    print(f"| beta, norm, noise multiplier, rate | claimed | right | {' | '.join(FAULTS)} |")
    print("|---" * (3 + len(FAULTS)) + "|")
    for setting in SETTINGS:
        right = [audited(setting, "right", seed, options.canaries) for seed in range(options.seeds)]
        faulty = [audited(setting, fault, 1, options.canaries) for fault in FAULTS]
        shown = [max(one.lower_epsilon for one in right), *(one.lower_epsilon for one in faulty)]
        cells = [f"{right[0].certified.upper:.2f}", *(f"{value:.2f}" for value in shown)]
        print(f"| {', '.join(str(part) for part in setting)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
