# SPDX-License-Identifier: Apache-2.0
"""Vote files: every kind is read, everything else is refused in one line."""

import importlib.util
import io

import numpy as np
import pytest

from ggdp.selection import Votes, read_votes
from ggdp.selection.votes import read_labels
from shipped_votes import FILE, shipped

TABLE = np.array([[3, 1, 0], [0, 2, 2]])


@pytest.fixture(params=["npz", "npy", "csv", "named.npz"])
def file(request, tmp_path):
    path = tmp_path / f"votes.{request.param}"
    if request.param == "npz":
        np.savez(path, TABLE)
    elif request.param == "named.npz":
        np.savez(path, votes=TABLE, labels=np.zeros(2))
    elif request.param == "npy":
        np.save(path, TABLE.astype(np.float32))
    else:
        path.write_text("\ufeff3,1,0\n0,2,2\n\n", encoding="utf-8")
    return path


def test_every_kind_of_file_is_read(file):
    votes = read_votes(file)
    np.testing.assert_array_equal(votes.counts, TABLE)
    assert (votes.num_queries, votes.num_classes, votes.num_teachers) == (2, 3, 4)
    np.testing.assert_array_equal(votes.plurality(), [0, 1])


def test_the_shipped_votes_are_what_their_script_makes():
    script = FILE.with_name("make_votes.py")
    spec = importlib.util.spec_from_file_location("make_votes", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.made()
    votes, labels = shipped()
    np.testing.assert_array_equal(votes, made["votes"])
    np.testing.assert_array_equal(labels, made["labels"])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2, 3], r"shape \[queries, classes\], got \(3,\)"),
        (np.zeros((2, 2, 2)), r"got \(2, 2, 2\)"),
        ([[1.5, 0.5]], r"votes must hold whole numbers, got 1.5 at \(0, 0\)"),
        ([[3, 1], [5, -1]], r"votes must be whole numbers >= 0, got -1 at \(1, 1\)"),
        ([[3, 1], [3, 2]], "same number of teachers >= 1 in every row, got 5 in row 1 and 4 in row 0"),
        ([[0, 0]], "got 0 in row 0"),
        ([[1, np.nan]], "finite numbers only"),
        ([[1e300, 0]], "votes must hold whole numbers"),
        ([], "at least one number"),
    ],
)
def test_what_is_no_vote_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        Votes(counts)


def spoiled_archive():
    """A compressed archive whose directory is whole and whose data are not."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, votes=np.tile(TABLE, (50, 1)))
    content = bytearray(buffer.getvalue())
    start = content.index(b"votes.npy") + len("votes.npy")
    content[start + 20 : start + 60] = b"\xff" * 40
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.csv", b"1,2\n3\n", "rows of equal length, got 1 numbers in line 2 after 2"),
        ("v.csv", b"a,b\n1,2\n", "numbers only, got 'a,b' in line 1"),
        ("v.csv", b"", "at least one number"),
        ("v.csv", b"\xff\xfe", "UTF-8"),
        ("v.npy", b"nonsense", "must be a NumPy npy file"),
        ("v.npz", b"PK\x03\x04 broken", "must be a NumPy npz file"),
        (
            "v.npz",
            b"\x80\x04K\x01.",
            "of one plain array: it is damaged, or holds something else than numbers$",
        ),
        ("v.npy", b"", "must be a NumPy npy file"),
        (
            "v.npz",
            spoiled_archive(),
            "of one plain array: it is damaged, or holds something else than numbers$",
        ),
        ("v.csv", b"1" * 200_000, "must be CSV: field larger than field limit"),
        ("v.txt", b"1,2\n", "must end in .npz, .npy or .csv"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as refused:
        read_votes(path)
    assert "\n" not in str(refused.value)


def test_a_pickle_is_never_opened(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "v.npy").write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match="must be a NumPy npy file of one plain array") as refused:
        read_votes(tmp_path / "v.npy")
    assert "allow_pickle" not in str(refused.value)  # NumPy's advice, to open it


def test_an_archive_of_several_arrays_needs_one_called_votes(tmp_path):
    np.savez(tmp_path / "v.npz", a=TABLE, b=TABLE)
    with pytest.raises(ValueError, match="none is called 'votes'"):
        read_votes(tmp_path / "v.npz")


def test_labels_must_be_enough(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(5))
    np.testing.assert_array_equal(read_labels(tmp_path / "y.npy", 3), [0, 1, 2])
    with pytest.raises(ValueError, match="a label for each of 6 queries, got 5"):
        read_labels(tmp_path / "y.npy", 6)


def test_first_rows_only_as_many_as_there_are():
    assert Votes(TABLE).first(1).num_queries == 1
    with pytest.raises(ValueError, match="queries must be a whole number in"):
        Votes(TABLE).first(3)
