"""Writes rows for the supervised stage before multi-turn reinforcement learning: repairs, and as many first answers.

    python benchmarks/rl_repairs.py CORPUS OUT.jsonl [--seed 0]

`kernelwright corpus build --mistakes 1.0` wrote CORPUS, with verdicts. A repair is a wrong answer, a training rollout's
feedback on it, and the library's answer (correct by construction). A first answer is the task with that answer. A
starter-sized model has seen one turn only: without these rows its later turns are rarely correct.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from kernelwright.inference.chat import task_prompt
from kernelwright.prompts.contexts import verdict_line
from kernelwright.solutions import write
from kernelwright.solutions.read.reading import Unreadable


def rows_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the repair and the first answer of a corpus row; none for a row that is not wrong."""
    if row["verdict"] in (None, "correct", "unsupported", "harness_error"):
        return []
    source = task_prompt(row["reference"])
    try:
        right = write(source, plan=True)
    except Unreadable:
        return []
    asked = {"role": "user", "content": source}
    told = [{"role": "assistant", "content": row["answer"]}]
    told += [{"role": "user", "content": verdict_line(row["verdict"], row["reason"])}]
    said = [{"role": "assistant", "content": right}]
    return [
        {"row_id": f"{row['row_id']}-repair", "prompt": [asked, *told], "completion": said},
        {"row_id": f"{row['row_id']}-first", "prompt": [asked], "completion": said},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    made: list[dict[str, Any]] = []
    for path in sorted((asked.corpus / "data").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            made += rows_of(json.loads(line))
    random.Random(asked.seed).shuffle(made)
    asked.out.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    print(json.dumps({"rows": len(made)}))


if __name__ == "__main__":
    main()
