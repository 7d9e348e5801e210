# SPDX-License-Identifier: Apache-2.0
"""One table of models, each about one kind of layer, with inputs; the contracts hold for every row."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

N = 5


@dataclass(frozen=True)
class LayerCase:
    """A model and its batch: tensors whose dimension `batch_dim` counts the examples, and an output
    likewise.
    """

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    batch_dim: int = 0
    output_dim: int = 0


class Last(nn.Module):
    """The part of a layer's output that a loss can be made of."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Tensor) -> Tensor:
        output = self.layer(*inputs)
        return output[0] if isinstance(output, tuple) else output


class AllStates(nn.Module):
    """Output, last states and (in an LSTM) last cells of a recurrent layer, examples first."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        output, last = self.layer(x)
        output = output if self.layer.batch_first else output.transpose(0, 1)
        ends = last if isinstance(last, tuple) else (last,)
        return torch.cat([output.flatten(1), *(end.transpose(0, 1).flatten(1) for end in ends)], dim=1)


class AfterLinear(nn.Module):
    """A recurrent layer whose input has a past."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))[0].mean(dim=1)


class Tied(nn.Module):
    """An embedding whose weight is the last layer's too, as language models have it."""

    def __init__(self, words: int = 7, width: int = 4, padding: int | None = None, bias: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=padding)
        self.middle = nn.Linear(width, width)
        self.last = nn.Linear(width, words, bias=bias)
        self.last.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.last(torch.tanh(self.middle(self.embedding(tokens))))


class TiedThrice(Tied):
    """Two embeddings and the last layer by one weight, as in a model that translates."""

    def forward(self, tokens: Tensor) -> Tensor:
        source = self.embedding(tokens.flip(1)).mean(dim=1, keepdim=True)
        return self.last(torch.tanh(self.middle(self.embedding(tokens)) + source))


class Twice(nn.Module):
    """Calls one layer twice in a row."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


class ClassToken(nn.Module):
    """Parameters of its own beside layers: a token put before every sequence, and a list of scales."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4))])
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.layer(x * self.scales[0] + self.scales[1])


class TokenAndPositions(nn.Module):
    """A class token and positions beside layers, as in a vision transformer, used in one way or another."""

    def __init__(self, use: str) -> None:
        super().__init__()
        self.use = use
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.positions = nn.Parameter(torch.randn(1, 4, 4))
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        repeats = self.use == "repeat"
        token = self.token.repeat(len(x), 1, 1) if repeats else self.token.expand(len(x), -1, -1)
        x = torch.cat([token, x], dim=1) + (self.positions[0] if self.use == "row 0" else self.positions)
        return self.head(self.norm(x + torch.tanh(self.layer(x)))[:, :2])


class Positions(nn.Module):
    """Position embeddings looked up once for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 4)
        self.positions = nn.Embedding(6, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.tanh(
            self.tokens(tokens)
            + self.positions(torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0))
        )


class LowRank(nn.Module):
    """A frozen layer with a trained low-rank correction, as LoRA has it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(6, 5).requires_grad_(False)
        self.down = nn.Linear(6, 2, bias=False)
        self.up = nn.Linear(2, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.base(x) + self.up(self.down(x)))


def _floats(*shape: int) -> tuple[Tensor]:
    return (torch.randn(*shape),)


def _tokens(*shape: int) -> tuple[Tensor]:
    return (torch.randint(0, 7, shape),)


def _attended(batch_first: bool) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = torch.randn(N, 3, 4), torch.randn(N, 6, 4), torch.randn(N, 6, 4)
    return (query, key, value) if batch_first else tuple(each.transpose(0, 1) for each in (query, key, value))


class SelfAttention(nn.Module):
    """Attention to itself under a causal and a padding mask, with or without weights asked for."""

    def __init__(self, need_weights: bool, **options: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        causal = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)
        padding = x[:, :, 0] > 1.5
        padding[:, 0] = False
        output, _ = self.attention(
            x, x, x, attn_mask=causal, key_padding_mask=padding, need_weights=self.need_weights
        )
        return output


def _frozen_bias() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


def _recurrent(name: str, kind: type[nn.RNNBase], batch_first: bool = True, **options: object) -> LayerCase:
    shape = (N, 6, 3) if batch_first else (6, N, 3)
    build = partial(kind, 3, 4, batch_first=batch_first, **options)
    return LayerCase(name, lambda: AllStates(build()), partial(_floats, *shape), 0 if batch_first else 1)


def _layer(name: str, build: Callable[[], nn.Module], *shape: int) -> LayerCase:
    return LayerCase(name, build, partial(_floats, *shape))


