"""The machine against a GPU's recording: one small kernel per opcode, type and modifier (tests/sets/opcodes).

The recording is made by `python tests/sets/opcodes/record.py tests/machine/recorded/opcodes.json` on a GPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sets.opcodes import coverage
from sets.opcodes.case import Case
from sets.opcodes.check import RECORDING, Report, check, recorded, unrecorded
from sets.opcodes.compare import compare
from sets.opcodes.devices import Machine
from sets.opcodes.recording import Entry, family_record, read, write
from sets.opcodes.suite import cases

needs_recording = pytest.mark.skipif(not RECORDING.exists(), reason=f"not recorded on a GPU yet: {RECORDING.name}")

WITHOUT_CASE = {
    "trap": "ends the kernel with an error: tests/machine/test_faults.py",
    "brkpt": "ends the kernel with an error: tests/machine/test_faults.py",
    **dict.fromkeys(("setmaxnreg", "applypriority", "discard"), "changes no value that is defined"),
    **dict.fromkeys(("tex", "tld4", "txq", "suld", "sust", "suq"), "needs a texture or surface object of the driver"),
}
"""Opcodes that the decoder accepts and that have no conformance case, and why."""


@pytest.fixture(scope="module")
def report() -> Report:
    return recorded()


@needs_recording
def test_the_machine_computes_what_the_gpu_does(report: Report) -> None:
    lines = [f"{d.case}: {d.rows} rows; {d.example}" for d in report.different]
    assert not lines, f"{len(lines)} of {report.same.total() + len(lines)} cases differ:\n" + "\n".join(lines[:40])


@needs_recording
def test_only_these_forms_are_refused(report: Report) -> None:
    """The machine refuses instructions that it does not compute as the GPU does."""
    assert {reason.split(": ", 1)[1] for reason in report.unsupported.values()} == {"fma.oob", "vshl.sat"}
    assert not report.refused


@needs_recording
def test_the_page_says_so(report: Report) -> None:
    text = (RECORDING.parents[3] / "docs" / "conformance.md").read_text()
    assert f"{report.same.total()} give the same results on the machine, {len(report.different)} differ" in text
    assert all(f"| {family} | {count} |" in text for family, count in report.same.items())


@needs_recording
def test_the_recording_is_of_these_cases(report: Report) -> None:
    assert not report.stale
    assert not [case.name for case in unrecorded()]


@needs_recording
def test_most_cases_are_compared(report: Report) -> None:
    assert report.same.total() > 2500


def test_every_accepted_opcode_has_a_case() -> None:
    opcodes, _ = coverage.used(cases())
    missing = set(coverage.accepted()) - opcodes - set(WITHOUT_CASE)
    assert not missing, f"accepted by the decoder, without a conformance case: {sorted(missing)}"


def test_operands_do_not_change() -> None:
    case = next(c for c in cases() if c.name == "fma.rn.f32")
    assert [int(column[300]) for column in case.operands()] == [int(column[300]) for column in case.operands()]
    assert case.digest(case.operands()) == FMA_DIGEST


FMA_DIGEST = "c55e87ff00ff"


def test_a_wrong_result_is_noticed(tmp_path: Path) -> None:
    """It reads a recording with one flipped bit, and one of another kernel, through the file."""
    made = {c.name: c for c in cases() if c.name in ("add.u32", "sin.approx.f32", "setp.lt.f64")}
    entries = []
    for case in made.values():
        inputs = case.operands()
        outputs = [a.copy() for a in Machine().run(case, inputs)]
        if case.name == "add.u32":
            outputs[0][17] ^= 1 << 20
        digest = "0" * 12 if case.name == "setp.lt.f64" else case.digest(inputs)
        entries.append(Entry(case, digest, outputs))
    write(tmp_path / "made.json", [family_record("some", "a test", entries)])
    found = check(read(tmp_path / "made.json", made.values()))
    assert [(d.case, d.rows) for d in found.different] == [("add.u32", 1)]
    assert found.stale == ["setp.lt.f64"]
    assert found.same.total() == 1


def test_bounds_of_approximate_results() -> None:
    case = Case("x", ("f32",), ("f32",), "", "ulp 2")
    one = np.full(512, 1.0, np.float32)
    near = [np.nextafter(np.nextafter(one, 2), 2).astype(np.float32).view(np.uint32)]
    far = [(one.view(np.uint32) + 3).astype(np.uint32)]
    nan, other = [np.full(512, 0x7FC00000, np.uint32)], [np.full(512, 0xFFC00001, np.uint32)]
    assert compare(case, near, [one.view(np.uint32)]) is None
    assert compare(case, far, [one.view(np.uint32)]) is not None
    assert compare(case, nan, other) is None
    assert compare(case, nan, [one.view(np.uint32)]) is not None
    assert compare(Case("x", ("b32",), ("f32",), "", "bits"), nan, other) is not None
