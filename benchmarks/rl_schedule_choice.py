"""How a step of reinforcement learning should be taken: a model's choice of schedules, learnt from a table of times.

    python benchmarks/rl_schedule_choice.py MODEL FOLDER TABLE OUT.json [--rule NAME:LR:EPSILON:CLIP]...
        [--steps 20] [--tasks 8] [--rollouts 16] [--temperature 0.8] [--families NAME,...] [--seed 0]

MODEL was trained on the rows of `rl_schedules.py`, whose FOLDER has the tasks and the library's answers; TABLE is of
`rl_times.py`. A policy draws an answer's first line, which names its schedule, and is paid what `stanford` pays for
that answer's time in the table: a whole answer is not written, so that a step takes seconds on a processor. What is
trained is the whole model, as `train rl` does it, for each rule anew: AdamW with that rate, epsilon and largest
gradient norm (0: any). After every ten steps, over all tasks of both suites and all schedules, exactly and not by
samples: the mean reward, the geometric mean of speedups over eager, the share faster than eager, the entropy of the
choice in nats; and what is to be spared: the log-probability of a right answer's remaining text, and the mass on known
first lines.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from rl_times import answers, family_of
from torch import Tensor

from kernelwright.inference.chat import task_prompt
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.records import Evaluation, Message, Task, Timing, WorkloadResult
from kernelwright.rewards import stanford

RULES = ("plain:5e-5:1e-8:0", "plain-fast:1e-4:1e-8:0", "bounded:2e-4:1e-6:1e-4", "bounded-fast:6e-4:1e-6:1e-4")
EVERY, WARM_UP, BODIES = 10, 3, 6
USUAL_LENGTH = 500.0
"""Tokens of an answer: the sum over tokens is divided by as many as in training."""


@dataclass(frozen=True)
class Choice:
    """A task with its schedules."""

    suite: str
    task: Task
    prompt: list[int]
    heads: list[list[int]]
    """Tokens of each schedule's first line."""
    answers: list[list[int]]
    speedups: Tensor
    """Eager's time over each schedule's."""

    @cached_property
    def rewards(self) -> Tensor:
        """What each right answer is paid."""
        return torch.tensor([stanford(right(speedup)).value for speedup in self.speedups.tolist()])


def right(speedup: float) -> Evaluation:
    """A correct answer, so many times as fast as eager."""
    return Evaluation(
        task_id="any",
        task_hash="any",
        candidate_id="any",
        verdict="correct",
        workloads=(WorkloadResult(name="any", passed=True),),
        backend="gpu",
        timing=Timing(candidate_ms=1.0, eager_ms=speedup, speedup=speedup),
    )


def choices(folder: Path, table: Path, tokenizer: ChatTokenizer, families: list[str]) -> list[Choice]:
    """The tasks of both suites of which a table has times; eager's is the median over all of a task's rows."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    eager: dict[str, list[float]] = defaultdict(list)
    for row in json.loads(table.read_text(encoding="utf-8"))["rows"]:
        if row["verdict"] == "correct" and (not families or family_of(row["task"]) in families):
            times[row["task"]][row["schedule"]] = row["candidate_ms"]
            eager[row["task"]].append(row["eager_ms"])
    found = []
    for (suite, task), group in itertools.groupby(answers(folder), key=lambda one: one[:2]):
        known = times[task.task_id]
        timed = [(name, candidate.text) for _, _, name, candidate in group if name in known]
        if len(timed) < 2:
            continue
        prompt = tokenizer.prompt([Message(role="user", content=task_prompt(task.source))])
        texts = [tokenizer.encode(text) for _, text in timed]
        heads = [text[: first_line(tokenizer, text)] for text in texts]
        usual = statistics.median(eager[task.task_id])
        found.append(
            Choice(suite, task, prompt, heads, texts, torch.tensor([usual / known[name] for name, _ in timed]))
        )
    return found


def first_line(tokenizer: ChatTokenizer, answer: list[int]) -> int:
    """How many tokens the first line has, its end included: one name may begin with another."""
    return next(n for n in range(1, len(answer) + 1) if "\n" in tokenizer.decode(answer[:n]))


def scores(model: Any, choice: Choice) -> Tensor:
    """Log-probabilities of the first lines; the prompt is computed once."""
    count, longest = len(choice.heads), max(map(len, choice.heads))
    lines, mask = torch.zeros(count, longest, dtype=torch.long), torch.zeros(count, longest)
    for at, head in enumerate(choice.heads):
        lines[at, : len(head)], mask[at, : len(head)] = torch.tensor(head), 1.0
    asked = model(input_ids=torch.tensor([choice.prompt]), use_cache=True, logits_to_keep=1)
    asked.past_key_values.batch_repeat_interleave(count)
    said = model(input_ids=lines, past_key_values=asked.past_key_values, use_cache=True)
    logits = torch.cat([asked.logits.expand(count, -1, -1), said.logits[:, :-1]], dim=1)
    return (logits.log_softmax(-1).gather(2, lines[..., None])[..., 0] * mask).sum(dim=1)


def chances(model: Any, choice: Choice, temperature: float) -> tuple[Tensor, float]:
    """Each schedule's share of the known first lines at a temperature, and the mass on all of them at 1."""
    found = scores(model, choice)
    return (found / temperature).softmax(0), float(found.exp().sum())


