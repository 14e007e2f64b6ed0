"""Compares update rules of reinforcement learning on a model's choice of schedules, with a table of times.

    python benchmarks/rl_schedule_choice.py MODEL FOLDER TABLE OUT.json [--rule NAME:LR:EPSILON:CLIP]...
        [--reward NAME[:PARAMETER=NUMBER]...]... [--compiled TABLE] [--seeds 0,...]
        [--steps 20] [--tasks 8] [--rollouts 16] [--temperature 0.8] [--families NAME,...]

MODEL was trained on the rows of `rl_schedules.py`, whose FOLDER has the tasks and the library's answers; `rl_times.py`
wrote TABLE. A policy draws an answer's first line, which names its schedule. Its reward is that of `--reward`
(`stanford`) for the answer's time in the table. No whole answer is written, so that a step takes seconds on a CPU. The
whole model is trained, as `train rl` does, from the start for each rule, reward and seed: AdamW with that rate, epsilon
and largest gradient norm (0: any). After every ten steps these are computed exactly, not from samples, over all tasks
of both suites and all schedules: the mean reward, the geometric mean of speedups over eager, the share faster than
eager, and the entropy of the choice in nats. Two more should not change: the log-probability of a correct answer's
remaining text, and the mass on known first lines.

`--compiled` is a table of `rl_times.py` whose answers were also timed against torch.compile. Then only tasks of that
table count, torch.compile's time is its measured share of eager's, and the share faster than both is reported.
`differences` compares each reward with the first one after the last step, on held-out tasks, paired over tasks and
averaged over seeds.
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
from functools import cache
from pathlib import Path
from typing import Any

import torch
from result_file import read_json
from rl_times import answers, family_of
from torch import Tensor

from kernelwright.bench.metrics import family, paired
from kernelwright.inference.chat import task_prompt
from kernelwright.inference.quantised import full_checkpoint
from kernelwright.inference.tokenizer import ChatTokenizer
from kernelwright.records import Evaluation, Message, Task, Timing, WorkloadResult
from kernelwright.rewards import BASELINES, REWARDS

RULES = ("plain:5e-5:1e-8:0", "plain-fast:1e-4:1e-8:0", "bounded:2e-4:1e-6:1e-4", "bounded-fast:6e-4:1e-6:1e-4")
EVERY, WARM_UP, BODIES = 10, 3, 6
COMPARED = ("log_speedup", "fast_1", "fast_both")
USUAL_LENGTH = 500.0
"""Tokens of an answer, by which the sum over tokens is divided, as in training."""


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
    compiled: float | None = None
    """torch.compile's time over eager's, where it is known."""

    def rewards(self, reward: str) -> Tensor:
        """Returns each correct answer's reward by `NAME` or `NAME:PARAMETER=NUMBER`."""
        return _paid(reward, tuple(self.speedups.tolist()), self.compiled)

    @property
    def beats_both(self) -> Tensor:
        """Tells which schedules are faster than eager and torch.compile."""
        return self.speedups * min(1.0, self.compiled or 1.0) > 1


@cache
def _paid(reward: str, speedups: tuple[float, ...], compiled: float | None) -> Tensor:
    name, *given = reward.split(":")
    parameters = {key: float(value) for key, _, value in (text.partition("=") for text in given)}
    return torch.tensor([REWARDS[name](right(one, compiled), **parameters).value for one in speedups])


def right(speedup: float, compiled: float | None = None) -> Evaluation:
    """Returns a correct answer, so many times as fast as eager, which takes 1 / `compiled` of torch.compile's time."""
    return Evaluation(
        task_id="any",
        task_hash="any",
        candidate_id="any",
        verdict="correct",
        workloads=(WorkloadResult(name="any", passed=True),),
        backend="gpu",
        timing=Timing(
            candidate_ms=1.0,
            eager_ms=speedup,
            speedup=speedup,
            compile_ms=None if compiled is None else speedup * compiled,
        ),
    )


