"""Reads text files that a user names, with one clear error for each way to fail."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import CandidateError, TaskError

MAX_BYTES = 64 << 20


def read_text(path: Path, error: type[TaskError] | type[CandidateError], what: str) -> str:
    """Returns the file's text as UTF-8; raises `error` when it is missing, a folder, empty, too large, or not UTF-8."""
    try:
        if path.is_dir():
            raise error(f"{what} {str(path)!r} is a folder", hint="name a file")
        if not path.is_file() and path.exists():
            raise error(f"{what} {str(path)!r} is not a regular file", hint="name a file")
        if path.stat().st_size > MAX_BYTES:
            raise error(f"{what} {str(path)!r} is larger than {MAX_BYTES >> 20} MB", hint="name a source file")
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as fault:
        raise error(
            f"{what} {str(path)!r} is not UTF-8 text (byte {fault.start})", hint="convert it to UTF-8"
        ) from fault
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else fault
        raise error(f"{what} {str(path)!r} cannot be read: {reason}", hint="check the path") from fault
    if not text.strip():
        raise error(f"{what} {str(path)!r} is empty", hint="name a file that has source text in it")
    return text.removeprefix("\ufeff")
