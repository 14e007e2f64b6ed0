"""Limits of the processes that compile a candidate's text: processor time, memory and file size."""

from __future__ import annotations

import resource

COMPILER_SECONDS = 40.0
"""Seconds of processor time that one compiler may use for one text."""
MEMORY = 3 << 30
"""Bytes of address space of one compiler that is a program of its own."""
_FILE = 512 << 20


def limit_compiler() -> None:
    """Limits the calling process, which is about to become a compiler. A stricter limit that it has already stays."""
    seconds = int(COMPILER_SECONDS)
    for kind, wanted in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, _FILE), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(kind)[1]
        least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (least, least))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