def compiled_shares(table: Path) -> dict[str, float]:
    """Returns torch.compile's time over eager's, by task."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_json(table)["rows"]:
        if row.get("compile_ms"):
            found[row["task"]].append(row["compile_ms"] / row["eager_ms"])
    return {task: statistics.median(shares) for task, shares in found.items()}


def choices(
    folder: Path, table: Path, tokenizer: ChatTokenizer, families: list[str], compiled: dict[str, float] | None = None
) -> list[Choice]:
    """Returns the tasks of both suites with times in the table, and in `compiled` if given.

    Eager's time is the median over all of a task's rows.
    """
    times: dict[str, dict[str, float]] = defaultdict(dict)
    eager: dict[str, list[float]] = defaultdict(list)
    for row in read_json(table)["rows"]:
        if row["verdict"] == "correct" and (not families or family_of(row["task"]) in families):
            times[row["task"]][row["schedule"]] = row["candidate_ms"]
            eager[row["task"]].append(row["eager_ms"])
    found = []
    for (suite, task), group in itertools.groupby(answers(folder), key=lambda one: one[:2]):
        known = times[task.task_id]
        timed = [(name, candidate.text) for _, _, name, candidate in group if name in known]
        if len(timed) < 2 or (compiled is not None and task.task_id not in compiled):
            continue
        prompt = tokenizer.prompt([Message(role="user", content=task_prompt(task.source))])
        texts = [tokenizer.encode(text) for _, text in timed]
        heads = [text[: first_line(tokenizer, text)] for text in texts]
        usual = statistics.median(eager[task.task_id])
        speedups = torch.tensor([usual / known[name] for name, _ in timed])
        found.append(Choice(suite, task, prompt, heads, texts, speedups, (compiled or {}).get(task.task_id)))
    return found


def first_line(tokenizer: ChatTokenizer, answer: list[int]) -> int:
    """Counts the first line's tokens, its end included, since one name may be a prefix of another."""
    return next(n for n in range(1, len(answer) + 1) if "\n" in tokenizer.decode(answer[:n]))


def scores(model: Any, choice: Choice) -> Tensor:
    """Returns log-probabilities of the first lines; the prompt is computed once."""
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
    """Returns each schedule's share of the known first lines at a temperature, and the mass on all of them at 1."""
    found = scores(model, choice)
    return (found / temperature).softmax(0), float(found.exp().sum())


@torch.no_grad()
def measured(model: Any, tasks: list[Choice], temperature: float, reward: str) -> dict[str, Any]:
    """Returns exact expectations over each suite's schedules, and the unchanged measures; `by_task` is held-out."""
    made: dict[str, Any] = {}
    for suite in ("train", "held_out"):
        rows = []
        for task in [t for t in tasks if t.suite == suite]:
            share, known = chances(model, task, temperature)
            worth = (task.rewards(reward), task.speedups.log(), task.speedups > 1, task.beats_both)
            mean = [float((share * v).sum()) for v in worth]
            rows.append([*mean, float(-(share * share.clamp(min=1e-9).log()).sum()), known])
        names = ("reward", "log_speedup", "fast_1", "fast_both", "entropy", "known_first_lines")
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        made[suite] = {name: statistics.mean(column) for name, column in columns.items()}
        made[suite]["speedup"] = math.exp(made[suite].pop("log_speedup"))
        made["by_task"] = {name: columns[name] for name in COMPARED}
    rest = []
    others = [t for t in tasks if t.suite == "held_out"]
    for task in others[:: max(1, len(others) // BODIES)]:
        best = int(task.speedups.argmax())
        ids = torch.tensor([task.prompt + task.answers[best]])
        each = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        rest.append(float(each[len(task.prompt) + len(task.heads[best]) - 1 :].sum()))
    return {**made, "log_probability_of_the_rest": statistics.mean(rest)}


def trained(folder: str, tasks: list[Choice], rule: str, reward: str, seed: int, asked: Any) -> dict[str, Any]:
    """Trains with one rule, reward and seed; returns the curve."""
    from transformers import AutoModelForCausalLM

    name, *numbers = rule.split(":")
    rate, epsilon, clip = map(float, numbers)
    model = AutoModelForCausalLM.from_pretrained(full_checkpoint(folder), dtype=torch.float32).eval()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), eps=epsilon, weight_decay=0.0)
    draw = torch.Generator().manual_seed(seed)
    mine = [t for t in tasks if t.suite == "train"]
    order: list[int] = []
    curve: list[dict[str, Any]] = [{"step": 0, **measured(model, tasks, asked.temperature, reward)}]
    for step in range(1, asked.steps + 1):
        if len(order) < asked.tasks:
            order += torch.randperm(len(mine), generator=draw).tolist()
        now, order = order[: asked.tasks], order[asked.tasks :]
        optimizer.zero_grad()
        for number in now:
            found = scores(model, mine[number]) / asked.temperature
            drawn = torch.multinomial(found.detach().softmax(0), asked.rollouts, replacement=True, generator=draw)
            paid = mine[number].rewards(reward)[drawn]
            loss = -((paid - paid.mean()) * found[drawn]).sum() / (asked.tasks * asked.rollouts * USUAL_LENGTH)
            loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")))
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / WARM_UP)
        optimizer.step()
        if step % EVERY == 0 or step == asked.steps:
            pairs = zip(model.parameters(), before, strict=True)
            moved = math.sqrt(sum(float((p.detach() - b).square().sum()) for p, b in pairs))
            now_is = measured(model, tasks, asked.temperature, reward)
            curve.append({"step": step, "grad_norm": norm, "moved": moved, **now_is})
            print(name, reward, seed, step, json.dumps(now_is["held_out"]), flush=True)
    by_task = {"before": curve[0]["by_task"], "after": curve[-1]["by_task"]}
    for point in curve:
        point.pop("by_task")
    how = {"rule": name, "lr": rate, "adam_epsilon": epsilon, "clip": clip, "reward": reward, "seed": seed}
    return {**how, "curve": curve, "held_out_by_task": by_task}


