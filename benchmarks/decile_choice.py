"""Measures speed-decile tags (PIE, arXiv 2302.07867) by a model's choice of schedules and a table of measured times.

    python benchmarks/decile_choice.py MODEL FOLDER TABLE OUT.json [--passes 5] [--lr 4e-4] [--seeds 0,1]
        [--families NAME,...] [--temperature 0.8] [--batch 4]

MODEL was trained on the rows of `rl_schedules.py`, whose FOLDER has the tasks; `rl_times.py` wrote TABLE. MODEL is
trained on its training tasks with every schedule, tagged by `curate`'s own speed deciles, and on the same rows without
tags. Only the first line of each answer is trained on, which names the schedule, so that a pass takes minutes on a CPU.
Then the model is asked for 10/10 and for 1/10 on the held-out tasks. The geometric mean of speedups over eager and the
share faster than eager are computed exactly, not from samples. Differences are paired over tasks and averaged over
seeds.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from dataclasses import replace
from datetime import date
from typing import Any

import torch
from rl_schedule_choice import Choice, arguments, asked_for, chances, right, scores

from kernelwright.bench import metrics
from kernelwright.curation.deciles import speed_deciles
from kernelwright.curation.samples import CuratedSample
from kernelwright.inference.chat import speed_line, task_prompt
from kernelwright.inference.quantised import full_checkpoint
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.records import Message

ARMS = ("tags", "no tags")
ASKED = {"tags": {"10/10": "10/10", "1/10": "1/10"}, "no tags": {"none": ""}}


def asked_with(tokenizer: ChatTokenizer, choice: Choice, line: str) -> Choice:
    """Returns the task with a line before it."""
    words = "\n\n".join(part for part in (line, task_prompt(choice.task.source)) if part)
    return replace(choice, prompt=tokenizer.prompt([Message(role="user", content=words)]))


def tagged(tokenizer: ChatTokenizer, choice: Choice) -> list[Choice]:
    """Returns a copy of the task for each tag among its answers, with the answers of that tag."""
    texts = [tokenizer.decode(ids) for ids in choice.answers]
    samples = [
        CuratedSample(choice.task, text, text, right(speed), "table")
        for text, speed in zip(texts, choice.speedups.tolist(), strict=True)
    ]
    by_line: dict[str, list[int]] = defaultdict(list)
    for number, found in enumerate(speed_deciles(samples)):
        by_line[speed_line(found.tag)].append(number)
    return [
        replace(asked_with(tokenizer, choice, line), heads=[choice.heads[n] for n in numbers])
        for line, numbers in by_line.items()
    ]


def trained(model: Any, rows: list[Choice], seed: int, passes: int, lr: float, batch_size: int) -> list[float]:
    """Trains on first lines, one row an answer; returns each pass's loss per token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    draw, order, losses = random.Random(seed), list(rows), []
    steps = passes * math.ceil(len(rows) / batch_size)
    step = 0
    for _ in range(passes):
        draw.shuffle(order)
        total, tokens = 0.0, 0
        for begin in range(0, len(order), batch_size):
            batch = order[begin : begin + batch_size]
            count = sum(len(head) for row in batch for head in row.heads)
            optimizer.zero_grad()
            for row in batch:
                loss = -scores(model, row).sum() / count
                loss.backward()
                total += float(loss.detach()) * count
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
            optimizer.step()
            step, tokens = step + 1, tokens + count
        losses.append(round(total / tokens, 5))
    return losses


@torch.no_grad()
def measured(model: Any, tasks: list[Choice], temperature: float) -> dict[str, list[float]]:
    """Returns per task the expected log speedup, the share faster than eager, and the mass on known first lines."""
    rows = []
    for task in tasks:
        share, known = chances(model, task, temperature)
        rows.append([*(float((share * v).sum()) for v in (task.speedups.log(), task.speedups > 1)), known])
    names = ("log_speedup", "fast_1", "known_first_lines")
    return dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))


def summary(arms: dict[str, list[dict[str, list[float]]]]) -> dict[str, Any]:
    """Returns the means of each way of asking, and its paired differences to 1/10 and to no tag."""
    means = {
        name: {key: [statistics.mean(v) for v in zip(*(one[key] for one in seeds), strict=True)] for key in seeds[0]}
        for name, seeds in arms.items()
    }
    made: dict[str, Any] = {}
    for name, values in means.items():
        made[name] = {"speedup": math.exp(statistics.mean(values["log_speedup"]))}
        made[name] |= {key: statistics.mean(values[key]) for key in ("fast_1", "known_first_lines")}
        for other in ("1/10", "none"):
            if name != other and other in means:
                pairs = {
                    key: metrics.paired(means[other][key], values[key], shares=key == "fast_1")
                    for key in ("log_speedup", "fast_1")
                }
                made[name][f"to {other}"] = metrics.family(pairs)
    return made


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seeds", type=lambda text: [int(n) for n in text.split(",")], default=[0, 1])
    asked = parser.parse_args()
    from transformers import AutoModelForCausalLM

    tokenizer, tasks = asked_for(parser, asked)
    train, held = ([t for t in tasks if t.suite == suite] for suite in ("train", "held_out"))
    kept: dict[str, Any] = {"benchmark": "decile_choice", "date": date.today().isoformat(), "torch": torch.__version__}
    kept |= {name: getattr(asked, name) for name in ("passes", "lr", "batch", "temperature", "families")}
    kept |= {"tasks": [len(train), len(held)], "losses": {}, "raw": {}}
    whole = full_checkpoint(asked.model)
    fresh = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32).eval()
    arms: dict[str, list[dict[str, list[float]]]] = defaultdict(list)
    arms["before"].append(measured(fresh, held, asked.temperature))
    for seed in asked.seeds:
        for arm in ARMS:
            model = AutoModelForCausalLM.from_pretrained(whole, dtype=torch.float32).eval()
            rows = [row for t in train for row in tagged(tokenizer, t)] if arm == "tags" else train
            alike = asked.batch * len(rows) // len(train)  # as many steps as without tags
            kept["losses"][f"{arm}, seed {seed}"] = trained(model, rows, seed, asked.passes, asked.lr, alike)
            for name, tag in ASKED[arm].items():
                line = speed_line(tag) if tag else ""
                found = measured(model, [asked_with(tokenizer, t, line) for t in held], asked.temperature)
                arms[name].append(found)
            kept |= {"summary": summary(arms), "raw": arms}
            asked.out.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
            print(arm, seed, kept["losses"][f"{arm}, seed {seed}"], json.dumps(kept["summary"]), flush=True)


if __name__ == "__main__":
    main()
