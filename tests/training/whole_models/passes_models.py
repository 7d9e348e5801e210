# SPDX-License-Identifier: Apache-2.0
"""Hooks of the user, and backward passes of other kinds."""

from functools import partial
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models import parts
from training.whole_models.harness import Batch, Case
from training.whole_models.parts import N, Net, floats, mlp, scores

CASES: list[Case] = []
row = partial(parts.row, CASES)


def _with_hooks(kind: str) -> nn.Module:
    model = mlp()
    model.calls = 0

    def count(*_: Any) -> None:
        model.calls += 1

    if kind == "counts":
        model[0].register_forward_hook(count)
    if kind == "counts calls of the model":
        model.register_forward_hook(count)
    if kind == "counts calls beside a parameter":
        model = nn.Sequential(
            Net(
                lambda net, x: net.layer(x) * net.scale,
                layer=nn.Linear(6, 6),
                scale=nn.Parameter(torch.rand(6)),
            ),
            model,
        )
        model.calls = 0
        model[0].layer.register_forward_hook(lambda *_: setattr(model, "calls", model.calls + 1))
    if kind == "changes the output":
        model[0].register_forward_hook(lambda module, inputs, output: output * 2.0)
    if kind == "changes the output in place":
        model[0].register_forward_hook(lambda module, inputs, output: output.mul_(2.0))
    if kind == "changes the input":
        model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3.0,))
    if kind == "changes the input of the model":
        model.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3.0,))
    if kind == "backward, changes the gradient":
        model[0].register_full_backward_hook(
            lambda module, below, above: (below[0] * 0.5 if below[0] is not None else None,)
        )
    if kind == "backward, changes the gradient of a later layer":
        model[2].register_full_backward_hook(lambda module, below, above: (below[0] * 0.5,))
    if kind == "backward, looks on":
        model[2].register_full_backward_hook(lambda module, below, above: None)
    if kind == "backward pre, changes the gradient":
        model[2].register_full_backward_pre_hook(lambda module, above: (above[0] * 0.5,))
    if kind == "backward pre on the first layer":
        model[0].register_full_backward_pre_hook(lambda module, above: (above[0] * 0.5,))
    if kind == "of a parameter":
        model[0].weight.register_hook(lambda gradient: gradient * 0.5)
    if kind == "mixes examples in the output":
        model[0].register_forward_hook(lambda module, inputs, output: output - output.mean(0))
    return model


def _counted(model: nn.Module, steps: int) -> None:
    if model.calls != steps:
        raise AssertionError(f"a forward hook ran {model.calls} times in {steps} steps")


for _kind in ("counts", "counts calls of the model"):
    row(f"forward hook {_kind}", partial(_with_hooks, _kind), floats(6), after=_counted, self_check=False)
for _kind in (
    "changes the output",
    "changes the output in place",
    "changes the input",
    "changes the input of the model",
):
    row(f"forward hook {_kind}", partial(_with_hooks, _kind), floats(6))
for _kind in (
    "backward, changes the gradient",
    "backward, changes the gradient of a later layer",
    "backward, looks on",
    "backward pre, changes the gradient",
    "backward pre on the first layer",
):
    row(
        f"hook {_kind}",
        partial(_with_hooks, _kind),
        floats(6),
        expected="either" if "looks" not in _kind else "right",
    )
row("hook of a parameter", partial(_with_hooks, "of a parameter"), floats(6), expected="either")
row(
    "forward hook that mixes examples",
    partial(_with_hooks, "mixes examples in the output"),
    floats(6),
    expected="refused",
)


def _tensor_hook(net: Net, x: Tensor) -> Tensor:
    y = net[0](x)
    y.register_hook(lambda gradient: gradient * 0.5)
    return net[2](torch.tanh(y))


row(
    "hook on an activation changes its gradient",
    lambda: Net(lambda net, x: _tensor_hook(net.inner, x), inner=mlp()),
    floats(6),
)


