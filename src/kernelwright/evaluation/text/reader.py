"""The reader: the confined child that reads candidates' texts for the judge, and runs nothing of them.

Messages in: `read` and `lines`. Out: `ready`; two answers to a `read` (`essentials`, `advice`), one to `lines`;
`unread` in place of an answer. The judge ends a reader that uses more processor time than the message allows.
"""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.device import content, names
from kernelwright.evaluation.processes.channel import Channel, ChannelClosed
from kernelwright.evaluation.processes.reader_client import Advice, Essentials
from kernelwright.evaluation.text import as_module, cuda_rules, first_build, mentions, source_lines, static_rules
from kernelwright.records import Candidate, Task


def prepare() -> None:
    """Loads the grammar of CUDA and the tile library's headers in the zygote, for all readers."""
    for header in names():
        content(f"#include <{header}>")
    cuda_rules.hints("__global__ void f() { fork(); }", time.process_time() + 1.0)


def serve(channel: Channel, level: str) -> None:
    """Answers messages until the judge closes the channel."""
    channel.send({"kind": "ready", "level": level})
    text = ""
    while True:
        try:
            header = channel.receive().header
        except ChannelClosed:
            return
        signal.setitimer(signal.ITIMER_PROF, header["seconds"])
        if header["kind"] == "read":
            candidate, task = Candidate.model_validate(header["candidate"]), Task.model_validate(header["task"])
            text = candidate.text
            made = _answered(channel, "essentials", lambda: essentials(candidate, task))  # noqa: B023
            if made is not None:
                _answered(channel, "advice", lambda: advice(candidate, task, made["source"]))  # noqa: B023
        else:
            asked = header["requests"], header["questions"]
            _answered(channel, "lines", lambda: {"lines": [line(text, asked[0], q) for q in asked[1]]})  # noqa: B023
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _answered(channel: Channel, kind: str, read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Sends an answer, or the reason why there is none. Returns the answer."""
    started = time.process_time()
    try:
        found: dict[str, Any] | None = read()
        header = {"kind": kind, **(found or {})}
    except Exception as error:  # a fault of ours, or a text beyond the limits of Python's parser
        found, header = None, {"kind": "unread", "why": f"reading it ended with {type(error).__name__}"}
    channel.send({**header, "used": time.process_time() - started})
    return found


def essentials(candidate: Candidate, task: Task) -> dict[str, Any]:
    """Returns the fields of `Essentials`."""
    source, problem = as_module.module_source(candidate, task.function)
    if problem is None:
        return Essentials(source=source).model_dump(mode="json")
    made = Essentials(source=source, verdict=problem.verdict, reason=problem.reason, finding=problem.finding)
    return made.model_dump(mode="json")


def advice(candidate: Candidate, task: Task, source: str) -> dict[str, Any]:
    """Returns the fields of `Advice`; `source` is the candidate's module."""
    build = first_build.first_build(source) if source else None
    whole = "\n".join(file.content for file in candidate.sources)
    whole += content(whole)
    found = Advice(
        findings=tuple(static_rules.static_findings(candidate, task)),
        first_build=dataclasses.asdict(build) if build is not None else None,
        starts_programs=mentions.starts_programs(whole),
        has_streams=mentions.has_streams(whole),
        tunes=mentions.tunes(whole),
        defined=mentions.device_functions(whole),
        sizes=mentions.declared_sizes(whole, task.source),
    )
    return found.model_dump(mode="json")


def line(text: str, requests: Sequence[dict[str, Any]], question: Sequence[Any]) -> Any:
    """Returns the answer to one `reader_client.Question`."""
    kind, *asked = question
    if kind == "kernel":
        return source_lines.of_kernel(text, requests, *asked)
    if kind == "own":
        return source_lines.own_line(text, *asked)
    if kind == "error":
        return source_lines.of_error(text, *asked)
    finding = asked[0]
    evidence = source_lines.in_own_lines(text, requests, finding["kernel"], finding["evidence"])
    return [evidence, source_lines.of_finding(text, requests, finding)]
