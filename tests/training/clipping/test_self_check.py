# SPDX-License-Identifier: Apache-2.0
"""The check of single examples catches planted faults, and does not cry out over rounding."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.training.clipping import Clipping, ExampleGradients, SelfCheckError, self_check
from ggdp.training.clipping.convolution import ConvolutionCall
from ggdp.training.clipping.linear import LinearCall, SequenceCall

CLIPPING = Clipping(clip_norm=0.1, norm=2.0)


def _net() -> nn.Module:
    torch.manual_seed(0)
    first, second = nn.Conv1d(3, 4, 3), nn.Linear(6, 5)
    return nn.Sequential(first, nn.ReLU(), second, nn.Flatten(), nn.Linear(20, 3))


def _step(gradients: ExampleGradients, model: nn.Module, size: int = 6) -> None:
    F.cross_entropy(model(torch.randn(size, 3, 8)), torch.arange(size) % 3).backward()
    gradients.clipped_sum(CLIPPING)


def _lost(self: object, weights: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.zeros_like(each) for each in PLAIN[type(self)](self, weights))


def _doubled(self: object, weights: Tensor) -> tuple[Tensor, ...]:
    return PLAIN[type(self)](self, 2.0 * weights)


def _of_another_example(self: object, weights: Tensor) -> tuple[Tensor, ...]:
    return PLAIN[type(self)](self, weights.roll(1))


PLAIN = {kind: kind.weighted_sum for kind in (LinearCall, SequenceCall, ConvolutionCall)}


@pytest.mark.parametrize("fault", [_lost, _doubled, _of_another_example])
@pytest.mark.parametrize(
    ("kind", "named"), [(LinearCall, "4.weight"), (SequenceCall, "2.weight"), (ConvolutionCall, "0.weight")]
)
def test_a_fault_in_the_rule_of_one_layer_is_caught_and_the_layer_named(
    kind: type, named: str, fault: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggdp.training.clipping.workspace._CPU_BYTES", 0)  # sums by rules, not by kept rows
    model = _net()
    gradients = ExampleGradients(model)
    monkeypatch.setattr(kind, "weighted_sum", fault)
    with pytest.raises(SelfCheckError, match=named.replace(".", r"\.").replace("weight", "(weight|bias)")):
        _step(gradients, model)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_wrong_norms_are_caught(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceCall, "closed_norms", lambda self, p: None)
    rows = SequenceCall.rows
    monkeypatch.setattr(
        SequenceCall, "rows", lambda *args: tuple(factor**2 * matrix for matrix in rows(*args))
    )
    model = _net()
    with pytest.raises(SelfCheckError, match=r"gradient of norm|2\.(weight|bias)"):
        _step(ExampleGradients(model), model)


def test_right_models_pass_at_every_step_that_is_checked() -> None:
    model = _net()
    gradients = ExampleGradients(model)
    for _ in range(33):
        _step(gradients, model)
    assert gradients.num_checks == 3  # steps 1, 2 and 32


def test_a_batch_of_one_example_leaves_the_check_to_the_next_step() -> None:
    model = _net()
    gradients = ExampleGradients(model)
    _step(gradients, model, size=1)
    assert gradients.num_checks == 0
    _step(gradients, model)
    assert gradients.num_checks == 1


LIMITS = self_check.Tolerance(doubt=0.005, refusal=0.25)


@pytest.mark.parametrize(
    ("gaps", "refused"),
    [
        ([0.0, 0.0, 0.0], False),
        ([0.05, 0.0, 0.0, 0.0, 0.0], False),  # one example with a unit that flipped
        ([0.05, 0.05, 0.05, 0.0, 0.0], True),
        ([0.3, 0.0, 0.0, 0.0, 0.0], True),  # no rounding
        ([0.0, 0.3, 0.0, 0.0, 0.0], True),
        ([0.05, 0.05, 0.0, 0.0, 0.0], False),
    ],
)
def test_doubtful_examples_must_be_the_smaller_part(gaps: list[float], refused: bool) -> None:
    def look() -> None:
        self_check._look([0, 1, 2], [3, 4], LIMITS, lambda index: self_check._Gap(gaps[index], "it"))

    if refused:
        with pytest.raises(SelfCheckError, match="it"):
            look()
    else:
        look()


class Looking(nn.Module):
    """Attends to a second input, either positions of the same example under a mask or a bank of others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        if x.dim() == 3:  # other is a mask of positions
            return self.last((other.to(x.dtype) @ torch.tanh(self.layer(x))).mean(dim=1))
        return self.last((torch.tanh(self.layer(x)) @ other.t()).softmax(dim=1) @ other)


def test_a_mask_of_positions_as_long_as_the_batch_is_given_whole_to_each_example() -> None:
    model = Looking()
    gradients = ExampleGradients(model)
    F.cross_entropy(model(torch.randn(6, 6, 4), torch.ones(6, 6).tril()), torch.arange(6) % 3).backward()
    assert gradients.clipped_sum(CLIPPING).num_examples == 6


def test_a_second_input_with_a_row_of_every_example_does_not_let_them_see_each_other() -> None:
    model, x = Looking(), torch.randn(6, 4)
    gradients = ExampleGradients(model)
    F.cross_entropy(model(x, x), torch.arange(6) % 3).backward()
    with pytest.raises(SelfCheckError):
        gradients.clipped_sum(CLIPPING)
