# SPDX-License-Identifier: Apache-2.0
"""Small models with the habits of ordinary code: one row of the table each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from training.whole_models.harness import Batch, Case

N = 5
CASES: list[Case] = []


class Net(nn.Module):
    """Modules, parameters and buffers by name, and a function for the forward."""

    def __init__(self, run: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def scores(output: Tensor) -> Tensor:
    """A loss per example with curvature and uneven slopes."""
    flat = output.flatten(1)
    slopes = torch.linspace(-1.0, 2.0, flat.shape[1], dtype=flat.dtype)
    return (F.softplus(flat) * slopes).sum(dim=1) + flat.square().mean(dim=1)


def scored(model: nn.Module, *inputs: Any) -> Tensor:
    return scores(model(*inputs))


def row(
    name: str,
    model: Callable[[], nn.Module],
    batch: Callable[[], Batch],
    loss: Callable[..., Tensor] = scored,
    expected: str = "right",
    **more: Any,
) -> None:
    CASES.append(Case(name, model, batch, loss, expected, **more))


def floats(*shape: int) -> Callable[[], Batch]:
    return lambda: (torch.randn(N, *shape),)


def tokens(*shape: int, kinds: int = 7) -> Callable[[], Batch]:
    return lambda: (torch.randint(0, kinds, (N, *shape)),)


def labelled(*shape: int, classes: int = 3, label_shape: tuple[int, ...] = ()) -> Callable[[], Batch]:
    return lambda: (torch.randn(N, *shape), torch.randint(0, classes, (N, *label_shape)))


def mlp(width: int = 6, out: int = 3, middle: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), middle or nn.Tanh(), nn.Linear(8, out))


# In-place operations on what layers give.


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


def _frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)


_LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], int]] = {
    "linear 2-d": (lambda: nn.Linear(6, 4), floats(6), 4),
    "linear 3-d": (lambda: nn.Linear(6, 4), floats(3, 6), 4),
    "linear 4-d": (lambda: nn.Linear(6, 4), floats(2, 3, 6), 4),
    "linear 3-d without bias": (lambda: nn.Linear(6, 4, bias=False), floats(3, 6), 4),
    "second linear 3-d": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4)), floats(3, 6), 4),
    "frozen linear 3-d": (lambda: _frozen(nn.Linear(6, 4)), floats(3, 6), 4),
    "second linear 3-d, frozen": (
        lambda: nn.Sequential(nn.Linear(6, 6), _frozen(nn.Linear(6, 4))),
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


# Dropout in every position.

row("dropout between linears", lambda: mlp(middle=nn.Dropout(0.5)), floats(6))
row("dropout first", lambda: nn.Sequential(nn.Dropout(0.5), mlp()), floats(6))
row("dropout last", lambda: nn.Sequential(mlp(), nn.Dropout(0.5)), floats(6))
row(
    "dropout2d",
    lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.Dropout2d(0.5), nn.Conv2d(4, 3, 2)),
    floats(2, 6, 6),
)
row("alpha dropout", lambda: mlp(middle=nn.AlphaDropout(0.5)), floats(6))
row("feature alpha dropout", lambda: mlp(middle=nn.FeatureAlphaDropout(0.5)), floats(6))
row("rrelu", lambda: mlp(middle=nn.RReLU()), floats(6))
row(
    "lstm with dropout",
    lambda: Net(lambda net, x: net.rnn(x)[0], rnn=nn.LSTM(3, 4, 2, dropout=0.5, batch_first=True)),
    floats(6, 3),
)
row(
    "gru with dropout",
    lambda: Net(lambda net, x: net.rnn(x)[0], rnn=nn.GRU(3, 4, 2, dropout=0.5, batch_first=True)),
    floats(6, 3),
)
row(
    "gaussian noise on activations",
    lambda: Net(
        lambda net, x: net.second(torch.tanh(net.first(x)) + 0.3 * torch.randn(x.shape[0], 8, dtype=x.dtype)),
        first=nn.Linear(6, 8),
        second=nn.Linear(8, 3),
    ),
    floats(6),
)


def _own_dropout(place: str, net: Net, x: Tensor) -> Tensor:
    """Dropout in a module with a parameter of its own."""
    if place == "input":
        x = F.dropout(x, 0.4)
    y = net.layer(x) * net.scale
    if place == "middle":
        y = F.dropout(y, 0.4)
    if place == "parameter":
        y = net.layer(x) * F.dropout(net.scale.expand(x.shape[0], -1, -1), 0.4)
    if place == "shared":
        y = net.layer(x) * F.dropout(net.scale, 0.4)
    if place == "masked":
        mask = x[..., :1] > 0.7
        y = y.masked_fill(mask, float("-inf")).softmax(dim=-2)
        y = F.dropout(torch.nan_to_num(y), 0.4)
    if place == "gate":
        return F.dropout(y, 0.4) * net.gate
    if place == "gated input":
        return torch.tanh(F.dropout(x @ net.layer.weight.t(), 0.4)) * net.gate
    return torch.tanh(y)


for _place in ("input", "middle", "parameter", "shared", "masked", "gate", "gated input"):
    row(
        f"dropout beside a parameter: {_place}",
        partial(
            lambda place: Net(
                partial(_own_dropout, place),
                layer=nn.Linear(6, 4),
                scale=nn.Parameter(torch.rand(1, 1, 4) + 0.5),
                gate=nn.Parameter(torch.zeros(4)),
            ),
            _place,
        ),
        floats(3, 6),
    )
    row(
        f"dropout beside a parameter, deeper: {_place}",
        partial(
            lambda place: nn.Sequential(
                nn.Linear(6, 6),
                Net(
                    partial(_own_dropout, place),
                    layer=nn.Linear(6, 4),
                    scale=nn.Parameter(torch.rand(1, 1, 4) + 0.5),
                    gate=nn.Parameter(torch.zeros(4)),
                ),
                nn.Linear(4, 3),
            ),
            _place,
        ),
        floats(3, 6),
    )


def _causal_attention(net: Net, x: Tensor) -> Tensor:
    """Attention written by hand, with -inf masks and dropout on the weights."""
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    weights = q @ k.transpose(1, 2) / 2.0
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    weights = weights.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    weights = F.dropout(weights, 0.3)
    return net.out(weights @ v) * net.gate


def _attention(run: Callable[..., Tensor], gate: float) -> nn.Module:
    return Net(run, qkv=nn.Linear(6, 12), out=nn.Linear(4, 4), gate=nn.Parameter(torch.full((4,), gate)))


def _sdpa_attention(net: Net, x: Tensor) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.3 if net.training else 0.0)
    return net.out(y) * net.gate


def _attention_without_gate(net: Net, x: Tensor) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, dim=-1)
    return net.out(F.scaled_dot_product_attention(q, k, v, dropout_p=0.3 if net.training else 0.0))


row("causal attention with dropout and a gate", lambda: _attention(_causal_attention, 0.7), floats(3, 6))
row("causal attention with dropout and a zero gate", lambda: _attention(_causal_attention, 0.0), floats(3, 6))
row("sdpa with dropout and a gate", lambda: _attention(_sdpa_attention, 0.7), floats(3, 6))
row("sdpa with dropout and a zero gate", lambda: _attention(_sdpa_attention, 0.0), floats(3, 6))
row(
    "sdpa with dropout between layers",
    lambda: Net(_attention_without_gate, qkv=nn.Linear(6, 12), out=nn.Linear(4, 4)),
    floats(3, 6),
)
row(
    "multi-head attention with dropout",
    lambda: Net(
        lambda net, x: net.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
    ),
    floats(3, 4),
)
row(
    "multi-head attention with dropout, without weights",
    lambda: Net(
        lambda net, x: net.a(x, x, x, need_weights=False)[0],
        a=nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True),
    ),
    floats(3, 4),
)


def _drop_path(per_example: bool, net: Net, x: Tensor) -> Tensor:
    shape = (x.shape[0], 1) if per_example else (1, 1)
    keep = torch.empty(shape, dtype=x.dtype).bernoulli_(0.6)
    return x + keep * net.scale * torch.tanh(net.layer(x))


def _drop_net(per_example: bool) -> nn.Module:
    run = partial(_drop_path, per_example)
    blocks = [Net(run, layer=nn.Linear(6, 6), scale=nn.Parameter(torch.full((6,), 1e-6))) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Linear(6, 3))


row("stochastic depth per example with layer scale", lambda: _drop_net(True), floats(6))
row("stochastic depth per batch with layer scale", lambda: _drop_net(False), floats(6))


def _coin(net: Net, x: Tensor) -> Tensor:
    """One coin for the batch decides which branch runs (layer drop)."""
    for layer in net.layers:
        if torch.rand([]) < 0.5:
            continue
        x = torch.tanh(layer(x))
    return net.last(x)


row(
    "layers left out by a coin",
    lambda: Net(_coin, layers=nn.ModuleList([nn.Linear(6, 6) for _ in range(4)]), last=nn.Linear(6, 3)),
    floats(6),
)
row(
    "gumbel softmax",
    lambda: Net(
        lambda net, x: net.last(F.gumbel_softmax(net.first(x), tau=0.7)),
        first=nn.Linear(6, 4),
        last=nn.Linear(4, 3),
    ),
    floats(6),
)


def _variational(net: Net, x: Tensor) -> Tensor:
    mean, log_std = net.encoder(x).chunk(2, dim=-1)
    return net.decoder(mean + torch.randn_like(mean) * log_std.exp())


row(
    "reparametrised sample of a variational autoencoder",
    lambda: Net(_variational, encoder=nn.Linear(6, 8), decoder=nn.Linear(4, 6)),
    floats(6),
)


def _weight_drop(net: Net, x: Tensor) -> Tensor:
    return F.linear(x, F.dropout(net.weight, 0.4))


row(
    "dropout of weights, one mask for the batch",
    lambda: nn.Sequential(nn.Linear(6, 6), Net(_weight_drop, weight=nn.Parameter(torch.randn(3, 6)))),
    floats(6),
    expected="either",
)


# Several outputs, several calls, structures.


class Pair(nn.Module):
    """A parameter of its own, and two outputs of which one depends on the other."""

    def __init__(self, changed: bool = False) -> None:
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.rand(6)), nn.Linear(6, 6)
        self.changed = changed

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.tanh(self.layer(x) * self.scale)
        second = first * self.scale
        if self.changed:
            second = second.mul_(2.0)
        return first, second


def _pair_sum(net: Net, x: Tensor) -> Tensor:
    first, second = net.pair(net.before(x))
    return net.last(first + second.square())


row(
    "own parameters and two dependent outputs",
    lambda: Net(_pair_sum, before=nn.Linear(6, 6), pair=Pair(), last=nn.Linear(6, 3)),
    floats(6),
)
row(
    "own parameters and two dependent outputs, one changed in place",
    lambda: Net(_pair_sum, before=nn.Linear(6, 6), pair=Pair(changed=True), last=nn.Linear(6, 3)),
    floats(6),
)


def _same_twice(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    y = net.layer(x) * net.scale
    return y, y


def _aliases(net: Net, x: Tensor) -> Tensor:
    first, second = net.pair(net.before(x))
    return net.last(first + 2.0 * second)


row(
    "own parameters and one tensor returned twice",
    lambda: Net(
        _aliases,
        before=nn.Linear(6, 6),
        pair=Net(_same_twice, layer=nn.Linear(6, 6), scale=nn.Parameter(torch.rand(6))),
        last=nn.Linear(6, 3),
    ),
    floats(6),
)


def _views_of_one(net: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    y = net.layer(x) * net.scale
    return y[:, :3], y[:, 3:]


def _views_used(net: Net, x: Tensor) -> Tensor:
    first, second = net.pair(x)
    first.mul_(2.0)
    return net.last(first + second)


row(
    "own parameters and two views of one tensor, one changed in place by the caller",
    lambda: Net(
        _views_used,
        pair=Net(_views_of_one, layer=nn.Linear(6, 6), scale=nn.Parameter(torch.rand(6))),
        last=nn.Linear(3, 3),
    ),
    floats(6),
    expected="either",
)
row(
    "own parameters, input returned beside the output",
    lambda: Net(
        lambda net, x: net.last(sum(net.inner(net.before(x)))),
        before=nn.Linear(6, 6),
        inner=Net(lambda net, x: (x, x * net.scale), scale=nn.Parameter(torch.rand(6))),
        last=nn.Linear(6, 3),
    ),
    floats(6),
)
row(
    "own parameters, one output unused",
    lambda: Net(lambda net, x: net.last(net.pair(x)[0]), pair=Pair(), last=nn.Linear(6, 3)),
    floats(6),
)
row(
    "own parameters, outputs in a dict",
    lambda: Net(
        lambda net, x: net.last(net.inner(x)["y"]),
        inner=Net(lambda net, x: {"y": x * net.scale, "n": 3}, scale=nn.Parameter(torch.rand(6))),
        last=nn.Linear(6, 3),
    ),
    floats(6),
)
row(
    "own parameters, a scalar penalty beside the output",
    lambda: Net(
        lambda net, x: net.last(net.inner(x)[0]),
        inner=Net(
            lambda net, x: (x * net.scale, net.scale.square().sum()), scale=nn.Parameter(torch.rand(6))
        ),
        last=nn.Linear(6, 3),
    ),
    floats(6),
    expected="either",
)


def _cells(net: Net, x: Tensor) -> Tensor:
    state = None
    for k in range(x.shape[1]):
        state = net.cell(x[:, k], state)
    return state[0] if isinstance(state, tuple) else state


row("LSTMCell loop", lambda: Net(_cells, cell=nn.LSTMCell(3, 4)), floats(4, 3))
row("GRUCell loop", lambda: Net(_cells, cell=nn.GRUCell(3, 4)), floats(4, 3))
row("RNNCell loop", lambda: Net(_cells, cell=nn.RNNCell(3, 4)), floats(4, 3))


def _both_states(net: Net, x: Tensor) -> Tensor:
    h, c = torch.zeros(x.shape[0], 4, dtype=x.dtype), torch.zeros(x.shape[0], 4, dtype=x.dtype)
    for k in range(x.shape[1]):
        h, c = net.cell(x[:, k], (h, c))
        h = F.dropout(h, 0.3)
    return torch.cat([h, c], dim=1)


row(
    "LSTMCell loop with both states in the loss and dropout",
    lambda: Net(_both_states, cell=nn.LSTMCell(3, 4)),
    floats(4, 3),
)
row(
    "linear called in a loop over time",
    lambda: Net(
        lambda net, x: torch.stack([net.layer(x[:, k]) for k in range(x.shape[1])], dim=1).tanh().sum(1),
        layer=nn.Linear(3, 4),
    ),
    floats(4, 3),
)
row(
    "linear called on a time-first loop over first dimension",
    lambda: Net(
        lambda net, x: torch.stack([net.layer(each) for each in x.transpose(0, 1)], dim=1),
        layer=nn.Linear(3, 4),
    ),
    floats(4, 3),
)
row(
    "a loop over the examples of the batch",
    lambda: Net(lambda net, x: torch.stack([net.layer(each) for each in x]), layer=nn.Linear(3, 4)),
    floats(4, 3),
    expected="either",
)
row(
    "a loop over the examples of the batch, one row each",
    lambda: Net(lambda net, x: torch.cat([net.layer(each[None]) for each in x]), layer=nn.Linear(3, 4)),
    floats(4, 3),
    expected="either",
)
row(
    "half of the batch through each of two experts",
    lambda: Net(lambda net, x: torch.cat([net.a(x[:2]), net.b(x[2:])]), a=nn.Linear(3, 4), b=nn.Linear(3, 4)),
    floats(3),
    expected="either",
)


def _experts(net: Net, x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], 4, dtype=x.dtype)
    choice = x[:, 0] > 0
    for layer, mask in ((net.a, choice), (net.b, ~choice)):
        if mask.any():
            y[mask] = layer(x[mask])
    return y


row(
    "experts chosen by the input, rows selected by a mask",
    lambda: Net(_experts, a=nn.Linear(3, 4), b=nn.Linear(3, 4)),
    floats(3),
    expected="either",
)
row(
    "experts chosen by the input, batches as large as the choice may be",
    lambda: Net(_experts, a=nn.Linear(3, 4), b=nn.Linear(3, 4)),
    lambda: (torch.cat([torch.ones(N, 1), torch.randn(N, 2)], dim=1),),
    expected="either",
)
row(
    "rows permuted before a layer and back after it",
    lambda: Net(lambda net, x: net.b(net.a(x).flip(0).tanh()).flip(0), a=nn.Linear(3, 4), b=nn.Linear(4, 3)),
    floats(3),
    expected="either",
)
row(
    "rows permuted, layers called twice",
    lambda: Net(lambda net, x: net.a(net.a(x).flip(0).tanh()).flip(0), a=nn.Linear(3, 3)),
    floats(3),
    expected="either",
)


def _by_length(net: Net, x: Tensor, lengths: Tensor) -> Tensor:
    order = lengths.argsort(descending=True)
    y = torch.tanh(net.first(x[order]))
    y = net.second(y)
    return y[order.argsort()].mean(dim=1)


def _long() -> Batch:
    return torch.randn(N, 6, 3), torch.tensor([3, 6, 2, 4, 1])


row(
    "sorted by length inside forward and unsorted",
    lambda: Net(_by_length, first=nn.Linear(3, 4), second=nn.Linear(4, 3)),
    _long,
    expected="either",
)
row(
    "sorted by length around an lstm",
    lambda: Net(
        lambda net, x, lengths: (
            net.second(net.rnn(x[lengths.argsort()])[0])[lengths.argsort().argsort()] + net.first(x)
        ),
        first=nn.Linear(3, 3),
        rnn=nn.LSTM(3, 4, batch_first=True),
        second=nn.Linear(4, 3),
    ),
    _long,
    expected="either",
)


def _packed(net: Net, x: Tensor, lengths: Tensor) -> Tensor:
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, _ = pad_packed_sequence(net.rnn(packed)[0], batch_first=True, total_length=6)
    return net.last(output).sum(dim=1)


row(
    "packed sequences",
    lambda: Net(_packed, rnn=nn.LSTM(3, 4, batch_first=True), last=nn.Linear(4, 3)),
    _long,
    expected="either",
)
row(
    "packed sequences in a frozen lstm",
    lambda: Net(_packed, rnn=_frozen(nn.LSTM(3, 4, batch_first=True)), last=nn.Linear(4, 3)),
    _long,
)
row(
    "packed data through a linear",
    lambda: Net(
        lambda net, x, lengths: (
            net.last(x).sum(1)
            + pad_packed_sequence(
                pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)._replace(
                    data=net.layer(
                        pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False).data
                    )
                ),
                batch_first=True,
                total_length=6,
            )[0].sum(1)
        ),
        layer=nn.Linear(3, 3),
        last=nn.Linear(3, 3),
    ),
    _long,
    expected="either",
)
row(
    "nested tensors",
    lambda: Net(
        lambda net, x, lengths: torch.nested.to_padded_tensor(
            net.layer(
                torch.nested.nested_tensor([row[:n] for row, n in zip(x, lengths.tolist(), strict=True)])
            ),
            0.0,
            (x.shape[0], 6, 4),
        ),
        layer=nn.Linear(3, 4),
    ),
    _long,
    expected="either",
)
row(
    "jagged nested tensors",
    lambda: Net(
        lambda net, x, lengths: torch.nested.to_padded_tensor(
            net.layer(
                torch.nested.nested_tensor(
                    [row[:n] for row, n in zip(x, lengths.tolist(), strict=True)], layout=torch.jagged
                )
            ),
            0.0,
            (x.shape[0], 6, 4),
        ),
        layer=nn.Linear(3, 4),
    ),
    _long,
    expected="either",
)


# Hooks of the user.


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


for _kind in ("counts", "counts calls of the model", "counts calls beside a parameter"):
    row(f"forward hook {_kind}", partial(_with_hooks, _kind), floats(6), after=_counted)
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


# Losses.


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
    "refused",
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
    "refused",
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
    "refused",
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


# Batch statistics and other mixing.

row(
    "batch mean taken off the input",
    lambda: Net(lambda net, x: net.layer(x - x.mean(0)), layer=mlp()),
    floats(6),
    expected="refused",
)
row(
    "batch mean taken off an activation",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) - y.mean(0)), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "detached batch mean taken off an activation",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) - y.mean(0).detach()), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "batch mean taken off the output",
    lambda: Net(lambda net, x: (y := net.layer(x)) - y.mean(0, keepdim=True), layer=mlp()),
    floats(6),
    expected="refused",
)
row(
    "activation scaled by the batch's largest",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) / y.abs().max()), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "activation scaled by the batch's largest, detached",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) / y.detach().abs().max()),
        first=nn.Linear(6, 6),
        layer=mlp(),
    ),
    floats(6),
    expected="refused",
)
row(
    "activation scaled by a number read from the batch",
    lambda: Net(
        lambda net, x: net.layer(net.first(x) / float(x.abs().max())), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "softmax over the batch",
    lambda: Net(lambda net, x: net.layer(net.first(x).softmax(dim=0)), first=nn.Linear(6, 6), layer=mlp()),
    floats(6),
    expected="refused",
)
row(
    "cumulative sum over the batch",
    lambda: Net(lambda net, x: net.layer(net.first(x).cumsum(0)), first=nn.Linear(6, 6), layer=mlp()),
    floats(6),
    expected="refused",
)
row(
    "layer norm over batch and features",
    lambda: Net(
        lambda net, x: net.layer(F.layer_norm(y := net.first(x), y.shape)), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "F.batch_norm by hand",
    lambda: Net(
        lambda net, x: net.layer(
            F.batch_norm(net.first(x), None, None, training=True) if len(x) > 1 else net.first(x) * 0
        ),
        first=nn.Linear(6, 6),
        layer=mlp(),
    ),
    floats(6),
    expected="refused",
)
row(
    "mixing beside an own parameter",
    lambda: nn.Sequential(
        nn.Linear(6, 6),
        Net(lambda net, x: net.scale * (x - x.mean(0)), scale=nn.Parameter(torch.rand(6))),
        mlp(),
    ),
    floats(6),
    expected="refused",
)
row(
    "mixing with a weight of a thousandth",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) - 1e-3 * y.mean(0)), first=nn.Linear(6, 6), layer=mlp()
    ),
    floats(6),
    expected="refused",
)
row(
    "attention over the batch",
    lambda: Net(
        lambda net, x: net.layer((y := net.first(x)) + (y @ y.t()).softmax(-1) @ y),
        first=nn.Linear(6, 6),
        layer=mlp(),
    ),
    floats(6),
    expected="refused",
)
row(
    "attention with time first, told batch first",
    lambda: Net(lambda net, x: net.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2)),
    floats(3, 4),
    expected="refused",
)
row(
    "transformer with time first, told batch first",
    lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
    floats(3, 4),
    expected="refused",
)
row(
    "lstm with time first, told batch first",
    lambda: Net(lambda net, x: net.rnn(x)[0], rnn=nn.LSTM(4, 4)),
    floats(3, 4),
    expected="refused",
)
row(
    "lstm with time first, as long as the batch",
    lambda: Net(lambda net, x: net.rnn(x)[0], rnn=nn.LSTM(4, 4)),
    floats(5, 4),
    expected="refused",
)
row(
    "unbatched sequence in attention, rows taken for examples",
    lambda: Net(lambda net, x: net.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2)),
    floats(4),
    expected="refused",
)
row(
    "one pooled vector of all examples",
    lambda: Net(
        lambda net, x: net.layer(x) + net.pool(x.mean(0, keepdim=True)),
        layer=nn.Linear(6, 3),
        pool=nn.Linear(6, 3),
    ),
    floats(6),
    expected="refused",
)


def _late_mixing(net: Net, x: Tensor) -> Tensor:
    """Plain for six steps, then each example leans on the batch, as a training schedule may have it."""
    net.step += 1
    y = net.first(x)
    return net.layer(y - y.mean(0) if net.step > 6 else y)


def _memory(net: Net, x: Tensor) -> Tensor:
    y = net.first(x)
    output = net.layer(y - net.memory)
    net.memory.mul_(0.9).add_(0.1 * y.detach().mean(0))
    return output


def _statistics(net: Net, x: Tensor) -> Tensor:
    y = net.first(x)
    net.memory.mul_(0.9).add_(0.1 * y.detach().mean(0))
    return net.layer(y)


def _counter(net: Net, x: Tensor) -> Tensor:
    net.step += 1
    return net.layer(net.first(x) / net.step)


row(
    "mixing from the seventh step on",
    lambda: Net(_late_mixing, first=nn.Linear(6, 6), layer=mlp(), step=torch.zeros(())),
    floats(6),
    expected="refused",
    steps=8,
)
row(
    "running mean by hand, used in the forward",
    lambda: Net(_memory, first=nn.Linear(6, 6), layer=mlp(), memory=torch.zeros(6)),
    floats(6),
    expected="refused",
)
row(
    "running mean by hand, kept for evaluation",
    lambda: Net(_statistics, first=nn.Linear(6, 6), layer=mlp(), memory=torch.zeros(6)),
    floats(6),
    expected="refused",
)
row(
    "a buffer that counts steps",
    lambda: Net(_counter, first=nn.Linear(6, 6), layer=mlp(), step=torch.zeros(())),
    floats(6),
    expected="either",
)
row(
    "a buffer that counts steps beside a parameter",
    lambda: Net(
        lambda net, x: _counter(net, x) * net.scale,
        first=nn.Linear(6, 6),
        layer=mlp(),
        step=torch.zeros(()),
        scale=nn.Parameter(torch.rand(3)),
    ),
    floats(6),
    expected="either",
)


# Backward passes of other kinds.


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


# Parameters in unusual places.


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
        first=_frozen(nn.Linear(6, 4)),
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


# Parametrisations.


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
)
row("weight norm of a convolution", lambda: parametrizations.weight_norm(nn.Conv1d(2, 3, 3)), floats(2, 6))
row(
    "spectral norm",
    lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3)),
    floats(6),
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


# Layers without a rule of their own, or with unusual settings.

row("sparse embedding", lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Linear(4, 3)), tokens(4))
row(
    "embedding with scale_grad_by_freq",
    lambda: nn.Sequential(nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Linear(4, 3)),
    tokens(4),
    expected="either",
)
row(
    "frozen embedding with max_norm",
    lambda: nn.Sequential(_frozen(nn.Embedding(7, 4, max_norm=1.0)), nn.Linear(4, 3)),
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


# Checkpointing and compilation.

for _reentrant in (False, True):
    row(
        f"checkpointing, reentrant={_reentrant}",
        partial(
            lambda r: Net(
                lambda net, x: net.last(
                    torch.utils.checkpoint.checkpoint(net.block, net.first(x), use_reentrant=r)
                ),
                first=nn.Linear(6, 6),
                block=nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 6)),
                last=nn.Linear(6, 3),
            ),
            _reentrant,
        ),
        floats(6),
        expected="either",
    )
    row(
        f"checkpointing beside a parameter, reentrant={_reentrant}",
        partial(
            lambda r: Net(
                lambda net, x: net.last(
                    torch.utils.checkpoint.checkpoint(net.block, net.first(x), use_reentrant=r)
                ),
                first=nn.Linear(6, 6),
                block=Net(
                    lambda net, x: F.dropout(net.layer(x) * net.scale, 0.3),
                    layer=nn.Linear(6, 6),
                    scale=nn.Parameter(torch.rand(6)),
                ),
                last=nn.Linear(6, 3),
            ),
            _reentrant,
        ),
        floats(6),
        expected="either",
    )
    row(
        f"checkpointing a lambda over parameters, reentrant={_reentrant}",
        partial(
            lambda r: Net(
                lambda net, x: net.last(
                    torch.utils.checkpoint.checkpoint(
                        lambda y: torch.tanh(net.layer(y)) * net.scale, net.first(x), use_reentrant=r
                    )
                ),
                first=nn.Linear(6, 6),
                layer=nn.Linear(6, 6),
                scale=nn.Parameter(torch.rand(6)),
                last=nn.Linear(6, 3),
            ),
            _reentrant,
        ),
        floats(6),
        expected="either",
    )


def _compiled_in_place() -> nn.Module:
    model = mlp()
    model.compile(backend="eager")
    return model


def _compiled_part() -> nn.Module:
    model = mlp()
    return nn.Sequential(nn.Linear(6, 6), torch.compile(model, backend="eager"))


row("compiled model", lambda: torch.compile(mlp(), backend="eager"), floats(6), expected="refused", plain=mlp)
row("model compiled in place", _compiled_in_place, floats(6), expected="either", plain=mlp)
row("compiled part of a model", _compiled_part, floats(6), expected="refused", plain=mlp)
row("scripted model", lambda: torch.jit.script(mlp()), floats(6), expected="refused", plain=mlp)


# Examples in dimension 1.

row(
    "time first: lstm and linear",
    lambda: Net(lambda net, x: net.last(net.rnn(x)[0]), rnn=nn.LSTM(3, 4), last=nn.Linear(4, 3)),
    lambda: (torch.randn(6, N, 3),),
    lambda m, x: scores(m(x).transpose(0, 1)),
    batch_dim=1,
)
row(
    "time first: transformer layer with dropout",
    lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2),
    lambda: (torch.randn(6, N, 4),),
    lambda m, x: scores(m(x).transpose(0, 1)),
    batch_dim=1,
)
row(
    "time first: last state, then linear with examples first",
    lambda: Net(lambda net, x: net.last(net.rnn(x)[0][-1]), rnn=nn.LSTM(3, 4), last=nn.Linear(4, 3)),
    lambda: (torch.randn(6, N, 3),),
    scored,
    batch_dim=1,
    expected="either",
)
row(
    "time first: embedding, gru, own parameter",
    lambda: Net(
        lambda net, t: net.rnn(net.e(t) * net.scale)[0],
        e=nn.Embedding(7, 3),
        rnn=nn.GRU(3, 4),
        scale=nn.Parameter(torch.rand(3)),
    ),
    lambda: (torch.randint(0, 7, (6, N)),),
    lambda m, x: scores(m(x).transpose(0, 1)),
    batch_dim=1,
    expected="either",
)
row(
    "time first, as long as the batch, examples moved first inside",
    lambda: Net(
        lambda net, x: net.last(net.rnn(x)[0].transpose(0, 1)), rnn=nn.LSTM(3, 4), last=nn.Linear(4, 3)
    ),
    lambda: (torch.randn(N, N, 3),),
    scored,
    batch_dim=1,
    expected="refused",
)


# Relatives of what tiny published models brought up.

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
    expected="either",
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
