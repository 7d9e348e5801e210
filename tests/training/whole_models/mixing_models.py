# SPDX-License-Identifier: Apache-2.0
"""Models whose examples see one another."""

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
    """Plain for one step, then each example leans on the batch, as a training schedule may have it."""
    net.step += 1
    y = net.first(x)
    return net.layer(y - y.mean(0) if net.step > 1 else y)


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
    "mixing from the second step on",
    lambda: Net(_late_mixing, first=nn.Linear(6, 6), layer=mlp(), step=torch.zeros(())),
    floats(6),
    expected="refused",
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
