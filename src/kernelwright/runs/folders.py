"""Tells which command created a folder, so that no other command overwrites it. Writes the files that users name.

Also tells a full disk from other errors.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

from kernelwright.errors import StoreError

KINDS = {
    "run.sqlite": "a run of eval, bench or optimize",
    "settings.toml": "a fine-tuning or reinforcement learning run",
    "settings.json": "a pre-training run",
    "build.json": "a corpus",
    "config.json": "a model",
}
"""A file's name -> the kind of folder that holds it."""

LITTLE = 1 << 20
"""Bytes: a disk with less free space counts as full."""


def claim(folder: Path, *own: str) -> None:
    """Raises `StoreError` for a folder that another kind of command created (`KINDS`). A folder with one of the files
    `own` is the caller's."""
    if any(os.path.exists(folder / name) for name in own):  # also false where we may not look
        return
    found = next((what for name, what in KINDS.items() if os.path.exists(folder / name)), None)
    if found is not None:
        raise StoreError(f"{str(folder)!r} holds {found}", hint="name another folder; nothing in this one was changed")


def make(folder: Path) -> None:
    """Creates a folder, unless it exists. Raises `StoreError` where it cannot be created or written to."""
    hint = "name a folder that you may write to with --out"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{str(folder)!r} cannot be made: {error.strerror}", hint=hint) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{str(folder)!r} cannot be written to", hint=hint)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all, and creates its folder. Raises `StoreError`.

    A link's target is replaced, not the link. A pipe or a device is written to.
    """
    data = text.encode("utf-8", "replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:
                file.write(data)
            return
        place = path.resolve()
        temporary = place.with_name(f"{place.name[:200]}.{os.getpid()}.new")
        try:
            temporary.write_bytes(data)
            os.replace(temporary, place)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        hint = "free some space, or name another file" if full(path.parent, error) else "name another file"
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}", hint=hint) from error


def check_replaceable(path: Path) -> None:
    """Raises `StoreError` for a path that a file cannot replace: a folder, a pipe, a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreError(f"{str(path)!r} is not a regular file", hint="name another file")


def full(folder: Path, error: Exception) -> bool:
    """Tells whether an error means that the disk is full: by its number, or, for an error of a library without one, by
    the free space on the folder's disk."""
    number = getattr(error, "errno", None)
    if number is not None:
        return number in (errno.ENOSPC, errno.EDQUOT)
    try:
        return shutil.disk_usage(folder).free < LITTLE
    except OSError:
        return False
