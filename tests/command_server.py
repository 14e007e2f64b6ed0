"""The command line in processes of its own, but without the time of its imports: a server that has made them forks.

A fresh interpreter needs most of a second for what every command imports; the tests start some four hundred. The server
imports no torch, has one thread, and waits for requests on the socket whose number it is given. The fork takes over
descriptors, variables, folder and words of the request and runs `main` to the end of its interpreter.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import Any

PRELOADS = (
    "numpy rich.console rich.progress rich.table elftools.elf.elffile kernelwright.bench.tables kernelwright.cli "
    "kernelwright.cli.corpus kernelwright.curation kernelwright.executor.local kernelwright.profile "
    "kernelwright.report.terminal kernelwright.solutions kernelwright.tasks"
).split()


def serve(control: socket.socket) -> dict[str, Any]:
    """Forks for each request until the socket is closed. Returns only in the forks, with their request."""
    running: dict[int, tuple[int, socket.socket]] = {}  # by descriptor of the process
    while True:
        for ready in select.select([control.fileno(), *running], [], [])[0]:
            if ready in running:
                pid, status = running.pop(ready)
                status.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                status.close()
                os.close(ready)
                continue
            data, received, _, _ = socket.recv_fds(control, 1 << 18, 4)
            if not data:
                os._exit(0)
            *streams, answers = received
            pid = os.fork()
            if pid == 0:
                for held in (control.fileno(), answers, *running, *(s.fileno() for _, s in running.values())):
                    os.close(held)
                return {**json.loads(data), "streams": streams}
            status = socket.socket(fileno=answers)
            status.send(str(pid).encode())
            for stream in streams:
                os.close(stream)
            running[os.pidfd_open(pid)] = pid, status


def become(request: dict[str, Any]) -> None:
    """Makes this process run the request."""
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.path[0] = request["cwd"]
    sys.argv = ["kernelwright", *request["words"]]


if __name__ == "__main__":
    import gc
    import importlib

    for name in PRELOADS:
        importlib.import_module(name)
    assert "torch" not in sys.modules  # torch works differently in a fork than in a new process
    import typer

    from kernelwright.cli import verbs

    vars(verbs)["app"] = typer.main.get_command(verbs.app)  # typer otherwise builds it again in every process
    gc.freeze()  # a fork would otherwise copy all objects only to free them at its end
    become(serve(socket.socket(fileno=int(sys.argv[1]))))
    verbs.main()
