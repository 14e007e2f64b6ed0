"""Runs every conformance case on a GPU and writes the results.

    python tests/sets/opcodes/record.py OUT.json [--device gpu|machine] [--family NAME...] [--jobs 4]

Each family runs in its own process, so that a fault in one does not lose the others' results. `--device machine` runs
the cases on the functional machine, to try this script without a GPU. Prints a line per family; the exit status is 1
if a family failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.machine import MachineFault, PTXError, UnsupportedPTX
from sets.opcodes.case import Case
from sets.opcodes.devices import Device, Graphics, Machine, Refused
from sets.opcodes.recording import Entry, family_record, write
from sets.opcodes.suite import cases

SECONDS_A_FAMILY = 150.0
FAULT = 3
MOST_FAULTS = 8
Record = dict[str, Any]


def entry_of(case: Case, device: Device) -> Entry:
    inputs = case.operands()
    digest = case.digest(inputs)
    try:
        return Entry(case, digest, device.run(case, inputs))
    except (Refused, UnsupportedPTX, PTXError, MachineFault) as error:
        return Entry(case, digest, None, str(error)[:300])


def record_family(family: str, device_name: str, out: Path, start: int) -> int:
    """Runs one family in this process, from case `start` on.

    A fault of the GPU ends it with status 3; earlier results are kept.
    """
    device: Device = Graphics() if device_name == "gpu" else Machine()
    entries: list[Entry] = []
    fault = ""
    for case in [c for c in cases() if c.family == family][start:]:
        try:
            entries.append(entry_of(case, device))
        except RuntimeError as error:
            fault = f"{case.name}: {error}"
            entries.append(Entry(case, case.digest(case.operands()), None, f"fault: {error}"))
            break
    write(out, [family_record(family, device.name, entries)])
    refused = [e for e in entries if e.outputs is None]
    print(f"{family}: {len(entries)} cases on {device.name}, {len(refused)} refused", flush=True)
    for entry in refused:
        print(f"  {entry.case.name}: {entry.refused[:160]}", flush=True)
    return FAULT if fault else 0


def started(family: str, args: argparse.Namespace, folder: Path) -> tuple[str, int, str, list[Record]]:
    """Runs one family in processes of its own, a new one after each fault.

    Returns its name, exit status, messages and records.
    """
    found: list[Record] = []
    words, code = "", FAULT
    for turn in range(MOST_FAULTS):
        part = folder / f"{family}-{turn}.json"
        start = sum(len(record["cases"]) for record in found)
        command = [
            sys.executable,
            __file__,
            str(part),
            "--device",
            args.device,
            "--only",
            family,
            "--start",
            str(start),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_A_FAMILY, check=False)
        except subprocess.TimeoutExpired as late:
            return family, 124, f"{words}{family}: not done after {SECONDS_A_FAMILY} s: {late.stdout!r}", found
        words, code = words + done.stdout + done.stderr[-2000:], done.returncode
        if part.exists():
            found += json.loads(part.read_text())
        if code != FAULT:
            break
    return family, code, words, found


def chosen(wanted: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(case.family for case in cases()))
    return [family for family in known if not wanted or family in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("gpu", "machine"), default="gpu")
    parser.add_argument("--family", nargs="*", default=[])
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=4)
    args = parser.parse_args()
    if args.only:
        return record_family(args.only, args.device, args.out, args.start)
    began, status = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(args.jobs) as pool:
        folder = Path(name)
        records: list[Record] = []
        for family, code, words, found in pool.map(lambda f: started(f, args, folder), chosen(args.family)):
            print(words.strip() or f"{family}: exit {code}", flush=True)
            status |= code
            records += found
    write(args.out, records)
    size = args.out.stat().st_size / 1e6
    print(f"{args.out}: {size:.2f} MB, {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
