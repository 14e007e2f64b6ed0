"""`kernelwright train rl`: play, judge, reward, credit, update; again. Resumable at any point.

The loop, to be read from top to bottom. A step plays some tasks several times with the engine, at the weights of the
last update; its rollouts are on disk before anything is learnt from them, so that a run that is stopped anywhere goes
on without a rollout lost or played twice. One process and one device.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelwright.errors import ConfigError
from kernelwright.executor import load_executor
from kernelwright.inference import load_engine
from kernelwright.policies import load_policy
from kernelwright.records import Task
from kernelwright.rewards import annealed_judge_weight
from kernelwright.rewards_judge import Judge
from kernelwright.tasks import load_suite
from kernelwright.training.merging import save_tokenizer_files
from kernelwright.training.post_run import keep_settings, load_model
from kernelwright.training.progress import Live, Log, read_log
from kernelwright.training.rl_rollouts import ConversationPolicy, Rollouts, Row
from kernelwright.training.rl_settings import RlSettings, TaskSettings
from kernelwright.training.rl_update import Updater


@dataclass(frozen=True)
class RlResult:
    """What a run did, as plain values for scripts."""

    facts: dict[str, Any]


def load_tasks(settings: TaskSettings) -> list[Task]:
    """The tasks to train on. Raises `ConfigError` and `TaskError`."""
    if settings.suite is not None:
        return load_suite(settings.suite, limit=settings.limit)
    from kernelwright.tasks.generate import generate

    made = generate(settings.seed, settings.count, families=settings.families, split=settings.split)
    return [Task(task_id=task.name, source=task.source) for task in made][: settings.limit]


def tasks_of_step(tasks: Sequence[Task], wanted: int, seed: int, step: int) -> list[Task]:
    """The tasks of a step: each pass over all of them is in an order of its own."""
    chosen: list[Task] = []
    for place in range(step * wanted, step * wanted + wanted):
        epoch, index = divmod(place, len(tasks))
        chosen.append(tasks[int(np.random.default_rng([seed, epoch]).permutation(len(tasks))[index])])
    return chosen


def train_rl(settings: RlSettings, out: Path) -> RlResult:
    """Trains, or goes on with what is in `out`. Raises `ConfigError`; Ctrl-C loses no whole rollout."""
    if settings.model.tune != "full":
        raise ConfigError("train rl tunes all weights", hint="use model.tune=full")
    out.mkdir(parents=True, exist_ok=True)
    keep_settings(settings, out)
    tasks = load_tasks(settings.tasks)
    if settings.rollout.tasks > len(tasks):
        raise ConfigError(f"a step of {settings.rollout.tasks} tasks out of {len(tasks)}", hint="lower rollout.tasks")
    state = _State.open(settings, out)
    log = Log(out / "log.jsonl", state.step)
    judging = settings.judging
    judge = Judge(load_policy(judging.judge)) if judging.judge else None
    with load_executor("local", jobs=judging.jobs or len(os.sched_getaffinity(0))) as executor:
        rollouts = Rollouts(settings, state.policy, executor, judge)
        live = Live(True)
        while state.step < settings.train.steps:
            rollouts.judge_weight = _judge_weight(out, state.step) if judge else 0.0
            row = _one_step(settings, state, rollouts, tasks, out)
            log.add(row)
            live.say(_line(row, settings.train.steps), last=state.step == settings.train.steps)
            if state.step % settings.train.save_every == 0 or state.step == settings.train.steps:
                state.save(out)
    state.export(settings, out)
    rows = read_log(out / "log.jsonl")
    facts = {"name": settings.name, "steps": state.step, "updates": state.updater.done, "rollouts": state.rollouts}
    for name in ("reward", "correct", "hacked"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            facts[f"first_{name}"], facts[f"last_{name}"] = values[0], values[-1]
    (out / "training.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return RlResult(facts)


def _one_step(
    settings: RlSettings, state: _State, rollouts: Rollouts, tasks: Sequence[Task], out: Path
) -> dict[str, Any]:
    began = time.monotonic()
    chosen = tasks_of_step(tasks, settings.rollout.tasks, settings.seed, state.step)
    rows = rollouts.step(state.step, chosen, out / "rollouts" / f"step-{state.step:06d}.jsonl")
    played = time.monotonic()
    facts = state.updater.step(rows, settings.seed * 1_000_003 + state.step)
    refresh(state.policy.engine, state.model)
    state.step += 1
    state.rollouts += len({(row.group, row.trajectory) for row in rows})
    seconds = {"play_s": round(played - began, 2), "update_s": round(time.monotonic() - played, 2)}
    return {"step": state.step, **describe(rows), **facts, **seconds}


def describe(rows: Sequence[Row]) -> dict[str, Any]:
    """What a step's rows were like: rewards, verdicts, lengths; and alarms, where something looks broken."""
    paid = [row.reward for row in rows if row.reward is not None]
    verdicts = Counter(row.verdict for row in rows)
    best: dict[tuple[int, int], bool] = {}
    for row in rows:
        key = (row.group, row.trajectory)
        best[key] = best.get(key, False) or row.verdict == "correct"
    parts: dict[str, float] = {}
    for row in rows:
        for name, value in row.parts.items():
            parts[name] = parts.get(name, 0.0) + value / max(len(paid), 1)
    lengths = [len(row.token_ids) for row in rows]
    log_probs = [p for row in rows for p in row.log_probs]
    found: dict[str, Any] = {
        "reward": sum(paid) / len(paid) if paid else None,
        "parts": {name: round(value, 5) for name, value in sorted(parts.items())},
        "correct": verdicts["correct"] / len(rows),
        "correct_rollouts": sum(best.values()) / len(best),
        "hacked": verdicts["rejected"] / len(rows),
        "unreadable": verdicts["unreadable"] / len(rows),
        "unpaid": 1.0 - len(paid) / len(rows),
        "verdicts": dict(sorted(verdicts.items())),
        "length": sum(lengths) / len(lengths),
        "cut": sum(row.finish_reason == "length" for row in rows) / len(rows),
        "log_prob": sum(log_probs) / max(len(log_probs), 1),
        "first_token": Counter(row.token_ids[0] for row in rows if row.token_ids).most_common(1)[0][1] / len(rows)
        if any(row.token_ids for row in rows)
        else 0.0,
        "repetition": sum(repetition(row.token_ids) for row in rows) / len(rows),
    }
    found["alarms"] = alarms(found)
    return found


