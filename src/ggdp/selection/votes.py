# SPDX-License-Identifier: Apache-2.0
"""Histograms of votes: how many teachers chose each class, query by query; checked when they are read."""

import contextlib
import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments

KINDS = (".npz", ".npy", ".csv")

MOST_BYTES = 1 << 30
"""1 GiB: a hundred million counts, and an end for what has none, as a link to /dev/zero."""


@dataclass(frozen=True, eq=False)
class Votes:
    """Whole numbers >= 0, [queries, classes]; every row sums to the number of teachers.

    >>> Votes([[3, 1, 0], [0, 2, 2]]).num_teachers
    4
    """

    counts: NDArray[np.int64]

    def __init__(self, counts: ArrayLike) -> None:
        object.__setattr__(self, "counts", _checked(counts))

    @property
    def num_queries(self) -> int:
        """Rows."""
        return int(self.counts.shape[0])

    @property
    def num_classes(self) -> int:
        """Columns."""
        return int(self.counts.shape[1])

    @property
    def num_teachers(self) -> int:
        """What every row sums to."""
        return int(self.counts[0].sum())

    def plurality(self) -> NDArray[np.int64]:
        """The class with most votes, the first where several share them. Private: it has no noise."""
        return np.asarray(np.argmax(self.counts, axis=1), dtype=np.int64)

    def first(self, num_queries: int) -> "Votes":
        """The first rows."""
        most = self.num_queries
        rows = arguments.whole("num_queries", num_queries, most=most, hint="there are no more rows")
        return Votes(self.counts[:rows])


def read_votes(path: Path) -> Votes:
    """Votes from a file: npz with an array `votes` or one array only, npy, or csv without a header.

    Raises:
        ValueError: The file holds no table of whole numbers >= 0 with equal sums; the message says where.
        OSError: The file cannot be read.
    """
    return Votes(read_array(path, "votes"))


def read_labels(path: Path, num_queries: int) -> NDArray[np.int64]:
    """True labels from a file of the same kinds, one whole number for each of the first queries."""
    found = read_array(path, "labels")
    if found.size != max(found.shape, default=1):
        raise ValueError(f"{path} must hold one label for each query, got an array of shape {found.shape}")
    labels = _whole_numbers(str(path), np.ravel(found))
    if len(labels) < num_queries:
        raise ValueError(f"{path} must hold a label for each of {num_queries} queries, got {len(labels)}")
    return labels[:num_queries]


def read_array(path: Path, name: str) -> NDArray[np.generic]:
    """One array of a file, by the file's ending; nothing in it is ever executed."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"{str(path)!r} must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path} must hold at most {MOST_BYTES >> 20} MiB, got more")
    if kind == ".csv":
        return _from_csv(data, path)
    why = "it is damaged, or holds something else than numbers"
    # A damaged file fails in many ways: in zip, zlib, or the array's header.
    with contextlib.suppress(Exception):
        loaded = np.load(io.BytesIO(data), allow_pickle=False)
        if kind == ".npy" and isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            names = list(loaded)
            if sum(part.file_size for part in loaded.zip.infolist()) > MOST_BYTES:
                why = f"it holds more than {MOST_BYTES >> 20} MiB"
            elif kind == ".npz" and (name in names or len(names) == 1):
                return np.asarray(loaded[name if name in names else names[0]])
            else:
                why = f"it holds {names}, and none is called {name!r}"
    raise ValueError(f"{path} must be a NumPy {kind[1:]} file of one plain array: {why}")


def _from_csv(data: bytes, path: Path) -> NDArray[np.float64]:
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8 text, got byte {error.start} undecodable") from None
    except csv.Error as error:
        raise ValueError(f"{path} must be CSV: {error}") from None
    numbers: list[list[float]] = []
    for line, row in enumerate(rows, start=1):
        if not row:
            continue
        try:
            numbers.append([float(cell) for cell in row])
        except ValueError:
            raise ValueError(
                f"{path} must hold numbers only, got {','.join(row)[:60]!r} in line {line}"
                + ("; leave out the header" if line == 1 else "")
            ) from None
        if len(numbers[-1]) != len(numbers[0]):
            raise ValueError(
                f"{path} must have rows of equal length, got {len(numbers[-1])} numbers in line {line} "
                f"after {len(numbers[0])}"
            )
    return np.array(numbers, dtype=np.float64)


def _checked(counts: ArrayLike) -> NDArray[np.int64]:
    whole = _whole_numbers("votes", counts)
    if whole.ndim != 2:
        raise ValueError(f"votes must have shape [queries, classes], got {whole.shape}")
    if whole.min() < 0:
        row, column = np.argwhere(whole < 0)[0]
        raise ValueError(f"votes must be whole numbers >= 0, got {whole[row, column]} at ({row}, {column})")
    sums = whole.sum(axis=1)
    if sums[0] == 0 or np.any(sums != sums[0]):
        row = int(np.argmax(sums != sums[0])) if sums[0] else 0
        raise ValueError(
            f"votes must sum to the same number of teachers >= 1 in every row, got {sums[row]} in row {row}"
            + (f" and {sums[0]} in row 0" if row else "")
        )
    whole.setflags(write=False)
    return whole


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    numbers = arguments.finite_array(name, values)
    odd = np.argwhere((numbers != np.rint(numbers)) | (np.abs(numbers) > 2.0**53))
    if len(odd):
        place = tuple(int(index) for index in odd[0])
        raise ValueError(f"{name} must hold whole numbers, got {numbers[place]} at {place}")
    return numbers.astype(np.int64)
