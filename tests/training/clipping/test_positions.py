# SPDX-License-Identifier: Apache-2.0
"""Embeddings of positions, which all examples share and which may be as many as the examples."""

import pytest
import torch
from torch import nn

from ggdp.training.clipping import Clipping, ExampleGradients, UnsupportedModelError


class Positions(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens, self.positions, self.shape = nn.Embedding(9, 4), nn.Embedding(6, 4), shape

    def forward(self, x):
        places = torch.arange(x.shape[1]).view(self.shape)
        return (self.tokens(x) + self.positions(places)).mean(dim=1)


def test_positions_that_are_as_many_as_examples_do_not_pass_for_examples():
    tokens = torch.arange(36).view(6, 6) % 9  # six examples of six tokens
    refused = Positions((-1,))
    gradients = ExampleGradients(refused)
    with pytest.raises(UnsupportedModelError, match=r"shape \(1, length\)"):
        refused(tokens)
    gradients.detach()
    model = Positions((1, -1))
    gradients = ExampleGradients(model)
    model(tokens).square().mean().backward()
    assert gradients.clipped_sum(Clipping(1.0, 2.0)).num_examples == 6
