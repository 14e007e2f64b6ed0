"""Progress of a training run: a JSON line every few updates, and a live line on the terminal."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kernelwright.errors import StoreError

BENCHES = Path("bench") / "results.jsonl"
"""The file in a run's folder with one row per evaluation by execution."""

PEAKS = (("H200", 989e12), ("H100", 989e12), ("GH200", 989e12), ("B200", 2250e12), ("A100", 312e12), ("L40S", 362e12))
"""Dense bfloat16 operations per second by GPU name, from NVIDIA's data sheets (SXM variants)."""


def peak_flops(name: str) -> float | None:
    """Returns a GPU's peak in operations per second; None for a GPU that is not in the table."""
    return next((peak for part, peak in PEAKS if part in name), None)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Converts an `OSError` of the block, such as a full disk, to a `StoreError` that names the path."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: Exception) -> StoreError:
    """Returns the error of a file that cannot be written."""
    why = getattr(error, "strerror", None) or error
    return StoreError(
        f"{str(path)!r} cannot be written: {why}", hint="free some space, then give the same command again"
    )


class LoggedTable(BaseModel):
    """A row of a log with any content."""

    model_config = ConfigDict(strict=True)


class LoggedStep(LoggedTable):
    """The fields of every row of a run's log."""

    step: int


class Log:
    """`log.jsonl` of a run. After a resume, rows of repeated updates are dropped.

    Raises `StoreError` for a damaged log, and if it cannot be written.
    """

    def __init__(self, path: Path, step: int) -> None:
        self.path = path
        kept = "".join(json.dumps(finite(row)) + "\n" for row in read_log(path, LoggedStep) if row["step"] <= step)
        with writing(path):
            if path.exists() and path.read_bytes() == kept.encode():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}")  # a full disk leaves the old log intact
            temporary.write_text(kept, encoding="utf-8")
            os.replace(temporary, path)

    def add(self, row: dict[str, Any]) -> None:
        """Appends one row; non-finite numbers become null."""
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(finite(row), allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """Replaces non-finite numbers in nested tables and lists by None: JSON cannot represent them."""
    if isinstance(value, Mapping):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_log(path: Path, needs: type[LoggedTable] = LoggedTable) -> list[dict[str, Any]]:
    """Reads the rows of a log; ignores a partial last line. Raises `StoreError` for a row without the fields of
    `needs`."""
    rows = []
    for number, row in json_lines(path):
        try:
            needs.model_validate(row)
        except ValidationError as error:
            raise damaged(path, number) from error
        rows.append(row)
    return rows


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """Yields line numbers, from 1, and values of a JSON lines file; nothing without a file.

    Ignores a partial last line that a killed process left. Raises `StoreError` for any other damaged line.
    """
    if not path.is_file():
        return
    *whole, last = path.read_bytes().split(b"\n")
    for number, line in enumerate([*whole, last] if last else whole, 1):
        try:
            value = json.loads(line)
        except ValueError as error:  # neither JSON, nor UTF-8
            if number > len(whole):
                return
            raise damaged(path, number) from error
        yield number, value


def damaged(path: Path, number: int) -> StoreError:
    """Returns the error of a damaged line."""
    return StoreError(f"line {number} of {str(path)!r} is damaged", hint="put the file back as it was, or remove it")


SETTLING = 10
"""Updates of a process before its speed counts; the first updates compile."""


class Meter:
    """Counts updates, tokens and seconds since the last reading. Speed excludes the first `SETTLING` updates."""

    def __init__(self) -> None:
        self.updates = 0
        self._timed = (0, 0.0)
        self.restart()

    def restart(self) -> None:
        """Resets the counts."""
        self._begun = self.updates
        self._tokens = 0
        self._banked = 0.0
        self._since = time.monotonic()

    def count(self, tokens: int) -> bool:
        """Counts an update. Returns true if the caller should synchronise and restart, since timing begins here."""
        self.updates += 1
        self._tokens += tokens
        return self.updates in (1, SETTLING)

    def pause(self) -> None:
        """Stops the clock for work other than updates."""
        self._banked = self.elapsed()

    def resume(self) -> None:
        """Restarts the clock."""
        self._since = time.monotonic()

    def elapsed(self) -> float:
        """Returns the seconds since the last reading."""
        return self._banked + time.monotonic() - self._since

    def seconds_an_update(self) -> float:
        """Returns the mean over all updates after `SETTLING`. Synchronise the device first."""
        updates, seconds = self._timed
        if self._begun >= SETTLING:
            updates, seconds = updates + self.updates - self._begun, seconds + self.elapsed()
        return seconds / max(1, updates)

    def read(self) -> tuple[bool, int, float]:
        """Returns whether the reading counts as speed, and the tokens and seconds since the last one; resets them.

        Synchronise the device first.
        """
        settled, tokens, seconds = self._begun >= SETTLING, self._tokens, self.elapsed()
        if settled:
            self._timed = (self._timed[0] + self.updates - self._begun, self._timed[1] + seconds)
        self.restart()
        return settled, tokens, seconds


class Live:
    """A progress line on stderr: rewritten in place on a terminal, else a new line every ten seconds."""

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.terminal = sys.stderr.isatty()
        self._last = 0.0
        self._open = False

    def say(self, text: str, *, last: bool = False) -> None:
        """Shows a line; always shows the last line of a stage."""
        if not self.shown:
            return
        if self.terminal:
            print(f"\r\x1b[2K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
            self._open = not last
        elif last or time.monotonic() - self._last > 10:
            print(text, file=sys.stderr, flush=True)
            self._last = time.monotonic()

    def close(self) -> None:
        """Ends an open line."""
        if self._open:
            print(file=sys.stderr, flush=True)
            self._open = False


def line(row: dict[str, Any], total: int | None) -> str:
    """Formats a row of the log for the terminal."""
    parts = [f"step {row['step']}/{total if total is not None else '…'}", f"loss {row['loss']:.4f}"]
    if "held_out_loss" in row:
        parts.append(f"held out {row['held_out_loss']:.4f}")
    parts.append(f"{row['tokens'] / 1e6:.1f} M tokens")
    if row["tokens_per_s"] is not None:
        parts.append(f"{row['tokens_per_s']:,} tokens/s")
    if row.get("mfu") is not None:
        parts.append(f"MFU {row['mfu']:.1%}")
    return " · ".join(parts)
