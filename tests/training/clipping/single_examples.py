# SPDX-License-Identifier: Apache-2.0
"""The truth: ordinary autograd in float64, one example at a time."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.clipping.layer_cases import LayerCase, example_losses


@dataclass(frozen=True)
class SingleExamples:
    """Per-example gradients, one (examples, *shape) tensor per trainable parameter, in float64."""

    gradients: tuple[Tensor, ...]

    def norms(self, p: float, members: Sequence[int] | None = None) -> Tensor:
        """The l_p norm of every example, over some parameters or all of them."""
        chosen = range(len(self.gradients)) if members is None else members
        flat = torch.cat([self.gradients[k].flatten(1) for k in chosen], dim=1)
        return torch.linalg.vector_norm(flat, p, dim=1)

    def clipped_sums(self, p: float, clip_norm: float) -> list[Tensor]:
        """The sums over examples, each scaled to at most clip_norm."""
        scale = (clip_norm / self.norms(p)).clamp(max=1.0)
        return [torch.tensordot(scale, each, dims=1) for each in self.gradients]

    def clipped_by_layer(self, p: float, clip_norm: float, layers: Sequence[Sequence[int]]) -> list[Tensor]:
        """The same with each layer (a list of parameters) held to its share."""
        share = clip_norm if math.isinf(p) else clip_norm / len(layers) ** (1 / p)
        sums: dict[int, Tensor] = {}
        for members in layers:
            scale = (share / self.norms(p, members)).clamp(max=1.0)
            sums |= {k: torch.tensordot(scale, self.gradients[k], dims=1) for k in members}
        return [sums[k] for k in range(len(self.gradients))]


def single_examples(case: LayerCase, model: nn.Module, inputs: tuple[Tensor, ...]) -> SingleExamples:
    """Loop over the examples of a batch with a float64 copy of the model, taken before anything listens to
    it.
    """
    model = copy.deepcopy(model).double()
    inputs = tuple(each.double() if each.is_floating_point() else each for each in inputs)
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows: list[list[Tensor]] = [[] for _ in parameters]
    for index in range(inputs[0].shape[case.batch_dim]):
        alone = tuple(each.narrow(case.batch_dim, index, 1) for each in inputs)
        loss = example_losses(case, model(*alone)).sum()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        for row, parameter, gradient in zip(rows, parameters, found, strict=True):
            row.append(torch.zeros_like(parameter) if gradient is None else gradient)
    return SingleExamples(tuple(torch.stack(row) for row in rows))
