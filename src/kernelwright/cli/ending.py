"""Ends a command: prints its error and hint, and sets the exit status."""

from __future__ import annotations

import errno
import os
import sys

import typer

INTERRUPTED = 130
"""128 + SIGINT."""
CLOSED_PIPE = 141
"""128 + SIGPIPE: the reader of our output has gone (`| head`), which is no verdict."""
OUT_OF_REACH = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The system's errors for files and folders that the user may not use: bad usage, never a fault of ours."""


def end_with(app: typer.Typer) -> None:
    """Runs a command line to its exit: an error becomes one line, a hint, and an exit status."""
    for name in ("stdout", "stderr"):  # closed at start: a file of ours must not get its number
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    written = False
    try:
        status = _run(app)
        sys.stdout.flush()
        written = True
    except BrokenPipeError:
        status = CLOSED_PIPE
    except SystemExit as done:  # typer and rich exit with status 1 on a closed pipe
        if not isinstance(done.__context__, BrokenPipeError):
            raise
        status = CLOSED_PIPE
    except OSError as error:
        status = _fail(f"the output cannot be written: {error.strerror}", "free some space, or name another place", 2)
    if not written:  # the interpreter's own flush would fail again and print an error
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, 1)
        os.dup2(nobody, 2)
    sys.exit(status)


def _run(app: typer.Typer) -> int:
    """Runs the command; prints its error and returns its exit status."""
    from kernelwright.errors import KernelwrightError

    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # typer's status for Ctrl-C
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except KernelwrightError as error:
        return _fail(str(error), error.hint, error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        if not _keeps(sys.argv[1:]):
            return _fail("interrupted", None, INTERRUPTED)
        folder = _folder(sys.argv[1:])
        if folder is not None and not os.path.exists(folder):
            return _fail("interrupted before the work began", None, INTERRUPTED)
        hint = "the same command with the same --run or --out continues"
        return _fail("interrupted; what was done is kept", hint, INTERRUPTED)
    except Exception as error:  # the one place that catches unforeseen errors
        return _unforeseen(error)


def _keeps(words: list[str]) -> bool:
    """Tells whether a command keeps its work in a folder or a file from which it can continue."""
    named = {word.partition("=")[0] for word in words}
    if words[:1] == ["train"]:
        return "--explain" not in named
    return "--run" in named or words[:1] in (["worker"], ["corpus"]) or (words[:1] == ["tasks"] and "--out" in named)


def _folder(words: list[str]) -> str | None:
    """Returns the folder or file that `--run` or `--out` names; None where neither is given."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name in ("--run", "--out"):
            return value if equals else after
    return None


def _fail(message: str, hint: str | None, status: int) -> int:
    for name, text in (("error", message), ("hint", hint)):
        if text:  # it may quote a task's text: remove control sequences
            print(f"{name}:", "".join(c if c.isprintable() or c == "\n" else "?" for c in text), file=sys.stderr)
    return status


def _unforeseen(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in (errno.EPIPE, errno.ENOSPC) and error.filename is None:
        raise error  # an error of our output: `end_with` handles it
    if isinstance(error, OSError) and error.errno in OUT_OF_REACH and error.filename is not None:
        return _fail(
            f"{str(error.filename)!r} cannot be used: {error.strerror}", "check the path and who may use it", 2
        )
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # click's own errors: an unknown flag, a missing argument
        of = getattr(getattr(error, "ctx", None), "command_path", None) or "kernelwright"
        return _fail(str(format_message()), f"see {of} --help", 2)
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="kernelwright-error-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    first = str(error).splitlines()[0] if str(error) else ""
    return _fail(f"unexpected {type(error).__name__}: {first}", f"this is a bug; please report it with {file.name}", 3)
