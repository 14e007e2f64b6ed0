"""Rollouts of a policy in training: the same `rollout` as in searching, with each turn's tokens kept.

Every rollout is a thread: many wait for the engine, which answers them together, while others are judged. A rollout is
written to the step's file as soon as it is whole, so that a stopped step goes on without losing or repeating one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelwright.errors import PolicyError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Executor
from kernelwright.policies import Answer, Request
from kernelwright.policies.asking import Asker
from kernelwright.policies.starter import SampledAnswer, StarterPolicy
from kernelwright.prompts.messages import initial_messages
from kernelwright.records import Candidate, Evaluation, Message, Task, Turn
from kernelwright.rewards import Reward, load_reward
from kernelwright.rewards_judge import Judge
from kernelwright.rollout import Budget, Exchange, parse_python, rollout
from kernelwright.training.contexts import bare_task, converse
from kernelwright.training.rl_settings import RlSettings


@dataclass(frozen=True)
class Row:
    """One turn of one rollout: what the update needs, and what is logged."""

    task_id: str
    group: int
    trajectory: int
    turn: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """The sampler's, of `token_ids`."""
    reward: float | None
    parts: dict[str, float]
    facts: dict[str, float]
    verdict: str
    """`unreadable` where the answer held no candidate."""
    finish_reason: str


@dataclass(frozen=True)
class _Sampled:
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


class _Recorder:
    """A policy for one rollout that keeps the tokens of each turn."""

    name = "training"

    def __init__(self, asker: Asker, policy: StarterPolicy) -> None:
        self._asker, self._policy = asker, policy
        self.sampled: list[_Sampled] = []

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        prompt = tuple(self._policy.engine.tokenizer.prompt(messages))
        answer = self._asker.ask(Request(tuple(messages), seed, None))
        assert isinstance(answer, SampledAnswer)
        self.sampled.append(_Sampled(prompt, answer.token_ids, answer.log_probs))
        return answer


class ConversationPolicy(StarterPolicy):
    """The engine, asked with whole conversations, as a policy that learns from feedback must be."""

    def prompt(self, messages: Sequence[Message], task: Task | None) -> list[int]:
        return self.engine.tokenizer.prompt(messages)


class Rollouts:
    """Plays the rollouts of steps."""

    def __init__(self, settings: RlSettings, policy: StarterPolicy, executor: Executor, judge: Judge | None) -> None:
        self.settings, self.policy, self.executor, self.judge = settings, policy, executor, judge
        self.judge_weight = 0.0
        self._reward = load_reward(settings.reward.name)
        j = settings.judging
        baselines = [b for b in j.baselines.split(",") if b and b != "none"]
        wanted = j.model_dump(include={"backend", "trials", "timeout", "timing_seconds"})
        self._options = executor.settle(EvalOptions.model_validate({**wanted, "baselines": baselines}))
        self._lock = threading.Lock()

    def step(self, number: int, tasks: Sequence[Task], path: Path) -> list[Row]:
        """All rows of a step, in order; what `path` holds is not played again. Ctrl-C keeps what is whole."""
        done = read_rollouts(path)
        r = self.settings.rollout
        wanted = [(g, n) for g in range(len(tasks)) for n in range(r.rollouts) if (g, n) not in done]
        with Asker(self.policy) as asker, ThreadPoolExecutor(max(1, len(wanted))) as pool:
            futures = {pool.submit(self._play, asker, number, tasks[g], g, n): (g, n) for g, n in wanted}
            try:
                for future in as_completed(futures):
                    done[futures[future]] = rows = future.result()
                    self._keep(path, rows)
            except BaseException:
                asker.close()
                for future in futures:
                    future.cancel()
                raise
        return [row for key in sorted(done) for row in done[key]]

    def _keep(self, path: Path, rows: list[Row]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps([asdict(row) for row in rows]) + "\n")

    def _play(self, asker: Asker, step: int, task: Task, group: int, trajectory: int) -> list[Row]:
        recorder = _Recorder(asker, self.policy)
        seed = hash_seed(self.settings.seed, step, group, trajectory)
        judged: list[tuple[Turn, Candidate | None]] = []
        played = rollout(
            task,
            recorder,
            self._evaluate,
            budget=Budget(turns=self.settings.rollout.turns),
            seed=seed,
            on_turn=lambda turn, candidate: judged.append((turn, candidate)),
            stop=(lambda e: e.verdict == "correct") if self.settings.rollout.stop_when_correct else None,
            exchange=Exchange(self._converse, parse_python),
        )
        rows = []
        for (turn, candidate), sampled in zip(judged, recorder.sampled, strict=True):
            reward = self._rewarded(task, turn, candidate, seed)
            rows.append(
                Row(
                    played.task_id,
                    group,
                    trajectory,
                    turn.index,
                    sampled.prompt,
                    sampled.ids,
                    sampled.log_probs,
                    reward.value,
                    reward.parts,
                    reward.facts,
                    turn.evaluation.verdict if turn.evaluation else "unreadable",
                    turn.finish_reason,
                )
            )
        return rows

    def _evaluate(self, task: Task, candidate: Candidate) -> Evaluation:
        return self.executor.submit(task, candidate, self._options).result()

    def _rewarded(self, task: Task, turn: Turn, candidate: Candidate | None, seed: int) -> Reward:
        parameters = dict(self.settings.reward.parameters)
        if self.judge is not None and self.judge_weight > 0 and candidate is not None:
            with self._lock:  # one question at a time: a judge counts
                parameters["judge"] = self.judge(task, candidate, seed=seed).score
            parameters["judge_weight"] = self.judge_weight
        return self._reward(turn.evaluation, **parameters)

    def _converse(
        self, task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None]
    ) -> tuple[Message, ...]:
        r = self.settings.rollout
        room = self.policy.engine.config.context - r.max_tokens
        messages = converse(
            bare_task(task) if self.policy.engine.config.bare_task else initial_messages(task),
            turns,
            candidates,
            kind=r.context,
            top_w=r.top_w,
            score=lambda e: self._reward(e, **self.settings.reward.parameters).value,
            fits=lambda shown: len(self.policy.engine.tokenizer.prompt(shown)) <= room,
        )
        if len(self.policy.engine.tokenizer.prompt(messages)) >= self.policy.engine.config.context:
            raise PolicyError(f"the task {task.task_id} is longer than the model's context")
        return messages


def hash_seed(*parts: int) -> int:
    """A seed for one rollout: the same for the same place in the same run."""
    seed = 0
    for part in parts:
        seed = (seed * 1_000_003 + part + 1) % (2**31 - 1)
    return seed


def read_rollouts(path: Path) -> dict[tuple[int, int], list[Row]]:
    """What a step's file holds, by task and rollout; a torn last line is left out."""
    found: dict[tuple[int, int], list[Row]] = {}
    if not path.is_file():
        return found
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            raw: list[dict[str, Any]] = json.loads(line)
        except ValueError:
            break
        rows = [_row(row) for row in raw]
        found[rows[0].group, rows[0].trajectory] = rows
    return found


def _row(raw: dict[str, Any]) -> Row:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    return Row(**values)
