# SPDX-License-Identifier: Apache-2.0
"""Tasks to train on: data as its authors publish it, a model, and settings that work."""

from pathlib import Path

import torch

from ggdp import arguments
from ggdp.distributions.generalized_gaussian import Rng
from ggdp_paper.tasks import adult, digits, images, imdb
from ggdp_paper.tasks.task import Defaults, Request, Task, held_out

__all__ = ["TASKS", "Defaults", "Task", "held_out", "load_task"]

_LOADERS = {
    "digits": digits.load,
    "adult": adult.load,
    "imdb": imdb.load,
    "cifar10": images.load_cifar10,
    "svhn": images.load_svhn,
}
TASKS = tuple(_LOADERS)


def load_task(
    name: str,
    *,
    data: Path | None = None,
    synthetic: bool = False,
    generator: torch.Generator | None = None,
    rng: Rng | None = None,
    device: torch.device | str = "cpu",
    vocabulary: str | Path = "train",
    standardisation_noise: float = 32.0,
    order_weights: tuple[float, float, float] = (1.0, 1.0, 0.5),
    views: int = 1,
    kept: Path | None = None,
) -> Task:
    """Load a built-in task.

    Args:
        name: "digits" (embedded), "adult", "imdb", "cifar10" or "svhn".
        data: the folder of the files as their authors publish them.
        synthetic: use small made-up data of the same shape instead, drawn from `generator`.
        generator: of synthetic data.
        rng: noise of private preprocessing (cifar10, svhn); unpredictable if left out. Noise that others can
            reproduce is not private.
        device: where features are computed and all tensors are kept.
        vocabulary: of imdb: "train" (counted in the training reviews, not private), "unlabelled" (counted in
            train/unsup) or a file with a word on each line.
        standardisation_noise: of cifar10 and svhn: noise multiplier of the release of feature means and
            variances. It is charged, in `Task.charged`.
        order_weights: of cifar10 and svhn: factors of the standardised features of scattering order 0, 1
            and 2. The 192 channels of order 2 say little each and would otherwise take most of every
            gradient's norm.
        views: of cifar10: 2 to train on every image beside its mirror image, averaged before clipping.
        kept: of cifar10 and svhn: a file for what preprocessing released. It is written once and read ever
            after, so that a run that goes on later costs no second release.

    Raises:
        ValueError: The name is unknown, or a file is missing or not what it should be; the message says which
            and where it is published.

    >>> task = load_task("adult", synthetic=True, generator=torch.Generator().manual_seed(1))
    >>> task.num_examples, tuple(task.train.tensors[0].shape)
    (512, (512, 123))
    """
    arguments.one_of("task", name, TASKS)
    if synthetic and generator is None:
        raise ValueError("generator must be given for synthetic data, got None; pass a torch.Generator")
    if views != 1 and name not in ("cifar10", "svhn"):
        raise ValueError(f"views must be 1 for {name}, got {views}")
    if vocabulary != "train" and name != "imdb":
        raise ValueError(
            f"vocabulary must be left out for {name}, which has no words, got {str(vocabulary)!r}"
        )
    if data is not None and name == "digits":
        raise ValueError(f"data must be left out for digits, which needs no files, got {str(data)!r}")
    request = Request(
        data=data,
        synthetic=generator if synthetic else None,
        rng=rng,
        device=str(device),
        vocabulary=vocabulary,
        standardisation_noise=standardisation_noise,
        order_weights=order_weights,
        views=views,
        kept=kept,
    )
    return _LOADERS[name](request)
