"""Reads and writes files of results. Large ones are compressed: their names end in `.gz`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read_text(path: Path) -> str:
    """Returns a file's text, decompressed where its name ends in `.gz`."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file, compressed or not."""
    return json.loads(read_text(path))


def write_text(path: Path, text: str) -> None:
    """Writes a file, compressed where its name ends in `.gz`. Equal text gives equal bytes: no time is stored."""
    content = text.encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
