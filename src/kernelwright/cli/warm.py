"""The verb `kernelwright warm`: one zygote for the commands that follow."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def warm(
    idle: Annotated[
        float, typer.Option(min=1, max=525_600, help="Minutes without a command after which the process ends.")
    ] = 60,
) -> None:
    """Keep torch imported for other commands: each then judges in a second instead of four.

    Prints an export line for the shells whose commands use this process. Ctrl-C ends it.
    """
    from kernelwright.cli.ending import INTERRUPTED
    from kernelwright.config import cache_dir
    from kernelwright.errors import HarnessError
    from kernelwright.evaluation.processes import pool
    from kernelwright.evaluation.processes import warm as parent

    if not parent.usable():
        raise HarnessError(
            "a shared parent of judging processes is not safe here",
            hint="it needs seccomp, and no bubblewrap (which closes each command's own parent in): see docs/cli.md",
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its folder is removed
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with SIGINT ignored
    with tempfile.TemporaryDirectory(prefix="kernelwright-warm-") as name:
        folder = Path(name)
        listening = parent.listen(folder)
        ours, theirs = socket.socketpair()
        call = f"warm.main({listening.fileno()}, {theirs.fileno()}, {idle * 60})"
        process = subprocess.Popen(
            pool.zygote_command(call),
            pass_fds=(listening.fileno(), theirs.fileno()),
            env=pool.zygote_environment(folder, cache_dir()),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            cwd=folder,
        )
        theirs.close()
        try:
            ready = ours.recv(64)
        except KeyboardInterrupt:  # it still imports torch: end it before its folder is removed
            process.kill()
            process.wait()
            raise
        if ready != b"ready":
            raise HarnessError(
                f"the parent did not start: it ended with status {process.wait()}", hint="run `kernelwright doctor`"
            )
        print(f"export {parent.VARIABLE}={folder / 'socket'}", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # `eval "$(kernelwright warm &)"` waits until stdout is closed
        try:
            process.wait()
        except KeyboardInterrupt:
            print("warm: ended; commands that find the variable start their own from now on", file=sys.stderr)
            sys.exit(INTERRUPTED)
        finally:
            ours.close()
            process.wait()