def _two_losses(gradients: Any, model: nn.Module, batch: Batch) -> None:
    output = model(*batch)
    scores(output).mean().backward(retain_graph=True)
    output.square().sum(1).mean().backward()


def _two_loss(model: nn.Module, x: Tensor) -> Tensor:
    output = model(x)
    return scores(output) + output.square().sum(1)


def _two_forwards(gradients: Any, model: nn.Module, batch: Batch) -> None:
    first, second = model(*batch), model(batch[0] * 2.0)
    (scores(first).mean() + scores(second).mean()).backward()


def _two_forwards_apart(gradients: Any, model: nn.Module, batch: Batch) -> None:
    first, second = model(*batch), model(batch[0] * 2.0)
    scores(first).mean().backward()
    scores(second).mean().backward()


def _views(model: nn.Module, x: Tensor) -> Tensor:
    return scores(model(x)) + scores(model(x * 2.0))


def _no_grad_first(gradients: Any, model: nn.Module, batch: Batch) -> None:
    with torch.no_grad():
        target = model(*batch)
    scores(model(*batch) - 0.1 * target).mean().backward()


def _no_grad_loss(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        target = model(x)
    return scores(model(x) - 0.1 * target)


def _eval_first(gradients: Any, model: nn.Module, batch: Batch) -> None:
    model.eval()
    target = model(*batch).detach()
    model.train()
    scores(model(*batch) - 0.1 * target).mean().backward()


def _forward_thrown_away(gradients: Any, model: nn.Module, batch: Batch) -> None:
    model(batch[0] + 1.0)
    scores(model(*batch)).mean().backward()


def _other_size_thrown_away(gradients: Any, model: nn.Module, batch: Batch) -> None:
    model(batch[0][:2])
    scores(model(*batch)).mean().backward()


def _penalty(model: nn.Module, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    output = scores(model(x))
    (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
    return output + slope.square().sum(1)


def _adversarial(model: nn.Module, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(scores(model(x)).sum(), x)
    return scores(model(x.detach() + 0.1 * slope.sign()))


def _adversarial_by_backward(gradients: Any, model: nn.Module, batch: Batch) -> None:
    x = batch[0].detach().requires_grad_()
    scores(model(x)).sum().backward()
    scores(model(x.detach() + 0.1 * x.grad.sign())).mean().backward()


def _parts_of_batch(gradients: Any, model: nn.Module, batch: Batch) -> None:
    output = model(*batch)
    scores(output).mean().backward(retain_graph=True)
    gradients.discard()
    scores(output).mean().backward()


def _some_of_the_losses(gradients: Any, model: nn.Module, batch: Batch) -> None:
    (scores(model(*batch))[:3].sum() / 5).backward()


def _some_of_the_loss(model: nn.Module, x: Tensor) -> Tensor:
    """What the three first examples' losses are; the others have none. Told apart by a mark in the data."""
    return scores(model(x[:, :6])) * (x[:, 6] > 0)


def _marked() -> Batch:
    marks = torch.tensor([[1.0], [1.0], [1.0], [-1.0], [-1.0]])
    return (torch.cat([torch.randn(N, 6), marks], dim=1),)


def _gradient_scaled(gradients: Any, model: nn.Module, batch: Batch) -> None:
    scores(model(*batch)).backward(torch.full((N,), 1.0 / N, dtype=torch.float64))


def _gradient_unequal(gradients: Any, model: nn.Module, batch: Batch) -> None:
    scores(model(*batch)).backward(torch.linspace(0.1, 0.5, N, dtype=torch.float64))


def _cut_graph(net: Net, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = net.first(x)
    return net.layer(y)


def _detached(net: Net, x: Tensor) -> Tensor:
    return net.layer(net.first(x).detach())


row("two backward calls on one graph", mlp, floats(6), _two_loss, train=_two_losses, expected="either")
row("two forwards, one backward", mlp, floats(6), _views, train=_two_forwards, expected="either")
row("two forwards, two backwards", mlp, floats(6), _views, train=_two_forwards_apart, expected="either")
row("two forwards, losses per example", mlp, floats(6), _views, expected="either")
row("a forward under no_grad first", mlp, floats(6), _no_grad_loss, train=_no_grad_first)
row("a forward in evaluation mode first", mlp, floats(6), _no_grad_loss, train=_eval_first)
row("a forward thrown away first", mlp, floats(6), train=_forward_thrown_away, expected="either")
row(
    "a forward of fewer examples thrown away first",
    mlp,
    floats(6),
    train=_other_size_thrown_away,
    expected="either",
)
row("gradient penalty", mlp, floats(6), _penalty, expected="either")
row("adversarial examples made on the way", mlp, floats(6), _adversarial, expected="either")
row(
    "adversarial examples made by backward",
    mlp,
    floats(6),
    _adversarial,
    train=_adversarial_by_backward,
    expected="either",
)
row("backward, discard, backward again", mlp, floats(6), train=_parts_of_batch, expected="either")
row(
    "losses of three of five examples",
    lambda: Net(lambda net, x: net.inner(x[:, :6]), inner=mlp()),
    _marked,
    _some_of_the_loss,
    train=_some_of_the_losses,
    expected="either",
)
row("backward with equal weights", mlp, floats(6), train=_gradient_scaled, expected="either")
row("backward with unequal weights", mlp, floats(6), train=_gradient_unequal, expected="refused")
row("first layer under no_grad", lambda: Net(_cut_graph, first=nn.Linear(6, 6), layer=mlp()), floats(6))
row("activation detached", lambda: Net(_detached, first=nn.Linear(6, 6), layer=mlp()), floats(6))


def _auxiliary(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(net.first(x))
    return net.main(y), net.side(y)


def _auxiliary_loss(model: nn.Module, x: Tensor) -> Tensor:
    main, side = model(x)
    return scores(main) + 0.4 * scores(side)


def _auxiliary_model() -> nn.Module:
    return Net(_auxiliary, first=nn.Linear(6, 6), main=nn.Linear(6, 3), side=nn.Linear(6, 2))


row("auxiliary head", _auxiliary_model, floats(6), _auxiliary_loss)
row(
    "auxiliary head, a mean each",
    _auxiliary_model,
    floats(6),
    lambda m, x: scores((out := m(x))[0]).mean() + 0.4 * scores(out[1]).mean(),
    "either",
)
row(
    "auxiliary loss kept on the model",
    lambda: Net(_kept_loss, first=nn.Linear(6, 6), main=nn.Linear(6, 3)),
    floats(6),
    lambda m, x: scores(m(x)) + m.penalty,
    expected="either",
)


def _kept_loss(net: Net, x: Tensor) -> Tensor:
    y = torch.tanh(net.first(x))
    net.penalty = y.square().mean(dim=1)
    return net.main(y)


def _balance(net: Net, x: Tensor) -> Tensor:
    """Experts all computed, and a penalty on how unevenly the batch uses them."""
    gates = net.gate(x).softmax(-1)
    net.penalty = gates.mean(0).square().sum()
    return sum(gates[:, k : k + 1] * expert(x) for k, expert in enumerate(net.experts))


def _experts_net() -> nn.Module:
    return Net(_balance, gate=nn.Linear(6, 2), experts=nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)]))


row("soft mixture of experts", _experts_net, floats(6))
row(
    "soft mixture of experts with a balance penalty",
    _experts_net,
    floats(6),
    lambda m, x: scores(m(x)).mean() + m.penalty,
    "refused",
)
row(
    "soft mixture of experts with a balance penalty on every loss",
    _experts_net,
    floats(6),
    lambda m, x: scores(m(x)) + m.penalty,
    "refused",
)
