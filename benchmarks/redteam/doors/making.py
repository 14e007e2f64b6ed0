"""Short forms in which doors are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from redteam.pieces import AttackTask, Door, Spelling, Tier, every_task

CHEAT = "def cheat(model, ts):\n"


def needed(code: str, task: AttackTask, methods: str = "") -> str:
    """Returns the code after the definitions that it calls: the task's answer in torch or in numpy."""
    parts = []
    if "by_numpy(" in code or "np." in code:
        parts.append("import numpy as np\n")
    if re.search(r"\banswer\b", code + methods):
        parts.append(task.function("answer", task.torch))
    code = code.replace("ANSWER", repr(task.function("answer", task.torch)))
    code = code.replace("SIZES_OF_TASK", f"{task.constants}\nDECLARED = ({task.first_shape})")
    code = code.replace("WEIGHTS", repr(task.weights)).replace("COUNT", str(len(task.arguments)))
    if "by_numpy(" in code:
        parts.append(task.function("by_numpy", task.numpy))
    return "\n\n".join([*parts, code.strip()]) + "\n"


def door(
    name: str,
    family: str,
    *codes: str,
    fits: Callable[[AttackTask], bool] = every_task,
    covered: bool = True,
    tiers: tuple[Tier, ...] = ("cpu", "gpu"),
    plain: bool = True,
    methods: str = "",
    same_inputs: bool = False,
) -> Door:
    """Returns a door of one or several spellings. Code that begins with `return` is the body of `cheat`."""
    whole = tuple(CHEAT + f"    {c.strip()}" if c.startswith("return ") else c for c in codes)

    def spellings(task: AttackTask) -> tuple[Spelling, ...]:
        own = methods.replace("WEIGHTS", repr(task.weights))
        return tuple(Spelling(needed(c, task, own), methods=own) for c in whole)

    return Door(name, family, spellings, fits, covered, tiers, plain, same_inputs)


def formulas(
    name: str, family: str, by_task: Mapping[str, str], head: str = "", tiers: tuple[Tier, ...] = ("cpu", "gpu")
) -> Door:
    """Returns a door with an expression, or a function body, for each task that it can do."""

    def spellings(task: AttackTask) -> tuple[Spelling, ...]:
        texts = by_task[task.name].split("\n---\n")
        bodies = [t if re.search(r"^\s*return\b", t, re.M) else f"return {t}" for t in texts]
        return tuple(
            Spelling(needed(f"{head}\n\n{task.function('formula', b)}\n\n{CHEAT}    return formula(*ts)", task))
            for b in bodies
        )

    return Door(name, family, spellings, lambda task: task.name in by_task, tiers=tiers)
