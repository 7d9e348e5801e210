# SPDX-License-Identifier: Apache-2.0
"""Scalars, zero gates, rows shared by the batch, layers with a forward of their own."""

from functools import partial

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models import parts
from training.whole_models.harness import Case
from training.whole_models.parts import Net, floats, mlp, tokens

CASES: list[Case] = []
row = partial(parts.row, CASES)


row(
    "a scalar parameter",
    lambda: nn.Sequential(
        nn.Linear(6, 6),
        Net(lambda net, x: x * net.gain, gain=nn.Parameter(torch.tensor(0.3))),
        nn.Linear(6, 3),
    ),
    floats(6),
)
row(
    "a scalar parameter at the root (temperature)",
    lambda: Net(lambda net, x: net.inner(x) * net.t.exp(), inner=mlp(), t=nn.Parameter(torch.tensor(0.3))),
    floats(6),
)
row(
    "a parameter of no elements",
    lambda: Net(lambda net, x: net.inner(x), inner=mlp(), none=nn.Parameter(torch.zeros(0, 3))),
    floats(6),
)
row(
    "layer scale after stochastic depth, tiny",
    lambda: nn.Sequential(
        nn.Linear(6, 6),
        Net(
            lambda net, x: (
                x
                + (torch.empty(len(x), 1, dtype=x.dtype).bernoulli_(0.5) * net.scale)
                * torch.tanh(net.layer(x))
            ),
            layer=nn.Linear(6, 6),
            scale=nn.Parameter(torch.full((6,), 1e-9)),
        ),
        mlp(),
    ),
    floats(6),
)
row(
    "dropout before a zero head",
    lambda: Net(
        lambda net, x: F.dropout(net.a(x), 0.5) @ net.w, a=nn.Linear(6, 6), w=nn.Parameter(torch.zeros(6, 3))
    ),
    floats(6),
)
row(
    "dropout whose effect the output hides",
    lambda: nn.Sequential(
        nn.Linear(6, 6),
        Net(lambda net, x: F.dropout(x * net.w, 0.5) * 1e-7 + x.detach(), w=nn.Parameter(torch.rand(6))),
        nn.Linear(6, 3),
    ),
    floats(6),
)
row(
    "mixing whose effect the output hides",
    lambda: nn.Sequential(
        nn.Linear(6, 6),
        Net(
            lambda net, x: (x * net.w - (x * net.w).mean(0)) * 1e-7 + x.detach(),
            w=nn.Parameter(torch.rand(6)),
        ),
        nn.Linear(6, 3),
    ),
    floats(6),
    expected="either",
)
row(
    "mixing beside a zero gate",
    lambda: Net(
        lambda net, x: (net.a(x) - net.a(x).mean(0)) * net.gate,
        a=nn.Linear(6, 6),
        gate=nn.Parameter(torch.zeros(6)),
    ),
    floats(6),
    expected="either",
)
row(
    "mixing between layers beside a zero head",
    lambda: _zero_head(
        Net(lambda net, x: net.head((y := net.a(x)) - y.mean(0)), a=nn.Linear(6, 6), head=nn.Linear(6, 3))
    ),
    floats(6),
    expected="refused",
)
row(
    "one row of positions repeated over the batch",
    lambda: Net(
        lambda net, t: net.e(t) + net.p(torch.arange(4)[None]).repeat(len(t), 1, 1),
        e=nn.Embedding(7, 4),
        p=nn.Embedding(4, 4),
    ),
    tokens(4),
    expected="crashes",
)
row(
    "one row of positions squeezed",
    lambda: Net(
        lambda net, t: net.e(t) + net.p(torch.arange(4)[None]).squeeze(0),
        e=nn.Embedding(7, 4),
        p=nn.Embedding(4, 4),
    ),
    tokens(4),
    expected="either",
)
row(
    "one row of positions read by its first row",
    lambda: Net(
        lambda net, t: net.e(t) + net.p(torch.arange(4)[None])[0], e=nn.Embedding(7, 4), p=nn.Embedding(4, 4)
    ),
    tokens(4),
    expected="either",
)
row(
    "one row of positions whose length is read",
    lambda: Net(
        lambda net, t: net.e(t) / len(net.p(torch.arange(4)[None])) + net.p.weight.detach(),
        e=nn.Embedding(7, 4),
        p=nn.Embedding(4, 4),
    ),
    tokens(4),
    expected="either",
)
row(
    "a class embedding shared by the batch",
    lambda: Net(
        lambda net, x: net.inner(x) + net.c(torch.zeros(1, dtype=torch.long)),
        inner=mlp(),
        c=nn.Embedding(2, 3),
    ),
    floats(6),
    expected="either",
)
row(
    "linear on a shared row",
    lambda: Net(
        lambda net, x: net.inner(x) + net.l(torch.ones(1, 4, dtype=x.dtype)), inner=mlp(), l=nn.Linear(4, 3)
    ),
    floats(6),
    expected="either",
)
row(
    "layer norm of a shared row",
    lambda: Net(
        lambda net, x: net.inner(x) + net.l(torch.arange(3, dtype=x.dtype)[None]),
        inner=mlp(),
        l=nn.LayerNorm(3),
    ),
    floats(6),
    expected="either",
)
row(
    "convolution of a shared map",
    lambda: Net(
        lambda net, x: net.c(x) + net.d(torch.ones(1, 2, 6, dtype=x.dtype)),
        c=nn.Conv1d(2, 3, 3),
        d=nn.Conv1d(2, 3, 3),
    ),
    floats(2, 6),
    expected="either",
)
row(
    "embedding with a forward of its own",
    lambda: nn.Sequential(_ScaledEmbedding(7, 4), nn.Linear(4, 3)),
    tokens(4),
)
row(
    "linear with a forward of its own",
    lambda: nn.Sequential(_Halved(6, 4), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
)
row(
    "lstm with a forward of its own",
    lambda: nn.Sequential(_Last(3, 4, batch_first=True), nn.Linear(4, 3)),
    floats(6, 3),
    expected="either",
)
row(
    "layer norm with a forward of its own",
    lambda: nn.Sequential(nn.Linear(6, 6), _Channels(6), nn.Linear(6, 3)),
    floats(6),
)
row("one parameter under two names in a module of its own", lambda: _two_names(), floats(6))
row("a bias under two names, one in a layer", lambda: _two_biases(), floats(6))


def _zero_head(net: nn.Module) -> nn.Module:
    nn.init.zeros_(net.head.weight)
    return net


class _ScaledEmbedding(nn.Embedding):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * 2.0


class _Halved(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * 0.5, self.bias)


class _Last(nn.LSTM):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)[0][:, -1]


class _Channels(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).to(x.dtype) if x.dtype == torch.float16 else super().forward(x)


def _two_names() -> nn.Module:
    net = Net(
        lambda net, x: net.layer(x) * net.a + net.b, layer=nn.Linear(6, 3), a=nn.Parameter(torch.rand(3))
    )
    net.b = net.a
    return net


def _two_biases() -> nn.Module:
    net = Net(
        lambda net, x: net.layer(x) * (1.0 + net.bias),
        layer=nn.Linear(6, 3),
        bias=nn.Parameter(torch.rand(3)),
    )
    net.layer.bias = net.bias
    return net
