"""Flags that several verbs share: seeds, paths, the library rule, the options of an evaluation."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    from kernelwright.errors import ConfigError
    from kernelwright.evaluation import EvalOptions

MAX_SEED = 2**32 - 1
"""The largest seed that every random number generator takes, numpy's and torch's included."""


def seed_option(text: str) -> Any:
    """Returns the flag of a seed."""
    return typer.Option(min=0, max=MAX_SEED, help=text)


def path_option(text: str, *names: str, metavar: str = "PATH") -> Any:
    """Returns the flag of a file or folder. Verbs use no other path flag: this one refuses an empty name."""
    return typer.Option(*names, parser=_named, metavar=metavar, help=text)


def path_argument(text: str, metavar: str | None = None) -> Any:
    """Returns the argument that names a file or folder."""
    return typer.Argument(parser=_named, metavar=metavar, help=text)


def _named(text: str) -> Path:
    """Returns the path. Refuses an empty name (an unset shell variable): it would mean the current folder."""
    if not text.strip():
        raise typer.BadParameter("the name is empty: name a file or a folder")
    return Path(text)


def no_folder(flag: str, path: Path | None) -> None:
    """Raises `ConfigError` where an output file's path is a folder, before any work is done."""
    from kernelwright.errors import ConfigError

    if path is not None and os.path.isdir(path):  # also false where we may not look
        raise ConfigError(f"{flag} {str(path)!r} is a folder", hint="name a file")


RULES = "from_scratch, libraries_allowed or libraries:NAMES; default: the task's own."
"""The help of `--rule`."""


PRECISIONS = "Products of float32 operands: float32 or tf32; default: the task's own."
"""The help of `--precision`."""


def library_rule(rule: str | None, policy: str | None, libraries_allowed: bool) -> str | None:
    """Returns the library rule of `eval`: `--rule`, or a deprecated flag with the same meaning, which it warns about.

    Raises `ConfigError` where two of the flags contradict each other.
    """
    from kernelwright.errors import ConfigError

    flags = {"--policy": policy, "--libraries-allowed": "libraries_allowed" if libraries_allowed else None}
    old = {flag: value for flag, value in flags.items() if value is not None}
    if not old:
        return rule
    given = old if rule is None else {"--rule": rule, **old}
    if len({"libraries_allowed" if value == "libraries" else value for value in given.values()}) > 1:
        raise ConfigError(f"{' and '.join(given)} contradict each other", hint="give --rule alone")
    wanted = next(iter(given.values()))
    print(f"warning: {' and '.join(old)} of eval is deprecated; use --rule {wanted}", file=sys.stderr)
    return wanted


def eval_options(*, sandbox: str, timeout: float, rule: str | None = None, **more: Any) -> EvalOptions:
    """Builds the options of an evaluation from flags, named as the fields of `EvalOptions`; `rule` is its `policy`.

    Raises `ConfigError` for a value out of range: it names the flag and the values that the flag takes.
    """
    from pydantic import ValidationError

    from kernelwright.errors import ConfigError
    from kernelwright.evaluation import EvalOptions
    from kernelwright.evaluation.options import MAX_SECONDS

    if sandbox not in ("auto", "strict", "none"):
        raise ConfigError(f"--sandbox {sandbox!r} is not a level", hint="use auto, strict or none")
    if not 0.0 < timeout <= MAX_SECONDS:
        raise ConfigError(
            f"--timeout {timeout!r} is out of range", hint=f"use more than 0 and at most {MAX_SECONDS:g} seconds"
        )
    fields: dict[str, Any] = {"sandbox": sandbox, "timeout": timeout, "policy": rule, **more}
    if "baselines" in more:
        fields["baselines"] = [
            name.strip() for name in more["baselines"].split(",") if name.strip() not in ("", "none")
        ]
    try:
        return EvalOptions(**fields)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        flag = "--rule" if name == "policy" else "--" + name.replace("_", "-")
        raise refused(flag, error, EvalOptions) from error


def refused(flag: str, error: ValidationError, options: type[BaseModel]) -> ConfigError:
    """Returns the error for a refused flag: it quotes the value, and its hint gives the allowed ones."""
    from kernelwright.errors import ConfigError

    first = error.errors()[0]
    words = {"gt": "more than", "ge": "at least", "le": "at most"}
    limits = options.model_fields[str(first["loc"][0])].metadata
    said = [
        f"{word} {getattr(limit, sign):.10g}"
        for limit in limits
        for sign, word in words.items()
        if hasattr(limit, sign)
    ]
    hint = f"use a number that is {' and '.join(said)}" if said else "see the flag's line in --help"
    if "expected" in first.get("ctx", {}):
        hint = f"use {first['ctx']['expected']}"
    return ConfigError(f"{flag} {first['input']!r}: {first['msg'].removeprefix('Value error, ')}", hint=hint)


def cores() -> int:
    """Returns the number of processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
