"""The verb `kernelwright tasks generate`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.cli.options import path_option, seed_option


def tasks_generate(
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of tasks.")] = 10,
    seed: Annotated[int, seed_option("Seed; the same seed makes the same tasks everywhere.")] = 0,
    out: Annotated[Path | None, path_option("A .jsonl file or a folder of .py files; continued if it exists.")] = None,
    families: Annotated[str, typer.Option(help="Families or groups, separated by commas; default: all.")] = "",
    split: Annotated[str, typer.Option(help="train, or a held-out split: combos, fused, families.")] = "train",
    check: Annotated[
        bool, typer.Option("--check", help="Keep only tasks that pass lint and null-kernel gate.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help="With --check: tasks checked at once; 0: one per core.")] = 0,
    list_families: Annotated[bool, typer.Option("--list-families", help="Print the families and groups.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Generate tasks in KernelBench's format from families: single operators, fused chains, small blocks.

    Without --out the tasks are printed. docs/generated_tasks.md describes the file format, families and splits.
    """
    from kernelwright import generate
    from kernelwright.errors import UsageError
    from kernelwright.generate import writing

    if list_families:
        for name, group in generate.families():
            print(json.dumps({"family": name, "group": group}) if as_json else f"{group:14} {name}")
        return
    wanted = tuple(name.strip() for name in families.split(",") if name.strip()) or None
    wish = writing.Wish(count, seed, wanted, split)
    if out is not None:
        _write(wish, out, check, jobs, as_json)
        return
    if check:
        raise UsageError("--check needs --out, where the tasks go", hint="add --out tasks.jsonl")
    for task in generate.generate(seed, count, families=wanted, split=split):
        print(json.dumps(writing.row_of(task)) if as_json else f"# {task.name}: {task.signature}\n{task.source}\n")


def _write(wish: Any, out: Path, check: bool, jobs: int, as_json: bool) -> None:
    from kernelwright.evaluation import EvalOptions, Evaluator
    from kernelwright.evaluation.options import gpu_count
    from kernelwright.generate import writing
    from kernelwright.report import terminal

    with terminal.BatchView(wish.count, None, False) as view:

        def show(row: dict[str, Any]) -> None:
            if row.get("state") in (None, "sound", "hardened"):
                view.step("")
            else:
                print(writing.line(row), file=sys.stderr)

        if check:
            workers = jobs or len(os.sched_getaffinity(0))
            with contextlib.ExitStack() as stack:
                evaluator = stack.enter_context(Evaluator(EvalOptions(backend="cpu")))
                options = EvalOptions.model_validate(writing.TIMING)
                timer = stack.enter_context(Evaluator(options)) if gpu_count() else None
                outcome = writing.write(wish, out, evaluator=evaluator, timer=timer, jobs=workers, show=show)
        else:
            outcome = writing.write(wish, out, show=show)
    if as_json:
        print(json.dumps({"out": str(out), "seed": wish.seed, "split": wish.split} | dataclasses.asdict(outcome)))
        return
    text = f"{outcome.kept} tasks in {out}"
    text += f", {outcome.rejected} turned down" if outcome.rejected else ""
    print(text + (f" ({outcome.resumed} were there)" if outcome.resumed else ""))
