# SPDX-License-Identifier: Apache-2.0
"""Dropout and other draws, in every position; checkpointing and compilation, which run code again."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from training.whole_models import parts
from training.whole_models.harness import Case
from training.whole_models.parts import Net, floats, mlp

CASES: list[Case] = []
row = partial(parts.row, CASES)


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
