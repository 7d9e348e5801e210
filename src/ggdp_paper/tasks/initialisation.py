# SPDX-License-Identifier: Apache-2.0
"""Fresh weights from an explicit generator, with PyTorch's own laws and none of its global randomness."""

import math
from collections.abc import Callable

import torch
from torch import nn


def initialised(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """A module that `make` describes, its weights drawn from `generator` as PyTorch draws them by default.

    Linear, convolutional and recurrent layers: uniform on +-1/sqrt(fan in), where a recurrent layer's fan in
    is its hidden size. Embeddings: standard normal. The weights are on the generator's device.

    >>> generator = torch.Generator().manual_seed(1)
    >>> layer = initialised(lambda: nn.Linear(4, 2), generator)
    >>> bool(layer.weight.abs().max() <= 0.5)
    True
    """
    with torch.device("meta"):  # allocates nothing and draws nothing
        module = make()
    module = module.to_empty(device=generator.device)
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if not own:
            continue
        match layer:
            case nn.Linear() | nn.Conv2d():
                _fill_uniformly(own, 1.0 / math.sqrt(layer.weight[0].numel()), generator)
            case nn.LSTM():
                _fill_uniformly(own, 1.0 / math.sqrt(layer.hidden_size), generator)
            case nn.Embedding():
                nn.init.normal_(layer.weight, generator=generator)
            case _:
                raise ValueError(
                    f"make must use layers with a known law of weights, got {type(layer).__name__}"
                )
    return module


def _fill_uniformly(parameters: list[nn.Parameter], bound: float, generator: torch.Generator) -> None:
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
