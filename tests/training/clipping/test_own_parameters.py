# SPDX-License-Identifier: Apache-2.0
"""Parameters beside layers: which modules are given copies, and what a trial of them leaves behind.

That the gradients are right, whichever way they go, is a matter of `test_layers`.
"""

import pytest
import torch
from torch import nn

from ggdp.training.clipping import Clipping, ExampleGradients
from ggdp.training.clipping.functional import FunctionalSite
from ggdp.training.clipping.own_parameters import OwnParametersSite
from training.clipping.layer_cases import TokenAndPositions


def kinds_of(model, inputs):
    gradients = ExampleGradients(model)
    for _ in range(2):
        model(inputs).square().mean().backward()
        gradients.clipped_sum(Clipping(1.0, 2.0))
    assert gradients.num_checks == 2
    found = {type(site) for site in gradients._sites}
    gradients.detach()
    return found


@pytest.mark.parametrize(
    ("use", "is_copied"), [("expand", True), ("repeat", False), ("row 0", False)], ids=lambda each: str(each)
)
def test_a_module_is_given_copies_only_if_each_example_uses_its_own(use, is_copied):
    kinds = kinds_of(TokenAndPositions(use), torch.randn(5, 3, 4))
    assert (OwnParametersSite in kinds, FunctionalSite in kinds) == (is_copied, not is_copied)


def test_a_head_of_zeros_hides_nothing_from_the_trial():
    model = TokenAndPositions("expand")
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    assert OwnParametersSite in kinds_of(model, torch.randn(5, 3, 4))


def test_a_trial_leaves_parameters_buffers_and_the_generator_as_they_were():
    model = nn.Sequential(TokenAndPositions("expand"), nn.Dropout(0.5))
    nn.init.zeros_(model[0].head.weight)
    model[0].register_buffer("seen", torch.zeros(()))
    model[0].register_forward_hook(lambda module, *_: module.seen.add_(1.0) and None)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = ExampleGradients(model, self_check=False)
    torch.manual_seed(3)
    model(torch.randn(5, 3, 4))
    drawn = torch.randn(1)
    gradients.detach()
    torch.manual_seed(3)
    nn.Dropout(0.5)(torch.zeros(torch.randn(5, 3, 4).shape[0], 2, 3))
    assert torch.equal(drawn, torch.randn(1))
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items() if not name.endswith("seen"))
    assert float(after["0.seen"]) == 1.0
