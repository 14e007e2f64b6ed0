"""Whose a folder is: no command writes into what another kind of command made."""

from __future__ import annotations

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
    if any((folder / name).exists() for name in own):
        return
    found = next((what for name, what in KINDS.items() if (folder / name).exists()), None)
    if found is not None:
        raise StoreError(f"{str(folder)!r} holds {found}", hint="name another folder; nothing in this one was changed")
