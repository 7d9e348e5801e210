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
    try:
        batch = _PlainBatch(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        pixels, labels = batch[b"data"].content(), np.array(batch[b"labels"], dtype=np.int64)
    except Exception as error:  # a damaged or hostile file fails anywhere
        why = str(error) or type(error).__name__
        raise ValueError(
            f"{str(path)!r} must be a batch of CIFAR-10 with data and labels, arrays only: {why}"
        ) from None
    return _checked(path, pixels, labels)


class _PlainBatch(pickle._Unpickler):
    """Reads what the batches hold, and runs no code that a file may name.

    An array becomes an inert `_PickledArray`: NumPy's own classes can be brought down by a forged state. It
    is pickle's reader in Python, since the one in C sets aside as much memory as a file asks for.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("numpy") and name in ("_reconstruct", "ndarray", "dtype"):
            return _PickledArray if name == "_reconstruct" else _PickledName
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
            return _latin1
        raise ValueError(f"it holds an object of {module}.{name}")


class _PickledName:
    """The class `ndarray`, or a dtype with the arguments it was written with."""

    def __init__(self, *written: Any) -> None:
        self.written = written

    def __setstate__(self, state: Any) -> None:
        """Of a dtype: byte order and the like, which bytes do not have."""


class _PickledArray:
    """An array of bytes, as it was written: version, shape, dtype, order and content."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def content(self) -> NDArray[np.uint8]:
        """Images [N, 3, 32, 32]."""
        _, shape, dtype, is_fortran, data = self.state
        if dtype.written[0] not in ("u1", b"u1") or is_fortran or not isinstance(data, bytes):
            raise ValueError("its data are not bytes, row by row")
        pixels = np.frombuffer(data, dtype=np.uint8)
        if int(np.prod(shape)) != len(pixels):
            raise ValueError(f"its data have {len(pixels)} bytes and the shape {shape}")
        return pixels.reshape(-1, 3, 32, 32).copy()  # what is read from bytes cannot be written


def _latin1(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", b"latin1"):
        raise ValueError(f"it holds text in {encoding!r}")
    return text.encode("latin1")


def _binary(path: Path) -> LabelledImages:
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % (1 + _PIXELS):
        raise ValueError(f"{str(path)!r} must hold records of {1 + _PIXELS} bytes, got {len(content)} bytes")
    rows = content.reshape(-1, 1 + _PIXELS)
    return _checked(path, rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def _matlab(path: Path) -> LabelledImages:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=["X", "y"])
        labels = np.asarray(content["y"]).reshape(-1) % 10  # the file calls the digit zero 10
        pixels = np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1))
    except Exception as error:  # a damaged file fails in zlib, in the reader or in the shapes
        why = str(error) or type(error).__name__
        raise ValueError(f"{str(path)!r} must be a MATLAB file with the variables X and y: {why}") from None
    return _checked(path, pixels, labels)


def _checked(path: Path, pixels: NDArray[Any], labels: NDArray[Any]) -> LabelledImages:
    if pixels.shape != (len(labels), 3, 32, 32) or pixels.dtype != np.uint8:
        raise ValueError(
            f"{str(path)!r} must hold {len(labels)} images of 3 x 32 x 32 bytes, got shape {pixels.shape}"
        )
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{str(path)!r} must hold labels from 0 to 9, and at least one")
    return LabelledImages(pixels, labels.astype(np.int64))
