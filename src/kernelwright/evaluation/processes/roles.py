"""The kinds of child and what each may access.

Oracle, referee and runner see the interpreter's libraries and an empty scratch folder; they start no process. The
builder starts compilers, and is the only one that writes to the build cache. The program child runs one executable and
the scripts around it, in forks that start nothing themselves.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.evaluation.processes import sandbox
from kernelwright.evaluation.processes.channel import TRUSTED_PAYLOAD, Channel

if TYPE_CHECKING:
    from kernelwright.evaluation.device.devices import Device

Role = Literal[
    "oracle",
    "runner",
    "handles",
    "device",
    "sampled_device",
    "tracing_device",
    "live_device",
    "builder",
    "reader",
    "gpu_runner",
    "referee",
    "baseline",
    "program",
    "replayer",
]

_HERE = "kernelwright.evaluation"
MODULES: dict[Role, str] = {
    "builder": f"{_HERE}.processes.builder",
    "reader": f"{_HERE}.text.reader",
    "runner": f"{_HERE}.candidate.runner_loop",
    "handles": f"{_HERE}.candidate.handle_runner",
    "device": f"{_HERE}.program.executor",
    "sampled_device": f"{_HERE}.program.sampled",
    "tracing_device": f"{_HERE}.program.tracing",
    "live_device": f"{_HERE}.program.live",
    "program": f"{_HERE}.candidate.program_runner",
    "gpu_runner": f"{_HERE}.candidate.gpu_runner",
    "replayer": f"{_HERE}.candidate.replayer",
    "oracle": f"{_HERE}.reference.oracle",
    "referee": f"{_HERE}.reference.referee",
    "baseline": f"{_HERE}.reference.baseline",
}
"""The launch table: the module whose `serve` is the loop of each role. Nothing else here names those modules."""
ON_DEVICE: frozenset[Role] = frozenset(("gpu_runner", "referee", "baseline", "replayer", "live_device"))
"""Roles whose loop works on a GPU."""
LINKED: frozenset[Role] = frozenset(("handles", "device", "sampled_device", "tracing_device", "live_device"))
"""Roles whose loop takes one end of a record stream."""
PRELOADED: tuple[Role, ...] = (
    "oracle",
    "runner",
    "handles",
    "device",
    "sampled_device",
    "tracing_device",
    "reader",
    "program",
)
"""Roles whose modules the zygote imports, so that a fork need not."""
CANDIDATES: frozenset[Role] = frozenset(("runner", "handles", "gpu_runner", "program"))
"""Roles that execute a candidate's code, or a program's. They cannot read the files of this package."""
PACKAGE = Path(__file__).resolve().parents[2]


@cache
def library_paths() -> tuple[Path, ...]:
    """Returns every path that an interpreter with torch needs to read, and none of the user's."""
    found = {Path(p) for p in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")}
    found |= {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), PACKAGE}
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        found.add(Path(sysconfig.get_path(name)).resolve())
    for entry in sys.path:
        # A system-wide torch may live outside the prefix; folders of the user's own are not libraries.
        path = Path(entry)
        if path.is_absolute() and path.name in ("site-packages", "dist-packages"):
            found.add(path.resolve())
    return tuple(sorted(p for p in found if p.exists()))


@cache
def candidate_paths() -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Returns what a process with a candidate may read, and the folders that it may only list: all `library_paths`
    without any copy of this package."""
    entries = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    hidden = {PACKAGE, *((entry / PACKAGE.name).resolve() for entry in entries if (entry / PACKAGE.name).is_dir())}
    readable: set[Path] = set()
    listable: set[Path] = set()
    waiting = list(library_paths())
    while waiting:
        path = waiting.pop()
        if path in hidden:
            continue
        if not any(path in one.parents for one in hidden):
            readable.add(path)
            continue
        # A landlock rule for a folder holds for all below it, so its entries are allowed one by one. What a link leads
        # to has a rule of its own, or none.
        listable.add(path)
        waiting += [Path(entry.path) for entry in os.scandir(path) if not entry.is_symlink()]
    return tuple(sorted(readable)), tuple(sorted(listable))


BUILDER_MB = 2048
"""The largest file of a builder in MB: torch's headers, precompiled, take 785 MB."""


def jail_of(order: dict[str, Any]) -> sandbox.Jail:
    """Returns the confinement of one child, from the judge's order."""
    scratch, cache = Path(order["scratch"]), Path(order["cache"])
    builder = order["role"] == "builder"
    on_gpu = (order.get("device") or {}).get("name") == "cuda"
    kernels = [Path(order["kernels"])] if order.get("kernels") else []
    writable = (scratch, cache) if builder else (scratch, *kernels)
    # On a GPU both sides start programs if they must: Triton and torch.compile call a C compiler.
    program = order["role"] == "program"
    starts = builder or program or (on_gpu and bool(order.get("programs")))
    libraries, listable = candidate_paths() if order["role"] in CANDIDATES else (library_paths(), ())
    limits = sandbox.Limits(
        cpu_seconds=int(order["cpu_seconds"]),
        memory_mb=int(order["memory_mb"]),
        file_mb=order.get("file_mb") or (BUILDER_MB if builder else 64),
    )
    return sandbox.Jail(
        scratch=scratch,
        readable=(*libraries, *map(Path, order.get("executables", ()))),
        listable=listable,
        # A runner opens the builds made for it by name; it cannot list the folder to find those made for others.
        openable=() if builder else (cache,),
        writable=(*writable, *map(Path, order.get("shared", ()))),
        devices=tuple(sorted(Path("/dev").glob("nvidia*"))) if on_gpu else (),
        limits=limits,
        allow_exec=starts,
        allow_fork=starts,
    )


def load(order: dict[str, Any]) -> None:
    """Imports all that the role needs, since most of them cannot read this package's files once they are confined."""
    importlib.import_module(MODULES[order["role"]])
    if order.get("programs"):  # on a GPU, Triton's own driver is used, and only its errors are wanted
        with contextlib.suppress(Exception):
            importlib.import_module("kernelwright.backends.triton.triton_errors")


def serve(role: Role, channel_fd: int, level: str, device: Device | None = None, link: int | None = None) -> None:
    """Runs the role's loop until the judge closes the channel; children of a GPU get its `device`, those of `LINKED`
    the descriptor of their record stream."""
    channel = Channel(socket.socket(fileno=channel_fd), TRUSTED_PAYLOAD)  # the judge is on the other side
    os.environ["OMP_NUM_THREADS"] = "1"
    loop = importlib.import_module(MODULES[role]).serve
    parts: list[Any] = [device] if role in ON_DEVICE else []
    parts += [socket.socket(fileno=link)] if role in LINKED else []
    loop(channel, level, *parts)
