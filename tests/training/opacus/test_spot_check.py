# SPDX-License-Identifier: Apache-2.0
"""What Opacus gets wrong without a word is refused, and what it gets right is not."""

import copy

import pytest
import torch
from opacus.layers import DPLSTM
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.opacus import GGPrivacyEngine
from training.opacus.models import small_net, train

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

NUM = 64


class Net(nn.Module):
    """Layers, and a function of them and the inputs."""

    def __init__(self, compute, **layers):
        super().__init__()
        self.compute = compute
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x):
        return self.compute(self, x)


def run(net, x=None, y=None, loss=None, *, steps=4, check=True, **options):
    torch.manual_seed(0)
    x = torch.randn(NUM, 5) if x is None else x
    y = torch.zeros(NUM) if y is None else y
    engine = GGPrivacyEngine(check_gradients=check)
    private = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.01),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        **options,
    )
    _, optimizer, loader = private
    # Without wrapping, Opacus hands back hooks, and the model is called as it was.
    model = private[0] if options.get("wrap_model", True) else net
    train(
        model, optimizer, loader, loss or (lambda out, _: out.square().flatten(1).sum(1).mean()), steps=steps
    )
    return engine, model, optimizer, loader


def linear():
    return nn.Linear(5, 4)


def loss_inside(weighted):
    def compute(net, x):
        each, weight = net.layer(x).square().sum(1), (x[:, 0] > 0).float() + 0.1
        return (each * weight).sum() / weight.sum() if weighted else each.mean()

    return Net(compute, layer=linear())


def centred(x):
    return x - x.mean(dim=0, keepdim=True)


WRONG = {
    "a weight used outside its layer": lambda: Net(lambda n, x: n.layer(x) @ n.layer.weight, layer=linear()),
    "batch statistics of the inputs": lambda: Net(lambda n, x: n.layer(centred(x)), layer=linear()),
    "batch statistics of the outputs": lambda: Net(lambda n, x: centred(n.layer(x)), layer=linear()),
    "rows that are positions": lambda: Net(
        lambda n, x: n.layer(x) + n.table(torch.arange(len(x))).sum(0),
        layer=linear(),
        table=nn.Embedding(NUM, 4),
    ),
    "a weighted mean inside the model": lambda: loss_inside(True),
    "batch statistics beside dropout": lambda: Net(
        lambda n, x: n.layer(functional.dropout(centred(x), 0.5, n.training)), layer=linear()
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_gradients_that_are_not_of_single_examples_are_refused_before_the_first_step(kind):
    net = WRONG[kind]()
    before = copy.deepcopy(net.state_dict())
    reason = (
        "alone"
        if "dropout" in kind
        else r"gradients of '(layer|table)\.(weight|bias)' must be those of single"
    )
    loss = (lambda out, _: out) if "mean inside" in kind else None
    with pytest.raises(ValueError, match=reason):
        run(net, loss=loss)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())


def test_a_refused_model_stays_refused():
    net = WRONG["a weight used outside its layer"]()
    engine = GGPrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(torch.randn(NUM, 5), torch.zeros(NUM)), batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for x, _ in loader:
        optimizer.zero_grad()
        model(x).square().sum(1).mean().backward()
        with pytest.raises(ValueError, match="must be those of single examples"):
            optimizer.step()
    assert len(engine.accountant) == 0


def two_outputs(net, x):
    return {"first": net.first(x), "others": [net.second(x), x]}


RIGHT = {
    "convolutions": (small_net, torch.randn(NUM, 1, 6, 6)),
    "dropout": (lambda: nn.Sequential(linear(), nn.Dropout(0.5), nn.Linear(4, 2)), None),
    "a recurrent layer": (
        lambda: Net(
            lambda n, x: n.last(n.rnn(x)[0][:, -1]), rnn=DPLSTM(5, 3, batch_first=True), last=nn.Linear(3, 2)
        ),
        torch.randn(NUM, 4, 5),
    ),
    "layers of three dimensions": (
        lambda: nn.Sequential(linear(), nn.Tanh(), nn.Linear(4, 2)),
        torch.randn(NUM, 3, 5),
    ),
    "examples joined with a sequence": (
        lambda: nn.Sequential(linear(), nn.Tanh(), nn.Linear(4, 2), nn.Flatten(0, 1)),
        torch.randn(NUM, 3, 5),
    ),
    "bfloat16": (
        lambda: nn.Sequential(linear(), nn.Tanh(), nn.Linear(4, 2)).bfloat16(),
        torch.randn(NUM, 5).bfloat16(),
    ),
}


@pytest.mark.parametrize("kind", RIGHT)
@pytest.mark.parametrize("wrap_model", [True, False])
def test_gradients_of_single_examples_are_let_pass(kind, wrap_model):
    build, x = RIGHT[kind]
    engine = run(build(), x, wrap_model=wrap_model)[0]
    assert len(engine.accountant) == 4


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_so_they_are_in_every_mode_of_opacus(mode):
    assert (
        len(run(nn.Sequential(linear(), nn.Tanh(), nn.Linear(4, 2)), grad_sample_mode=mode)[0].accountant)
        == 4
    )


def test_so_they_are_with_several_outputs_and_with_a_loss_inside_the_model():
    net = Net(two_outputs, first=linear(), second=nn.Linear(5, 3))
    run(net, loss=lambda out, _: (out["first"].square().sum(1) + out["others"][0].pow(3).sum(1)).mean())
    run(loss_inside(False), loss=lambda out, _: out)


def test_the_check_draws_nothing_and_changes_no_step():
    def parameters(check):
        net = RIGHT["dropout"][0]()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(0.1)
        generator = torch.Generator().manual_seed(3)
        run(net, check=check, noise_generator=generator)
        return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])

    assert torch.equal(parameters(True), parameters(False))


