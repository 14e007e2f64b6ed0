"""Rollouts of a policy in training: `search.rollout.rollout`, with each turn's tokens and log-probabilities recorded.

Every rollout has its own thread: many wait for the back-end, which answers them in batches, while others are judged. A
finished rollout is appended to the step's file at once, so that a stopped step resumes without losing or repeating one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass, replace
from io import FileIO
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kernelwright.config import cache_dir
from kernelwright.errors import ConfigError, HarnessError, StoreError, TaskError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.judge.cpu_first import AGAINST, before_gpu
from kernelwright.evaluation.options import visible_gpus
from kernelwright.evaluation.processes.gpu_faults import Faults
from kernelwright.evaluation.processes.gpu_seats import shared_path
from kernelwright.executor import Executor, Job
from kernelwright.policies import Answer, Request
from kernelwright.policies.starter import ConversationPolicy
from kernelwright.policies.streaming import Stream
from kernelwright.prompts.contexts import converse, opening
from kernelwright.records import Candidate, Evaluation, Message, Task, Turn
from kernelwright.rewards.functions import Reward, load_reward
from kernelwright.rewards.opinion import OpinionJudge
from kernelwright.runs.known_verdicts import question
from kernelwright.search.rollout import Budget, Exchange, parse_python, rollout
from kernelwright.training.pretrain.progress import damaged, json_lines, writing
from kernelwright.training.ranks import Ranks
from kernelwright.training.rl.filters import varied_groups
from kernelwright.training.rl.settings import RlSettings

WATCH_SECONDS, LOST_SECONDS = 10.0, 120.0
"""Seconds between checks of the generating thread, and seconds that one of its steps may take after a GPU fault."""
AT_ONCE = 1024
"""Concurrent rollouts of a process, one thread each. More would not fill batches better, and threads are limited."""


@dataclass(frozen=True)
class RolloutRow:
    """One turn of one rollout, with the fields for the update and for the log."""

    task_id: str
    group: int
    trajectory: int
    turn: int
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    """The sampler's log-probabilities of `token_ids`."""
    reward: float | None
    parts: dict[str, float]
    facts: dict[str, float]
    verdict: str
    """The evaluation's verdict, or `unreadable` for an answer without a candidate."""
    finish_reason: str
    seconds: float = 0.0
    """Seconds from the start of the step to the end of the rollout, earlier sessions included."""


_ROWS = TypeAdapter(list[RolloutRow])


def _broken(evaluation: Evaluation | None) -> dict[str, float]:
    """Counts the rejecting rules that a candidate broke, whatever its verdict; empty if it broke none."""
    rules = {f.rule for f in evaluation.findings if f.severity == "reject"} if evaluation else ()
    return {"rules_broken": float(len(rules))} if rules else {}


class Clock:
    """Measures the seconds of playing spent on generating, on judging, and on both at once."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._asking: list[tuple[float, float]] = []
        self._judging: list[tuple[float, float]] = []
        self._work = 0.0
        self._wall = 0.0

    @contextlib.contextmanager
    def playing(self) -> Iterator[None]:
        """Adds the wall seconds of the `with` block."""
        began = self._now()
        try:
            yield
        finally:
            self._wall += self._now() - began

    def answered(self, began: float) -> None:
        """Records an answer that arrived now to a question asked at `began`."""
        with self._lock:
            self._asking.append((began, self._now()))

    def judged(self, began: float, work: float) -> None:
        """Records a verdict that arrived now for a candidate submitted at `began`, after `work` seconds of judging."""
        with self._lock:
            self._judging.append((began, self._now()))
            self._work += work

    def read(self) -> dict[str, float]:
        """Returns the seconds since the last reading and resets them.

        `ask_s` and `judge_s`: wall seconds in which some rollout waited for the policy, or for a verdict.
        `only_judge_s`: wall seconds in which rollouts waited for verdicts only, so evaluation was the bottleneck.
        `judge_work_s`: seconds of judging, summed over candidates. `play_s`: wall seconds of playing.
        """
        with self._lock:
            asking, judging = _covered(self._asking), _covered(self._judging)
            both = _covered(self._asking + self._judging)
            found = {
                "ask_s": asking,
                "judge_s": judging,
                "only_judge_s": both - asking,
                "judge_work_s": self._work,
                "play_s": self._wall,
            }
            self._asking, self._judging, self._work, self._wall = [], [], 0.0, 0.0
        return {name: round(value, 2) for name, value in found.items()}


def _covered(spans: Sequence[tuple[float, float]]) -> float:
    """Returns the time covered by at least one span."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


@dataclass(frozen=True)
class _Sampled:
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


