"""The range of device addresses: the same in Python and in compiled code, and free in a process."""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.backends.device_addresses import HIGH, LOW, is_device
from kernelwright.backends.host_build import STAND_IN


def test_compiled_code_has_the_same_range() -> None:
    header = (STAND_IN / "kw" / "kwhost" / "device_addresses.h").read_text()
    found = {name: int(value, 16) for name, value in re.findall(r"DEVICE_(LOW|HIGH) = (0x\w+)", header)}
    assert found == {"LOW": LOW, "HIGH": HIGH}


def test_the_range_ends_before_high() -> None:
    assert is_device(LOW) and is_device(HIGH - 1)
    assert not is_device(LOW - 1) and not is_device(HIGH) and not is_device(0)


def test_nothing_of_a_process_lies_in_the_range() -> None:
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(text, 16) for text in line.split()[0].split("-"))
        assert end <= LOW or start >= HIGH, line
