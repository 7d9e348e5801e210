# SPDX-License-Identifier: Apache-2.0
"""A file is replaced whole; what is at its path and is no file stays, and the error names the path."""

import os
import stat
import subprocess
import sys

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
    with pytest.raises(OSError, match="No space left") as refusal:
        write_atomically(target, "new")
    assert refusal.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_error_names_the_file_that_was_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError) as refusal:
        write_atomically(tmp_path / "no" / "file", "text")
    assert refusal.value.filename == str(tmp_path / "no" / "file")


def test_behind_a_link_the_file_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "file", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("real/file")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert list((tmp_path / "real").iterdir()) == [target]


def test_behind_a_link_to_nothing_a_file_is_made(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("file")
    write_atomically(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize(("secret", "mode"), [(True, 0o600), (False, 0o640)])
def test_who_may_read_is_decided_by_secret_and_umask_also_behind_a_link(tmp_path, secret, mode):
    target, link = tmp_path / "file", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o666)
    link.symlink_to(target)
    before = os.umask(0o027)
    try:
        write_atomically(link, "new", secret=secret)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_a_pipe_is_refused_and_left_in_place(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match="it is not a regular file") as refusal:
            write_atomically(path, "text")
        assert refusal.value.filename == str(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_folder_is_refused_by_its_own_name(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match="it is a folder") as refusal:
        write_atomically(folder, "text")
    assert refusal.value.filename == str(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError) as refusal:
        write_atomically(tmp_path / "one", "text")
    assert refusal.value.filename == str(tmp_path / "one")
    assert (tmp_path / "one").is_symlink()


def test_an_error_of_the_rename_names_the_file_that_was_asked_for(tmp_path, monkeypatch):
    def refused(source, target):
        raise PermissionError(13, "Permission denied", source, None, target)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError) as refusal:
        write_atomically(tmp_path / "file", "text")
    assert (refusal.value.filename, refusal.value.filename2) == (str(tmp_path / "file"), None)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_output_goes_to_is_not_replaced(tmp_path):
    log = tmp_path / "log"
    log.write_text("precious\n")
    write = "import sys; from pathlib import Path; from ggdp.atomic_file import write_atomically as write\n"
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", str(log)):
        code = f"{write}write(Path({name!r}), 'lost')"
        with log.open("ab") as stream:
            done = subprocess.run([sys.executable, "-c", code], stdout=stream, stderr=subprocess.PIPE)
        assert b"it is an open stream" in done.stderr
    with log.open("ab") as stream:
        (tmp_path / "link").symlink_to(f"/proc/self/fd/{stream.fileno()}")
        with pytest.raises(OSError, match="it is an open stream"):
            write_atomically(tmp_path / "link", "lost")
    assert log.read_text() == "precious\n"
