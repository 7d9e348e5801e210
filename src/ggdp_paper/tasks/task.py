# SPDX-License-Identifier: Apache-2.0
"""A task: data, a model, and the settings that train it well; and what a user may ask of one.

Every task finds its published files by `located` and draws its first weights by `initialised`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from ggdp import arguments
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.mechanisms import AdditiveNoise

DELTA = 1e-6


@dataclass(frozen=True)
class Defaults:
    """Settings that are used where a user gives none, chosen on this very data.

    That choice is not part of any epsilon.

    Attributes:
        batch_size: expected size of a Poisson batch.
        clip_norm: largest norm of one example's gradient.
        learning_rate: of stochastic gradient descent.
        momentum: likewise.
        epochs: expected passes over the data.
        delta: of the guarantee.
        score_batch_size: test examples in memory at a time.
    """

    batch_size: int
    clip_norm: float
    learning_rate: float
    momentum: float
    epochs: int
    delta: float = DELTA
    score_batch_size: int = 4096


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a training run starts from.

    Attributes:
        name: as `load_task` takes it.
        train: the private examples, inputs and labels.
        test: examples for the score; nothing is learnt from them.
        build: makes a model with fresh weights from a torch generator.
        defaults: settings where a user gives none.
        charged: releases on the training data that preprocessing made. They are part of a run's cost: an
            accountant composes them with the steps of training.
        caveats: what preprocessing read from the training data that no epsilon covers, one sentence each.
        mirrored: the test examples seen in a mirror, where a mirror changes no label.
        views: how many views of each training example `train` holds, in dimension 1 of its inputs.
    """

    name: str
    train: TensorDataset
    test: TensorDataset
    build: Callable[[torch.Generator], nn.Module]
    defaults: Defaults
    charged: tuple[AdditiveNoise, ...] = ()
    caveats: tuple[str, ...] = ()
    mirrored: TensorDataset | None = None
    views: int = 1

    @property
    def num_examples(self) -> int:
        """Private examples."""
        return len(self.train)


@dataclass(frozen=True)
class Request:
    """How a user wants a task's data.

    Attributes:
        data: folder of the published files.
        synthetic: draw small made-up data from this generator instead.
        rng: noise of private preprocessing; unpredictable if left out.
        device: where features are computed and kept.
        vocabulary: of texts: "train" (not private), "unlabelled", or a file with a word on each line.
        standardisation_noise: noise multiplier of the release of feature means and variances.
        order_weights: factors of the features of scattering order 0, 1 and 2, once standardised.
        views: 2 for every training image beside its mirror image, where a mirror changes no label.
        kept: the file of the released means and variances.
    """

    data: Path | None = None
    synthetic: torch.Generator | None = None
    rng: Rng | None = None
    device: str = "cpu"
    vocabulary: str | Path = "train"
    standardisation_noise: float = 32.0
    order_weights: tuple[float, float, float] = (1.0, 1.0, 0.5)
    views: int = 1
    kept: Path | None = None

    def __post_init__(self) -> None:
        noise = arguments.real("standardisation_noise", self.standardisation_noise, above=0.0, most=1e6)
        object.__setattr__(self, "standardisation_noise", noise)
        if self.data is not None and self.synthetic is not None:
            raise ValueError("data and synthetic exclude each other; give one of them")

    def folder(self, task: str, *, holding: str, published: str) -> Path:
        """The folder of the data, or a refusal that says what should be in it and where it is published."""
        if self.data is None:
            raise ValueError(
                f"data must be given for {task}, a folder that holds {holding}, as published at {published}; "
                "or pass synthetic=True for a smoke run"
            )
        return Path(self.data)


def held_out(task: Task, count: int) -> Task:
    """The task without its test examples: scores are those of `count` training examples, left out of it.

    Settings can be chosen so without a look at the test examples. No epsilon covers the choice either way.
    """
    arguments.whole("count", count, most=task.num_examples - 1)
    inputs, labels = task.train.tensors
    scored = inputs[-count:].unbind(1) if task.views > 1 else (inputs[-count:],)
    test, *others = (TensorDataset(view, labels[-count:]) for view in scored)
    train = TensorDataset(inputs[:-count], labels[:-count])
    return replace(task, train=train, test=test, mirrored=others[0] if others else None)


def synthetic_variant(task: Task, *, batch_size: int = 64, epochs: int = 3) -> Task:
    """The task with settings that suit a few hundred made-up examples."""
    return replace(task, defaults=replace(task.defaults, batch_size=batch_size, epochs=epochs))


def located(folder: Path, names: tuple[str, ...], *, published: str) -> Path:
    """The first of the paths `names` below `folder` that exists.

    Raises:
        ValueError: None of them exists; the message names them and their place of publication.
    """
    for name in names:
        path = folder / name
        if path.is_file() or path.is_dir():  # a device would be read without end
            return path
    wanted = " or ".join(names)
    state = "has no such file" if folder.is_dir() else "is no folder" if folder.exists() else "does not exist"
    raise ValueError(f"expected {wanted} in {str(folder)!r}, which {state}; it is published at {published}")


def initialised(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """A module that `make` describes, its weights drawn from `generator` as PyTorch draws them by default.

    PyTorch itself would draw them from its global generator.

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
