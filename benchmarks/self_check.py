# SPDX-License-Identifier: Apache-2.0
"""What the check of single examples costs: an epoch of 127 steps with it and without, in CPU seconds.

python benchmarks/self_check.py
"""

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.torch import make_private

STEPS, ROUNDS = 127, 7


def _table() -> nn.Module:
    return nn.Sequential(nn.Linear(104, 64), nn.ReLU(), nn.Linear(64, 3))


def _images() -> nn.Module:
    first, second = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(512, 3))


def _sequences() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.Sequential(nn.Linear(32, 64), layer, nn.Flatten(), nn.Linear(1024, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "two layers on a table, batches of 256": (_table, (104,), 256),
    "two convolutions, batches of 128": (_images, (1, 8, 8), 128),
    "a transformer layer with dropout, batches of 64": (_sequences, (16, 32), 64),
}


def seconds(build: Callable[[], nn.Module], shape: tuple[int, ...], size: int, *, self_check: bool) -> float:
    torch.manual_seed(0)
    model, total = build(), STEPS * size
    data = TensorDataset(torch.randn(total, *shape), torch.randint(0, 3, (total,)))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(data, batch_size=size),
        beta=2.0,
        clip_norm=1.0,
        noise_multiplier=1.0,
        steps=STEPS,
        delta=1e-6,
        self_check=self_check,
    )
    model, optimizer, loader, _ = private
    start = time.process_time()
    for inputs, labels in loader:
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'model':50} without      with")
    for name, model in MODELS.items():
        seconds(*model, self_check=True)  # warm up
        plain = min(seconds(*model, self_check=False) for _ in range(ROUNDS))
        checked = min(seconds(*model, self_check=True) for _ in range(ROUNDS))
        print(f"{name:50} {plain:6.3f} s  {checked:6.3f} s  {checked / plain - 1.0:+.1%}")


if __name__ == "__main__":
    main()
