# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and SVHN as their authors publish them: arrays of bytes [N, 3, 32, 32] and labels [N].

Read here and not by torchvision, which unpickles CIFAR-10, does not know its binary version, and reads SVHN
by SciPy: a hostile file must not run code, nor a damaged one end the process.
"""

import io
import pickle
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp_paper.tasks.task import located

CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar.html"
SVHN = "http://ufldl.stanford.edu/housenumbers/"
_PIXELS = 3 * 32 * 32


class _Damaged(ValueError):
    """What is wrong with a file, in words for people."""


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
        why = error if isinstance(error, _Damaged) else "it is damaged"
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
        raise _Damaged(f"it holds an object of {module}.{name}")


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
            raise _Damaged("its data are not bytes, row by row")
        pixels = np.frombuffer(data, dtype=np.uint8)
        if int(np.prod(shape)) != len(pixels):
            raise _Damaged(f"its data have {len(pixels)} bytes and the shape {shape}")
        return pixels.reshape(-1, 3, 32, 32).copy()  # what is read from bytes cannot be written


def _latin1(text: str, encoding: str) -> bytes:
    if encoding not in ("latin1", b"latin1"):
        raise _Damaged(f"it holds text in {encoding!r}")
    return text.encode("latin1")


def _binary(path: Path) -> LabelledImages:
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) % (1 + _PIXELS):
        raise ValueError(f"{str(path)!r} must hold records of {1 + _PIXELS} bytes, got {len(content)} bytes")
    rows = content.reshape(-1, 1 + _PIXELS)
    return _checked(path, rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


def _matlab(path: Path) -> LabelledImages:
    try:
        found = dict(_matlab_arrays(path.read_bytes()))
        labels = found["y"].reshape(-1).astype(np.int64) % 10  # the file calls the digit zero 10
        pixels = np.ascontiguousarray(found["X"].transpose(3, 2, 0, 1))
    except Exception as error:  # a damaged file fails anywhere
        why = error if isinstance(error, _Damaged) else "it is damaged"
        raise ValueError(f"{str(path)!r} must be a MATLAB 5 file with the variables X and y: {why}") from None
    return _checked(path, pixels, labels)


_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MOST_BYTES = 1 << 30  # of one variable; those of SVHN have a quarter of that


def _matlab_arrays(content: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays X and y of a MATLAB 5 file.

    SciPy reads such files too, and a damaged one can crash it, and Python with it.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise _Damaged("it has no MATLAB 5 header")
    for kind, data in _matlab_elements(content[128:], order):
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(data, _MOST_BYTES)
            ((kind, data),) = _matlab_elements(data, order)
        if kind != _MATRIX:
            continue
        _, (_, shape), (_, name), *rest = _matlab_elements(data, order)
        if name in (b"X", b"y"):
            number, values = rest[0]
            flat = np.frombuffer(values, f"{order}{_NUMBERS[number]}")
            yield name.decode(), flat.reshape(np.frombuffer(shape, f"{order}i4").tolist(), order="F")


def _matlab_elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Pairs of a type and its bytes; the short form packs both into eight bytes."""
    at = 0
    while at + 8 <= len(content):
        first, size = struct.unpack_from(f"{order}II", content, at)
        if first >> 16:
            kind, size, start, end = first & 0xFFFF, first >> 16, at + 4, at + 8
        else:
            kind, start = first, at + 8
            end = start + size + (-size % 8 if kind != _COMPRESSED else 0)
        if start + size > len(content):
            raise _Damaged("it ends too early")
        yield kind, content[start : start + size]
        at = end


def _checked(path: Path, pixels: NDArray[Any], labels: NDArray[Any]) -> LabelledImages:
    if pixels.shape != (len(labels), 3, 32, 32) or pixels.dtype != np.uint8:
        raise ValueError(
            f"{str(path)!r} must hold {len(labels)} images of 3 x 32 x 32 bytes, got shape {pixels.shape}"
        )
    if len(labels) == 0 or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"{str(path)!r} must hold labels from 0 to 9, and at least one")
    return LabelledImages(pixels, labels.astype(np.int64))
