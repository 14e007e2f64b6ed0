"""Generates tasks in KernelBench's format from families of operators, deterministic in a seed.

    for task in generate(seed=1, count=100):
        print(task.name, task.operators, task.difficulty)
        print(task.source)

Imports no torch and executes none of the generated code. The gate (`evaluation.judge.null_kernel_gate`) decides
separately on the quality of a task.
"""

from __future__ import annotations

import ast
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernelwright.errors import UsageError
from kernelwright.generate import catalogue, spelling, splits, text, words
from kernelwright.generate.draft import Dim, Draft, Param, Stale
from kernelwright.generate.registry import Family
from kernelwright.generate.style import draw

__all__ = ["SPLITS", "GeneratedTask", "families", "generate"]

SPLITS = splits.SPLITS
MAX_FUTILE = 5000
"""Consecutive attempts without a new task after which a request fails as impossible."""


@dataclass(frozen=True)
class GeneratedTask:
    """One generated task."""

    name: str
    family: str
    operators: tuple[str, ...]
    """Names of the operators in the order of forward."""
    signature: str
    """Operators with the values of their arguments, without sizes and names; tasks are distinct by it."""
    source: str
    difficulty: float
    split: str


def families() -> list[tuple[str, str]]:
    """Returns the (name, group) of every family."""
    return [(f.name, f.group) for f in catalogue.table()]


def generate(
    seed: int, count: int, *, families: Sequence[str] | None = None, split: str = "train"
) -> Iterator[GeneratedTask]:
    """Yields `count` tasks that differ in text, and in signature or sizes; deterministic in the arguments.

    `families` are names of families or groups. Tasks of a longer run begin with those of a shorter one. Raises
    `UsageError` for an unknown family or split, and where fewer distinct tasks are found.
    """
    if split not in SPLITS:
        raise UsageError(f"there is no split {split!r}", hint=f"use one of {', '.join(SPLITS)}")
    chosen = [f for f in catalogue.named(families) if splits.may_yield(f, split)]
    if not chosen:
        raise UsageError(f"none of these families yields tasks of split {split!r}", hint="leave --families out")
    weights = [f.weight for f in chosen]
    seen: set[bytes] = set()
    made, futile, attempt = 0, 0, 0
    while made < count:
        random = Random(f"kernelwright {seed} {split} {attempt}")
        family = random.choices(chosen, weights)[0]
        attempt += 1
        try:
            task, sizes = _one(family, random, f"{family.name}_{seed}_{attempt - 1:06d}")
        except Stale:  # a guard: no family is known to raise it, and the task's text would not match its graph
            continue
        keys = [_digest(task.source), _digest(f"{task.signature} {sizes}")]
        if splits.split_of(task.operators, family) != split or any(k in seen for k in keys):
            futile += 1
            if futile > MAX_FUTILE:
                raise UsageError(
                    f"only {made} distinct tasks of {count} were found", hint="ask for fewer, or for more families"
                )
            continue
        seen.update(keys)
        made, futile = made + 1, 0
        yield task


def _digest(text_: str) -> bytes:
    return hashlib.blake2b(text_.encode(), digest_size=10).digest()


def _one(family: Family, random: Random, name: str) -> tuple[GeneratedTask, str]:
    """Returns one task of a family, and its sizes as text."""
    odd = Random(f"odd {name}")
    draft = Draft(random, draw(random), odd=odd, oddness=odd.choice(ODDNESS))
    family.make(draft)
    dress(draft, family.group)
    source = text.render(draft)
    for change in spelling.CHANGES:
        source = change(source, draft.random)
    operators = tuple(operator for operator, _ in draft.marks)
    dtype = "" if draft.dtype == "float32" else f" {draft.dtype}"
    signature = " > ".join(f"{o}({a})" if a else o for o, a in draft.marks) + dtype
    extents = [p.value.value for p in draft.params if isinstance(p.value, Dim)]
    sizes = f"{[[d.value if isinstance(d, Dim) else d for d in i.shape] for i in draft.inputs]} {extents}"
    task = GeneratedTask(
        name, family.name, operators, signature, source, difficulty(draft), splits.split_of(operators, family)
    )
    return task, sizes


ODDNESS = (0.0, 0.0, 0.0, 0.1, 0.5)
"""Share of odd names in a task: most tasks have none."""
_HALF_GROUPS = frozenset("activation elementwise softmax reduction layout gate attention masking".split())
"""Groups without weights, some of whose tasks are in half precision."""


def dress(draft: Draft, group: str) -> None:
    """Gives some tasks half precision and unused constructor arguments."""
    weights = any(".Parameter(" in line or "register_buffer" in line for line in draft.init_lines)
    if group in _HALF_GROUPS and not weights and draft.chance(0.06):
        draft.dtype = draft.pick("float16", "bfloat16")
        draft.inputs = [replace(i, dtype=draft.dtype) if i.dtype == "float32" else i for i in draft.inputs]
    if draft.chance(0.05):
        for name, value in draft.random.sample(words.UNUSED_ARGUMENTS, draft.random.choice((1, 1, 2))):
            if name not in draft.taken:
                kind = type(ast.literal_eval(value)).__name__
                default = value if draft.chance(0.8) else None
                draft.params.append(Param(draft.name((name,)), value, default, kind, name.replace("_", " ")))


def difficulty(draft: Draft) -> float:
    """Returns a task's expected difficulty from its operators, non-default arguments, and log10 of FLOPs.

    0.5 for an activation of a small tensor, about 4 for a 3D convolution followed by six operators. It is a prior: the
    measured share of failed attempts replaces it where known.
    """
    operators = len(draft.marks)
    arguments = sum(a.count("=") for _, a in draft.marks)
    return round(0.4 * operators + 0.1 * arguments + 0.08 * max(0.0, math.log10(max(1.0, draft.flops)) - 5), 3)
