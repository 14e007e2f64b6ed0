"""What several verbs make of their flags: the options of an evaluation, how many to judge at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from kernelwright.evaluation import EvalOptions

MAX_SEED = 2**32 - 1
"""What every generator of random numbers takes, those of numpy and torch among them."""


def seed_option(text: str) -> Any:
    """The flag of a seed."""
    return typer.Option(min=0, max=MAX_SEED, help=text)


def folder(text: str) -> Path:
    """A folder's name from a flag. An empty one, as an unset variable of a shell leaves it, is not where we stand."""
    if not text.strip():
        raise typer.BadParameter("the name is empty: name a folder")
    return Path(text)


def eval_options(
    backend: str,
    policy: str | None,
    libraries: bool,
    trials: int,
    timeout: float,
    memory_mb: int,
    seed: int | None,
    sandbox: str,
    **more: Any,
) -> EvalOptions:
    """Options from flags; a value out of range is a `ConfigError` that names the flag."""
    from pydantic import ValidationError

    from kernelwright.errors import ConfigError
    from kernelwright.evaluation import EvalOptions
    from kernelwright.evaluation.options import MAX_SECONDS

    if sandbox not in ("auto", "strict", "none"):
        raise ConfigError(f"--sandbox {sandbox!r} is not a level", hint="use auto, strict or none")
    if libraries and policy not in (None, "libraries"):
        raise ConfigError(f"--libraries-allowed contradicts --policy {policy}", hint="give one of them")
    if not 0.0 < timeout <= MAX_SECONDS:
        raise ConfigError(
            f"--timeout {timeout!r} is out of range", hint=f"use more than 0 and at most {MAX_SECONDS:g} seconds"
        )
    fields: dict[str, Any] = {
        "backend": backend,
        "policy": "libraries" if libraries else policy,
        "trials": trials,
        "timeout": timeout,
        "memory_mb": memory_mb,
        "seed": seed,
        "sandbox": sandbox,
        **more,
    }
    if "baselines" in more:
        fields["baselines"] = [
            name.strip() for name in more["baselines"].split(",") if name.strip() not in ("", "none")
        ]
    try:
        return EvalOptions(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        flag = "--" + name.replace("_", "-")
        raise ConfigError(f"{flag} {first['input']!r}: {first['msg']}", hint=_bounds(name)) from error


def _bounds(name: str) -> str | None:
    """The hint for a number out of range: what an option of an evaluation may be; None for what is no number."""
    from kernelwright.evaluation import EvalOptions

    words = {"gt": "more than", "ge": "at least", "le": "at most"}
    limits = EvalOptions.model_fields[name].metadata
    said = [
        f"{word} {getattr(limit, sign):g}" for limit in limits for sign, word in words.items() if hasattr(limit, sign)
    ]
    return f"use a number that is {' and '.join(said)}" if said else None


def cores() -> int:
    """Processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