LABELS = torch.randint(3, (NUM,), generator=torch.Generator().manual_seed(1))
WEIGHTS = torch.tensor([1.0, 2.0, 5.0])
TOKENS = torch.randint(7, (NUM, 6), generator=torch.Generator().manual_seed(2))
SOME = TOKENS.where(torch.rand(NUM, 6, generator=torch.Generator().manual_seed(3)) < 0.5, -100)


def classifier():
    return nn.Linear(5, 3)


def tagger():
    return nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7))


def by_token(out, labels):
    return functional.cross_entropy(out.flatten(0, 1), labels.flatten())


BAD_LOSSES = {
    "class weights": (classifier, None, LABELS, lambda o, y: functional.cross_entropy(o, y, weight=WEIGHTS)),
    "log-likelihoods": (
        lambda: nn.Sequential(classifier(), nn.LogSoftmax(1)),
        None,
        LABELS,
        lambda o, y: functional.nll_loss(o, y, weight=WEIGHTS),
    ),
    "ignored labels": (classifier, None, LABELS, lambda o, y: functional.cross_entropy(o, y, ignore_index=1)),
    "a sum": (classifier, None, LABELS, lambda o, y: functional.cross_entropy(o, y, reduction="sum")),
    "tokens": (tagger, TOKENS, SOME, by_token),
}


@pytest.mark.parametrize("kind", BAD_LOSSES)
def test_a_cross_entropy_whose_denominator_depends_on_other_examples_is_refused(kind):
    build, x, y, loss = BAD_LOSSES[kind]
    with pytest.raises(ValueError, match="weigh an example alike in every batch"):
        run(build(), x, y, loss)


GOOD_LOSSES = {
    "a mean": (classifier, None, LABELS, functional.cross_entropy),
    "weights": (
        classifier,
        None,
        LABELS,
        lambda o, y: (WEIGHTS[y] * functional.cross_entropy(o, y, reduction="none")).mean(),
    ),
    "smoothed labels": (
        classifier,
        None,
        LABELS,
        lambda o, y: functional.cross_entropy(o, y, label_smoothing=0.1),
    ),
    "squares": (classifier, None, torch.randn(NUM, 3), functional.mse_loss),
    "tokens": (tagger, TOKENS, TOKENS, by_token),
}


@pytest.mark.parametrize("kind", GOOD_LOSSES)
def test_a_loss_that_weighs_examples_alike_is_let_pass(kind):
    assert len(run(GOOD_LOSSES[kind][0](), *GOOD_LOSSES[kind][1:])[0].accountant) == 4


@pytest.mark.parametrize(
    ("criterion", "options", "reason"),
    [
        (nn.CrossEntropyLoss(weight=WEIGHTS), {}, "class weights with reduction='mean'"),
        (nn.CrossEntropyLoss(reduction="sum"), {}, "loss_reduction must be that of criterion, 'sum'"),
        (nn.MSELoss(), {"loss_reduction": "sum"}, "loss_reduction must be that of criterion, 'mean'"),
    ],
)
def test_a_criterion_that_is_handed_over_is_looked_at(criterion, options, reason):
    with pytest.raises(ValueError, match=reason):
        run(classifier(), criterion=criterion, **options)


def test_a_model_that_cannot_be_run_again_is_refused_unless_the_check_is_left_out():
    calls = []

    def once(net, x):
        calls.append(len(x))
        if len(calls) > 1 and calls[-2] != 0:
            raise RuntimeError("no second time")
        return net.layer(x)

    with pytest.raises(ValueError, match=r"could not be checked.*no second time.*check_gradients=False"):
        run(Net(once, layer=linear()))
    engine = run(Net(lambda n, x: n.layer(x) @ n.layer.weight, layer=linear()), check=False)[0]
    assert len(engine.accountant) == 4


def test_a_copy_of_the_model_is_not_watched():
    engine, model, optimizer, loader = run(classifier(), y=LABELS, loss=functional.cross_entropy, steps=1)
    average = copy.deepcopy(model).eval()
    average(torch.randn(3, 5))
    train(model, optimizer, loader, steps=2)
    assert len(engine.accountant) == 3
