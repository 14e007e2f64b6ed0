"""The builder: the one child that runs compilers, on text that a candidate wrote.

It holds no inputs, no reference and no verdict; it answers `build` messages with `BuildResult`s and writes the build
cache. The judge gives each request a deadline and replaces a builder that misses it or dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from pathlib import Path

from kernelwright.backends.build import build
from kernelwright.builds import BuildRequest
from kernelwright.errors import MachineError
from kernelwright.evaluation.channel import Channel, ChannelClosed
from kernelwright.machine import nvrtc


def serve(channel: Channel, level: str) -> None:
    """Answers build requests until the judge closes the channel."""
    with contextlib.suppress(MachineError):  # without NVRTC the builds say so
        nvrtc.keep_preambles(Path(tempfile.mkdtemp(prefix="preambles-")))
    channel.send({"kind": "ready", "level": level})
    while True:
        try:
            message = channel.receive()
        except ChannelClosed:
            return
        result = build(BuildRequest.from_fields(message.header["request"]), Path(message.header["cache"]))
        channel.send({"kind": "built", "result": dataclasses.asdict(result)})
