# SPDX-License-Identifier: Apache-2.0
"""Parameters in unusual places, tied, shared, computed."""

from functools import partial

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from training.whole_models import parts
from training.whole_models.harness import Case
from training.whole_models.parts import N, Net, floats, frozen, mlp, scores, tokens

CASES: list[Case] = []
row = partial(parts.row, CASES)


def _tied(kind: str) -> nn.Module:
    net = Net(
        _tied_forward, embedding=nn.Embedding(7, 4), middle=nn.Linear(4, 4), last=nn.Linear(4, 7, bias=False)
    )
    if kind == "modules":
        net.last.weight = net.embedding.weight
    if kind == "matmul":
        net.run = lambda net, t: torch.tanh(net.middle(net.embedding(t))) @ net.embedding.weight.t()
    if kind == "F.linear":
        net.run = lambda net, t: F.linear(torch.tanh(net.middle(net.embedding(t))), net.embedding.weight)
    return net


def _tied_forward(net: Net, t: Tensor) -> Tensor:
    return net.last(torch.tanh(net.middle(net.embedding(t))))


for _kind in ("modules", "matmul", "F.linear"):
    row(
        f"weights tied by {_kind}",
        partial(_tied, _kind),
        tokens(4),
        expected="right" if _kind == "modules" else "either",
    )
row(
    "weight of a linear used transposed (autoencoder)",
    lambda: Net(
        lambda net, x: F.linear(torch.tanh(net.first(x)), net.first.weight.t()), first=nn.Linear(6, 4)
    ),
    floats(6),
    expected="either",
)
row(
    "weight of a frozen layer used outside it",
    lambda: Net(
        lambda net, x: F.linear(net.second(x), net.first.weight),
        first=frozen(nn.Linear(6, 4)),
        second=nn.Linear(6, 6),
    ),
    floats(6),
)
row(
    "weight in the loss only",
    mlp,
    floats(6),
    lambda m, x: scores(m(x)) + m[0].weight.square().sum(),
    "either",
)
row(
    "weight used detached",
    lambda: Net(lambda net, x: net.first(x) @ net.first.weight.detach(), first=nn.Linear(6, 4)),
    floats(6),
)
row(
    "a bias added by hand",
    lambda: Net(lambda net, x: net.first(x) + net.second.bias, first=nn.Linear(6, 3), second=nn.Linear(6, 3)),
    floats(6),
    expected="either",
)
row(
    "a parameter at the root of the model",
    lambda: Net(lambda net, x: net.layer(x) * net.scale, layer=mlp(), scale=nn.Parameter(torch.rand(3))),
    floats(6),
)
row(
    "a parameter in a list at the root",
    lambda: Net(
        lambda net, x: net.layer(x) * net.scales[0] + net.scales[1],
        layer=mlp(),
        scales=nn.ParameterList([torch.rand(3), torch.rand(3)]),
    ),
    floats(6),
)
row(
    "a parameter in a dict at the root",
    lambda: Net(
        lambda net, x: net.layer(x) * net.scales["a"],
        layer=mlp(),
        scales=nn.ParameterDict({"a": torch.rand(3)}),
    ),
    floats(6),
)
row(
    "a module of parameters that is never called",
    lambda: Net(
        lambda net, x: net.layer(x) * net.holder.scale,
        layer=mlp(),
        holder=Net(lambda net: None, scale=nn.Parameter(torch.rand(3))),
    ),
    floats(6),
    expected="either",
)
row(
    "a module that gives its parameter without input",
    lambda: Net(
        lambda net, x: net.layer(x) * net.holder(),
        layer=mlp(),
        holder=Net(lambda net: net.scale, scale=nn.Parameter(torch.rand(3))),
    ),
    floats(6),
    expected="either",
)
row(
    "linear called on a parameter (hypernetwork)",
    lambda: Net(
        lambda net, x: x @ net.hyper(net.code).view(6, 3),
        hyper=nn.Linear(4, 18),
        code=nn.Parameter(torch.rand(4)),
    ),
    floats(6),
    expected="either",
)
row(
    "weights of each example made by a network",
    lambda: Net(
        lambda net, x: torch.bmm(x[:, None], net.hyper(x).view(-1, 6, 3))[:, 0], hyper=nn.Linear(6, 18)
    ),
    floats(6),
)
row(
    "a method other than forward",
    lambda: Net(lambda net, x: net.inner.encode(x), inner=_Encoder()),
    floats(6),
    expected="either",
)
row(
    "two modules share one submodule",
    lambda: Net(
        lambda net, x: net.b(net.a(x)),
        **(lambda s: {"a": nn.Sequential(s, nn.Tanh()), "b": nn.Sequential(s)})(nn.Linear(6, 6)),
    ),
    floats(6),
)
row("one bias shared by two layers", lambda: _shared_bias(), floats(6))
row(
    "one module called on two sizes of input",
    lambda: Net(lambda net, x: net.layer(x).sum(1) + net.layer(x[:, 0]), layer=nn.Linear(6, 4)),
    floats(3, 6),
)
row(
    "embedding called on tokens and on positions",
    lambda: Net(lambda net, t: net.e(t) + net.e(torch.arange(4)), e=nn.Embedding(7, 4)),
    tokens(4),
    expected="either",
)
row(
    "positions expanded over the batch",
    lambda: Net(
        lambda net, t: net.e(t) + net.p(torch.arange(4).expand(len(t), 4)),
        e=nn.Embedding(7, 4),
        p=nn.Embedding(4, 4),
    ),
    tokens(4),
)
row(
    "positions shared by the batch, one row",
    lambda: Net(
        lambda net, t: net.e(t) + net.p(torch.arange(4)[None]), e=nn.Embedding(7, 4), p=nn.Embedding(4, 4)
    ),
    tokens(4),
)
row(
    "positions shared by the batch, no row",
    lambda: Net(lambda net, t: net.e(t) + net.p(torch.arange(4)), e=nn.Embedding(7, 4), p=nn.Embedding(4, 4)),
    tokens(4),
    expected="either",
)
row(
    "positions shared, as many as examples",
    lambda: Net(lambda net, t: net.e(t) + net.p(torch.arange(5)), e=nn.Embedding(7, 4), p=nn.Embedding(5, 4)),
    tokens(5),
    expected="either",
)
row(
    "positions from the input of the model",
    lambda: Net(lambda net, t, p: net.e(t) + net.p(p), e=nn.Embedding(7, 4), p=nn.Embedding(4, 4)),
    lambda: (torch.randint(0, 7, (N, 4)), torch.arange(4)),
    expected="either",
)
row(
    "shared positions through a linear",
    lambda: Net(
        lambda net, t: net.e(t) + net.l(net.p(torch.arange(4)[None])),
        e=nn.Embedding(7, 4),
        p=nn.Embedding(4, 4),
        l=nn.Linear(4, 4),
    ),
    tokens(4),
    expected="either",
)
row(
    "relative positions (bias table) in attention",
    lambda: Net(_relative, qkv=nn.Linear(6, 12), table=nn.Embedding(5, 1)),
    floats(3, 6),
    expected="either",
)
row(
    "relative positions by a parameter table",
    lambda: Net(_relative_parameter, qkv=nn.Linear(6, 12), table=nn.Parameter(torch.randn(7))),
    floats(3, 6),
)
row(
    "class token",
    lambda: nn.Sequential(
        nn.Linear(6, 4),
        Net(
            lambda net, x: torch.cat([net.token.expand(len(x), -1, -1), x], 1),
            token=nn.Parameter(torch.rand(1, 1, 4)),
        ),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True),
    ),
    floats(3, 6),
)
row(
    "learned queries",
    lambda: Net(
        lambda net, x: net.a(net.q.expand(len(x), -1, -1), x, x)[0],
        a=nn.MultiheadAttention(6, 2, batch_first=True),
        q=nn.Parameter(torch.rand(1, 2, 6)),
    ),
    floats(3, 6),
)
row(
    "batch size read inside a parameter module",
    lambda: Net(
        lambda net, x: net.layer(x) * net.scale / len(x), layer=mlp(), scale=nn.Parameter(torch.rand(3))
    ),
    floats(6),
    expected="refused",
)
row(
    "batch size read between layers",
    lambda: Net(lambda net, x: net.b(torch.tanh(net.a(x)) / len(x)), a=nn.Linear(6, 4), b=nn.Linear(4, 3)),
    floats(6),
    expected="refused",
)


