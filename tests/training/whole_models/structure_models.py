# SPDX-License-Identifier: Apache-2.0
"""Several outputs, several calls, sequences of several lengths, examples in dimension 1."""

from functools import partial

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from training.whole_models import parts
from training.whole_models.harness import Batch, Case
from training.whole_models.parts import N, Net, floats, frozen, scored, scores

CASES: list[Case] = []
row = partial(parts.row, CASES)


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
    lambda: Net(_packed, rnn=frozen(nn.LSTM(3, 4, batch_first=True)), last=nn.Linear(4, 3)),
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
