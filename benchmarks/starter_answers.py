"""Draws a checkpoint's answers to whole suites, on a GPU if there is one, as scripts that `bench` replays.

    python benchmarks/starter_answers.py CHECKPOINT OUT SUITE.jsonl[:SAMPLES]... [--max-tokens 3584] [--seed 0]

OUT/SUITE.greedy.jsonl has one greedy answer for each task, OUT/SUITE.sampled.jsonl SAMPLES (0 by default) at T = 0.8,
each with a seed of its own. `kernelwright bench SUITE.jsonl --policy scripted:OUT/SUITE.greedy.jsonl --samples 1`
judges them, `--samples SAMPLES` the others. Drawing therefore does not disturb timing. An existing file is not made
again. OUT/speed.json has the tokens a second of each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelwright.inference import load_engine
from kernelwright.policies import Request
from kernelwright.policies.starter import StarterPolicy
from kernelwright.records import Task
from kernelwright.tasks import load_suite

TEMPERATURE = 0.8


def answer(policy: StarterPolicy, tasks: list[Task], numbers: list[tuple[int, Request]], out: Path) -> dict[str, Any]:
    """Writes one script: for each task an answer by each request, with the sample number that `bench` requests."""
    asked = [(n, replace(request, task=task)) for task in tasks for n, request in numbers]
    short = {t.task_id: len(policy.prompt((), t).ids) < policy.engine.context - 32 for t in tasks}
    fits = [(n, request) for n, request in asked if request.task is not None and short[request.task.task_id]]
    began = time.monotonic()
    answers = policy.generate_many([request for _, request in fits])
    seconds = time.monotonic() - began
    rows: list[dict[str, Any]] = [
        {
            "task_id": request.task.task_id if request.task else "",
            "seed": number,
            "answer": found.text,
            "tokens": len(found.token_ids),
            "log_prob": round(sum(found.log_probs), 3),
            "finish_reason": found.finish_reason,
        }
        for (number, request), found in zip(fits, answers, strict=True)
    ]
    temporary = out.with_suffix(".new")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    temporary.replace(out)
    tokens = sum(row["tokens"] for row in rows)
    return {
        "answers": len(rows),
        "prompts_too_long": len(asked) - len(fits),
        "tokens": tokens,
        "seconds": round(seconds, 2),
        "tokens_per_s": round(tokens / seconds),
        "ended": sum(row["finish_reason"] == "stop" for row in rows),
        "rows": policy.engine.rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=Path)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=3584)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    policy: StarterPolicy | None = None
    for suite in asked.suites:
        path, _, samples = suite.partition(":")
        tasks = list(load_suite(path))
        drawn = [(n, Request((), 1000 * asked.seed + n + 1, None, TEMPERATURE)) for n in range(int(samples or 0))]
        for kind, numbers in (("greedy", [(0, Request((), 0, None, 0.0))]), ("sampled", drawn)):
            out = asked.out / f"{Path(path).stem}.{kind}.jsonl"
            if out.exists() or not numbers:
                continue
            if policy is None:
                policy = StarterPolicy(load_engine(f"starter:{asked.checkpoint}"), max_tokens=asked.max_tokens)
            facts = answer(policy, tasks, numbers, out)
            speeds = asked.out / "speed.json"
            known = json.loads(speeds.read_text()) if speeds.exists() else {}
            speeds.write_text(json.dumps(known | {out.stem: facts}, indent=1) + "\n", encoding="utf-8")
            print(f"{out.stem}: {json.dumps(facts)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
