"""Defines the range of addresses that stands for device memory in a candidate's process.

Nothing is mapped there, so host code that dereferences such an address faults, as it would with a GPU's. Compiled code
has the same constants in `host_include/kw/kwhost/device_addresses.h`.
"""

from __future__ import annotations

LOW = 0x2000_0000_0000
"""The first device address."""
HIGH = 0x3000_0000_0000
"""The end of the range: the first address after it."""


def is_device(address: int) -> bool:
    """Tells whether an address lies in the device's range."""
    return LOW <= address < HIGH