def differences(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns changes by each reward, and each reward against the first, by rule; seed means, paired over tasks."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        found[run["rule"], run["reward"]].append(run["held_out_by_task"])
    made: dict[str, Any] = {}
    for (rule, reward), seeds in found.items():
        first = next(mine for (other, _), mine in found.items() if other == rule)
        pairs = {"before": (seeds, "before"), "first": (first, "after")}
        made[f"{rule} {reward}"] = family(
            {
                f"{name} to {against}": paired(
                    _mean(name, [r[when] for r in runs_of]),
                    _mean(name, [r["after"] for r in seeds]),
                    shares=name != "log_speedup",
                )
                for against, (runs_of, when) in pairs.items()
                for name in COMPARED
            }
        )
    return made


def _mean(name: str, rows: list[dict[str, list[float]]]) -> list[float]:
    """Returns the mean over runs by task; a share is a sum of probabilities, and rounding may take it past 1."""
    means = [statistics.mean(column) for column in zip(*(row[name] for row in rows), strict=True)]
    return means if name == "log_speedup" else [min(1.0, value) for value in means]


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Returns the parser with the arguments that the scripts on schedule choices share."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--families", type=lambda text: text.split(","), default=[])
    return parser


def asked_for(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> tuple[ChatTokenizer, list[Choice]]:
    """Returns the tokenizer and the choices; ends the script if the table has no task of a suite."""
    tokenizer = ChatTokenizer.load(Path(asked.model))
    shares = compiled_shares(asked.compiled) if getattr(asked, "compiled", None) else None
    tasks = choices(asked.folder, asked.table, tokenizer, asked.families, shares)
    if {task.suite for task in tasks} != {"train", "held_out"}:
        parser.error(f"{asked.table} has no times of tasks of both suites of {asked.folder}")
    return tokenizer, tasks


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rule", action="append", default=[], dest="rules")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--seeds", type=lambda text: [int(n) for n in text.split(",")], default=[0])
    parser.add_argument("--reward", action="append", default=[], dest="rewards")
    parser.add_argument("--compiled", type=Path)
    asked = parser.parse_args()
    rewards = asked.rewards or ["stanford"]
    for name in {reward.split(":")[0] for reward in rewards}:
        if name not in REWARDS:
            parser.error(f"there is no reward {name!r}: {', '.join(REWARDS)}")
        if "compile" in BASELINES[name] and asked.compiled is None:
            parser.error(f"{name} wants torch.compile's times: --compiled TABLE")
    _, tasks = asked_for(parser, asked)
    kept = {"benchmark": "rl_schedule_choice", "date": date.today().isoformat(), "torch": torch.__version__}
    kept |= {name: getattr(asked, name) for name in ("steps", "tasks", "rollouts", "temperature", "families")}
    runs = []
    for rule, seed, reward in itertools.product(asked.rules or RULES, asked.seeds, rewards):
        runs.append(trained(asked.model, tasks, rule, reward, seed, asked))
        found = {**kept, "differences": differences(runs), "runs": runs}
        asked.out.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
