# SPDX-License-Identifier: Apache-2.0
"""The promise: no example's share exceeds the norm, per layer or flat, at any size of gradient."""

import math

import pytest
import torch
from torch import nn

from ggdp.training.clipping import Clipping, ExampleGradients
from ggdp.training.clipping.convolution import ConvolutionCall, Geometry
from ggdp.training.clipping.linear import SequenceCall, Slots
from ggdp.training.clipping.model_sites import layers_of, sites_of
from ggdp.training.clipping.norms import combined, margin, row_norms
from ggdp.training.clipping.site import Tape
from training.clipping.layer_cases import CASES, LayerCase, Tied, example_losses
from training.clipping.single_examples import single_examples

CPU = torch.device("cpu")
NORMS = (1.0, 1.33, 1.5, 2.0, 2.5, 3.0, 7.0, 64.0, math.inf)


def _true_norms(rows: torch.Tensor, p: float) -> torch.Tensor:
    wide = rows.double()
    largest = wide.abs().amax(dim=1, keepdim=True).clamp_min(1e-300)
    return torch.linalg.vector_norm(wide / largest, p, dim=1) * largest[:, 0]


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("shape", [(40, 7), (300, 300), (2, 300_000)])
def test_row_norms_are_right_within_a_quarter_of_the_margin(p: float, shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    for rows in (torch.randn(shape), torch.rand(shape).pow(20.0), torch.ones(shape)):
        error = (row_norms(rows, p).double() / _true_norms(rows, p) - 1.0).abs().max()
        assert float(error) < margin(torch.float32, CPU) / 4


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("size", [1e-36, 1e-25, 1e-12, 1.0, 1e12, 1e25, 1e34])
def test_no_size_of_gradient_overflows_or_vanishes(p: float, size: float) -> None:
    torch.manual_seed(1)
    rows = torch.randn(9, 30) * size
    rows[0] = 0.0
    rows[1] /= size  # ordinary beside extreme
    found, truth = row_norms(rows, p).double(), _true_norms(rows, p)
    assert torch.allclose(found, truth, rtol=1e-5, atol=0.0)
    assert torch.allclose(
        combined([found.float()] * 5, p).double(), 5.0 ** (1.0 / p) * truth, rtol=1e-5, atol=0.0
    )


@pytest.mark.parametrize("p", [1.0, 1.33, 1.5, 2.0, 3.0, 64.0, math.inf])
def test_no_share_exceeds_the_clip_norm_in_float64(p: float) -> None:
    """Every example alone: its sum is its share, whose exact norm is at most C, and little less."""
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 50), nn.ReLU(), nn.Linear(50, 9)
    )
    gradients = ExampleGradients(model, loss_reduction="sum")
    clipping = Clipping(clip_norm=0.1, norm=p)
    for _ in range(40):
        model(torch.randn(1, 2, 8)).square().sum().backward()
        sums = gradients.clipped_sum(clipping).sums
        flat = torch.cat([tensor.flatten() for tensor in sums]).unsqueeze(0)
        size = float(_true_norms(flat, p))
        assert 0.1 * (1.0 - 2 * margin(torch.float32, CPU)) < size <= 0.1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("kind", ["sequence", "convolution"])
def test_no_share_exceeds_the_clip_norm_where_an_examples_terms_cancel(
    kind: str, p: float, device: str
) -> None:
    """What is left of a sum that cancels is rounding, other rounding in its norm than in its sum."""
    torch.manual_seed(9)
    layer = nn.Linear(40, 30) if kind == "sequence" else nn.Conv1d(40, 30, 1)
    model = nn.Sequential(layer, nn.Flatten()).to(device)
    gradients = ExampleGradients(model, loss_reduction="sum", self_check=False)
    for _ in range(20):
        half = torch.randn(1, 64, 40, device=device) * 1e6
        order = torch.randperm(64, device=device)
        x = torch.cat([half, half[:, order]], dim=1)
        signs = torch.randn(1, 64, 30, device=device)
        signs = torch.cat([signs, -signs[:, order]], dim=1)
        if kind == "convolution":
            x, signs = x.transpose(1, 2).contiguous(), signs.transpose(1, 2).contiguous()
        (model(x) * signs.flatten(1)).sum().backward()
        sums = gradients.clipped_sum(Clipping(clip_norm=0.1, norm=p)).sums
        flat = torch.cat([tensor.flatten() for tensor in sums]).unsqueeze(0).cpu()
        assert float(_true_norms(flat, p)) <= 0.1


def test_the_float64_check_rejects_factors_without_a_margin() -> None:
    """The other arm: aiming at C itself, rounding puts some shares above it."""
    torch.manual_seed(4)
    rows = torch.randn(300, 50)
    shares = rows * (0.1 / row_norms(rows, 1.5)).float().unsqueeze(1)
    assert float(_true_norms(shares, 1.5).max()) > 0.1


