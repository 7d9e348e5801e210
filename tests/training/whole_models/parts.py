# SPDX-License-Identifier: Apache-2.0
"""What the rows of the tables are made of: a model of named parts, batches, a loss per example."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models.harness import Batch, Case

N = 5


class Net(nn.Module):
    """Modules, parameters and buffers by name, and a function for the forward."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def scores(output: Tensor) -> Tensor:
    """A loss per example with curvature and uneven slopes."""
    flat = output.flatten(1)
    slopes = torch.linspace(-1.0, 2.0, flat.shape[1], dtype=flat.dtype)
    return (F.softplus(flat) * slopes).sum(dim=1) + flat.square().mean(dim=1)


def scored(model: nn.Module, *inputs: Any) -> Tensor:
    return scores(model(*inputs))


def row(
    cases: list[Case],
    name: str,
    model: Callable[[], nn.Module],
    batch: Callable[[], Batch],
    loss: Callable[..., Tensor] = scored,
    expected: str = "right",
    **more: Any,
) -> None:
    cases.append(Case(name, model, batch, loss, expected, **more))


def floats(*shape: int) -> Callable[[], Batch]:
    return lambda: (torch.randn(N, *shape),)


def tokens(*shape: int, kinds: int = 7) -> Callable[[], Batch]:
    return lambda: (torch.randint(0, kinds, (N, *shape)),)


def labelled(*shape: int, classes: int = 3, label_shape: tuple[int, ...] = ()) -> Callable[[], Batch]:
    return lambda: (torch.randn(N, *shape), torch.randint(0, classes, (N, *label_shape)))


def mlp(width: int = 6, out: int = 3, middle: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), middle or nn.Tanh(), nn.Linear(8, out))


def frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)