@torch.no_grad()
def measured(model: Any, tasks: list[Choice], temperature: float) -> dict[str, Any]:
    """Exact expectations over the schedules of each suite, and what is to be spared."""
    made: dict[str, Any] = {}
    for suite in ("train", "held_out"):
        rows = []
        for task in [t for t in tasks if t.suite == suite]:
            share, known = chances(model, task, temperature)
            mean = [float((share * v).sum()) for v in (task.rewards, task.speedups.log(), task.speedups > 1)]
            rows.append([*mean, float(-(share * share.clamp(min=1e-9).log()).sum()), known])
        reward, log_speedup, fast, entropy, mass = (statistics.mean(column) for column in zip(*rows, strict=True))
        made[suite] = {"reward": reward, "speedup": math.exp(log_speedup), "fast_1": fast, "entropy": entropy}
        made[suite]["known_first_lines"] = mass
    rest = []
    others = [t for t in tasks if t.suite == "held_out"]
    for task in others[:: max(1, len(others) // BODIES)]:
        best = int(task.speedups.argmax())
        ids = torch.tensor([task.prompt + task.answers[best]])
        each = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        rest.append(float(each[len(task.prompt) + len(task.heads[best]) - 1 :].sum()))
    return {**made, "log_probability_of_the_rest": statistics.mean(rest)}


def trained(folder: str, tasks: list[Choice], rule: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One rule: its curve."""
    from transformers import AutoModelForCausalLM

    name, *numbers = rule.split(":")
    rate, epsilon, clip = map(float, numbers)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=epsilon, weight_decay=0.0)
    draw = torch.Generator().manual_seed(asked.seed)
    mine = [t for t in tasks if t.suite == "train"]
    order: list[int] = []
    curve: list[dict[str, Any]] = [{"step": 0, **measured(model, tasks, asked.temperature)}]
    for step in range(1, asked.steps + 1):
        if len(order) < asked.tasks:
            order += torch.randperm(len(mine), generator=draw).tolist()
        now, order = order[: asked.tasks], order[asked.tasks :]
        optimizer.zero_grad()
        for number in now:
            found = scores(model, mine[number]) / asked.temperature
            drawn = torch.multinomial(found.detach().softmax(0), asked.rollouts, replacement=True, generator=draw)
            paid = mine[number].rewards[drawn]
            loss = -((paid - paid.mean()) * found[drawn]).sum() / (asked.tasks * asked.rollouts * USUAL_LENGTH)
            loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")))
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / WARM_UP)
        optimizer.step()
        if step % EVERY == 0 or step == asked.steps:
            pairs = zip(model.parameters(), before, strict=True)
            moved = math.sqrt(sum(float((p.detach() - b).square().sum()) for p, b in pairs))
            curve.append({"step": step, "grad_norm": norm, "moved": moved, **measured(model, tasks, asked.temperature)})
            print(name, json.dumps(curve[-1]), flush=True)
    return {"rule": name, "lr": rate, "adam_epsilon": epsilon, "clip": clip, "curve": curve}


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What every script on such choices asks for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--families", type=lambda text: text.split(","), default=[])
    return parser


def asked_for(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> tuple[ChatTokenizer, list[Choice]]:
    """The model's tokenizer and the choices; ends the script where the table has none of a suite."""
    tokenizer = ChatTokenizer.load(Path(asked.model))
    tasks = choices(asked.folder, asked.table, tokenizer, asked.families)
    if {task.suite for task in tasks} != {"train", "held_out"}:
        parser.error(f"{asked.table} has no times of tasks of both suites of {asked.folder}")
    return tokenizer, tasks


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rule", action="append", default=[], dest="rules")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    _, tasks = asked_for(parser, asked)
    kept = {"benchmark": "rl_schedule_choice", "date": date.today().isoformat(), "torch": torch.__version__}
    kept |= {name: getattr(asked, name) for name in ("steps", "tasks", "rollouts", "temperature", "families", "seed")}
    runs = []
    for rule in asked.rules or RULES:
        runs.append(trained(asked.model, tasks, rule, asked))
        asked.out.write_text(json.dumps({**kept, "runs": runs}, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
