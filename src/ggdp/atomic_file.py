# SPDX-License-Identifier: Apache-2.0
"""Write a file whole or not at all."""

import contextlib
import errno
import os
import re
import stat
import tempfile
from pathlib import Path

_OPEN_FILES = re.compile(r"/proc/\d+(/task/\d+)?/fd")
_MOST_LINKS = 40  # as many as Linux follows


def write_atomically(path: Path, content: str | bytes, *, secret: bool = False) -> None:
    """Write beside `path`, then rename onto it: a reader sees the old file or the new one, never a part.

    Where `path` is a link, the file it points to is replaced and the link stays. A file that this process has
    open as its standard output or error, as `/dev/stdout` is where output goes to a log, is not replaced.

    Args:
        path: The file.
        content: What it will hold.
        secret: Whether only its owner may read it.

    Raises:
        OSError: The folder does not exist or cannot be written, or `path` is a folder, a device, an open
            stream or anything else that is not a regular file; it is then untouched, and the error names it.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        _write(file_to_replace(path), data, secret)
    except OSError as error:  # of a file beside it, or of none at all: the caller knows only `path`
        raise OSError(error.errno, error.strerror, str(path)) from None


def file_to_replace(path: Path) -> Path:
    """The file that `path` is or links to, whether it exists or not.

    Raises:
        OSError: What is there must not be replaced: a folder, a device, a pipe, an open stream.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; give the name of a file in it")
    if not stat.S_ISREG(found.st_mode):  # to rename onto a device or a pipe is to delete it
        raise OSError(errno.EINVAL, "it is not a regular file; give the name of one, or of a new one")
    if _is_open_stream(path, found):  # to rename onto a log is to lose what is in it
        raise OSError(errno.EINVAL, "it is an open stream, not a file of its own; give the name of a file")
    return Path(os.path.realpath(path))


def _is_open_stream(path: Path, found: os.stat_result) -> bool:
    """Whether the path is a name of an open stream, as /dev/fd/3 is, or a file that output goes to."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):  # a closed stream
            if os.path.samestat(found, os.fstat(stream)):
                return True
    for _ in range(_MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder == "/dev/fd" or _OPEN_FILES.fullmatch(folder):
            return True
        if not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    return False


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