def _shared_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    model[2].bias = model[0].bias
    return model


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.rand(6)), nn.Linear(6, 6)

    def encode(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x) * self.scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.encode(x)


def _relative(net: Net, x: Tensor) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    places = torch.arange(x.shape[1])
    bias = net.table(places[:, None] - places[None] + x.shape[1] - 1)[..., 0]
    return (q @ k.transpose(1, 2) + bias).softmax(-1) @ v


def _relative_parameter(net: Net, x: Tensor) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    places = torch.arange(x.shape[1])
    return (q @ k.transpose(1, 2) + net.table[places[:, None] - places[None] + x.shape[1]]).softmax(-1) @ v


def _old_weight_norm(layer: nn.Module) -> nn.Module:
    return nn.utils.weight_norm(layer)


class _Symmetric(nn.Module):
    def forward(self, w: Tensor) -> Tensor:
        return w.triu() + w.triu(1).t()


def _parametrised() -> nn.Module:
    layer = nn.Linear(6, 6)
    parametrize.register_parametrization(layer, "weight", _Symmetric())
    return layer


row(
    "weight norm",
    lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
)
row(
    "weight norm, old style",
    lambda: nn.Sequential(_old_weight_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
    expected="either",
)
row("weight norm of a convolution", lambda: parametrizations.weight_norm(nn.Conv1d(2, 3, 3)), floats(2, 6))
row(
    "spectral norm",
    lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
    expected="either",
)
row(
    "spectral norm, old style",
    lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
    expected="either",
)
row("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(6, 4)), floats(6))
row("symmetric weight", lambda: nn.Sequential(_parametrised(), nn.Tanh(), nn.Linear(6, 3)), floats(6))
row("symmetric weight, cached", lambda: Net(_cached, inner=_parametrised()), floats(6), expected="either")
row(
    "parametrised lstm",
    lambda: Net(
        lambda net, x: net.rnn(x)[0],
        rnn=parametrizations.weight_norm(nn.LSTM(3, 4, batch_first=True), "weight_hh_l0"),
    ),
    floats(6, 3),
    expected="either",
)
row(
    "standardised weights",
    lambda: nn.Sequential(_Standardised(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()),
    floats(2, 6, 6),
)


def _cached(net: Net, x: Tensor) -> Tensor:
    with parametrize.cached():
        return net.inner(torch.tanh(net.inner(x)))


class _Standardised(nn.Conv2d):
    """A convolution whose weights have mean 0 and deviation 1."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, w, self.bias)
