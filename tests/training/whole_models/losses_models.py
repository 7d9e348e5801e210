# SPDX-License-Identifier: Apache-2.0
"""Losses, of which not all are means of one number per example."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models import parts
from training.whole_models.harness import Batch, Case
from training.whole_models.parts import N, Net, floats, labelled, mlp

CASES: list[Case] = []
row = partial(parts.row, CASES)


def _logits(model: nn.Module, x: Tensor, y: Tensor, **how: Any) -> Tensor:
    return F.cross_entropy(model(x), y, **how)


_WEIGHTS = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)

row("cross entropy, mean", mlp, labelled(6), partial(_logits))
row("cross entropy, sum", mlp, labelled(6), partial(_logits, reduction="sum"), reduction="sum")
row("cross entropy, one per example", mlp, labelled(6), partial(_logits, reduction="none"))
row("cross entropy with class weights, mean", mlp, labelled(6), partial(_logits, weight=_WEIGHTS), "refused")
row(
    "cross entropy with class weights, sum",
    mlp,
    labelled(6),
    partial(_logits, weight=_WEIGHTS, reduction="sum"),
    reduction="sum",
)
row(
    "cross entropy with class weights, one per example",
    mlp,
    labelled(6),
    partial(_logits, weight=_WEIGHTS, reduction="none"),
)
row("label smoothing, mean", mlp, labelled(6), partial(_logits, label_smoothing=0.1), "either")
row(
    "label smoothing, one per example",
    mlp,
    labelled(6),
    partial(_logits, label_smoothing=0.1, reduction="none"),
)
row(
    "label smoothing with class weights, mean",
    mlp,
    labelled(6),
    partial(_logits, label_smoothing=0.1, weight=_WEIGHTS),
    "refused",
)


def _ignored() -> Batch:
    return torch.randn(N, 6), torch.tensor([0, -100, 2, 1, -100])


row(
    "ignore_index, mean",
    mlp,
    _ignored,
    lambda m, x, y: F.cross_entropy(m(x), y) if (y >= 0).any() else m(x).sum() * 0,
    "refused",
)
row("ignore_index, one per example", mlp, _ignored, partial(_logits, reduction="none"))


def _tokens_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def _unequal() -> Batch:
    labels = torch.randint(0, 3, (N, 4))
    labels[0, 1:] = -100
    labels[3, 2:] = -100
    return torch.randn(N, 4, 6), labels


def _equal_masked() -> Batch:
    labels = torch.randint(0, 3, (N, 4))
    labels[:, 2:] = -100
    return torch.randn(N, 4, 6), labels


def _unequal_now_and_then() -> Callable[[], Batch]:
    """Equal numbers of tokens in the first two batches, unequal ones in the third."""

    def build() -> Batch:
        seed = torch.initial_seed()
        return _unequal() if seed >= 106 else labelled(4, 6, label_shape=(4,))()

    return build


row(
    "token mean, as many tokens in every example",
    mlp,
    labelled(4, 6, label_shape=(4,)),
    _tokens_loss,
    "either",
)
row("token mean, equally masked", mlp, _equal_masked, _tokens_loss, "either")
row("token mean, unequally masked", mlp, _unequal, _tokens_loss, "refused")
row(
    "token mean, unequally masked from the seventh step on",
    mlp,
    _unequal_now_and_then(),
    _tokens_loss,
    "refused",
    steps=8,
)
row(
    "token mean by transposed logits, unequal",
    mlp,
    _unequal,
    lambda m, x, y: F.cross_entropy(m(x).transpose(1, 2), y),
    "refused",
)
row(
    "token sum, unequal",
    mlp,
    _unequal,
    lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten(), reduction="sum"),
    reduction="sum",
)


def _by_mask(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    mask = (y >= 0).to(x.dtype)
    losses = F.cross_entropy(model(x).transpose(1, 2), y.clamp(min=0), reduction="none")
    return (losses * mask).sum() / mask.sum()


def _by_own_mask(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    mask = (y >= 0).to(x.dtype)
    losses = F.cross_entropy(model(x).transpose(1, 2), y.clamp(min=0), reduction="none")
    return (losses * mask).sum(dim=1) / mask.sum(dim=1)


row("divided by mask.sum()", mlp, _unequal, _by_mask, "refused")
row(
    "divided by mask.sum(), a number in python",
    mlp,
    _unequal,
    lambda m, x, y: F.cross_entropy(m(x).transpose(1, 2), y, reduction="none").sum() / int((y >= 0).sum()),
    "refused",
)
row("divided by each example's mask", mlp, _unequal, _by_own_mask)
row(
    "selected by a mask, then the mean",
    mlp,
    _unequal,
    lambda m, x, y: F.cross_entropy(m(x)[y >= 0], y[y >= 0]),
    "refused",
)


def _binary() -> Batch:
    return torch.randn(N, 6), torch.randint(0, 2, (N, 3)).double()


row(
    "binary cross entropy with pos_weight, mean",
    mlp,
    _binary,
    lambda m, x, y: F.binary_cross_entropy_with_logits(m(x), y, pos_weight=_WEIGHTS),
    "either",
)
row(
    "binary cross entropy with pos_weight, per example",
    mlp,
    _binary,
    lambda m, x, y: F.binary_cross_entropy_with_logits(m(x), y, pos_weight=_WEIGHTS, reduction="none").mean(
        1
    ),
)
row("squared error, mean", mlp, _binary, lambda m, x, y: F.mse_loss(m(x), y), "either")
row(
    "squared error over the mean of the targets",
    mlp,
    _binary,
    lambda m, x, y: F.mse_loss(m(x), y - y.mean(0)),
    "rehearsed",
)
row("squared error, root of the mean", mlp, _binary, lambda m, x, y: F.mse_loss(m(x), y).sqrt(), "refused")
row(
    "mean of the largest losses (hard examples)",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y, reduction="none").topk(min(3, len(x))).values.mean(),
    "refused",
)
row(
    "largest loss",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y, reduction="none").max(),
    "refused",
)
row(
    "median loss",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y, reduction="none").median(),
    "refused",
)
row("log of the mean", mlp, labelled(6), lambda m, x, y: F.cross_entropy(m(x), y).log(), "refused")
row("mean of the cube of a mean", mlp, labelled(6), lambda m, x, y: F.cross_entropy(m(x), y) ** 3, "refused")
row(
    "loss weighted by batch softmax",
    mlp,
    labelled(6),
    lambda m, x, y: (
        (losses := F.cross_entropy(m(x), y, reduction="none")) * losses.detach().softmax(0)
    ).sum(),
    "rehearsed",
    reduction="sum",
)
row("loss times a constant", mlp, labelled(6), lambda m, x, y: 3.0 * F.cross_entropy(m(x), y))
row(
    "loss of the mean, told as a sum",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y),
    "refused",
    reduction="sum",
)
row(
    "loss of the sum, told as a mean",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y, reduction="sum"),
    "refused",
)
row(
    "mean plus weight decay in the loss",
    mlp,
    labelled(6),
    lambda m, x, y: F.cross_entropy(m(x), y) + 0.01 * sum(p.square().sum() for p in m.parameters()),
    "either",
)
row(
    "per-example losses plus weight decay",
    mlp,
    labelled(6),
    lambda m, x, y: (
        F.cross_entropy(m(x), y, reduction="none") + 0.01 * sum(p.square().sum() for p in m.parameters())
    ),
    "either",
)


def _info_nce(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    a, b = F.normalize(model(x), dim=1), F.normalize(model(x + 0.1), dim=1)
    return F.cross_entropy(a @ b.t() / 0.1, torch.arange(len(x)))


def _info_nce_each(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    a, b = F.normalize(model(x), dim=1), F.normalize(model(x + 0.1), dim=1)
    return F.cross_entropy(a @ b.t() / 0.1, torch.arange(len(x)), reduction="none")


row("contrastive loss", mlp, labelled(6), _info_nce, "refused")
row("contrastive loss, one per example", mlp, labelled(6), _info_nce_each, "refused")
row(
    "pairwise ranking loss",
    mlp,
    labelled(6),
    lambda m, x, y: F.softplus((s := m(x)[:, 0])[:, None] - s[None]).mean(),
    "refused",
)
row(
    "triplet with the next example",
    mlp,
    labelled(6),
    lambda m, x, y: F.triplet_margin_loss(z := m(x), z + 0.1, z.roll(1, 0).detach(), reduction="none"),
    "rehearsed",
)
row(
    "correlation of the batch",
    mlp,
    labelled(6),
    lambda m, x, y: -((z := m(x)[:, 0]) - z.mean()).mul(y - y.double().mean()).mean() + m(x).square().mean(),
    "refused",
)


def _mixup(net: Net, x: Tensor) -> Tensor:
    order = torch.randperm(len(x))
    return net.layer(0.7 * x + 0.3 * x[order])


def _mixup_hidden(net: Net, x: Tensor) -> Tensor:
    y = torch.tanh(net.first(x))
    return net.layer(0.7 * y + 0.3 * y[torch.randperm(len(y))])


row("mixup inside forward", lambda: Net(_mixup, layer=mlp()), floats(6), expected="refused")
row(
    "manifold mixup inside forward",
    lambda: Net(_mixup_hidden, first=nn.Linear(6, 6), layer=mlp()),
    floats(6),
    expected="refused",
)
row(
    "mixup with the reversed batch",
    lambda: Net(lambda net, x: net.layer(0.7 * x + 0.3 * x.flip(0)), layer=mlp()),
    floats(6),
    expected="refused",
)
