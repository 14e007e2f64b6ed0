"""The builder: the one child that runs compilers, on text that a candidate wrote.

It holds no inputs, no reference and no verdict; it answers `build` and `build_by_torch` messages and writes the build
cache. The judge gives each request a deadline and replaces a builder that misses it or dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import tempfile
from pathlib import Path

from kernelwright.backends.build import build, build_by_torch
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import MachineError
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed
from kernelwright.evaluation.processes.sandbox import address_space
from kernelwright.machine import nvrtc

KEPT_MB = 512
"""Address space in MB that a builder may have grown by between two texts, of its limit (`builder_client`)."""


def serve(channel: Channel, level: str) -> None:
    """Answers build requests until the judge closes the channel."""
    with contextlib.suppress(MachineError):  # without NVRTC the builds report it
        nvrtc.keep_preambles(Path(tempfile.mkdtemp(prefix="preambles-")))
    channel.send({"kind": "ready", "level": level})
    begun = address_space()
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        # NVRTC runs in this process; when the timer runs out, its signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, message.header["cpu_seconds"])
        request, cache = BuildRequest.from_fields(message.header["request"]), Path(message.header["cache"])
        if message.kind == "build_by_torch":
            result = build_by_torch(request, cache, BuildResult.from_fields(message.header["first"]))
        else:
            result = build(request, cache, by_torch=False)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        # A compiler does not return all that a large text took; the next text would find less than its share.
        spent = address_space() - begun > KEPT_MB << 20
        channel.send({"kind": "built", "result": dataclasses.asdict(result), "spent": spent})
