"""Whose a folder is: no command writes into what another kind of command made."""

from __future__ import annotations

import os
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
