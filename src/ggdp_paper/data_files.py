# SPDX-License-Identifier: Apache-2.0
"""The published data of a figure: which of them are missing, and which data exactly they are."""

import hashlib
from pathlib import Path


def missing_files(files: tuple[str, ...], data: Path | None) -> str | None:
    """A line that says which files to pass; None if all are in the folder `data`."""
    if not files:
        return None
    if data is None:
        return f"needs data: pass --data DIR, a folder with {', '.join(files)}"
    absent = [file for file in files if not (data / file).is_file()]
    return f"needs {', '.join(absent)} in the folder of --data" if absent else None


def first_folder(folders: tuple[str, ...], data: Path) -> Path | None:
    """The first of these folders that is in the folder `data` and not empty."""
    return next((data / name for name in folders if _files_below(data / name)), None)


def file_digest(path: Path) -> str:
    """SHA-256 of the content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_digest(folder: Path) -> str:
    """SHA-256 of the names and contents of all files below the folder, wherever the folder lies."""
    whole = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in _files_below(folder)):
        whole.update(f"{file_digest(path)} {name}\0".encode())
    return whole.hexdigest()


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
