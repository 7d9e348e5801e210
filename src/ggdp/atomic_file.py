# SPDX-License-Identifier: Apache-2.0
"""Write a file whole or not at all."""

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, secret: bool = False) -> None:
    """Write beside `path`, then rename onto it: a reader sees the old file or the new one, never a part.

    Where `path` is a link, the file it points to is replaced and the link stays.

    Args:
        path: The file.
        content: What it will hold.
        secret: Whether only its owner may read it.

    Raises:
        OSError: The folder does not exist or cannot be written, or `path` is a folder, a device or anything
            else that is not a regular file; it is then untouched, and the error names it.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _write(_file_at(path), data, secret)
    except OSError as error:  # of a file beside it, or of none at all: the caller knows only `path`
        raise OSError(error.errno, error.strerror, str(path)) from None


def _file_at(path: Path) -> Path:
    """The file that `path` is or links to, whether it exists or not."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file in it")
    if not stat.S_ISREG(mode):  # to rename onto a device or a pipe is to delete it
        raise OSError(errno.EINVAL, "it is not a regular file; give the name of one, or of a new one")
    return Path(os.path.realpath(path))


def _write(target: Path, data: bytes, secret: bool) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not secret:  # mkstemp makes files private to their owner; --out should not
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
