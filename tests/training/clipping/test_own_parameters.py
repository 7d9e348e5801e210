# SPDX-License-Identifier: Apache-2.0
"""Parameters beside layers: which modules are given copies, and what a trial of them leaves behind.

That the gradients are right, whichever way they go, is a matter of `test_layers`.
"""

import pytest
import torch
from torch import nn

from ggdp.errors import UnsupportedModelError
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


class Doubled(torch.autograd.Function):
    """Twice the product, with derivatives of its own."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return 2.0 * (x * scale)

    @staticmethod
    def backward(ctx, cotangent):
        x, scale = ctx.saved_tensors
        return 2.0 * cotangent * scale, 2.0 * (cotangent * x).sum(dim=(0, 1))


SCALED = {
    "product": (lambda x, scale: x * scale, True),
    "product from the left": (lambda x, scale: scale * x, True),
    "another shape": (lambda x, scale: x.mul(scale.reshape(1, 1, -1)), True),
    "sum": (lambda x, scale: scale + x, True),
    "both": (lambda x, scale: (x + scale) * scale, True),
    "one number of it": (lambda x, scale: x * scale[0], False),
    "in place": (lambda x, scale: x.clone().mul_(scale), False),
    "matrix": (lambda x, scale: x * (x @ scale).unsqueeze(-1), False),
    "a function with its own derivatives": (lambda x, scale: Doubled.apply(x, scale), False),
    "without derivatives": (lambda x, scale: x * scale + (x * scale).detach() + still(x, scale), False),
}


def still(x, scale):
    with torch.no_grad():
        return x * scale


class Scaled(nn.Module):
    def __init__(self, use):
        super().__init__()
        self.inner, self.scale, self.use = nn.Linear(4, 6), nn.Parameter(torch.rand(6) + 0.5), use

    def forward(self, inputs):
        return self.use(self.inner(inputs), self.scale)


@pytest.mark.parametrize("name", SCALED)
def test_a_scale_beside_a_layer_leaves_the_layer_its_rule_where_all_its_uses_are_known(name):
    use, is_known = SCALED[name]
    kinds = kinds_of(Scaled(use), torch.randn(5, 3, 4))  # the check compares with plain autograd
    assert (OwnParametersSite in kinds, FunctionalSite in kinds) == (is_known, not is_known)


def test_another_use_of_a_scale_than_in_the_first_batch_is_refused():
    model = Scaled(lambda x, scale: x * scale)
    gradients = ExampleGradients(model)
    model(torch.randn(5, 3, 4))
    model.use = lambda x, scale: x @ scale
    with pytest.raises(UnsupportedModelError, match="otherwise than in its first call"):
        model(torch.randn(5, 3, 4))
    gradients.detach()
