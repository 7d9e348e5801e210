# SPDX-License-Identifier: Apache-2.0
"""Operations in place on what layers give."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from training.whole_models import parts
from training.whole_models.harness import Batch, Case
from training.whole_models.parts import Net, floats, frozen, tokens

CASES: list[Case] = []
row = partial(parts.row, CASES)


def _relu_(y: Tensor) -> Tensor:
    return F.relu_(y)


def _add_(y: Tensor) -> Tensor:
    y += 0.3
    return y


def _mul_(y: Tensor) -> Tensor:
    return y.mul_(1.7)


def _own_mul_(y: Tensor) -> Tensor:
    return y.mul_(torch.linspace(0.5, 2.0, y.shape[-1], dtype=y.dtype))


def _slice_(y: Tensor) -> Tensor:
    y[..., 0] = 0.0
    return y


def _slice_scale_(y: Tensor) -> Tensor:
    y[..., 1:] *= 0.5
    return y


def _slice_from_(y: Tensor) -> Tensor:
    y[..., 0] = y[..., 1] * 2.0
    return y


def _masked_(y: Tensor) -> Tensor:
    return y.masked_fill_(y > 0.5, 0.1)


def _clamp_(y: Tensor) -> Tensor:
    return y.clamp_(-0.5, 0.5)


def _sigmoid_(y: Tensor) -> Tensor:
    return y.sigmoid_()


def _view_(y: Tensor) -> Tensor:
    y.transpose(0, 1).mul_(1.5)
    return y


def _chunk_(y: Tensor) -> Tensor:
    first, second = y.chunk(2, dim=-1)
    return torch.cat([first * second, second], dim=-1)


def _chunk_changed_(y: Tensor) -> Tensor:
    y.narrow(-1, 0, 2).mul_(3.0)
    return y


def _dropout_(y: Tensor) -> Tensor:
    return F.dropout(y, 0.4, training=True, inplace=True)


def _copy_(y: Tensor) -> Tensor:
    y[:, :1].copy_(y[:, 1:2])
    return y


def _exp_after_use(y: Tensor) -> Tensor:
    z = y * y.detach().sign()
    return z.add_(y)


_CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu_": _relu_,
    "+= 0.3": _add_,
    "mul_": _mul_,
    "mul_ by a vector": _own_mul_,
    "slice = 0": _slice_,
    "slice *= 0.5": _slice_scale_,
    "slice = other slice": _slice_from_,
    "masked_fill_": _masked_,
    "clamp_": _clamp_,
    "sigmoid_": _sigmoid_,
    "mul_ through a view": _view_,
    "chunk then multiply": _chunk_,
    "mul_ of a narrow": _chunk_changed_,
    "dropout in place": _dropout_,
    "row copied": _copy_,
    "used, then added in place": _exp_after_use,
}


def _changed(layer: Callable[[], nn.Module], change: Callable[[Tensor], Tensor], width: int) -> nn.Module:
    def run(net: Net, x: Tensor) -> Tensor:
        y = net.layer(x)
        y = y[0] if isinstance(y, tuple) else y
        return net.last(change(y))

    return Net(run, layer=layer(), last=nn.Linear(width, 3))


class _SelfAttention(nn.MultiheadAttention):
    """Calls nn.MultiheadAttention on one input."""

    def __init__(self) -> None:
        super().__init__(4, 2, batch_first=True)


def _attention_changed(change: Callable[[Tensor], Tensor]) -> nn.Module:
    def run(net: Net, x: Tensor) -> Tensor:
        return net.last(change(net.layer(x, x, x, need_weights=False)[0]))

    return Net(run, layer=nn.MultiheadAttention(4, 2, batch_first=True), last=nn.Linear(4, 3))


_LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], int]] = {
    "linear 2-d": (lambda: nn.Linear(6, 4), floats(6), 4),
    "linear 3-d": (lambda: nn.Linear(6, 4), floats(3, 6), 4),
    "linear 4-d": (lambda: nn.Linear(6, 4), floats(2, 3, 6), 4),
    "linear 3-d without bias": (lambda: nn.Linear(6, 4, bias=False), floats(3, 6), 4),
    "second linear 3-d": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4)), floats(3, 6), 4),
    "frozen linear 3-d": (lambda: frozen(nn.Linear(6, 4)), floats(3, 6), 4),
    "second linear 3-d, frozen": (
        lambda: nn.Sequential(nn.Linear(6, 6), frozen(nn.Linear(6, 4))),
        floats(3, 6),
        4,
    ),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3), floats(2, 6), 4),
    "second conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 3, 3)), floats(2, 6, 6), 4),
    "embedding": (lambda: nn.Embedding(7, 4), tokens(3), 4),
    "layer norm": (lambda: nn.LayerNorm(4), floats(3, 4), 4),
    "second layer norm": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), floats(3, 4), 4),
    "group norm": (lambda: nn.GroupNorm(2, 4), floats(4, 3, 4), 4),
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), floats(6, 3), 4),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), floats(6, 3), 4),
    "prelu": (lambda: nn.PReLU(), floats(3, 4), 4),
    "weight norm linear": (lambda: parametrizations.weight_norm(nn.Linear(6, 4)), floats(3, 6), 4),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        floats(3, 4),
        4,
    ),
}

for _name, (_layer, _batch, _width) in _LAYERS.items():
    for _words, _change in _CHANGES.items():
        row(f"{_words} on {_name}", partial(_changed, _layer, _change, _width), _batch)
for _words, _change in _CHANGES.items():
    row(f"{_words} on attention", partial(_attention_changed, _change), floats(3, 4))


def _inside_own(net: Net, x: Tensor) -> Tensor:
    y = net.layer(x)
    y += net.scale * x
    y[..., 0] *= 2.0
    return net.last(F.relu_(y))


row(
    "in place inside a module with parameters of its own",
    lambda: Net(_inside_own, layer=nn.Linear(6, 6), last=nn.Linear(6, 3), scale=nn.Parameter(torch.rand(6))),
    floats(3, 6),
)


def _residual_data(net: Net, x: Tensor) -> Tensor:
    x = torch.tanh(net.first(x))
    y = net.second(x)
    x.data.mul_(2.0)
    return y


row(
    "activation changed through .data after a layer read it",
    lambda: Net(_residual_data, first=nn.Linear(6, 6), second=nn.Linear(6, 6)),
    floats(6),
    expected="either",
)


def _residual_buffer(net: Net, x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], 4, 3, dtype=x.dtype)
    for k in range(4):
        out[:, k] = net.first(x[:, k])
    return net.second(out)


row(
    "outputs written into a preallocated tensor",
    lambda: Net(_residual_buffer, first=nn.Linear(6, 3), second=nn.Linear(3, 3)),
    floats(4, 6),
)