class _Recorder:
    """A policy for one rollout that records the tokens of each turn."""

    name = "training"

    def __init__(self, asker: Stream, policy: ConversationPolicy, clock: Clock) -> None:
        self._asker, self._policy, self._clock = asker, policy, clock
        self.sampled: list[_Sampled] = []

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        prompt = tuple(self._policy.engine.tokenizer.prompt(messages))
        began = time.monotonic()
        answer = self._asker.ask(Request(tuple(messages), seed, None, turn=len(self.sampled)))
        self._clock.answered(began)
        self.sampled.append(_Sampled(prompt, answer.token_ids, answer.log_probs))
        return answer


@dataclass(frozen=True)
class Standing:
    """The rollouts of a step: its number from 0, and counts of all, of finished ones, and of ones in flight.

    `in_flight` is None where other processes play, too.
    """

    step: int
    rollouts: int
    finished: int
    in_flight: int | None


class Rollouts:
    """Plays the rollouts of steps; with several processes, each plays its share."""

    def __init__(
        self,
        settings: RlSettings,
        policy: ConversationPolicy,
        executor: Executor,
        judge: OpinionJudge | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.settings, self.policy, self.executor, self.judge = settings, policy, executor, judge
        self.ranks = ranks or Ranks()
        self.judge_weight = 0.0
        self.clock = Clock()
        self.began = time.monotonic()
        """The step's start, moved back by the time that earlier sessions spent on it."""
        self._faults = faults_of(getattr(policy, "engine", None))
        self._step: tuple[int, Path] | None = None
        self._wanted: set[tuple[int, int]] = set()
        """Groups and trajectories of the step in `_step`, and below those that this process began."""
        self._begun: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._known: dict[str, Job] = {}
        """The step's jobs, pending and done, by the key of their verdict."""
        self._reward = load_reward(settings.reward.name)
        kept = {"backend", "trials", "timeout", "timing_seconds", "strict_kernelbench", "small_sizes", "precision"}
        wanted = settings.judging.model_dump(include=kept)
        baselines = settings.judging.timed_beside()
        self._options = executor.settle(EvalOptions.model_validate({**wanted, "baselines": baselines}))

    @property
    def timed(self) -> bool:
        """True if correct answers get a speedup over eager."""
        options = self._options
        return options.resolved() == "gpu" and options.timing_seconds > 0 and "eager" in options.baselines

    def play(self, step: int, groups: Mapping[int, Task], path: Path) -> list[RolloutRow]:
        """Plays these groups and returns their rows from all processes, in order.

        Does not repeat rollouts that `path` holds. Ctrl-C keeps finished rollouts. Raises `ConfigError` if `path` holds
        rollouts of other tasks, and `StoreError`.
        """
        if self.ranks.first:
            mend(path)
        self.ranks.wait()
        done = read_rollouts(path)
        for (group, _), rows in done.items():
            if group in groups and any(row.task_id != groups[group].task_id for row in rows):
                raise ConfigError(
                    f"{str(path)!r} holds rollouts of the task {rows[0].task_id!r}, where the settings' tasks now have "
                    f"{groups[group].task_id!r}",
                    hint="give the tasks that the run was begun with, or another --out",
                )
        # Rollouts of a killed session took time too, although reading them from disk takes none.
        spent = max((row.seconds for rows in done.values() for row in rows), default=0.0)
        self.began = min(self.began, time.monotonic() - spent)
        self.ranks.wait()  # no process writes before all have read
        keys = [(g, n) for g in sorted(groups) for n in range(self.settings.rollout.rollouts)]
        if self._step != (step, path):
            self._step, self._wanted, self._begun = (step, path), set(), set()
        self._wanted.update(keys)
        wanted = [key for key in keys if key not in done][self.ranks.rank :: self.ranks.count]
        self._play_all(step, groups, wanted, path)
        self.ranks.wait()
        done = read_rollouts(path)
        return [row for key in keys for row in done[key]]

    def standing(self) -> Standing | None:
        """Counts the rollouts of the step that was played last, from its file: other processes play, too."""
        if self._step is None:
            return None
        step, path = self._step
        finished = self._wanted & read_rollouts(path).keys()
        begun = len(self._begun - finished) if self.ranks.count == 1 else None
        return Standing(step, len(self._wanted), len(finished), begun)

    def _play_all(self, step: int, groups: Mapping[int, Task], wanted: Sequence[tuple[int, int]], path: Path) -> None:
        self._known = {}
        threads = min(max(1, len(wanted)), AT_ONCE)
        with self.clock.playing(), Stream(self.policy) as asker, ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(self._play, asker, step, groups[g], g, n) for g, n in wanted]
            kept: set[Future[list[RolloutRow]]] = set()
            try:
                left = set(futures)
                while left:
                    done, left = wait(left, WATCH_SECONDS, FIRST_COMPLETED)
                    for future in done:
                        self._keep(path, future.result())
                        kept.add(future)
                    self._watch(asker)
            except BaseException:
                if self.judge is not None:
                    self.judge.stop()
                for future in futures:
                    future.cancel()
                asker.close()
                with self._lock:  # running evaluations finish, queued ones do not start
                    for job in self._known.values():
                        job.cancel()
                self._keep_whole(path, [future for future in futures if future not in kept])
                raise

    def _keep_whole(self, path: Path, futures: Sequence[Future[list[RolloutRow]]]) -> None:
        """Stores the rollouts that were finished at a stop, or still finish; ignores a full disk."""
        for future in as_completed([future for future in futures if not future.cancelled()]):
            if future.exception() is None:
                with contextlib.suppress(StoreError):  # the caller raises the error that stopped playing
                    self._keep(path, future.result())

    def _watch(self, asker: Stream) -> None:
        """Exits if another process's GPU fault lost the policy's work.

        The generating thread would hang forever and cannot be stopped or joined. Finished rollouts are on disk.
        """
        if self._faults is None or not asker.stepping or not self._faults.stuck(asker.stepping, LOST_SECONDS):
            return
        error = HarnessError(
            "the GPU has lost the policy's work, after a candidate had met a fault there",
            hint="give the same command again: rollouts that are whole are kept",
        )
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr, flush=True)
        os._exit(error.exit_status)

    def _keep(self, path: Path, rows: list[RolloutRow]) -> None:
        """Appends a finished rollout under a file lock: other processes append to the same file."""
        line = (json.dumps([asdict(row) for row in rows]) + "\n").encode()
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644), "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                whole = _cut(file)
                try:
                    while line:
                        line = line[file.write(line) :]
                except BaseException:  # a full disk or Ctrl-C left a partial line
                    file.truncate(whole)
                    raise

    def _play(self, asker: Stream, step: int, task: Task, group: int, trajectory: int) -> list[RolloutRow]:
        with self._lock:
            self._begun.add((group, trajectory))
        recorder = _Recorder(asker, self.policy, self.clock)
        turns = self.settings.rollout.turns
        seed = hash_seed(self.settings.seed, step, group, trajectory * turns)  # turn t uses seed + t
        options = self.judged_with(step, group)
        judged: list[tuple[Turn, Candidate | None]] = []
        played = rollout(
            task,
            recorder,
            lambda of, candidate: self._evaluate(of, candidate, options),
            budget=Budget(turns=turns),
            seed=seed,
            on_turn=lambda turn, candidate: judged.append((turn, candidate)),
            stop=(lambda e: e.verdict == "correct") if self.settings.rollout.stop_when_correct else None,
            exchange=Exchange(self._converse, parse_python),
        )
        rows = []
        for (turn, candidate), sampled in zip(judged, recorder.sampled, strict=True):
            reward, opinion = self._rewarded(task, turn, candidate, seed)
            rows.append(
                RolloutRow(
                    played.task_id,
                    group,
                    trajectory,
                    turn.index,
                    sampled.prompt,
                    sampled.ids,
                    sampled.log_probs,
                    reward.value,
                    reward.parts,
                    {**reward.facts, **_broken(turn.evaluation), **opinion},
                    turn.evaluation.verdict if turn.evaluation else "unreadable",
                    turn.finish_reason,
                )
            )
        seconds = round(time.monotonic() - self.began, 2)
        return [replace(row, seconds=seconds) for row in rows]

    def judged_with(self, step: int, group: int) -> EvalOptions:
        """Returns the options for judging a group: the same for all its rollouts, also after a resume.

        Inputs differ between steps, except with a verdict cache, where every step needs the same inputs.
        """
        if self.settings.judging.verdicts is not None:
            return self._options
        return self._options.changed(seed=hash_seed(self.settings.seed, step, group))

    def _evaluate(self, task: Task, candidate: Candidate, options: EvalOptions) -> Evaluation:
        """Judges a candidate. A rejection by the functional machine is final, to save GPU time."""
        judging = self.settings.judging
        first = before_gpu(options) if judging.filter else None
        if first is None:
            return self._judged(task, candidate, options)
        evaluation = self._judged(task, candidate, first)
        if evaluation.verdict in AGAINST:
            return evaluation
        # Priority over candidates still to be filtered: a GPU that idles early delays the end of the step.
        # Fewer trials suffice, since the functional machine has checked most calls and the host code.
        replay = judging.replay and evaluation.verdict == "correct"
        trials = min(options.trials, judging.gpu_trials)
        fewer = options.changed(trials=trials, replay=replay, program_first=False)
        return self._judged(task, candidate, fewer, priority=1)

    def _judged(self, task: Task, candidate: Candidate, options: EvalOptions, priority: int = 0) -> Evaluation:
        """Returns one evaluation. Equal candidates of a task are judged once per step, unless with a harness error."""
        began, key = time.monotonic(), question(task, candidate, options)
        with self._lock:
            job = self._known.get(key)
            new = job is None or (job.done() and not job.exception() and job.result().verdict == "harness_error")
            if job is None or new:
                job = self._known[key] = self.executor.submit(task, candidate, options, priority)
        try:
            evaluation = job.result().model_copy(update={"candidate_id": candidate.content_hash})
        except TaskError as error:  # not the candidate's fault: no reward, and other tasks continue
            evaluation = Evaluation(
                task_id=task.task_id,
                task_hash=task.content_hash,
                candidate_id=candidate.content_hash,
                verdict="unsupported",
                reason=f"the task cannot be judged: {error}"[:500],
            )
        self.clock.judged(began, evaluation.seconds.total if new else 0.0)
        return evaluation

    def _rewarded(
        self, task: Task, turn: Turn, candidate: Candidate | None, seed: int
    ) -> tuple[Reward, dict[str, float]]:
        """Returns the reward of a turn, and facts about the judge's opinion if one was asked for."""
        parameters, facts = dict(self.settings.reward.parameters), {}
        if self.judge is not None and self.judge_weight > 0 and candidate is not None:
            opinion = self.judge(task, candidate, seed=seed)
            parameters |= {"judge": opinion.score, "judge_weight": self.judge_weight}
            facts = {"judge_asked": 1.0, "judge_failed": float(opinion.failure is not None)}
        return self._reward(turn.evaluation, **parameters), facts

    def _converse(
        self, task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None]
    ) -> tuple[Message, ...]:
        r = self.settings.rollout
        return converse(
            opening(task, self.policy.bare),
            turns,
            candidates,
            kind=r.context,
            top_w=r.top_w,
            score=lambda e: self._reward(e, **self.settings.reward.parameters).value,
            fits=self.policy.fits,
        )


