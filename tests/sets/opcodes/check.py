"""The machine against a recording: every case, and a report of what differs, what either side refuses, and how far
approximate instructions are apart.

    python tests/sets/opcodes/check.py [RECORDING.json] [--family NAME...]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.machine import MachineFault, PTXError, UnsupportedPTX
from sets.opcodes.case import Case
from sets.opcodes.compare import Difference, compare, distance
from sets.opcodes.devices import Machine
from sets.opcodes.recording import Entry, read
from sets.opcodes.suite import cases

RECORDING = Path(__file__).resolve().parents[2] / "machine" / "recorded" / "opcodes.json"


@dataclass
class Report:
    """The result of a comparison; `same` counts the cases that agree, by family."""

    same: Counter[str] = field(default_factory=Counter)
    different: list[Difference] = field(default_factory=list)
    unsupported: dict[str, str] = field(default_factory=dict)
    """Cases that the GPU ran and the machine refuses, with the reason."""
    refused: dict[str, str] = field(default_factory=dict)
    """Cases that the GPU's driver refused."""
    stale: list[str] = field(default_factory=list)
    """Cases that have changed since they were recorded."""
    distances: dict[str, float] = field(default_factory=dict)
    device: str = ""


def check(entries: Iterable[tuple[Entry, str]]) -> Report:
    report, machine = Report(), Machine()
    for entry, device in entries:
        report.device = device
        _check_one(entry, machine, report)
    return report


def _check_one(entry: Entry, machine: Machine, report: Report) -> None:
    case, inputs = entry.case, entry.case.operands()
    if entry.refused:
        report.refused[case.name] = entry.refused
        return
    if entry.outputs is None or case.digest(inputs) != entry.digest:
        report.stale.append(case.name)
        return
    try:
        got = machine.run(case, inputs)
    except UnsupportedPTX as error:
        report.unsupported[case.name] = str(error)
        return
    except (PTXError, MachineFault) as error:
        report.different.append(Difference(case.name, case.count, f"the machine fails: {error}"))
        return
    found = compare(case, got, entry.outputs)
    if found is not None:
        report.different.append(found)
        return
    report.same[case.family] += 1
    if apart := distance(case, got, entry.outputs):
        report.distances[case.name] = apart


def recorded(path: Path = RECORDING, families: Iterable[str] = ()) -> Report:
    """Returns the report of a recording."""
    wanted = set(families)
    return check(read(path, [c for c in cases() if not wanted or c.family in wanted]))


def unrecorded(path: Path = RECORDING) -> list[Case]:
    """Returns the cases that the recording lacks."""
    every = cases()
    names = {entry.case.name for entry, _ in read(path, every)}
    return [case for case in every if case.name not in names]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path, nargs="?", default=RECORDING)
    parser.add_argument("--family", nargs="*", default=[])
    args = parser.parse_args()
    report = recorded(args.recording, args.family)
    print(f"recorded on {report.device}")
    for family, count in report.same.items():
        print(f"{family}: {count} cases agree")
    for difference in report.different:
        print(f"DIFFERENT {difference.case}: {difference.rows} rows; {difference.example}")
    reasons: dict[str, list[str]] = defaultdict(list)
    for name, reason in report.unsupported.items():
        reasons[reason].append(name)
    for reason, names in reasons.items():
        print(f"{len(names)} cases: {reason}: {', '.join(names)[:200]}")
    for name, reason in report.refused.items():
        print(f"refused by the driver: {name}: {reason[:120]}")
    print(f"stale: {report.stale}; furthest: { {k: v for k, v in sorted(report.distances.items())} }")
    return 1 if report.different or report.stale else 0


if __name__ == "__main__":
    sys.exit(main())
