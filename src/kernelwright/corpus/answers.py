"""Writes a task's answers with the solution library, each with the name of its schedule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from kernelwright import solutions
from kernelwright.corpus.traces import trace
from kernelwright.inference.chat import heading
from kernelwright.solutions import Schedule
from kernelwright.solutions.mistakes import LATENT, mistakes
from kernelwright.solutions.read.reading import Unreadable

MIXED = (0.35, 0.3)
"""Shares of `mixed` answers with the canonical schedule, and with every operator apart; the rest have a drawn one of
the schedules for the task's operators."""
OLDER_FORM = "load_inline"
"""Marks answers that need a host compiler; they are left out, so that training targets have one short form."""


@dataclass(frozen=True)
class WrittenAnswer:
    """A candidate file's text. `mistake` names a planted mistake; empty where there is none."""

    text: str
    schedule: str
    trace: str
    mistake: str = ""


def schedule_name(schedule: Schedule) -> str:
    """Returns `canonical`, or the fields that differ from it: `block=512,vector=4`."""
    usual = asdict(solutions.CANONICAL)
    other = [f"{name}={value}" for name, value in asdict(schedule).items() if value != usual[name]]
    return ",".join(other) or "canonical"


@dataclass(frozen=True)
class Found:
    """A task's answers, or the reason why there are none: `unreadable`, or `fault:` and an exception's name."""

    answers: tuple[WrittenAnswer, ...]
    why: str = ""


def answers_for(
    source: str,
    schedules: str,
    share: float,
    rng: random.Random,
    traces: bool = True,
    per_task: int | None = None,
    plan: bool = False,
) -> Found:
    """Writes the answers for a task, each text once; none where the library cannot read the task.

    `schedules` `all` gives one answer for each distinct text, at most `per_task`; `mixed` draws one schedule and names
    it in the first line; any other value is the schedule's name. `share` is the probability that an answer gets a
    planted mistake, where one fits; mistakes that no test would detect (`LATENT`) are never planted. With `plan`,
    comments say which operator is computed where (`solutions.kernels.plan`). An exception of the library is returned as
    `why`, so that it costs one task and not the corpus.
    """
    try:
        texts = _drawn(source, rng, plan) if schedules == "mixed" else _texts(source, schedules, plan)
    except Unreadable:
        return Found((), "unreadable")
    except Exception as error:  # one faulty task must not end a corpus of 200,000
        return Found((), f"fault:{type(error).__name__}")
    if not texts:
        return Found((), "unreadable")
    if per_task is not None and len(texts) > per_task:
        first, *others = texts
        texts = {text: texts[text] for text in (first, *rng.sample(others, per_task - 1))}
    return Found(tuple(_answer(source, text, name, share, rng, traces) for text, name in texts.items()))


def _drawn(source: str, rng: random.Random, plan: bool) -> dict[str, str]:
    """Returns one text, headed by its schedule, so that a model chooses the schedule before it writes the code."""
    share, canonical = rng.random(), MIXED[0]
    chosen = solutions.CANONICAL if share < canonical else solutions.APART
    if share >= sum(MIXED):
        chosen = rng.choice(solutions.known_schedules(source))
    text = solutions.write(source, chosen, plan=plan)
    return {} if OLDER_FORM in text else {heading(chosen.name) + text: schedule_name(chosen)}


def _texts(source: str, schedules: str, plan: bool) -> dict[str, str]:
    """Maps each distinct text to the name of its first schedule."""
    one = {"canonical": solutions.CANONICAL, "apart": solutions.APART}
    every: Sequence[Schedule] = solutions.schedules(source) if schedules == "all" else [one[schedules]]
    # Canonical first: a text that other schedules leave unchanged gets the canonical name.
    every = sorted(every, key=lambda s: s != solutions.CANONICAL)
    texts: dict[str, str] = {}
    for schedule in every:
        try:
            text = solutions.write(source, schedule, plan=plan)
        except Unreadable:
            continue
        if OLDER_FORM not in text:
            texts.setdefault(text, schedule_name(schedule))
    return texts


def _answer(source: str, text: str, schedule: str, share: float, rng: random.Random, traces: bool) -> WrittenAnswer:
    """Makes an answer; with probability `share` it has one of the mistakes that fit its text."""
    planted = []
    if rng.random() < share:
        planted = [(name, wrong) for name, wrong in mistakes(text, rng.getrandbits(32)) if name not in LATENT]
    name, chosen = rng.choice(planted) if planted else ("", text)
    return WrittenAnswer(chosen, schedule, trace(source, chosen) if traces else "", name)
