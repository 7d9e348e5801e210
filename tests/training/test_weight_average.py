# SPDX-License-Identifier: Apache-2.0
"""Running averages of weights: the recursion, written out, and no trace on the model itself."""

import pytest
import torch
from torch import nn

from ggdp.training.weight_average import WeightAverage


def trained(decay, steps):
    """A weight that gradient descent takes from 0 by 1 in each step, and its average."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    average = WeightAverage(model, optimizer, decay)
    for _ in range(steps):
        optimizer.zero_grad()
        (-model.weight).sum().backward()
        optimizer.step()
    return model.weight.item(), average.model.weight.item()


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_the_average_is_the_recursion_with_its_warm_up(decay):
    expected = 0.0
    for step in range(1, 41):
        kept = min(decay, (1.0 + step) / (10.0 + step))
        expected = kept * expected + (1.0 - kept) * step
    last, average = trained(decay, 40)
    assert last == 40.0
    assert average == pytest.approx(expected, rel=1e-5)


def test_the_average_asks_for_no_gradients():
    model = nn.Linear(2, 1)
    average = WeightAverage(model, torch.optim.SGD(model.parameters(), lr=0.1), 0.9)
    assert not any(parameter.requires_grad for parameter in average.model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decays_out_of_range_are_refused(decay):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match="decay must be a number"):
        WeightAverage(model, torch.optim.SGD(model.parameters(), lr=0.1), decay)
