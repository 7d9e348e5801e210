# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from ggdp.atomic_file import write_atomically


def test_text_and_bytes_replace_what_was_there(tmp_path):
    target = tmp_path / "file"
    write_atomically(target, "first, with an umlaut: ü")
    assert target.read_text(encoding="utf-8") == "first, with an umlaut: ü"
    write_atomically(target, b"second")
    assert target.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [target]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "file"
    target.write_text("old")

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_error_names_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        write_atomically(tmp_path / "no" / "file", "text")
    assert refusal.value.filename == str(tmp_path / "no" / "file")
