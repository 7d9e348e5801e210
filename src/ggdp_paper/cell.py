# SPDX-License-Identifier: Apache-2.0
"""One cell of a sweep: a function and its settings; plain data, and nothing else decides the result."""

import functools
import hashlib
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Task = Callable[[Mapping[str, Any], "Surroundings"], Mapping[str, Any]]


@dataclass(frozen=True)
class Surroundings:
    """What a cell finds where it runs; nothing of it may change the result but by way of the seed.

    Attributes:
        seed: from the cell's own settings, never from the order in which cells run.
        data: the folder of the published data, where one was given.
    """

    seed: np.random.SeedSequence
    data: Path | None = None

    @property
    def rng(self) -> np.random.Generator:
        """A fresh generator, always the same."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class Cell:
    """A function by its address and its settings.

    Attributes:
        task: "module:function"; it takes the settings and the `Surroundings` and returns plain data.
        config: settings that JSON can hold.
        needs_gpu: the cell runs only where there is a CUDA device. No part of its identity.

    >>> Cell("module:square", {"x": 3, "y": 1}).digest == Cell("module:square", {"y": 1, "x": 3}).digest
    True
    """

    task: str
    config: Mapping[str, Any]
    needs_gpu: bool = field(default=False, compare=False)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the task and the settings, in hexadecimal; independent of the order of the settings."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def entropy(self) -> tuple[int, ...]:
        """The digest as eight words of 32 bits, from which every random number of the cell comes."""
        return tuple(int(self.digest[place : place + 8], 16) for place in range(0, 64, 8))

    def to_dict(self) -> dict[str, Any]:
        """What identifies the cell."""
        return {"task": self.task, "config": dict(self.config)}

    def result(self, data: Path | None = None) -> dict[str, Any]:
        """Run the function here and now; what it returns, as JSON would give it back."""
        found = _function(self.task)(self.config, Surroundings(np.random.SeedSequence(self.entropy), data))
        plain: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
        return plain


def _function(address: str) -> Task:
    module, _, name = address.partition(":")
    task: Task = getattr(importlib.import_module(module), name)
    return task
