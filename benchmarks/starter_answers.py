"""Answers of a checkpoint to whole suites, drawn on a GPU and kept for judging elsewhere.

    python benchmarks/starter_answers.py CHECKPOINT OUT.jsonl SUITE.jsonl[:SAMPLES]... [--reference-field reference]
                                         [--id-field task_id] [--seeds 0,1,2]

For each task of each suite one greedy answer, and SAMPLES (0 by default) at T = 0.8 for each seed. Rows have `id`
(suite/task/seed-sample), suite, task_id, family, seed, sample (-1: greedy), reference, candidate, tokens and log_prob;
`kernelwright eval --jsonl OUT.jsonl --reference-field reference --candidate-field candidate --id-field id` judges them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from kernelwright.inference import load_engine
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.sampling import Sampling
from kernelwright.records import Message

TEMPERATURE, MAX_TOKENS = 0.8, 2048


def asked(suite: str, seeds: list[int], reference: str, name: str) -> list[dict[str, Any]]:
    """The rows of one suite, still without answers."""
    path, _, samples = suite.partition(":")
    rows = []
    for number, line in enumerate(Path(path).read_text().splitlines()):
        task = json.loads(line)
        task_id = str(task.get(name, number))
        known = {"suite": Path(path).stem, "task_id": task_id, "family": task.get("family", "")}
        wanted = [(0, -1)] + [(seed, sample) for seed in seeds for sample in range(int(samples or 0))]
        for seed, sample in wanted:
            label = f"{known['suite']}/{task_id}/{seed}-{sample}"
            rows.append({"id": label, **known, "seed": seed, "sample": sample, "reference": task[reference]})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out", type=Path)
    parser.add_argument("suites", nargs="+")
    parser.add_argument("--reference-field", default="reference")
    parser.add_argument("--id-field", default="task_id")
    parser.add_argument("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[0])
    args = parser.parse_args()
    rows = [row for suite in args.suites for row in asked(suite, args.seeds, args.reference_field, args.id_field)]
    engine = load_engine(f"starter:{args.checkpoint}")
    prompts = [engine.tokenizer.prompt([Message(role="user", content=task_prompt(r["reference"]))]) for r in rows]
    samplings = [
        Sampling(0.0 if r["sample"] < 0 else TEMPERATURE, 1.0, 0, MAX_TOKENS, 1000 * r["seed"] + r["sample"] + 1)
        for r in rows
    ]
    began = time.monotonic()
    done = engine.generate(prompts, samplings)
    seconds = time.monotonic() - began
    with args.out.open("w") as file:
        for row, answer in zip(rows, done, strict=True):
            row |= {"candidate": answer.text, "tokens": len(answer.ids), "log_prob": sum(answer.log_probs)}
            file.write(json.dumps(row) + "\n")
    tokens = sum(len(answer.ids) for answer in done)
    print(f"{len(done)} answers, {tokens} tokens, {seconds:.1f} s, {tokens / seconds:.0f} tokens/s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
