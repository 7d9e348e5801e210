# SPDX-License-Identifier: Apache-2.0
"""A standardisation that is released once and kept, for a run that goes on later.

Every release costs privacy, and the ledger of a run counts one: going on must not make another. Released
numbers are public, so the file holds no secret.
"""

import json
from pathlib import Path

import torch
from torch import Tensor

from ggdp.atomic_file import write_atomically
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.training.tasks.standardisation import Standardisation, private_standardisation


def standardisation_kept_in(
    file: Path | None,
    features: Tensor,
    guess: Standardisation,
    noise_multiplier: float,
    *,
    rng: Rng | None = None,
) -> Standardisation:
    """What the file holds; or a new release, which is then written to it. Without a file, a new release.

    Raises:
        ValueError: The file holds a release of other data or with other noise, or nothing that can be read.
    """
    asked = {"noise_multiplier": noise_multiplier, "num_images": len(features), "channels": features.shape[1]}
    if file is not None and file.exists():
        return _read(file, asked)
    found = private_standardisation(features, guess, noise_multiplier, rng=rng)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        numbers = {"mean": found.mean.tolist(), "std": found.std.tolist()}
        write_atomically(file, json.dumps({**asked, **numbers}) + "\n")
    return found


def _read(file: Path, asked: dict[str, float]) -> Standardisation:
    try:
        kept = json.loads(file.read_text())
        mean, std = torch.tensor(kept["mean"]), torch.tensor(kept["std"])
        differing = [name for name, value in asked.items() if kept[name] != value]
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"{str(file)!r} must hold a released standardisation and cannot be read; give another folder"
        ) from None
    if differing:
        name = differing[0]
        raise ValueError(
            f"{str(file)!r} holds a release with {name} = {kept[name]}, got {asked[name]}; "
            "give another folder"
        )
    return Standardisation(mean, std)
