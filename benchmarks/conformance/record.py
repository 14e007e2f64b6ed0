"""Runs every conformance case on a GPU and writes what came out.

    python benchmarks/conformance/record.py OUT.json [--device gpu|machine] [--family NAME...] [--jobs 4]

Each family runs in a process of its own, so that a fault in one leaves the others' results. `--device machine` goes the
same way on the functional machine, to try this script without a GPU. Prints a line a family; exit status 1 when a
family failed.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.case import Case
from conformance.devices import Device, Graphics, Machine, Refused
from conformance.recording import Entry, family_record, write
from conformance.suite import cases
from kernelwright.machine import MachineFault, PTXError, UnsupportedPTX

SECONDS_A_FAMILY = 150.0


def entry_of(case: Case, device: Device) -> Entry:
    inputs = case.operands()
    digest = case.digest(inputs)
    try:
        return Entry(case, digest, device.run(case, inputs))
    except (Refused, UnsupportedPTX, PTXError, MachineFault) as error:
        return Entry(case, digest, None, str(error)[:300])


def record_family(family: str, device_name: str, out: Path) -> None:
    """Runs one family here; a fault of the GPU ends it, and what came before it is kept."""
    device: Device = Graphics() if device_name == "gpu" else Machine()
    entries: list[Entry] = []
    for case in [c for c in cases() if c.family == family]:
        try:
            entries.append(entry_of(case, device))
        except RuntimeError as error:
            print(f"{case.name}: {error}; the rest of {family} is not recorded", flush=True)
            break
    write(out, [family_record(family, device.name, entries)])
    refused = [e for e in entries if e.outputs is None]
    print(f"{family}: {len(entries)} cases on {device.name}, {len(refused)} refused", flush=True)
    for entry in refused:
        print(f"  {entry.case.name}: {entry.refused[:160]}", flush=True)


def started(family: str, args: argparse.Namespace, folder: Path) -> tuple[str, int, str]:
    """One family in its own process: its name, exit status and words."""
    command = [sys.executable, __file__, str(folder / f"{family}.json"), "--device", args.device, "--only", family]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_A_FAMILY, check=False)
        return family, done.returncode, done.stdout + done.stderr[-2000:]
    except subprocess.TimeoutExpired as late:
        return family, 124, f"{family}: not done after {SECONDS_A_FAMILY} s: {late.stdout!r}"


def chosen(wanted: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(case.family for case in cases()))
    return [family for family in known if not wanted or family in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=("gpu", "machine"), default="gpu")
    parser.add_argument("--family", nargs="*", default=[])
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=4)
    args = parser.parse_args()
    if args.only:
        record_family(args.only, args.device, args.out)
        return 0
    began, status = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(args.jobs) as pool:
        folder = Path(name)
        records = []
        for family, code, words in pool.map(lambda f: started(f, args, folder), chosen(args.family)):
            print(words.strip(), flush=True)
            status |= code
            part = folder / f"{family}.json"
            if part.exists():
                records += json.loads(part.read_text())
    write(args.out, records)
    size = args.out.stat().st_size / 1e6
    print(f"{args.out}: {size:.2f} MB, {time.perf_counter() - began:.1f} s", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
