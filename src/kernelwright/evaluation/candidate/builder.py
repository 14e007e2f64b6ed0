"""The builder: the one child that runs compilers, on text that a candidate wrote.

It holds no inputs, no reference and no verdict; it answers `build` and `build_by_torch` messages and writes the build
cache. The judge gives each request a deadline and replaces a builder that misses it or dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path

from kernelwright.backends.build import build, build_by_torch
from kernelwright.builds import BuildRequest, BuildResult
from kernelwright.errors import MachineError
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed
from kernelwright.machine import nvrtc


def serve(channel: Channel, level: str) -> None:
    """Answers build requests until the judge closes the channel."""
    with contextlib.suppress(MachineError):  # without NVRTC the builds report it
        nvrtc.keep_preambles(Path(tempfile.mkdtemp(prefix="preambles-")))
    channel.send({"kind": "ready", "level": level})
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        request, cache = BuildRequest.from_fields(message.header["request"]), Path(message.header["cache"])
        if message.kind == "build_by_torch":
            result = build_by_torch(request, cache, BuildResult.from_fields(message.header["first"]))
        else:
            result = build(request, cache, by_torch=False)
        channel.send({"kind": "built", "result": dataclasses.asdict(result)})
