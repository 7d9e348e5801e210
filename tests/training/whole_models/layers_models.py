# SPDX-License-Identifier: Apache-2.0
"""Layers without a rule of their own, or with unusual settings."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models import parts
from training.whole_models.harness import Case
from training.whole_models.parts import N, Net, floats, frozen, mlp, scores, tokens

CASES: list[Case] = []
row = partial(parts.row, CASES)


row("sparse embedding", lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 3)), tokens(4))
row(
    "embedding with scale_grad_by_freq",
    lambda: nn.Sequential(nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Linear(4, 3)),
    tokens(4),
    expected="either",
)
row(
    "frozen embedding with max_norm",
    lambda: nn.Sequential(frozen(nn.Embedding(7, 4, max_norm=1.0)), nn.Linear(4, 3)),
    tokens(4),
    expected="either",
)
row(
    "embedding with padding_idx",
    lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Linear(4, 3)),
    tokens(4),
)
row(
    "embedding bag, sum", lambda: nn.Sequential(nn.EmbeddingBag(7, 4, mode="sum"), nn.Linear(4, 3)), tokens(4)
)
row(
    "embedding bag, max", lambda: nn.Sequential(nn.EmbeddingBag(7, 4, mode="max"), nn.Linear(4, 3)), tokens(4)
)
row(
    "embedding bag, sparse",
    lambda: nn.Sequential(nn.EmbeddingBag(7, 4, sparse=True), nn.Linear(4, 3)),
    tokens(4),
    expected="either",
)
row(
    "embedding bag with scale_grad_by_freq",
    lambda: nn.Sequential(nn.EmbeddingBag(7, 4, scale_grad_by_freq=True), nn.Linear(4, 3)),
    tokens(4),
    expected="either",
)
row(
    "embedding bag with offsets",
    lambda: Net(
        lambda net, t: net.last(net.bag(t.flatten(), torch.arange(0, t.numel(), 4))),
        bag=nn.EmbeddingBag(7, 4),
        last=nn.Linear(4, 3),
    ),
    tokens(4),
    expected="either",
)
row(
    "embedding bag with per-sample weights",
    lambda: Net(
        lambda net, t: net.last(net.bag(t, per_sample_weights=net.w(t)[..., 0])),
        bag=nn.EmbeddingBag(7, 4, mode="sum"),
        w=nn.Embedding(7, 1),
        last=nn.Linear(4, 3),
    ),
    tokens(4),
    expected="either",
)
row(
    "F.embedding with scale_grad_by_freq",
    lambda: nn.Sequential(
        Net(lambda net, t: F.embedding(t, net.w, scale_grad_by_freq=True), w=nn.Parameter(torch.randn(7, 4))),
        nn.Linear(4, 3),
    ),
    tokens(4),
    expected="either",
)
row(
    "bilinear",
    lambda: Net(lambda net, x: net.b(x, torch.tanh(net.a(x))), a=nn.Linear(6, 4), b=nn.Bilinear(6, 4, 3)),
    floats(6),
)
row("prelu", lambda: mlp(middle=nn.PReLU()), floats(6))
row(
    "transposed convolution",
    lambda: nn.Sequential(
        nn.ConvTranspose2d(2, 3, 2, stride=2), nn.ReLU(inplace=True), nn.ConvTranspose2d(3, 2, 3)
    ),
    floats(2, 3, 3),
)
row(
    "depthwise convolution",
    lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.SiLU(inplace=True), nn.Conv2d(4, 3, 1)),
    floats(4, 6, 6),
)
row(
    "channels last",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 3, 2)).to(
        memory_format=torch.channels_last
    ),
    lambda: (torch.randn(N, 2, 6, 6).to(memory_format=torch.channels_last),),
)
row(
    "unbatched convolution, channels taken for examples",
    lambda: nn.Conv2d(5, 3, 3),
    floats(6, 6),
    expected="refused",
    loss=lambda m, x: scores(
        m(x if len(x) == 5 else x.expand(5, -1, -1)).sum((0,))[None].expand(len(x), -1, -1)
    ),
)
row(
    "adaptive pooling, flatten, softmax",
    lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Softmax(1), nn.Linear(4, 3)
    ),
    floats(2, 6, 6),
)
row(
    "local response norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.LocalResponseNorm(2), nn.Conv2d(4, 3, 1)),
    floats(2, 6, 6),
)
row(
    "nn.Transformer with dropout",
    lambda: Net(
        lambda net, x: net.t(x, x[:, :2]), t=nn.Transformer(4, 2, 1, 1, 8, dropout=0.2, batch_first=True)
    ),
    floats(3, 4),
)
row(
    "transformer encoder with dropout and padding",
    lambda: Net(
        lambda net, x: net.t(x, src_key_padding_mask=x[..., 0] > 1.0),
        t=nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True), 2),
    ),
    floats(3, 4),
    loss=lambda m, x: scores(torch.nan_to_num(m(_visible(x)))),
)
row(
    "transformer decoder layer with dropout",
    lambda: Net(
        lambda net, x: net.t(x, x.flip(1)),
        t=nn.TransformerDecoderLayer(4, 2, 8, dropout=0.2, batch_first=True),
    ),
    floats(3, 4),
)
row(
    "lazy linear, not yet shaped",
    lambda: nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
    expected="refused",
    plain=mlp,
)
row(
    "lazy linear after a first batch",
    lambda: _shaped(nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 3))),
    floats(6),
)
row(
    "instance norm",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True)),
    floats(2, 6, 6),
)
row(
    "batch norm",
    lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)),
    floats(6),
    expected="refused",
    plain=mlp,
)
row(
    "multi-head attention of another width",
    lambda: Net(
        lambda net, x: net.a(x, x[..., :3], x[..., 1:3])[0],
        a=nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True),
    ),
    floats(3, 4),
)
row(
    "attention weights in the loss",
    lambda: Net(lambda net, x: net.a(x, x, x)[1], a=nn.MultiheadAttention(4, 2, batch_first=True)),
    floats(3, 4),
)
row(
    "adaptive softmax",
    lambda: Net(
        lambda net, x: net.head.log_prob(x.flatten(0, 0)),
        head=nn.AdaptiveLogSoftmaxWithLoss(6, 7, [3], div_value=1.0),
    ),
    floats(6),
    expected="either",
)
row("linear on one feature a row", lambda: nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), floats(1))
row(
    "linear on examples of no dimension",
    lambda: Net(lambda net, x: net.layer(x[:, None])[:, 0:1], layer=nn.Linear(1, 1)),
    floats(),
)
row(
    "complex activations",
    lambda: Net(lambda net, x: net.b(torch.fft.rfft(net.a(x)).abs()), a=nn.Linear(6, 6), b=nn.Linear(4, 3)),
    floats(6),
)
row(
    "complex parameters",
    lambda: Net(
        lambda net, x: torch.fft.irfft(torch.fft.rfft(net.a(x)) * torch.view_as_complex(net.w), n=6),
        a=nn.Linear(6, 6),
        w=nn.Parameter(torch.randn(4, 2)),
    ),
    floats(6),
)
row(
    "quantised straight through",
    lambda: Net(
        lambda net, x: net.b((y := net.a(x)) + (y.round() - y).detach()), a=nn.Linear(6, 6), b=nn.Linear(6, 3)
    ),
    floats(6),
)
row(
    "custom autograd function",
    lambda: Net(lambda net, x: net.b(_Reversed.apply(net.a(x))), a=nn.Linear(6, 6), b=nn.Linear(6, 3)),
    floats(6),
)
row(
    "custom autograd function with a parameter",
    lambda: Net(
        lambda net, x: _Scaled.apply(net.a(x), net.w), a=nn.Linear(6, 6), w=nn.Parameter(torch.rand(6))
    ),
    floats(6),
)
row(
    "einsum with a parameter",
    lambda: Net(lambda net, x: torch.einsum("nti,io->nto", x, net.w), w=nn.Parameter(torch.randn(6, 3))),
    floats(4, 6),
)
row(
    "outputs in a namedtuple of torch",
    lambda: Net(
        lambda net, x: net.pool(x).values,
        pool=Net(lambda net, x: (x * net.w).max(dim=1), w=nn.Parameter(torch.rand(6))),
    ),
    floats(3, 6),
    expected="either",
)
row(
    "generator of activations (python side effects)",
    lambda: Net(_remembering, a=nn.Linear(6, 6), b=nn.Linear(6, 3)),
    floats(6),
)
row(
    "module list reversed",
    lambda: Net(
        lambda net, x: net.ls[0](torch.tanh(net.ls[1](x))),
        ls=nn.ModuleList([nn.Linear(4, 3), nn.Linear(6, 4)]),
    ),
    floats(6),
)
row(
    "keyword inputs only",
    lambda: Net(lambda net, *, x: net.inner(input=x), inner=nn.Linear(6, 3)),
    floats(6),
    lambda m, x: scores(m(x=x)),
)
row(
    "mapping as input",
    lambda: Net(lambda net, batch: net.inner(batch["x"]), inner=mlp()),
    lambda: ({"x": torch.randn(N, 6), "id": torch.arange(N)},),
)
row(
    "list of two inputs, first is shared",
    lambda: Net(lambda net, table, x: net.inner(x + table[:1]), inner=mlp()),
    lambda: (torch.randn(2, 6), torch.randn(N, 6)),
    expected="either",
)
row(
    "examples in the second input",
    lambda: Net(lambda net, table, x: net.inner(x + table.sum(0)), inner=mlp()),
    lambda: (torch.randn(3, 6), torch.randn(N, 6)),
    expected="either",
)
row(
    "sites of unequal row counts, folded windows",
    lambda: Net(
        lambda net, x: net.b(net.a(x.reshape(-1, 2, 6)).reshape(len(x), -1)),
        a=nn.Linear(6, 4),
        b=nn.Linear(16, 3),
    ),
    floats(4, 6),
    expected="either",
)
row(
    "time folded into the batch and back",
    lambda: Net(
        lambda net, x: net.b(torch.tanh(net.a(x.flatten(0, 1)))).unflatten(0, (len(x), 4)),
        a=nn.Linear(6, 4),
        b=nn.Linear(4, 3),
    ),
    floats(4, 6),
    expected="either",
)
row(
    "time folded for all layers, told through the input",
    lambda: Net(
        lambda net, x: (
            net.b(torch.tanh(net.a(x.transpose(0, 1).flatten(0, 1))))
            .unflatten(0, (4, len(x)))
            .transpose(0, 1)
        ),
        a=nn.Linear(6, 4),
        b=nn.Linear(4, 3),
    ),
    floats(4, 6),
    expected="either",
)
row(
    "single-example sized time in front",
    lambda: Net(
        lambda net, x: net.b(net.a(x.transpose(0, 1)).transpose(0, 1).tanh()),
        a=nn.Linear(6, 4),
        b=nn.Linear(4, 3),
    ),
    floats(5, 6),
    expected="refused",
)
row(
    "time in front, as long as the batch, layer called twice",
    lambda: Net(lambda net, x: net.a(net.a(x.transpose(0, 1)).tanh().transpose(0, 1)), a=nn.Linear(6, 6)),
    floats(5, 6),
    expected="either",
)
row(
    "NaN in one example",
    mlp,
    lambda: (torch.cat([torch.randn(4, 6), torch.full((1, 6), float("nan"))]),),
    expected="refused",
)
row(
    "infinite in one example",
    mlp,
    lambda: (torch.cat([torch.randn(4, 6), torch.full((1, 6), float("inf"))]),),
    expected="refused",
)
row(
    "NaN masked out of the loss by multiplication with zero",
    mlp,
    lambda: (torch.cat([torch.randn(4, 6), torch.full((1, 6), float("nan"))]),),
    lambda m, x: torch.where(x.isnan().any(1), 0.0, scores(m(x))),
    expected="either",
)
row(
    "gradient of an example exactly zero",
    mlp,
    lambda: (torch.randn(N, 6), torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])),
    lambda m, x, w: scores(m(x)) * w,
)
row(
    "gradients too large for their squares",
    mlp,
    lambda: (torch.randn(N, 6),),
    lambda m, x: 1e200 * scores(m(x)),
    expected="either",
)
row(
    "gradients too small for their squares",
    mlp,
    lambda: (torch.randn(N, 6),),
    lambda m, x: 1e-200 * scores(m(x)),
)
row(
    "gradients of very different sizes",
    mlp,
    lambda: (torch.randn(N, 6), 10.0 ** torch.arange(-100, 150, 50, dtype=torch.float64)),
    lambda m, x, w: w * scores(m(x)),
)
row("batch of one", mlp, lambda: (torch.randn(1, 6),), num_examples=1)
row(
    "in float32 inside a float64 model",
    lambda: Net(lambda net, x: net.b(net.a(x).float().tanh().double()), a=nn.Linear(6, 6), b=nn.Linear(6, 3)),
    floats(6),
    tolerance=1e-6,
)
row("parameters of two dtypes", lambda: _mixed_types(), floats(6), double=False, expected="either")


def _mixed_types() -> nn.Module:
    return Net(
        lambda net, x: net.b(net.a(x.double()).double()),
        a=nn.Linear(6, 6).double(),
        b=nn.Linear(6, 3).double(),
    )


def _visible(x: Tensor) -> Tensor:
    """At least one position of every example is unmasked."""
    x = x.clone()
    x[:, 0, 0] = 0.0
    return x


def _shaped(model: nn.Module) -> nn.Module:
    model(torch.randn(2, 6))
    return model


class _Reversed(torch.autograd.Function):
    """The identity, whose gradient is reversed (domain adaptation)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -0.5 * gradient


class _Scaled(torch.autograd.Function):
    """A product whose gradient by the weight is a sum over the batch, written by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return gradient * w, (gradient * x).flatten(0, -2).sum(0)


def _remembering(net: Net, x: Tensor) -> Tensor:
    net.seen = [net.a(x)]
    net.seen.append(torch.tanh(net.seen[-1]))
    return net.b(net.seen.pop() + net.seen.pop())