def repetition(ids: Sequence[int], n: int = 8) -> float:
    """The share of an answer's runs of `n` tokens that were there before."""
    runs = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1.0 - len(set(runs)) / len(runs) if runs else 0.0


def alarms(facts: dict[str, Any]) -> list[str]:
    """Names of what looks broken: signs that come before a policy's answers turn to junk."""
    limits = {"hacked": 0.3, "unpaid": 0.2, "cut": 0.8, "repetition": 0.6, "unreadable": 0.9}
    return [name for name, limit in limits.items() if facts[name] > limit]


def _judge_weight(out: Path, step: int) -> float:
    rows = read_log(out / "log.jsonl")
    return annealed_judge_weight(rows[-1]["correct"] if rows and step else 0.0)


def _line(row: dict[str, Any], total: int) -> str:
    reward = "none" if row["reward"] is None else f"{row['reward']:.3f}"
    text = f"step {row['step']}/{total} · reward {reward} · correct {row['correct']:.0%} · hacked {row['hacked']:.0%}"
    text += f" · {row['trained_rows']:.0f} rows trained · {row['play_s']:.0f} + {row['update_s']:.0f} s"
    return text + (f" · alarm: {', '.join(row['alarms'])}" if row["alarms"] else "")


@torch.no_grad()
def refresh(engine: Any, model: Any) -> None:
    """Gives the engine the model's weights, in the tensors that it has (its CUDA graphs read those)."""
    from kernelwright.inference.decoder import Decoder

    old = engine.decoder
    new = Decoder(old.config, dict(model.state_dict()), old.device, old.dtype)
    pairs = [(old.embedding, new.embedding), (old.norm, new.norm), (old.head, new.head)]
    for before, after in zip(old.layers, new.layers, strict=True):
        pairs += [(a, getattr(after, name)) for name, a in vars(before).items() if a is not None]
    for target, source in pairs:
        target.copy_(source)


class _State:
    """What a run has come to: the model, its optimizer, the engine with the same weights, and counts."""

    def __init__(self, settings: RlSettings, model: Any, engine: Any) -> None:
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model)
        train = settings.train
        self.model = model.eval()
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=train.lr, betas=(0.9, 0.95), weight_decay=train.weight_decay
        )
        self.updater = Updater(settings, model, self.optimizer, _autocast(settings, model))
        r = settings.rollout
        self.policy = ConversationPolicy(
            engine, "training", temperature=r.temperature, top_p=r.top_p, max_tokens=r.max_tokens
        )
        self.step = 0
        self.rollouts = 0

    @classmethod
    def open(cls, settings: RlSettings, out: Path) -> _State:
        """A new run's, or where the last one was saved."""
        torch.manual_seed(settings.seed)
        model = load_model(settings.model)
        if torch.cuda.is_available():
            model = model.cuda()
        state = cls(settings, model, load_engine(settings.model.path))
        saved = out / "state.pt"
        if saved.is_file():
            kept = torch.load(saved, map_location="cpu", weights_only=True)
            model.load_state_dict(kept["model"])
            state.optimizer.load_state_dict(kept["optimizer"])
            state.step, state.rollouts = int(kept["step"]), int(kept["rollouts"])
            state.updater.done = int(kept["updates"])
            state.updater.bounds.low, state.updater.bounds.high = kept["bounds"]
        refresh(state.policy.engine, model)
        return state

    def save(self, out: Path) -> None:
        """Writes beside the place and renames: a kill leaves the old state or the new one."""
        part = out / "state.pt.part"
        bounds = (self.updater.bounds.low, self.updater.bounds.high)
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "rollouts": self.rollouts,
                "updates": self.updater.done,
                "bounds": bounds,
            },
            part,
        )
        os.replace(part, out / "state.pt")

    def export(self, settings: RlSettings, out: Path) -> None:
        """The model in Hugging Face's format, for policies."""
        self.model.save_pretrained(str(out))
        save_tokenizer_files(settings.model.path, out)


def _autocast(settings: RlSettings, model: Any) -> Any:
    device = next(model.parameters()).device.type
    wanted = settings.train.precision
    if wanted == "fp32" or (wanted == "auto" and device == "cpu"):
        return contextlib.nullcontext
    return lambda: torch.autocast(device, dtype=torch.bfloat16)


def show(result: RlResult, out: Path) -> None:
    """One line about a run."""
    facts = result.facts
    reward = facts.get("last_reward", math.nan)
    print(f"{out}: {facts['steps']} steps, {facts['rollouts']} rollouts, reward {reward:.3f}")
    sys.stdout.flush()