@pytest.mark.parametrize("p", [1.0, 1.33, 2.0, math.inf])
@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "tied", "tied, few positions", "lstm", "cross-attention", "low rank", "positions"]
)
def test_per_layer_sums_equal_a_loop_over_single_examples(name: str, p: float) -> None:
    case: LayerCase = next(each for each in CASES if each.name == name)
    torch.manual_seed(6)
    model, inputs = case.model(), case.inputs()
    truth = single_examples(case, model, inputs)
    clip_norm = 0.7 * float(truth.norms(p).median())
    numbers = {q: number for number, q in enumerate(q for q in model.parameters() if q.requires_grad)}
    sites = sites_of(model, numbers, Tape(model, is_mean=True), batch_first=True)
    groups: dict[int, set[int]] = {}
    for site, layer in zip(sites, layers_of(sites), strict=True):
        groups.setdefault(layer, set()).update(site.slots.values())
    gradients = ExampleGradients(model)
    example_losses(case, model(*inputs)).mean().backward()
    found = gradients.clipped_sum(Clipping(clip_norm, p, per_layer=True))
    torch.testing.assert_close(found.norms.double(), truth.norms(p), rtol=1e-4, atol=1e-5 * clip_norm)
    expected = truth.clipped_by_layer(p, clip_norm, [sorted(group) for group in groups.values()])
    for one, other in zip(found.sums, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5 * clip_norm)


@pytest.mark.parametrize("size", [1e-22, 1e16])
@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "linear on short sequences",
        "conv2d",
        "conv2d, few positions",
        "embedding",
        "lstm",
        "prelu",
        "tied, few positions",
        "tied, padded",
    ],
)
def test_norms_are_right_for_losses_of_any_size(name: str, size: float) -> None:
    case: LayerCase = next(each for each in CASES if each.name == name)
    torch.manual_seed(6)
    model, inputs = case.model(), case.inputs()
    truth = single_examples(case, model, inputs)
    gradients = ExampleGradients(model, loss_reduction="sum")
    for p in (1.33, 2.0, 3.0, 30.0):
        (size * example_losses(case, model(*inputs)).sum()).backward()
        found = gradients.clipped_sum(Clipping(size * float(truth.norms(p).median()), p))
        torch.testing.assert_close(found.norms.double() / size, truth.norms(p), rtol=1e-4, atol=0.0)


def test_layers_that_share_a_parameter_are_one_layer() -> None:
    model = Tied()
    numbers = {parameter: number for number, parameter in enumerate(model.parameters())}
    sites = sites_of(model, numbers, Tape(model, is_mean=True), batch_first=True)
    assert [site.path for site in sites] == ["embedding", "middle", "last"]
    assert layers_of(sites) == [0, 1, 0]


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
def test_the_shares_of_layers_make_up_the_clip_norm(p: float) -> None:
    share = Clipping(clip_norm=3.0, norm=p, per_layer=True).layer_norm(num_layers=5)
    assert math.isclose(float(torch.linalg.vector_norm(torch.full((5,), share), p)), 3.0, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("clip_norm", "norm", "words"),
    [
        (0.0, 2.0, r"clip_norm must be a number in \(0, inf\), got 0.0"),
        (math.inf, 2.0, "clip_norm must be a number"),
        (math.nan, 2.0, "clip_norm must be a number"),
        (1.0, 0.5, r"norm must be a number in \[1, inf\], infinity included, got 0.5"),
        (1.0, math.nan, "norm must be a number"),
    ],
)
def test_a_clipping_that_means_nothing_is_refused(clip_norm: float, norm: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Clipping(clip_norm=clip_norm, norm=norm)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_spread_of_a_call_is_at_least_the_sum_of_the_sizes_of_its_terms(p: float, kernel: int) -> None:
    torch.manual_seed(3)
    x, g = torch.randn(4, 5, 9), torch.randn(4, 6, 10 - kernel)
    patches = x.unfold(2, kernel, 1).permute(0, 2, 1, 3).flatten(2)  # (examples, positions, patch)
    terms = torch.linalg.vector_norm(patches, p, dim=2) * torch.linalg.vector_norm(g, p, dim=1)
    geometry = Geometry((kernel,), (1,), (0,), (1,), 1)
    calls = [ConvolutionCall(Slots(0, None), geometry, x, g)]
    if kernel == 1:
        calls.append(SequenceCall(Slots(0, None), x.transpose(1, 2), g.transpose(1, 2)))
    for call in calls:
        found = call.spread(p)
        assert bool((found >= terms.sum(dim=1) * (1.0 - 1e-5)).all())
        assert bool((found <= 9.0 * kernel * terms.sum(dim=1)).all())  # and not without any measure
