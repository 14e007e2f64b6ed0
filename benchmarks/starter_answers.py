"""Answers of a checkpoint to whole suites, drawn on a GPU where there is one, as scripts that `bench` replays.

    python benchmarks/starter_answers.py CHECKPOINT OUT SUITE.jsonl[:SAMPLES]... [--max-tokens 3072] [--seed 0]

OUT/SUITE.greedy.jsonl has one greedy answer for each task, OUT/SUITE.sampled.jsonl SAMPLES (0 by default) at T = 0.8,
each with a seed of its own. `kernelwright bench SUITE.jsonl --policy scripted:OUT/SUITE.greedy.jsonl --samples 1`
judges them, `--samples SAMPLES` the others: so drawing does not disturb what is timed. A file that is there is not
made again. OUT/speed.json has the tokens a second of each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kernelwright.inference import load_engine
from kernelwright.inference.chat import begun, task_prompt
from kernelwright.inference.engine import Engine
from kernelwright.inference.repeating import asking
from kernelwright.inference.sampling import Sampling
from kernelwright.records import Message, Task
from kernelwright.tasks import load_suite

TEMPERATURE = 0.8


def answer(engine: Engine, tasks: list[Task], samplings: list[tuple[int, Sampling]], out: Path) -> dict[str, Any]:
    """Writes one script: for each task an answer by each sampling, given with the number that `bench` asks for."""
    asked = [(task, number, sampling) for task in tasks for number, sampling in samplings]
    said = {t.task_id: asking(task_prompt(t.source)) for t in tasks}
    prompts = {t: engine.tokenizer.prompt([Message(role="user", content=a.text)]) for t, a in said.items()}
    fits = [row for row in asked if len(prompts[row[0].task_id]) < engine.config.context - 32]
    began = time.monotonic()
    # As the policy does: tries take turns with the schedules that the model knows, the greedy one has the first.
    begins = [engine.tokenizer.encode(begun(engine.schedules, number)) for _, number, _ in fits]
    ids = [[*prompts[t.task_id], *begin] for (t, _, _), begin in zip(fits, begins, strict=True)]
    done = engine.generate(ids, [s for _, _, s in fits])
    seconds = time.monotonic() - began
    rows: list[dict[str, Any]] = [
        {
            "task_id": task.task_id,
            "seed": number,
            "answer": said[task.task_id].answered(running.text),
            "tokens": len(running.ids),
            "log_prob": round(sum(running.log_probs), 3),
            "finish_reason": running.finish_reason,
        }
        for (task, number, _), running in zip(fits, done, strict=True)
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
        "rows": engine.rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=Path)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--max-tokens", type=int, default=3072)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    engine: Engine | None = None
    for suite in asked.suites:
        path, _, samples = suite.partition(":")
        tasks = list(load_suite(path))
        drawn = [
            (n, Sampling(TEMPERATURE, 1.0, 0, asked.max_tokens, 1000 * asked.seed + n + 1))
            for n in range(int(samples or 0))
        ]
        for kind, samplings in (("greedy", [(0, Sampling(0.0, 1.0, 0, asked.max_tokens, 0))]), ("sampled", drawn)):
            out = asked.out / f"{Path(path).stem}.{kind}.jsonl"
            if out.exists() or not samplings:
                continue
            engine = engine or load_engine(f"starter:{asked.checkpoint}")
            facts = answer(engine, tasks, samplings, out)
            speeds = asked.out / "speed.json"
            known = json.loads(speeds.read_text()) if speeds.exists() else {}
            speeds.write_text(json.dumps(known | {out.stem: facts}, indent=1) + "\n", encoding="utf-8")
            print(f"{out.stem}: {json.dumps(facts)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
