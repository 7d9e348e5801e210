# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and SVHN as their authors publish them: arrays of bytes [N, 3, 32, 32] and labels [N]."""

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp.training.tasks.published_files import located

CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar.html"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Bytes [N, 3, 32, 32], and a class from 0 to 9 for each image."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]


def cifar10(folder: Path) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images, from the "python version" or the "binary version" of CIFAR-10."""
    root = located(folder, ("cifar-10-batches-py", "cifar-10-batches-bin"), published=CIFAR10)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    if root.name.endswith("py"):
        read, suffix = _pickled, ""
    else:
        read, suffix = _binary, ".bin"
    parts = [read(located(root, (f"{name}{suffix}",), published=CIFAR10)) for name in [*names, "test_batch"]]
    train = LabelledImages(
        np.concatenate([part.pixels for part in parts[:-1]]),
        np.concatenate([part.labels for part in parts[:-1]]),
    )
    return train, parts[-1]


def svhn(folder: Path) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images of format 2, cropped digits."""
    train, test = (
        _matlab(located(folder, (f"{name}_32x32.mat",), published=SVHN)) for name in ("train", "test")
    )
    return train, test


def _pickled(path: Path) -> LabelledImages:
    batch = _ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    try:
        pixels, labels = batch[b"data"], batch[b"labels"]
    except (KeyError, TypeError):
        raise ValueError(f"{str(path)!r} must be a batch of CIFAR-10 with data and labels") from None
    return _checked(path, np.asarray(pixels).reshape(-1, 3, 32, 32), np.asarray(labels))


class _ArraysOnly(pickle.Unpickler):
    """Reads what the batches hold, dictionaries and arrays, and runs no other code that a file may name."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy"):
            if name == "_reconstruct":
                return np.ndarray.__new__
            if name in ("ndarray", "dtype"):
                return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return lambda text, encoding: text.encode(encoding)
        raise ValueError(f"a batch of CIFAR-10 must hold arrays only, got an object of {module}.{name}")


def _binary(path: Path) -> LabelledImages:
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % (1 + _PIXELS):
        raise ValueError(f"{str(path)!r} must hold records of {1 + _PIXELS} bytes, got {len(content)} bytes")
    rows = content.reshape(-1, 1 + _PIXELS)
    return _checked(path, rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def _matlab(path: Path) -> LabelledImages:
    from scipy.io import loadmat

    content = loadmat(path, variable_names=["X", "y"])
    if not {"X", "y"} <= set(content):
        raise ValueError(f"{str(path)!r} must hold the variables X and y")
    labels = np.asarray(content["y"]).reshape(-1) % 10  # the file calls the digit zero 10
    return _checked(path, np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)), labels)


def _checked(path: Path, pixels: NDArray[Any], labels: NDArray[Any]) -> LabelledImages:
    if pixels.shape != (len(labels), 3, 32, 32) or pixels.dtype != np.uint8:
        raise ValueError(
            f"{str(path)!r} must hold {len(labels)} images of 3 x 32 x 32 bytes, got shape {pixels.shape}"
        )
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{str(path)!r} must hold labels from 0 to 9, and at least one")
    return LabelledImages(pixels, labels.astype(np.int64))