def faults_of(engine: object) -> Faults | None:
    """Returns the fault record of the GPU that a back-end uses; None if it uses no GPU."""
    device = getattr(engine, "device", None)
    if getattr(device, "type", "") != "cuda":
        return None
    names, index = visible_gpus(), getattr(device, "index", None) or 0
    return Faults(shared_path(cache_dir(), names[index] if index < len(names) else str(index)))


def fitting(tasks: Sequence[Task], policy: ConversationPolicy) -> list[Task]:
    """Returns the tasks that leave room for an answer in the model's context."""
    return [task for task in tasks if policy.fits(opening(task, policy.bare))]


def hash_seed(*parts: int) -> int:
    """Hashes numbers to a seed in [0, 2^31 - 2]."""
    seed = 0
    for part in parts:
        seed = (seed * 1_000_003 + part + 1) % (2**31 - 1)
    return seed


def without_opinions(rows: Sequence[RolloutRow]) -> list[RolloutRow]:
    """Removes the judge's part of the reward in groups whose rewards from execution differ.

    Otherwise a policy could optimise the judge instead of execution.
    """
    # Sum the other parts rather than subtract: rounding would make equal rewards differ.
    executed = [
        float(sum(v for k, v in row.parts.items() if k != "judge")) if "judge" in row.parts else row.reward
        for row in rows
    ]
    told = varied_groups(executed, [row.group for row in rows])
    return [
        replace(row, reward=value, parts={k: v for k, v in row.parts.items() if k != "judge"})
        if apart and "judge" in row.parts
        else row
        for row, value, apart in zip(rows, executed, told, strict=True)
    ]


def mend(path: Path) -> None:
    """Truncates a partial last line that a killed process left, so that lines can be appended."""
    if not path.is_file():
        return
    with writing(path), open(path, "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _cut(file)


def _cut(file: FileIO) -> int:
    """Truncates a partial last line of a locked file; returns the remaining length in bytes."""
    size = file.seek(0, os.SEEK_END)
    if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
        file.seek(0)
        size = file.readall().rfind(b"\n") + 1
        file.truncate(size)
    return size


def read_rollouts(path: Path) -> dict[tuple[int, int], list[RolloutRow]]:
    """Reads a step's file by group and trajectory; ignores a partial last line. Raises `StoreError`."""
    found: dict[tuple[int, int], list[RolloutRow]] = {}
    for number, raw in json_lines(path):
        try:
            rows = _ROWS.validate_python(raw)
        except ValidationError as error:
            raise damaged(path, number) from error
        if not rows:
            raise damaged(path, number)
        found[rows[0].group, rows[0].trajectory] = rows
    return found
