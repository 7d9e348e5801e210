# SPDX-License-Identifier: Apache-2.0
"""The harness finds small errors, mixing and redrawn masks: it can fail."""

import dataclasses

import pytest
import torch
from torch import nn

from ggdp.training.clipping import ClippedSum, Clipping, ExampleGradients
from training.whole_models import harness
from training.whole_models.harness import Case, Draws, outcome, truth
from training.whole_models.parts import Net, floats, mlp, scored

PLAIN = Case("plain", mlp, floats(6), scored)


class _Slightly(ExampleGradients):
    """Wrong in the sixth digit."""

    def clipped_sum(self, clipping: Clipping) -> ClippedSum:
        found = super().clipped_sum(clipping)
        return dataclasses.replace(found, sums=(found.sums[0] * (1.0 + 1e-6), *found.sums[1:]))


def test_an_error_in_the_sixth_digit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(PLAIN)[0] == "right"
    monkeypatch.setattr(harness, "ExampleGradients", _Slightly)
    assert outcome(PLAIN)[0] == "wrong"


def test_an_error_that_is_not_of_this_library_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ExampleGradients", None)
    assert outcome(PLAIN)[0] == "crashed"


def test_the_truth_of_mixed_examples_is_not_the_batch_gradient() -> None:
    case = Case("mixed", lambda: Net(lambda net, x: net.a(x - x.mean(0)), a=mlp()), floats(6), scored)
    (x,) = (torch.randn(5, 6, dtype=torch.float64),)
    model = case.built(case.model)
    rows = truth(case, model, (x,), Draws(5)).rows
    whole = torch.autograd.grad(scored(model, x).sum(), list(model.parameters()))
    assert not torch.allclose(rows.sum(dim=0), torch.cat([each.flatten() for each in whole]))


@pytest.mark.parametrize("seed", [0, 1])
def test_each_example_alone_meets_the_dropout_that_it_met_in_the_batch(seed: int) -> None:
    case = Case("dropout", lambda: mlp(middle=nn.Dropout(0.5)), floats(6), scored)
    x = torch.randn(5, 6, dtype=torch.float64)
    model = case.built(case.model)
    torch.manual_seed(seed)
    noted = Draws(5)
    with noted:
        losses = scored(model, x)
    for index, row in enumerate(truth(case, model, (x,), noted).rows):
        alone = torch.autograd.grad(losses[index], list(model.parameters()), retain_graph=True)
        torch.testing.assert_close(row, torch.cat([each.flatten() for each in alone]))
