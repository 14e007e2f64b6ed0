"""Packs folders into a few files of bounded size, for a machine that returns little data, and unpacks them.

    python benchmarks/pieces.py FOLDER OUT       # puts the pieces in FOLDER together under OUT

A piece is NAME.tar.xz.00, .01, …, and `cat NAME.tar.xz.* | tar xJ` unpacks them too. SQLite itself copies runs, so that
a run that is being written is copied whole.
"""

from __future__ import annotations

import argparse
import io
import lzma
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PIECE = 15_000_000
"""The most bytes of a piece."""
BLOCK = 4_000_000
"""Bytes that one thread compresses together."""
LIVE = (".sqlite-wal", ".sqlite-shm", ".lock")


def pack(
    root: Path, files: Iterable[Path], out: Path, name: str, room: int, piece: int = PIECE
) -> tuple[list[Path], str]:
    """Packs files as pieces in `out`, in place of earlier ones of that name, if they take `room` bytes at most.

    Returns the pieces, or none and the reason. Files that disappear meanwhile are left out.
    """
    compressed = b"".join(_compressed(_tar(root, files)))
    if len(compressed) > room:
        return [], f"{name} takes {len(compressed):,} bytes, and there is room for {room:,}"
    parts = [compressed[at : at + piece] for at in range(0, len(compressed), piece)]
    out.mkdir(parents=True, exist_ok=True)
    pieces = []
    for number, part in enumerate(parts):
        path = out / f"{name}.tar.xz.{number:02d}"
        temporary = out / f".{path.name}"
        temporary.write_bytes(part)
        os.replace(temporary, path)
        pieces.append(path)
    for stale in set(out.glob(f"{name}.tar.xz.*")) - set(pieces):
        stale.unlink()
    return pieces, ""


def unpack(folder: Path, out: Path) -> list[str]:
    """Puts all pieces of a folder together under `out`. Returns their names."""
    names = sorted({path.name.rpartition(".")[0] for path in folder.glob("*.tar.xz.*")})
    for name in names:
        whole = b"".join(path.read_bytes() for path in sorted(folder.glob(f"{name}.*")))
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(whole))) as tar:
            tar.extractall(out, filter="data")
    return names


def _tar(root: Path, files: Iterable[Path]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar, tempfile.TemporaryDirectory() as scratch:
        for path in sorted(files):
            if path.name.endswith(LIVE):
                continue
            source = path
            try:
                if path.suffix == ".sqlite":
                    source = Path(scratch) / "copy.sqlite"
                    _copy_database(path, source)
                tar.addfile(*_entry(source, str(path.relative_to(root))))
            except (OSError, sqlite3.Error):
                continue
    return held.getvalue()


def _entry(path: Path, name: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    """Returns an archive entry. The file is read whole first, because a log grows while it is packed."""
    content = path.read_bytes()
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), int(path.stat().st_mtime)
    return info, io.BytesIO(content)


def _copy_database(path: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as source, sqlite3.connect(target) as copy:
        source.backup(copy)
    source.close()
    copy.close()


def _compressed(data: bytes) -> list[bytes]:
    """Returns the blocks as xz streams, which form one xz file when concatenated."""
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)] or [b""]
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        return list(threads.map(lambda block: lzma.compress(block, preset=1), blocks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    print("\n".join(unpack(asked.folder, asked.out)))


if __name__ == "__main__":
    main()
