# SPDX-License-Identifier: Apache-2.0
"""Convolutions: every way to their norms, and the layout in which a GPU convolves, give the same."""

import pytest
import torch
from torch import nn

from ggdp.training.clipping import Clipping, ExampleGradients, convolution
from training.clipping.layer_cases import CASES, example_losses
from training.clipping.single_examples import single_examples

CONVOLUTIONS = [
    case
    for case in CASES
    if case.batch_dim == 0
    and any(isinstance(each, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for each in case.model().modules())
]

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def is_right(case, p):
    torch.manual_seed(5)
    model, inputs = case.model(), case.inputs()
    truth = single_examples(case, model, inputs)
    clip_norm = float(truth.norms(p).median())
    gradients = ExampleGradients(model)
    example_losses(case, model(*inputs)).mean().backward()
    found = gradients.clipped_sum(Clipping(clip_norm, p))
    gradients.detach()
    expected = truth.clipped_sums(p, clip_norm)
    return torch.allclose(found.norms.double(), truth.norms(p), rtol=1e-4) and all(
        torch.allclose(sums.double(), each, rtol=1e-4, atol=1e-5 * clip_norm)
        for sums, each in zip(found.sums, expected, strict=True)
    )


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: case.name)
@pytest.mark.parametrize("costs", [(-(10**12), 0), (0, -(10**12))], ids=["patches", "positions"])
def test_norms_from_products_of_patches_and_of_positions_are_right(case, costs, monkeypatch):
    monkeypatch.setattr(convolution.ConvolutionCall, "_gram_costs", lambda call: costs)
    assert is_right(case, 2.0)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: case.name)
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_rows_of_zeros_and_channels_last_change_nothing(case, p, monkeypatch):
    monkeypatch.setattr(convolution, "_is_laid_out", lambda batch: True)
    monkeypatch.setattr(convolution, "_rounded_up", lambda count: count + 3)
    monkeypatch.setattr(convolution, "_CHANNELS_LAST", 1)
    assert is_right(case, p)


def test_poisson_batches_meet_few_sizes():
    sizes = {convolution._rounded_up(count) for count in range(8192 - 300, 8192 + 300)}
    assert len(sizes) <= 6
    assert all(count <= convolution._rounded_up(count) <= count * 33 / 32 for count in range(256, 5000))
