# SPDX-License-Identifier: Apache-2.0
"""Find a published file, or say which one is missing and where it is published."""

from pathlib import Path


def located(folder: Path, names: tuple[str, ...], *, published: str) -> Path:
    """The first of the paths `names` below `folder` that exists.

    Raises:
        ValueError: None of them exists; the message names them and their place of publication.
    """
    for name in names:
        if (folder / name).exists():
            return folder / name
    wanted = " or ".join(names)
    state = "has no such file" if folder.is_dir() else "does not exist"
    raise ValueError(f"expected {wanted} in {str(folder)!r}, which {state}; it is published at {published}")
