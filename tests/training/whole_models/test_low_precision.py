# SPDX-License-Identifier: Apache-2.0
"""With few digits, too, no example has a share above clip_norm, alone or in the sum of a large batch."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ggdp.training.clipping import Clipping, ExampleGradients, UnsupportedModelError
from training.whole_models.parts import Net

LOW = (torch.bfloat16, torch.float16)
CLIP_NORM = 0.37


def _embedded(net: Net, x: Tensor) -> Tensor:
    tokens = (x[..., 0] * 3).long().remainder(7)
    return net.last(torch.tanh(net.e(tokens)))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3)),
    "linear on sequences": lambda: nn.Sequential(nn.Linear(6, 40), nn.GELU(), nn.Linear(40, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv1d(8, 3, 2)
    ),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)),
    "embedding": lambda: Net(_embedded, e=nn.Embedding(7, 8), last=nn.Linear(8, 3)),
    "own parameters": lambda: Net(
        lambda net, x: net.layer(x) * net.scale, layer=nn.Linear(6, 3), scale=nn.Parameter(torch.rand(3))
    ),
    "attention": lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True),
}


def _share(model: nn.Module, inputs: Tensor, index: int, p: float, *, autocast: bool) -> Tensor:
    """What example `index` adds to the clipped sum of a batch in which no other example has a gradient."""
    gradients = ExampleGradients(model, loss_reduction="mean")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            output = model(inputs).flatten(1)
            losses = (40.0 * output.float().square()).mean(dim=1)
        chosen = torch.zeros(len(inputs))
        chosen[index] = 1.0
        (losses * chosen).mean().backward()
        sums = gradients.clipped_sum(Clipping(CLIP_NORM, p)).sums
    finally:
        gradients.detach()
    return torch.cat([each.double().flatten() for each in sums])


@pytest.mark.parametrize("p", [1.0, 1.33, 2.0, 4.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, *LOW, "autocast"], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_no_example_has_a_share_above_clip_norm(name: str, dtype: torch.dtype | str, p: float) -> None:
    torch.manual_seed(3)
    autocast = dtype == "autocast"
    model = MODELS[name]() if autocast else MODELS[name]().to(dtype)
    inputs = 2.0 * torch.randn(5, 6) if name == "linear" else 2.0 * torch.randn(5, 4, 6)
    inputs = inputs if autocast else inputs.to(dtype)
    norms = []
    for index in range(len(inputs)):
        try:
            share = _share(model, inputs, index, p, autocast=autocast)
        except UnsupportedModelError:
            return
        norms.append(float(torch.linalg.vector_norm(share, p)))
    assert max(norms) <= CLIP_NORM
    assert min(norms) >= 0.9 * CLIP_NORM or p == 1.0  # clipped, not lost


def _unit_sum(dtype: torch.dtype, count: int) -> float | None:
    """The clipped sum of `count` examples whose gradients are all 1."""
    model = nn.Linear(1, 1, bias=False).to(dtype)
    gradients = ExampleGradients(model, loss_reduction="sum")
    try:
        model(torch.ones(count, 1, dtype=dtype)).sum().backward()
        return float(gradients.clipped_sum(Clipping(1.0, 2.0)).sums[0].double())
    except UnsupportedModelError:
        return None
    finally:
        gradients.detach()


@pytest.mark.parametrize("dtype", [torch.float32, *LOW], ids=str)
def test_the_sum_of_4096_unit_gradients_is_4096(dtype: torch.dtype) -> None:
    found = _unit_sum(dtype, 4096)
    assert found is None or found == pytest.approx(4096, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, *LOW], ids=str)
@pytest.mark.parametrize("count", [300, 1000, 2051, 4096])
def test_one_example_more_changes_the_sum_by_at_most_clip_norm(dtype: torch.dtype, count: int) -> None:
    """A sum kept in bfloat16 stands still for a while, and then leaps by more than one example's share."""
    sums = [_unit_sum(dtype, count + more) for more in range(33)]
    if None in sums:
        return
    leaps = [after - before for before, after in itertools.pairwise(sums)]
    assert max(leaps) <= 1.0
    assert sum(leaps) >= 0.9 * len(leaps)
