"""The file of a GPU's outputs: one line of JSON per family, its outputs compressed together."""

from __future__ import annotations

import base64
import datetime
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .case import Case
from .values import storage

Outputs = list[np.ndarray]


@dataclass(frozen=True)
class Entry:
    """A device's result of a case: its outputs, or the reason why there are none."""

    case: Case
    digest: str
    outputs: Outputs | None
    refused: str = ""


def family_record(family: str, device: str, entries: Iterable[Entry]) -> dict[str, object]:
    rows, packed = [], bytearray()
    for entry in entries:
        row: dict[str, object] = {"name": entry.case.name, "digest": entry.digest}
        if entry.outputs is None:
            row["refused"] = entry.refused
        else:
            row["bytes"] = sum(a.nbytes for a in entry.outputs)
            packed += b"".join(a.tobytes() for a in entry.outputs)
        rows.append(row)
    blob = lzma.compress(bytes(packed), format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    date = datetime.date.today().isoformat()
    return {
        "family": family, "device": device, "date": date, "cases": rows, "outputs": base64.b64encode(blob).decode()
    }  # fmt: skip


def write(path: Path, records: Iterable[dict[str, object]]) -> None:
    lines = [json.dumps(record, separators=(",", ":")) for record in records]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def read(path: Path, cases: Iterable[Case]) -> Iterator[tuple[Entry, str]]:
    """Returns every recorded case that is still one of `cases`, with the device's name."""
    known = {case.name: case for case in cases}
    for record in json.loads(path.read_text()):
        data, at = lzma.decompress(base64.b64decode(record["outputs"])), 0
        for row in record["cases"]:
            begin, at = at, at + row.get("bytes", 0)
            case = known.get(row["name"])
            if case is None:
                continue
            outputs = None if "refused" in row else _split(case, data[begin:at])
            yield Entry(case, row["digest"], outputs, row.get("refused", "")), record["device"]


def _split(case: Case, data: bytes) -> Outputs | None:
    """Returns the outputs of a case; None if its kernel has changed so that they no longer fit."""
    kinds = [storage(kind.removeprefix("=")) for kind in case.outputs]
    if len(data) != case.count * sum(kind.itemsize for kind in kinds):
        return None
    made, at = [], 0
    for kind in kinds:
        made.append(np.frombuffer(data, kind, case.count, at))
        at += case.count * kind.itemsize
    return made
