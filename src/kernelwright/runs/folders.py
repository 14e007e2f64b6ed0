"""Whose a folder is: no command writes into what another kind of command made; and whether its disk is full.

And how a file that a user named is written.
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
"""What a folder is by a file in it."""

LITTLE = 1 << 20
"""Bytes: a disk that has less is full."""


def claim(folder: Path, *own: str) -> None:
    """Raises `StoreError` for a folder that another kind of command made: one of `KINDS`, and none of the files `own`
    by which the caller knows its own."""
    if any(os.path.exists(folder / name) for name in own):  # false as well where it may not be looked at
        return
    found = next((what for name, what in KINDS.items() if os.path.exists(folder / name)), None)
    if found is not None:
        raise StoreError(f"{str(folder)!r} holds {found}", hint="name another folder; nothing in this one was changed")


def make(folder: Path) -> None:
    """Makes a folder to write into, where there is none. Raises `StoreError`."""
    hint = "name a folder that you may write to with --out"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{str(folder)!r} cannot be made: {error.strerror}", hint=hint) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(f"{str(folder)!r} cannot be written to", hint=hint)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all, and makes its folder where there is none. Raises `StoreError`.

    Only a file is replaced: through a link it is what the link leads to, and to a pipe or a device one writes.
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
    """Raises `StoreError` for what a file cannot take the place of: a folder, a pipe, a device."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise StoreError(f"{str(path)!r} is not a regular file", hint="name another file")


def full(folder: Path, error: Exception) -> bool:
    """Whether something could not be written for want of space: by the number of the error, or where it has none by
    what is left on the folder's disk, since libraries have words of their own for it."""
    number = getattr(error, "errno", None)
    if number is not None:
        return number in (errno.ENOSPC, errno.EDQUOT)
    try:
        return shutil.disk_usage(folder).free < LITTLE
    except OSError:
        return False
