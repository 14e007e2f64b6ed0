"""Memory that is moved into huge pages keeps its values, in the process and in its children."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import mmap, os, random
from kernelwright.evaluation.processes import huge_pages

room = mmap.mmap(-1, 3 * huge_pages.SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
values = random.Random(1).randbytes(len(room))
room[:] = values
huge_pages.collapse()
child = os.fork()
if child == 0:
    same = room[:] == values
    room[:1] = bytes([values[0] ^ 1])
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert room[:] == values
"""


def test_memory_keeps_its_values_in_a_process_and_in_its_children() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
