# SPDX-License-Identifier: Apache-2.0
"""Nothing of a batch outlives its step: graph, activations and cotangents are let go."""

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping import Clipping, ExampleGradients
from ggdp.training.clipping.call import AbstractCall
from training.clipping.layer_cases import CASES, AfterLinear, LayerCase

WIDE = Clipping(clip_norm=1e6, norm=2.0)
INPUTS = torch.Generator().manual_seed(4)


class MeanState(nn.Module):
    """A recurrent layer on the output of another layer, whose graph it must not keep."""

    def __init__(self, recurrent):
        super().__init__()
        self.first, self.recurrent, self.last = nn.Embedding(9, 5), recurrent, nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.recurrent(self.first(x))[0].mean(dim=1))


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), (6, 5)),
    "sequence": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), (6, 7, 5)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 2)), (6, 2, 6, 6)),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3)), (6, 5)),
    "lstm": (lambda: MeanState(nn.LSTM(5, 4, num_layers=2, batch_first=True)), (6, 7)),
    "gru": (lambda: MeanState(nn.GRU(5, 4, batch_first=True)), (6, 7)),
    "rnn": (lambda: MeanState(nn.RNN(5, 4, batch_first=True)), (6, 7)),
}


def drawn(name, shape):
    if name in ("lstm", "gru", "rnn"):
        return torch.randint(9, shape, generator=INPUTS)
    return torch.randn(shape, generator=INPUTS)


@pytest.fixture(autouse=True, scope="module")
def _only_what_is_new():
    """What was there before, a million objects of other packages, is not looked through in every test."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def alive():
    gc.collect()
    kinds = {AbstractCall, BackwardCFunction}  # by type: some objects do not like to be asked
    return sum(not kinds.isdisjoint(type(thing).__mro__) for thing in gc.get_objects())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ending", ["summed", "discarded", "no backward"])
def test_calls_and_graphs_of_a_batch_are_gone_after_its_step(name, ending):
    build, shape = MODELS[name]
    model = build()
    gradients = ExampleGradients(model)
    before = alive()
    for _ in range(3):
        loss = model(drawn(name, shape)).square().mean()
        if ending != "no backward":
            loss.backward()
        gradients.clipped_sum(Clipping(1.0, 1.5)) if ending == "summed" else gradients.discard()
        del loss
    assert alive() == before


class _Probe(torch.autograd.Function):
    """The identity, holding on to an object for as long as its graph lives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, held: object) -> Tensor:
        ctx.held = held
        return x.clone()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        return cotangent, None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_a_pass_is_let_go_without_the_garbage_collector(case: LayerCase) -> None:
    model, inputs = case.model(), case.inputs()
    if not inputs[0].is_floating_point():  # no graph before an embedding: see what follows other layers
        model, inputs = AfterLinear(), (torch.randn(2, 6, 3),)
    batch_first = case.batch_dim == 0 or isinstance(model, AfterLinear)
    gradients = ExampleGradients(model, loss_reduction="sum", batch_first=batch_first)
    gc.disable()
    try:
        for with_backward in (False, True):
            held = set[int]()
            gone = weakref.ref(held)
            output = model(*(_Probe.apply(each.requires_grad_(), held) for each in inputs))
            if with_backward:
                output.sum().backward()
                gradients.clipped_sum(WIDE)
            del output, held
            assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", MODELS)
def test_activations_are_gone_after_a_step_while_its_outputs_are_held(name: str) -> None:
    """A training loop holds the outputs of a step until those of the next one are there."""
    build, shape = MODELS[name]
    model, inputs = build(), drawn(name, shape)
    gradients = ExampleGradients(model)
    before: set[int] = set()
    for _ in range(2):
        before = {id(each) for each in _tensors()}
        outputs = model(inputs)
        outputs.square().mean().backward()
        gradients.clipped_sum(WIDE)
    shapes = {tuple(each.shape) for each in _tensors() if id(each) not in before}
    assert tuple(outputs.shape) in shapes
    assert shapes <= {(), tuple(outputs.shape), tuple(inputs.shape)}


def _tensors() -> list[Tensor]:
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is Tensor]


def test_a_second_backward_is_refused_unless_the_first_has_kept_the_graph() -> None:
    model = nn.Linear(5, 3)
    gradients = ExampleGradients(model, loss_reduction="sum")
    output = model(torch.randn(6, 5, generator=INPUTS))
    output.sum().backward(retain_graph=True)
    output.sum().backward()
    assert torch.isfinite(gradients.clipped_sum(WIDE).norms).all()
    output = model(torch.randn(6, 5, generator=INPUTS))
    output.sum().backward()
    with pytest.raises(UnsupportedModelError, match="second time"):
        output.sum().backward()
