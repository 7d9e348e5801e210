# SPDX-License-Identifier: Apache-2.0
"""What a model listened to does, and what it refuses."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ggdp.training.clipping import (
    ClippedSum,
    Clipping,
    ExampleGradients,
    NonFiniteGradientError,
    UnsupportedModelError,
)
from training.clipping.layer_cases import (
    CASES,
    ClassToken,
    LayerCase,
    LowRank,
    Tied,
    example_losses,
)
from training.clipping.single_examples import SingleExamples

WIDE = Clipping(clip_norm=1e6, norm=2.0)  # clips nothing: sums are ordinary gradients of the summed loss


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))


def _trained(model: nn.Module, inputs: Tensor, gradients: ExampleGradients, clipping: Clipping) -> ClippedSum:
    F.cross_entropy(model(inputs), torch.arange(len(inputs)) % 3).backward()
    return gradients.clipped_sum(clipping)


def test_detach_leaves_the_model_as_it_was() -> None:
    model = _net()
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    gradients = ExampleGradients(model)
    gradients.detach()
    for name, module in model.named_modules():
        assert set(module.__dict__) == set(before[name])
    assert not model._forward_pre_hooks
    F.cross_entropy(model(torch.randn(4, 6)), torch.zeros(4, dtype=torch.long)).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_evaluation_and_no_grad_leave_nothing_behind() -> None:
    model = _net()
    gradients = ExampleGradients(model)
    with torch.no_grad():
        assert not model(torch.randn(4, 6)).requires_grad
    model.eval()
    model(torch.randn(4, 6)).sum().backward()  # as for an adversarial example
    model.train()
    assert gradients.clipped_sum(WIDE).num_examples == 0


def test_forward_without_backward_leaves_nothing_behind() -> None:
    model = _net()
    gradients = ExampleGradients(model)
    model(torch.randn(4, 6))
    found = _trained(model, torch.randn(7, 6), gradients, WIDE)
    assert found.num_examples == 7


def test_discard_forgets() -> None:
    model = _net()
    gradients = ExampleGradients(model, loss_reduction="sum")
    model(torch.randn(4, 6)).sum().backward()
    gradients.discard()
    assert gradients.clipped_sum(WIDE).num_examples == 0


def test_backward_passes_since_the_last_call_add_up() -> None:
    model, inputs = _net(), torch.randn(9, 6)
    gradients = ExampleGradients(model, loss_reduction="sum")
    clipping = Clipping(clip_norm=0.3, norm=1.5)
    model(inputs).square().sum().backward()
    whole = gradients.clipped_sum(clipping)
    for part in (inputs[:4], inputs[4:]):
        model(part).square().sum().backward()
    found = gradients.clipped_sum(clipping)
    torch.testing.assert_close(found.norms, whole.norms)
    for one, other in zip(found.sums, whole.sums, strict=True):
        torch.testing.assert_close(one, other)


def test_two_losses_on_one_graph_are_one_gradient() -> None:
    model, inputs = _net(), torch.randn(5, 6)
    gradients = ExampleGradients(model, loss_reduction="sum")
    output = model(inputs)
    output.square().sum().backward(retain_graph=True)
    output.sum().backward()
    parted = gradients.clipped_sum(Clipping(0.5, 2.0))
    output = model(inputs)
    (output.square().sum() + output.sum()).backward()
    joint = gradients.clipped_sum(Clipping(0.5, 2.0))
    torch.testing.assert_close(parted.norms, joint.norms)


def test_activation_checkpointing_gives_the_same_norms() -> None:
    torch.manual_seed(0)
    layers, inputs = _net(), torch.randn(5, 6)

    class Model(nn.Module):
        def __init__(self, saving: bool) -> None:
            super().__init__()
            self.first, self.rest, self.saving = nn.Linear(6, 6), layers, saving

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return checkpoint(self.rest, x, use_reentrant=False) if self.saving else self.rest(x)

    model = Model(saving=True)
    found = _trained(model, inputs, ExampleGradients(model), WIDE)
    model.saving = False
    for site in (model.first, layers[0], layers[2]):
        del site.__dict__["forward"]
    expected = _trained(model, inputs, ExampleGradients(model), WIDE)
    torch.testing.assert_close(found.norms, expected.norms)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_an_empty_batch_has_zero_sums_whatever_its_mean_loss(case: LayerCase) -> None:
    model = case.model()
    gradients = ExampleGradients(model, batch_first=case.batch_dim == 0)
    inputs = (each.narrow(case.batch_dim, 0, 0) for each in case.inputs())
    loss = example_losses(case, model(*inputs)).mean()
    assert loss.isnan()
    loss.backward()
    found = gradients.clipped_sum(WIDE)
    assert found.num_examples == 0
    assert found.norms.shape == (0,)
    for parameter, tensor in zip(gradients.parameters, found.sums, strict=True):
        assert torch.equal(tensor, torch.zeros_like(parameter))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("p", [1.0, 1.33, 2.0, float("inf")])
def test_a_gradient_that_is_not_finite_is_refused_and_the_next_batch_is_sound(
    poison: float, p: float
) -> None:
    model = _net()
    gradients = ExampleGradients(model)
    inputs = torch.randn(4, 6)
    inputs[2, 3] = poison
    with pytest.raises(
        NonFiniteGradientError, match="1 of 4 examples are NaN or infinite, first of example 2"
    ):
        _trained(model, inputs, gradients, Clipping(1.0, p, non_finite="refuse"))
    assert _trained(model, torch.randn(3, 6), gradients, Clipping(1.0, p)).num_examples == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_an_example_whose_gradient_is_not_finite_adds_nothing(case: LayerCase) -> None:
    torch.manual_seed(0)
    model, inputs = case.model(), case.inputs()
    gradients = ExampleGradients(model, batch_first=case.batch_dim == 0)
    count, clipping = inputs[0].shape[case.batch_dim], Clipping(0.5, 1.5)
    slopes = torch.ones(count)
    gradients.backward(example_losses(case, model(*inputs)) * slopes.index_fill(0, torch.tensor(1), 0.0))
    without = gradients.clipped_sum(clipping)
    gradients.backward(
        example_losses(case, model(*inputs)) * slopes.index_fill(0, torch.tensor(1), torch.nan)
    )
    found = gradients.clipped_sum(clipping)
    assert (found.num_zeroed, found.num_examples, without.num_zeroed) == (1, count, 0)
    for one, other in zip(found.sums, without.sums, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (nn.BatchNorm2d(64), r"module 1 is a BatchNorm2d.*nn.GroupNorm\(32, 64\)"),
        (nn.BatchNorm1d(6, affine=False), r"BatchNorm1d.*nn.GroupNorm\(2, 6\)"),
        (nn.SyncBatchNorm(5), r"SyncBatchNorm.*nn.GroupNorm\(1, 5\)"),
        (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), "track_running_stats=False"),
        (nn.Embedding(4, 3, max_norm=1.0), "max_norm or scale_grad_by_freq"),
        (nn.LSTM(4, 4, proj_size=2), "proj_size"),
        (nn.LazyLinear(4), "no shape yet"),
        (nn.DataParallel(nn.Linear(4, 4)), r"\.module"),
        (nn.ModuleDict({"_orig_mod": nn.Linear(4, 4)}), "is compiled"),  # where torch.compile keeps its model
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_layer_without_gradients_of_single_examples_is_refused(layer: nn.Module, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        ExampleGradients(nn.Sequential(nn.Identity(), layer))


def test_a_frozen_batch_norm_in_evaluation_mode_is_let_pass_until_it_is_trained() -> None:
    frozen = nn.BatchNorm1d(6).requires_grad_(False).eval()
    model = nn.Sequential(frozen, nn.Linear(6, 3))
    gradients = ExampleGradients(model)
    frozen.eval()
    assert _trained(model, torch.randn(4, 6), gradients, WIDE).num_examples == 4
    model.train()
    with pytest.raises(UnsupportedModelError, match="evaluation mode"):
        model(torch.randn(4, 6))


def test_a_parameter_used_past_its_module_is_refused() -> None:
    class Tying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(7, 4)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.embedding(tokens).mean(dim=1) @ self.embedding.weight.t()

    model = Tying()
    gradients = ExampleGradients(model, loss_reduction="sum")
    model(torch.randint(0, 7, (5, 3))).sum().backward()
    with pytest.raises(UnsupportedModelError, match=r"embedding\.weight was used other than by calling"):
        gradients.clipped_sum(WIDE)


def test_rows_that_are_not_the_examples_are_refused() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.flatten(0, 1)[1:])

    model = Folded()
    ExampleGradients(model)
    with pytest.raises(UnsupportedModelError, match="module layer was called with 9 rows in a batch of 5"):
        model(torch.randn(5, 2, 4))


def test_dropout_inside_a_module_without_a_rule_is_the_same_in_norms_and_in_the_loss() -> None:
    class Noisy(ClassToken):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(super().forward(x), 0.5)

    model = Noisy()
    truth, inputs = copy.deepcopy(model), torch.randn(5, 3, 4)
    gradients = ExampleGradients(model, loss_reduction="sum")
    torch.manual_seed(3)
    model(inputs).square().sum().backward()
    torch.manual_seed(3)
    truth(inputs).square().sum().backward()
    for one, other in zip(gradients.clipped_sum(WIDE).sums, truth.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad)


def test_dropout_between_layers_is_the_same_in_norms_and_in_the_loss() -> None:
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    model = copy.deepcopy(model)
    truth = copy.deepcopy(model)
    inputs = torch.randn(5, 6)
    torch.manual_seed(3)
    truth(inputs).square().sum().backward()
    gradients = ExampleGradients(model, loss_reduction="sum")
    torch.manual_seed(3)
    model(inputs).square().sum().backward()
    for one, other in zip(gradients.clipped_sum(WIDE).sums, truth.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad)


def test_lstm_drops_out_between_its_layers() -> None:
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, num_layers=2, dropout=1.0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    model = Ends()
    gradients = ExampleGradients(model, loss_reduction="sum")
    model(torch.randn(5, 6, 3)).square().sum().backward()
    sums = dict(
        zip((name for name, _ in model.named_parameters()), gradients.clipped_sum(WIDE).sums, strict=True)
    )
    assert float(sums["layer.weight_ih_l1"].abs().max()) == 0.0
    assert float(sums["layer.weight_hh_l1"].abs().max()) > 0.0
    assert float(sums["layer.weight_ih_l0"].abs().max()) == 0.0


@pytest.mark.parametrize("p", [1.5, 2.0])
def test_norms_under_autocast_are_close_to_those_without(p: float) -> None:
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.states, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.states(x)[0])).mean(dim=1)

    model, inputs = Model(), torch.randn(5, 6, 3)
    gradients = ExampleGradients(model)
    plain = _trained(model, inputs, gradients, Clipping(0.1, p))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(inputs), torch.arange(5) % 3)
    loss.backward()
    found = gradients.clipped_sum(Clipping(0.1, p))
    torch.testing.assert_close(found.norms, plain.norms, rtol=0.03, atol=0.0)
    assert all(tensor.dtype == torch.float32 for tensor in found.sums)


def test_a_module_without_a_rule_is_run_again_under_the_same_autocast() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.ones(8)), nn.Conv1d(3, 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (self.scale * self.layer(x).mean(dim=2))[:, :3]

    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Conv1d(3, 3, 1), Scaled()), torch.randn(5, 3, 6)
    gradients = ExampleGradients(model)
    plain = _trained(model, inputs, gradients, WIDE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(inputs), torch.arange(5) % 3)
    loss.backward()
    torch.testing.assert_close(gradients.clipped_sum(WIDE).norms, plain.norms, rtol=0.05, atol=0.0)


def test_packed_sequences_are_refused() -> None:
    model = nn.LSTM(3, 4, batch_first=True)
    ExampleGradients(model)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 5, 3), [5, 3], batch_first=True)
    with pytest.raises(UnsupportedModelError, match="packed sequence"):
        model(packed)


def test_an_input_changed_in_place_after_the_call_is_refused() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x += self.second(x)
            return x

    model = Residual()
    ExampleGradients(model, loss_reduction="sum")
    with pytest.raises(UnsupportedModelError, match="input of module second was changed in place"):
        model(torch.randn(4, 6)).sum().backward()


def test_frozen_parameters_are_neither_clipped_nor_summed() -> None:
    model = LowRank()
    gradients = ExampleGradients(model)
    assert gradients.parameters == (model.down.weight, model.up.weight)
    assert "forward" not in model.base.__dict__


def test_a_parameter_that_took_no_part_gets_zeros() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    model = Partly()
    found = _trained(model, torch.randn(4, 6), ExampleGradients(model), WIDE)
    assert [bool(tensor.any()) for tensor in found.sums] == [True, True, False, False]


def test_layers_called_without_their_model_are_refused() -> None:
    model = nn.ModuleDict({"used": nn.Linear(6, 3), "idle": nn.Linear(6, 3)})
    gradients = ExampleGradients(model)
    F.cross_entropy(model["used"](torch.randn(4, 6)), torch.zeros(4, dtype=torch.long)).backward()
    with pytest.raises(UnsupportedModelError, match="call the model itself"):
        gradients.clipped_sum(WIDE)


def test_copies_and_pickles_of_the_model_are_plain() -> None:
    model = Tied()
    gradients = ExampleGradients(model)
    tokens = torch.randint(0, 7, (5, 3))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            twin.middle.weight.zero_()
            twin.middle.bias.zero_()
        assert torch.equal(twin(tokens), twin.last.bias.expand(5, 3, 7))
        twin(tokens).sum().backward()
        assert twin.last.weight.grad is not None
    assert gradients.clipped_sum(WIDE).num_examples == 0


def test_a_second_listener_is_refused() -> None:
    model = _net()
    ExampleGradients(model)
    with pytest.raises(UnsupportedModelError, match="detach it first"):
        ExampleGradients(nn.Sequential(fresh := nn.Linear(6, 6), model))
    assert "forward" not in fresh.__dict__
    assert len(model._forward_pre_hooks) == 1


def test_sums_belong_to_the_caller() -> None:
    model, inputs = _net(), torch.randn(5, 6)
    gradients = ExampleGradients(model)
    first = _trained(model, inputs, gradients, WIDE)
    copies = [tensor.clone() for tensor in first.sums]
    _trained(model, 2.0 * inputs, gradients, WIDE)
    for one, other in zip(first.sums, copies, strict=True):
        assert torch.equal(one, other)


def test_l2_clipped_sums_fail_the_test_of_another_norm() -> None:
    torch.manual_seed(2)
    rows = SingleExamples((torch.randn(5, 40, dtype=torch.float64),))
    right, wrong = rows.clipped_sums(1.33, 1.0)[0], rows.clipped_sums(2.0, 1.0)[0]
    assert not torch.allclose(right, wrong, rtol=1e-2)
    shares = rows.gradients[0] * (1.0 / rows.norms(2.0)).unsqueeze(1)
    assert float(torch.linalg.vector_norm(shares, 1.33, dim=1).min()) > 1.0