CASES = (
    _layer("mlp", lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 3)), N, 6),
    _layer("linear without bias", lambda: nn.Linear(6, 4, bias=False), N, 6),
    _layer("linear, some frozen", _frozen_bias, N, 6),
    _layer("linear on sequences", lambda: nn.Linear(4, 3), N, 7, 4),
    _layer("linear on short sequences", lambda: nn.Linear(12, 11), N, 2, 12),
    _layer("linear on images", lambda: nn.Linear(4, 3), N, 2, 3, 4),
    _layer("linear on sequences of one", lambda: nn.Linear(4, 3), N, 1, 4),
    _layer("linear of fixed norm", lambda: parametrizations.weight_norm(nn.Linear(4, 3)), N, 4),
    _layer("conv1d", lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), N, 3, 9),
    _layer("conv2d", lambda: nn.Conv2d(2, 4, 3, padding=1), N, 2, 5, 6),
    _layer("conv2d, few positions", lambda: nn.Conv2d(6, 32, 3), N, 6, 3, 3),
    _layer(
        "conv2d in groups", lambda: nn.Conv2d(4, 6, (2, 3), stride=(1, 2), dilation=2, groups=2), N, 4, 6, 7
    ),
    _layer("conv2d in groups, few positions", lambda: nn.Conv2d(12, 64, 3, groups=2), N, 12, 3, 3),
    _layer("conv2d, same", lambda: nn.Conv2d(2, 3, (2, 4), padding="same"), N, 2, 5, 5),
    _layer("conv2d, circular", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), N, 2, 4, 4),
    _layer("conv3d", lambda: nn.Conv3d(2, 3, 2, padding=(0, 1, 0), bias=False), N, 2, 3, 4, 3),
    _layer("transposed convolution", lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), N, 2, 3, 3),
    _layer(
        "cnn",
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 3),
            nn.InstanceNorm2d(5, affine=True),
            nn.PReLU(5),
            nn.Flatten(),
            nn.Linear(20, 3),
        ),
        N,
        1,
        8,
        8,
    ),
    _layer("layer norm", lambda: nn.LayerNorm(6), N, 6),
    _layer("layer norm on sequences", lambda: nn.LayerNorm((3, 4)), N, 2, 3, 4),
    _layer("layer norm without bias", lambda: nn.LayerNorm(6, bias=False), N, 3, 6),
    _layer("rms norm", lambda: nn.RMSNorm(6), N, 3, 6),
    LayerCase("embedding", lambda: nn.Embedding(7, 4), partial(_tokens, N, 9)),
    LayerCase("embedding of one token", lambda: nn.Embedding(7, 4), partial(_tokens, N)),
    LayerCase("embedding, padded", lambda: nn.Embedding(7, 4, padding_idx=2), partial(_tokens, N, 9)),
    LayerCase("embedding, time first", lambda: nn.Embedding(7, 4), partial(_tokens, 9, N), 1, 1),
    LayerCase("embedding bag", lambda: nn.EmbeddingBag(7, 4), partial(_tokens, N, 4)),
    LayerCase("positions", Positions, partial(_tokens, N, 6)),
    _recurrent("lstm", nn.LSTM),
    _recurrent("lstm, time first", nn.LSTM, batch_first=False),
    _recurrent("lstm, two layers both ways", nn.LSTM, num_layers=2, bidirectional=True),
    _recurrent("lstm without bias", nn.LSTM, bias=False),
    _recurrent("gru", nn.GRU, num_layers=2),
    _recurrent("gru both ways without bias", nn.GRU, bidirectional=True, bias=False, batch_first=False),
    _recurrent("rnn", nn.RNN),
    _recurrent("rnn, rectified", nn.RNN, nonlinearity="relu"),
    _layer("self-attention", lambda: SelfAttention(need_weights=True), N, 6, 4),
    _layer("self-attention without weights", lambda: SelfAttention(need_weights=False), N, 6, 4),
    LayerCase(
        "cross-attention",
        lambda: Last(nn.MultiheadAttention(4, 2, batch_first=True)),
        partial(_attended, True),
    ),
    LayerCase(
        "cross-attention, time first",
        lambda: Last(nn.MultiheadAttention(4, 2)),
        partial(_attended, False),
        1,
        1,
    ),
    LayerCase(
        "attention with added keys",
        lambda: Last(nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True)),
        partial(_attended, True),
    ),
    _layer(
        "transformer layer",
        lambda: nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, dropout=0.0, batch_first=True),
        N,
        6,
        4,
    ),
    _layer("lstm after linear", AfterLinear, N, 6, 3),
    LayerCase("tied", Tied, partial(_tokens, N, 6)),
    LayerCase("tied, few positions", partial(Tied, 40, 24), partial(_tokens, N, 3)),
    LayerCase("tied, one position", partial(Tied, 40, 24, bias=False), partial(_tokens, N, 1)),
    LayerCase("tied, padded", partial(Tied, 40, 24, padding=2, bias=False), partial(_tokens, N, 3)),
    LayerCase("tied thrice", partial(TiedThrice, 50, 30), partial(_tokens, N, 2)),
    _layer("linear called twice, few positions", lambda: Twice(nn.Linear(12, 12)), N, 2, 12),
    _layer("linear called twice", lambda: Twice(nn.Linear(4, 4)), N, 4),
    _layer("linear called twice on sequences", lambda: Twice(nn.Linear(4, 4)), N, 3, 4),
    _layer("convolution called twice", lambda: Twice(nn.Conv1d(2, 2, 3, padding=1)), N, 2, 5),
    _layer("prelu", lambda: nn.PReLU(3), N, 3, 4),
    _layer("parameters beside layers", ClassToken, N, 3, 4),
    _layer("token and positions", lambda: TokenAndPositions("expand"), N, 3, 4),
    _layer("token that is repeated", lambda: TokenAndPositions("repeat"), N, 3, 4),
    _layer("positions of row 0", lambda: TokenAndPositions("row 0"), N, 3, 4),
    _layer("low rank", LowRank, N, 6),
)


def example_losses(case: LayerCase, output: Tensor) -> Tensor:
    """A loss per example with curvature and uneven slopes, the same for every example."""
    flat = output.transpose(0, case.output_dim).flatten(1)
    slopes = torch.linspace(-1.0, 2.0, flat.shape[1], dtype=flat.dtype, device=flat.device)
    return (F.softplus(flat) * slopes).sum(dim=1) + flat.square().mean(dim=1)
