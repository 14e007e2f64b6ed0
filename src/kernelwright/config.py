"""Where things are kept, and how settings are read: TOML files with dotted overrides.

Nothing is written outside the cache folder and a run folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from kernelwright.errors import ConfigError


def cache_dir() -> Path:
    """The cache folder, made if need be: $KERNELWRIGHT_CACHE, else $XDG_CACHE_HOME/kernelwright, else ~/.cache."""
    named = os.environ.get("KERNELWRIGHT_CACHE")
    if named:
        path = Path(named)
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        path = (Path(base) if base else Path.home() / ".cache") / "kernelwright"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "not writable")
    except OSError as error:
        raise ConfigError(
            f"the cache folder {str(path)!r} cannot be used: {error.strerror}",
            hint="set KERNELWRIGHT_CACHE to a folder that you may write to",
        ) from error
    return path.resolve()
