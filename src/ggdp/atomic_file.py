# SPDX-License-Identifier: Apache-2.0
"""Write a file whole or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, secret: bool = False) -> None:
    """Write beside `path`, then rename onto it: a reader sees the old file or the new one, never a part.

    Args:
        path: The file.
        content: What it will hold.
        secret: Whether only its owner may read it.

    Raises:
        OSError: The folder does not exist or cannot be written; `path` is then untouched.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if not secret:  # mkstemp makes files private to their owner; --out should not
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
