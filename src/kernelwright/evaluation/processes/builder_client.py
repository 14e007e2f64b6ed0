"""The judge's side of a builder: builds in bounded time, and restarts the process when a compiler kills it."""

from __future__ import annotations

import dataclasses
import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

from kernelwright.backends import host_build
from kernelwright.backends.compiler_limits import COMPILER_SECONDS
from kernelwright.builds import BuildRequest, BuildResult, needs_torch
from kernelwright.errors import HarnessError
from kernelwright.evaluation.processes.channel import ChannelClosed, ChannelTimeout
from kernelwright.evaluation.processes.pool import Child, ChildLimits, Pool

SLOW_BUILD_SECONDS = 900.0
"""Wall seconds for torch's own build of an extension by nvcc, including the wait for a free slot and for torch's
headers. The candidate's text itself has less (`backends.torch_build`)."""


MEMORY_MB = 1536
"""Address space in MB of a builder beyond the zygote's. NVRTC runs in it, and reports when it gets no more. A text with
CUB's block sort takes 360 MB."""


class BuilderClient:
    """The builder child of one worker, replaced when a build hangs or kills it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.child: Child | None = None
        self.level = "none"

    def build(self, request: dict[str, Any], timeout: float) -> BuildResult:
        """Runs one build, in bounded time. A compiler that crashes or hangs twice on a text is that text's fault.

        For a GPU, torch's own build follows if ours lacks something; it has `SLOW_BUILD_SECONDS`.
        """
        result = self._built({"kind": "build", "request": request}, timeout)
        if needs_torch(BuildRequest.from_fields(request), result):
            header = {"kind": "build_by_torch", "request": request, "first": dataclasses.asdict(result)}
            return self._built(header, max(timeout, SLOW_BUILD_SECONDS))
        return result

    def for_card(
        self, request: dict[str, Any], result: BuildResult, arch: str, timeout: float
    ) -> tuple[str, str | None] | BuildResult:
        """Returns PTX and machine code for a card's architecture, built from the same device text as the functional
        machine's PTX of a build; or the result of a build that failed. An empty `arch` stands for that machine."""
        if not arch or request["kind"] == "ptxas":  # the latter is built for the card by the candidate's own compiler
            return result.ptx or "", result.cubin if arch else None
        text, names = result.device_source or "", tuple(result.lowered)
        if request["kind"] == "device":
            asked = BuildRequest("device", cuda_source=text, cuda_flags=tuple(request["cuda_flags"]), expressions=names)
        else:  # its compile flags are in the text
            asked = BuildRequest("instances", cuda_source=text, expressions=names)
        made = self.build(dataclasses.asdict(dataclasses.replace(asked, arch=arch)), timeout)
        return (made.ptx, made.cubin) if made.status == "ok" and made.ptx is not None else made

    def _built(self, header: dict[str, Any], timeout: float) -> BuildResult:
        for attempt in (1, 2):
            if self.child is None:
                if header["request"].get("kind") == "extension":
                    _built_ahead(self.pool.cache)
                self.child = self.pool.spawn("builder", ChildLimits(memory_mb=MEMORY_MB))
                self.level = self.child.level
            try:
                asked = {**header, "cache": str(self.pool.cache), "cpu_seconds": COMPILER_SECONDS}
                answer = self.child.ask(asked, deadline=time.monotonic() + timeout)
            except ChannelTimeout:
                self.close()
                return BuildResult("compile_error", log=f"the compiler did not finish within {timeout:.0f} s")
            except ChannelClosed:
                fate = self.child.natural_fate()
                self.close()
                if fate.signal == signal.SIGPROF:
                    log = f"error: the compiler used more than {COMPILER_SECONDS:.0f} s of processor time"
                    return BuildResult("compile_error", log=log)
                if fate.rss_mb > MEMORY_MB * 0.9:
                    return BuildResult("compile_error", log="error: the compiler ran out of memory")
                if attempt == 2:
                    return BuildResult("compile_error", log=f"the compiler died on this source: it {fate}")
                continue
            if answer.header.get("spent"):
                self.close()
            return BuildResult.from_fields(answer.header["result"])
        raise HarnessError("unreachable: a build ends within two attempts")

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None


@cache
def _built_ahead(folder: Path) -> None:
    """Builds the libraries and headers that host code is compiled and linked with, before a candidate's clock runs: the
    first time takes half a minute. Raises `HarnessError` without a compiler."""
    host_build.host_library(folder)
    host_build.precompiled_header(folder, host_build.DEFAULT_FLAGS)
