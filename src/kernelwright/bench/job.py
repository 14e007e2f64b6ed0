"""The bench job: draws samples of a policy on every task of a suite and judges them into a run folder.

Each sample is a rollout in a thread of its own; many wait for the policy while others are judged. Answers and
evaluations are stored as soon as they arrive, so that a killed run can be resumed without repeating either.
`bench.numbers` computes the results from the run folder.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from kernelwright.bench import program_suite
from kernelwright.bench.numbers import GREEDY, rollout_name, task_name
from kernelwright.errors import ConfigError, PolicyError, TaskError, UsageError
from kernelwright.evaluation import EvalOptions
from kernelwright.evaluation.judge.cpu_first import AGAINST, before_gpu
from kernelwright.executor import Job, load_executor
from kernelwright.inference.chat import SPEED_TAGS, with_speed
from kernelwright.policies import Answer, Policy, Request
from kernelwright.policies.asking import Asker
from kernelwright.prompts import ParseFailure, contexts
from kernelwright.prompts.contexts import CONTEXTS
from kernelwright.records import Candidate, Evaluation, Message, Provenance, Task, Trajectory, Turn
from kernelwright.rewards.functions import drkernel
from kernelwright.runs.known_verdicts import remembering
from kernelwright.runs.store import Store
from kernelwright.search.rollout import (
    CONTEXT_CHARACTERS,
    PYTHON,
    Budget,
    Converse,
    Exchange,
    converse_python,
    parse_python,
    prompt_hash,
    rollout,
)
from kernelwright.tasks import load_suite

SAME_FAILURES = 8
"""Consecutive equal errors of a policy, without a single answer, after which the run gives up."""
STOPPING_SECONDS = 15.0
"""Seconds that Ctrl-C waits for pending answers."""
MAX_THREADS = 600
FORMS = ("module", "load_inline")
STOPS = ("correct", "never")


class CandidateJudge(Protocol):
    """The part of an executor that a bench needs."""

    capacity: int

    def settle(self, options: EvalOptions) -> EvalOptions: ...

    def submit(
        self,
        task: Task,
        candidate: Candidate,
        options: EvalOptions | None = None,
        *,
        keep: Callable[[Job, Evaluation], None] | None = None,
    ) -> Job: ...


@dataclass(frozen=True)
class BenchOptions:
    """The settings of a bench: `samples` at `temperature` (None: the policy's own), and with `greedy` one more at 0."""

    policy: str
    suite: str
    samples: int = 1
    greedy: bool = False
    temperature: float | None = None
    top_p: float | None = None
    turns: int = 1
    seed: int = 0
    form: str = "module"
    context: str | None = None
    """The context that later turns get from earlier ones (`prompts.contexts`); None: as in `optimize`."""
    top_w: int = 4
    stop: str = "correct"
    """Early end of a sample: at its first `correct` turn, or `never`, since later turns may be faster."""
    filter: bool = False
    """On a GPU: the functional machine judges first, and the GPU only candidates that it does not reject."""
    speed: str | None = None
    """The speed decile to ask for, for a model trained with these tags (`chat.SPEED_TAGS`)."""

    def numbers(self) -> list[int]:
        """Returns the numbers of a task's samples."""
        return ([GREEDY] if self.greedy else []) + list(range(self.samples))

    def fixed(self) -> dict[str, Any]:
        """Returns the settings that must be equal for all sessions of a run folder."""
        return {k: v for k, v in asdict(self).items() if k not in ("samples", "greedy")}


OnSample = Callable[[str, Trajectory | None, str], None]
"""Called for each finished sample with its name, its rollout or None, and the reason if there is no rollout."""
OnStop = Callable[[int, int], None]
"""Called where a run stops early, with the counts of finished samples, of all sessions, and of samples in flight."""


@dataclass(frozen=True)
class BenchSuite:
    """Tasks, their exchange with a policy, and a factory of the context manager that judges the answers."""

    tasks: list[Task]
    exchange: Exchange
    judging: Callable[[], AbstractContextManager[CandidateJudge]]


def load_bench_suite(
    options: BenchOptions,
    judging: EvalOptions,
    jobs: int,
    executor: str = "local",
    *,
    limit: int | None = None,
    reference_field: str = "reference",
    id_field: str | None = None,
    verdicts: Path | None = None,
) -> BenchSuite:
    """Loads the suite that the options name. Raises `TaskError` and `ConfigError`.

    `verdicts`: a folder with a verdict cache that several runs share (`runs.known_verdicts`).
    """
    exchange = exchange_of(options)
    if program_suite.is_programs(options.suite):
        for name, given in (
            ("context", options.context),
            ("speed", options.speed),
            ("verdicts", verdicts),
            ("precision", judging.precision),
        ):
            if given is not None:
                what = f"--{name} is for tasks with a Python reference"
                raise ConfigError(what, hint="leave it out for cudabench:FILE")
        return BenchSuite(*program_suite.load(options.suite, jobs, limit, id_field))
    found = load_suite(options.suite, reference_field=reference_field, id_field=id_field, limit=limit)
    tasks = [task.at(judging.precision) for task in found]  # prompts state it
    return BenchSuite(tasks, exchange, lambda: remembering(load_executor(executor, jobs, judging.backend), verdicts))


def exported(text: str, provenance: Provenance) -> Candidate | ParseFailure:
    """Parses the candidate of an answer and rewrites it as a self-contained file with load_inline
    (`solutions.forms`)."""
    from kernelwright.errors import CandidateError
    from kernelwright.solutions.forms import export
    from kernelwright.tasks.language import detect_language

    candidate = parse_python(text, provenance)
    if isinstance(candidate, ParseFailure):
        return candidate
    try:
        whole = export(candidate.text)
    except CandidateError as error:
        return ParseFailure(f"the candidate has no self-contained form: {error}")
    source = candidate.sources[0].changed(content=whole)
    return candidate.changed(sources=(source,), language=detect_language(whole))


def exchange_of(options: BenchOptions, policy: Policy | None = None) -> Exchange:
    """Returns the prompts and the parser that the options name. Raises `ConfigError`."""
    form = options.form
    if form not in FORMS:
        raise ConfigError(f"--form {form!r} is not a form", hint=f"use {' or '.join(FORMS)}")
    if options.stop not in STOPS:
        raise ConfigError(f"--stop {options.stop!r} is not known", hint=f"use {' or '.join(STOPS)}")
    if options.speed is not None and options.speed not in SPEED_TAGS:
        raise ConfigError(f"--speed {options.speed!r} is no speed decile", hint="use 1/10 to 10/10, the fastest")
    parse = parse_python if form == "module" else exported
    if options.context is None:
        return Exchange(_asked_for(options.speed, converse_python), parse)
    if options.context not in CONTEXTS:
        raise ConfigError(f"--context {options.context!r} is not known", hint=f"use {', '.join(CONTEXTS)}")
    bare = bool(getattr(policy, "bare", False))
    fits = getattr(policy, "fits", _fits_characters)

    def converse(task: Task, turns: Sequence[Turn], candidates: Sequence[Candidate | None]) -> tuple[Message, ...]:
        assert options.context is not None
        return contexts.converse(
            contexts.opening(task, bare),
            turns,
            candidates,
            kind=options.context,
            top_w=options.top_w,
            score=lambda evaluation: drkernel(evaluation).value,
            fits=fits,
        )

    return Exchange(_asked_for(options.speed, converse), parse)


def _asked_for(speed: str | None, converse: Converse) -> Converse:
    """Adds the line that asks for a speed decile to every conversation."""
    if speed is None:
        return converse
    return lambda task, turns, candidates: with_speed(converse(task, turns, candidates), speed)


def _fits_characters(messages: Sequence[Message]) -> bool:
    return sum(len(m.content) for m in messages) <= CONTEXT_CHARACTERS


def open_run(folder: Path, options: BenchOptions, eval_options: EvalOptions) -> Store:
    """Creates or opens the run folder. Raises `UsageError` for a run with other settings."""
    meta = {"verb": "bench", **asdict(options), "options": eval_options.model_dump(mode="json")}
    store = Store.open_or_create(folder, meta)
    kept = store.meta
    before = {**asdict(BenchOptions("", "")), **kept}  # older versions lack newer options: use their defaults
    changed = {k: (before[k], v) for k, v in options.fixed().items() if before[k] != v}
    if kept.get("verb") != "bench" or changed:
        store.close()
        words = "; ".join(f"{k} was {old!r}, now {new!r}" for k, (old, new) in changed.items())
        what = f"was made with other settings: {words}" if kept.get("verb") == "bench" else "is of another verb"
        raise UsageError(
            f"the run in {str(folder)!r} {what}", hint="name another folder with --run, or use its settings"
        )
    return store


def play(
    suite: BenchSuite,
    policy: Policy,
    options: BenchOptions,
    judging: EvalOptions,
    run: Path,
    on_sample: OnSample | None = None,
    on_stop: OnStop | None = None,
) -> None:
    """Draws and judges the samples missing in the run folder. Raises like `open_run` and `BenchRun.run`."""
    bench: BenchRun | None = None
    with open_run(run, options, judging) as store:
        try:
            with suite.judging() as judge:
                settled, how = judge.settle(judging), suite.exchange
                bench = BenchRun(suite.tasks, policy, judge, store, options, settled, exchange=how, on_sample=on_sample)
                bench.run()
        except BaseException:
            if bench is not None and on_stop is not None:
                on_stop(*bench.settled())
            raise


class BenchRun:
    """One session on a run folder: plays the missing samples."""

    def __init__(
        self,
        tasks: Sequence[Task],
        policy: Policy,
        judge: CandidateJudge,
        store: Store,
        options: BenchOptions,
        eval_options: EvalOptions,
        *,
        exchange: Exchange = PYTHON,
        on_sample: OnSample | None = None,
    ) -> None:
        self.tasks = list({task_name(t): t for t in tasks}.values())
        self.policy, self.judge, self.store = policy, judge, store
        self.options, self.eval_options, self.exchange = options, eval_options, exchange
        self._first = before_gpu(eval_options) if options.filter else None
        self.on_sample = on_sample
        self.asker = Asker(policy)
        self.known = store.turns()
        self._begun: set[str] = set()
        self._finished = {name for name, turns in self.known.items() if _whole(turns, options)}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._keys: dict[str, threading.Lock] = {}
        self._bad: dict[str, str] = {}
        self._answers = 0
        self._asking = 0
        # An answer is stored before its slot is released: a kill loses only the questions pending at that moment.
        places = MAX_THREADS if self.asker.many else max(1, self.asker.parallel)
        self._places = threading.Semaphore(places)
        self._failures: list[str] = []
        self._fault: BaseException | None = None
        self._stop = threading.Event()

    @property
    def total(self) -> int:
        """The total number of samples."""
        return len(self.tasks) * len(self.options.numbers())

    def run(self) -> None:
        """Plays every sample. Raises `PolicyError` if the policy answers nothing, and any error of the harness."""
        names = [{"name": task_name(t), "task_id": t.task_id, "hash": t.content_hash} for t in self.tasks]
        rows = [{**n, "family": t.provenance.family} for n, t in zip(names, self.tasks, strict=True)]
        size = {"samples": self.options.samples, "greedy": self.options.greedy}
        self.store.add_event("suite", {"tasks": rows, **size})
        for task in self.tasks:
            self.store.add_task(task)
        started = time.monotonic()
        try:
            self._play()
        finally:
            self.asker.close()
            self.store.add_event("session", {"seconds": round(time.monotonic() - started, 3)})
        if self._fault is not None:
            raise self._fault

    def _play(self) -> None:
        work = iter([(task, number) for task in self.tasks for number in self.options.numbers()])
        wanted = self.asker.parallel * (2 if self.asker.many else 1) + 2 * self.judge.capacity
        self._threads = [
            threading.Thread(target=self._serve, args=(work,), daemon=True)
            for _ in range(max(1, min(MAX_THREADS, self.total, wanted)))
        ]
        for thread in self._threads:
            thread.start()
        try:
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(0.5)
        except BaseException:
            self._stop.set()
            if self.asker.each is not None:  # finished answers are stored; the rest can be drawn again
                self.asker.close()
            deadline = time.monotonic() + STOPPING_SECONDS
            while self._asking and time.monotonic() < deadline:
                time.sleep(0.05)
            raise

    def settled(self) -> tuple[int, int]:
        """Waits after a stop until the samples whose judgement was finished are stored; returns the counts of finished
        samples and of samples in flight. The judge must be closed."""
        deadline = time.monotonic() + STOPPING_SECONDS
        for thread in self._threads:
            if thread.ident is not None:  # the stop may have come before all were started
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            wanted = {rollout_name(task, number) for task in self.tasks for number in self.options.numbers()}
            finished = wanted & self._finished
            return len(finished), len(self._begun - finished)

    def _serve(self, work: Iterator[tuple[Task, int]]) -> None:
        while not self._stop.is_set():
            with self._lock:
                item = next(work, None)
                if item is not None:
                    self._begun.add(rollout_name(*item))
            if item is None:
                return
            try:
                self._sample(*item)
            except CancelledError:
                return
            except BaseException as error:  # an error of the harness; `run` raises it
                self._fault = self._fault or error
                self._stop.set()

    def _sample(self, task: Task, number: int) -> None:
        name = rollout_name(task, number)
        shown = f"{task.task_id} · {name.rpartition(' · ')[2]}"
        try:
            if task.content_hash in self._bad:
                raise TaskError(self._bad[task.content_hash])
            trajectory = self._rollout(task, number, name)
        except TaskError as error:
            with self._lock:
                new = task.content_hash not in self._bad
                self._bad.setdefault(task.content_hash, str(error))
            if new:
                self.store.add_event("bad_task", {"name": task_name(task), "reason": str(error)[:500]})
            self._show(name, shown, None, f"the task cannot be judged: {error}")
        except PolicyError as error:
            if self._stop.is_set():
                return
            data = {"name": task_name(task), "sample": number, "reason": str(error)[:500]}
            self.store.add_event("no_answer", data)
            self._show(name, shown, None, str(error))
            self._failed(error)
        else:
            self._show(name, shown, trajectory, "")

    def _show(self, name: str, shown: str, trajectory: Trajectory | None, note: str) -> None:
        with self._lock:
            self._finished.add(name)
            if self.on_sample is not None:
                self.on_sample(shown, trajectory, note)

    def _failed(self, error: PolicyError) -> None:
        """Ends the run if the policy fails with the same error every time and never answers."""
        with self._lock:
            self._failures.append(str(error))
            last = self._failures[-SAME_FAILURES:]
            hopeless = not self._answers and len(last) == SAME_FAILURES and len(set(last)) == 1
        if hopeless and not self._stop.is_set():
            self._fault = PolicyError(f"the policy gives no answer: {error}", hint=error.hint)
            self._stop.set()

    def _rollout(self, task: Task, number: int, name: str) -> Trajectory:
        asking = _Recorded(self, name, number)

        def keep(turn: Turn, candidate: Candidate | None) -> None:
            if candidate is not None:
                self.store.add_candidate(candidate)
            if turn != asking.kept(turn.index):
                self.store.add_turn(name, turn)

        return rollout(
            task,
            asking,
            self.evaluate,
            budget=Budget(turns=self.options.turns),
            seed=self.options.seed + max(0, number) * self.options.turns,
            on_turn=keep,
            stop=(lambda evaluation: evaluation.verdict == "correct") if self.options.stop == "correct" else None,
            exchange=self.exchange,
        )

    def ask(self, name: str, index: int, request: Request) -> Answer:
        """Asks the policy and stores its answer in the run folder first. Raises `PolicyError`."""
        with self._places:
            return self._asked(name, index, request)

    def _asked(self, name: str, index: int, request: Request) -> Answer:
        with self._lock:
            if self._stop.is_set():
                raise CancelledError
            self._asking += 1
        try:
            answer = self.asker.ask(request)
            turn = Turn(
                index=index,
                messages=request.messages,
                answer=answer.text,
                finish_reason=answer.finish_reason,
                usage=answer.usage,
            )
            self.store.add_turn(name, turn)
        finally:
            with self._lock:
                self._asking -= 1
        self._answers += 1
        return answer

    def evaluate(self, task: Task, candidate: Candidate) -> Evaluation:
        """Judges a candidate: with a filter, a rejection by the functional machine is final."""
        if self._first is not None:
            found = self._judged(task, candidate, self._first)
            if found.verdict in AGAINST:
                return found
        return self._judged(task, candidate, self.eval_options)

    def _judged(self, task: Task, candidate: Candidate, options: EvalOptions) -> Evaluation:
        """Returns one evaluation, from the run folder if it is known. Equal candidates are judged once."""
        key = options.key(task, candidate)
        with self._lock:
            turn = self._keys.setdefault(key, threading.Lock())
        with turn:
            found = self.store.find_evaluation(key)
            if found is None:
                if self._stop.is_set():
                    raise CancelledError
                found = self.judge.submit(task, candidate, options, keep=self._keep).result()
        return found.model_copy(update={"candidate_id": candidate.content_hash})

    def _keep(self, job: Job, evaluation: Evaluation) -> None:
        self.store.add_candidate(job.candidate)
        self.store.add_evaluation(evaluation, job.options.key(job.task, job.candidate))


def _whole(turns: Sequence[Turn], options: BenchOptions) -> bool:
    """Tells whether the stored turns of a sample are all that it takes: the last one judged, or without a candidate."""
    if not turns or (turns[-1].evaluation is None and turns[-1].parse_failure is None):
        return False
    found = turns[-1].evaluation is not None and turns[-1].evaluation.verdict == "correct"
    return len(turns) >= options.turns or (found and options.stop == "correct")


class _Recorded:
    """The policy of one sample: reuses stored answers, and stores new ones at once."""

    def __init__(self, bench: BenchRun, name: str, number: int) -> None:
        self.bench = bench
        self.rollout = name
        self.name = bench.policy.name
        self.temperature = 0.0 if number == GREEDY else bench.options.temperature
        self.turns = {turn.index: turn for turn in bench.known.get(name, [])}

    def kept(self, index: int) -> Turn | None:
        """Returns the stored turn, or None."""
        return self.turns.get(index)

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None, turn: int = 0) -> Answer:
        """Returns the answer of a turn. Raises `PolicyError`."""
        kept = self.turns.get(turn)
        if kept is not None and prompt_hash(kept.messages) == prompt_hash(messages):
            return Answer(kept.answer, kept.usage, kept.finish_reason, self.name)
        return self.bench.ask(self.rollout, turn, Request(tuple(messages), seed, task, self.temperature, turn))
