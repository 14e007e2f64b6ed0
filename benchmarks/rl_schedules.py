"""Writes the inputs of reinforcement learning by time: rows for a supervised stage, training and held-out tasks.

    python benchmarks/rl_schedules.py OUT [--tasks 400] [--train 16] [--held-out 24] [--jobs 2] [--seed 0]
        [--families NAME,...] [--most 2e7]

A model that was trained on `schedules: mixed` answers with the schedule that its first line names, mostly with the
canonical one, and has seen one turn only. OUT/rows.jsonl is for generated tasks of families whose schedules matter. It
has first answers with a schedule drawn evenly, second answers with another schedule after a correct answer, and repairs
after a wrong one (a planted mistake, with the functional machine's verdict on it). No row says which schedule is fast:
rewards are to teach that.

OUT/train.jsonl and OUT/held_out.jsonl have a task of each family in turn, of seeds without rows, with inputs of 1e5 to
`--most` elements. OUT/answers.jsonl has the library's answers to both with every schedule, one a sample, for `--policy
scripted:`. A trained model writes most of them in time, so that their verdicts can be cached before training
(`rl_claims.py --warm-script`).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright.evaluation import EvalOptions, evaluate_many
from kernelwright.generate import GeneratedTask, generate
from kernelwright.inference.chat import heading, task_prompt
from kernelwright.prompts.contexts import verdict_line
from kernelwright.records import Evaluation, Task
from kernelwright.solutions import Schedule, schedules, write
from kernelwright.solutions.mistakes import mistakes
from kernelwright.solutions.read.reading import Unreadable
from kernelwright.tasks import candidate_from_text

FAMILIES = (
    "layer_norm", "gelu", "batch_norm2d", "instance_norm1d", "sum", "argmax", "instance_norm2d", "rms_norm", "mean",
    "silu", "group_norm2d", "log_softmax", "var", "elementwise_chain", "min", "mse_loss", "matmul_rectangular",
    "conv2d", "amax", "conv1d", "fused_norm", "fused_rows", "cosine_loss", "linear",
)  # fmt: skip
FEWEST = 1e5
MOST_SCHEDULES = 16
SEEDS = {"rows": 50_001, "train": 60_001, "held_out": 70_001}


def sized(task: GeneratedTask, most: float) -> bool:
    """Tells whether a task's inputs are large enough for timing and quick to judge."""
    space: dict[str, Any] = {}
    with torch.device("meta"):
        exec(compile(task.source, task.name, "exec"), space)  # the generator's own text
        count = sum(x.numel() for x in space["get_inputs"]() if isinstance(x, torch.Tensor))
    return FEWEST <= count <= most


def suite(seed: int, count: int, families: list[str], most: float) -> list[GeneratedTask]:
    """Returns a task of each family in turn."""
    each = 12 + 4 * count // len(families)
    streams = [(t for t in generate(seed, each, families=[name]) if sized(t, most)) for name in families]
    turns = itertools.chain.from_iterable(zip(*streams, strict=False))
    found = [task for task in itertools.islice(turns, 3 * count) if known(task.source) is not None]
    return found[:count]


@functools.cache
def known(source: str) -> list[Schedule] | None:
    """Returns a task's schedules if it has several."""
    try:
        found = schedules(task_prompt(source))
    except Unreadable:
        return None
    return found if len(found) > 1 else None


def answer(source: str, schedule: Schedule) -> str:
    return heading(schedule.name) + write(source, schedule, plan=True)


def wrong(tasks: list[GeneratedTask], jobs: int, draw: random.Random) -> Iterator[tuple[str, Schedule, str, str]]:
    """Yields tasks, schedules, wrong answers and the functional machine's verdicts on them."""
    planted: list[tuple[str, Schedule, str]] = []
    work = []
    for task in tasks:
        source, chosen = task_prompt(task.source), draw.choice(known(task.source) or [])
        found = mistakes(answer(source, chosen), draw.randrange(1 << 30))
        if found:
            planted.append((source, chosen, found[0][1]))
            work.append((Task(task_id=task.name, source=task.source), candidate_from_text(found[0][1], "rows")))
    options = EvalOptions(backend="cpu", trials=2, small_sizes=True, timeout=20.0)
    for asked, result in zip(planted, evaluate_many(work, options, jobs), strict=True):
        if isinstance(result, Evaluation) and result.verdict in ("wrong", "runtime_error", "compile_error"):
            yield (*asked, verdict_line(result.verdict, result.reason))


def row(name: str, source: str, said: str, *turns: str) -> dict[str, Any]:
    """Returns a conversation that ends with `said`; `turns` are earlier answers and their feedback."""
    roles = ("assistant", "user")
    before = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    prompt = [{"role": "user", "content": source}, *before]
    return {"row_id": name, "prompt": prompt, "completion": [{"role": "assistant", "content": said}]}


def rows(count: int, jobs: int, seed: int, families: list[str]) -> list[dict[str, Any]]:
    """Returns all rows, shuffled."""
    draw = random.Random(seed)
    made: list[dict[str, Any]] = []
    tasks = [t for t in generate(SEEDS["rows"], count, families=families) if known(t.source) is not None]
    for task in tasks:
        source, found = task_prompt(task.source), known(task.source) or []
        for number, chosen in enumerate(draw.sample(found, min(3, len(found)))):
            made.append(row(f"{task.name}-first-{number}", source, answer(source, chosen)))
        one, other = draw.sample(found, 2)
        made.append(row(f"{task.name}-other", source, answer(source, other), answer(source, one), "correct: "))
    for number, (source, chosen, text, said) in enumerate(wrong(tasks, jobs, draw)):
        made.append(row(f"repair-{number}", source, answer(source, chosen), text, said))
    draw.shuffle(made)
    return made


def library(path: Path) -> list[dict[str, Any]]:
    """Returns every schedule's answer to a suite's tasks; the seed is the sample's number, in rotation."""
    made = []
    for line in path.read_text(encoding="utf-8").splitlines():
        task = json.loads(line)
        source = task_prompt(task["reference"])
        texts = [answer(source, chosen) for chosen in known(task["reference"]) or []]
        for number in range(MOST_SCHEDULES):
            made.append({"task_id": task["task_id"], "seed": number, "answer": texts[number % len(texts)]})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--train", type=int, default=16)
    parser.add_argument("--held-out", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--families", type=lambda text: text.split(","), default=list(FAMILIES))
    parser.add_argument("--most", type=float, default=2e7)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", asked.train), ("held_out", asked.held_out)):
        tasks = suite(SEEDS[name], count, asked.families, asked.most)
        lines = [json.dumps({"task_id": t.name, "reference": t.source}) for t in tasks]
        (asked.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    answers = [row for name in ("train", "held_out") for row in library(asked.out / f"{name}.jsonl")]
    (asked.out / "answers.jsonl").write_text("".join(json.dumps(r) + "\n" for r in answers), encoding="utf-8")
    made = rows(asked.tasks, asked.jobs, asked.seed, asked.families)
    (asked.out / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in made), encoding="utf-8")
    print(json.dumps({"rows": len(made), "train": asked.train, "held_out": asked.held_out}))


if __name__ == "__main__":
    main()
