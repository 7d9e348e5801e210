# SPDX-License-Identifier: Apache-2.0
"""For every kind of layer: norms and clipped sums equal those of a float64 loop over single examples."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

from ggdp.training.clipping import ClippedSum, Clipping, ExampleGradients
from training.clipping.layer_cases import CASES, LayerCase, example_losses
from training.clipping.single_examples import SingleExamples, single_examples

NORMS = (1.0, 1.33, 2.0, 3.0, math.inf)
# float32 against float64: rounding of activations and cotangents on the way through the layers, not of
# clipping.
TOLERANCE = 1e-4

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]),
]


@pytest.fixture(autouse=True)
def _exact_products(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, products of float32 numbers with all their digits."""
    if device == "cuda":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
            monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def _close(found: Tensor, truth: Tensor, size: float) -> bool:
    return torch.allclose(found.double(), truth, rtol=TOLERANCE, atol=1e-5 * size)


def _clipped(
    case: LayerCase, model: nn.Module, inputs: tuple[Tensor, ...], clipping: Clipping, reduction: str = "mean"
) -> ClippedSum:
    gradients = ExampleGradients(model, loss_reduction=reduction, batch_first=case.batch_dim == 0)
    losses = example_losses(case, model(*inputs))
    (losses.mean() if reduction == "mean" else losses.sum()).backward()
    try:
        return gradients.clipped_sum(clipping)
    finally:
        gradients.detach()


def _prepared(case: LayerCase, device: str) -> tuple[nn.Module, tuple[Tensor, ...], SingleExamples]:
    torch.manual_seed(5)
    model, inputs = case.model(), case.inputs()
    truth = single_examples(case, model, inputs)
    truth = SingleExamples(tuple(each.to(device) for each in truth.gradients))
    return model.to(device), tuple(each.to(device) for each in inputs), truth


@pytest.mark.parametrize("case", [case for case in CASES if case.batch_dim == 0], ids=lambda case: case.name)
def test_views_of_an_example_are_averaged_before_clipping(case: LayerCase, device: str) -> None:
    torch.manual_seed(5)
    model = case.model()
    views = [case.inputs(), case.inputs(), case.inputs()]
    inputs = tuple(torch.stack(each, dim=1) for each in zip(*views, strict=True))
    rows = single_examples(case, model, tuple(each.flatten(0, 1) for each in inputs)).gradients
    truth = SingleExamples(tuple(each.unflatten(0, (-1, 3)).mean(dim=1).to(device) for each in rows))
    model, inputs = model.to(device), tuple(each.to(device) for each in inputs)
    for p in (1.33, 2.0):
        clip_norm = float(truth.norms(p).median())
        gradients = ExampleGradients(model, views=3)
        example_losses(case, model(*inputs)).mean().backward()
        found = gradients.clipped_sum(Clipping(clip_norm, p))
        assert gradients.num_checks == 1
        gradients.detach()
        assert _close(found.norms, truth.norms(p), clip_norm)
        for sums, expected in zip(found.sums, truth.clipped_sums(p, clip_norm), strict=True):
            assert _close(sums, expected, clip_norm)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_norms_and_clipped_sums_equal_a_loop_over_single_examples(case: LayerCase, device: str) -> None:
    model, inputs, truth = _prepared(case, device)
    for p in NORMS:
        clip_norm = float(truth.norms(p).median())
        for reduction in ("mean", "sum"):
            found = _clipped(case, model, inputs, Clipping(clip_norm, p), reduction)
            assert _close(found.norms, truth.norms(p), clip_norm), (p, reduction)
            for sums, expected in zip(found.sums, truth.clipped_sums(p, clip_norm), strict=True):
                assert _close(sums, expected, clip_norm), (p, reduction)
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_stand_in_computes_what_the_layer_computes(case: LayerCase, device: str) -> None:
    model, inputs, _ = _prepared(case, device)
    plain = model(*inputs)
    gradients = ExampleGradients(model, batch_first=case.batch_dim == 0)
    tolerance = 1e-5 if device == "cpu" else 1e-4  # cuDNN has recurrent layers of its own
    torch.testing.assert_close(model(*inputs), plain, rtol=tolerance, atol=0.1 * tolerance)
    gradients.detach()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cotangents_pass_through_the_stand_in_to_the_input(case: LayerCase, device: str) -> None:
    model, inputs, _ = _prepared(case, device)
    if not inputs[0].is_floating_point():
        assert not _clipped(case, model, inputs, Clipping(1.0, 2.0)).norms.requires_grad
        return
    wanted = tuple(each.clone().requires_grad_() for each in inputs)
    truth = torch.autograd.grad(example_losses(case, model(*wanted)).sum(), wanted)
    gradients = ExampleGradients(model, batch_first=case.batch_dim == 0)
    found = torch.autograd.grad(example_losses(case, model(*wanted)).sum(), wanted)
    gradients.detach()
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
