"""What several verbs make of their flags: the options of an evaluation, how many to judge at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from kernelwright.evaluation import EvalOptions

MAX_SEED = 2**32 - 1
"""What every generator of random numbers takes, those of numpy and torch among them."""


def seed_option(text: str) -> Any:
    """The flag of a seed."""
    return typer.Option(min=0, max=MAX_SEED, help=text)


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

    if sandbox not in ("auto", "strict", "none"):
        raise ConfigError(f"--sandbox {sandbox!r} is not a level", hint="use auto, strict or none")
    if libraries and policy not in (None, "libraries"):
        raise ConfigError(f"--libraries-allowed contradicts --policy {policy}", hint="give one of them")
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
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        raise ConfigError(f"{flag} {first['input']!r}: {first['msg']}") from error


def cores() -> int:
    """Processors that this process may use."""
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
