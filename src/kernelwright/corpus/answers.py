"""What the solution library writes for a task, as texts with the names of their schedules."""

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
"""Of `mixed` answers the share with the canonical schedule, and that with every operator apart; the others have one of
those that the task's operators know."""
OLDER_FORM = "load_inline"
"""Answers that still need a host compiler are no training targets: one short form is."""


@dataclass(frozen=True)
class WrittenAnswer:
    """A candidate file's text. `mistake` names what was put in on purpose; empty where nothing was."""

    text: str
    schedule: str
    trace: str
    mistake: str = ""


def schedule_name(schedule: Schedule) -> str:
    """`canonical`, or what differs from it: `block=512,vector=4`."""
    usual = asdict(solutions.CANONICAL)
    other = [f"{name}={value}" for name, value in asdict(schedule).items() if value != usual[name]]
    return ",".join(other) or "canonical"


@dataclass(frozen=True)
class Found:
    """What became of a task: its answers, or why there are none (`unreadable`, or `fault` and an exception's name)."""

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
    """The answers for a task, each text once; none where the library cannot read it.

    With `schedules` `all`, one for each schedule that gives another text, `per_task` at most; with `mixed` one that is
    drawn, named in the text's first line; else the one it names. `share` is the chance of an answer to get a mistake on
    purpose, where one can be planted in it; those that no test would see (`LATENT`) are not. With `plan`, comments tell
    what is computed where (`solutions.kernels.plan`). A fault of the library costs its task, not the corpus: it is
    counted.
    """
    try:
        texts = _drawn(source, rng, plan) if schedules == "mixed" else _texts(source, schedules, plan)
    except Unreadable:
        return Found((), "unreadable")
    except Exception as error:  # whatever it is, the other 200,000 tasks do not suffer for it
        return Found((), f"fault:{type(error).__name__}")
    if not texts:
        return Found((), "unreadable")
    if per_task is not None and len(texts) > per_task:
        first, *others = texts
        texts = {text: texts[text] for text in (first, *rng.sample(others, per_task - 1))}
    return Found(tuple(_answer(source, text, name, share, rng, traces) for text, name in texts.items()))


def _drawn(source: str, rng: random.Random, plan: bool) -> dict[str, str]:
    """One text, headed by its schedule: what is written first decides what follows, for a model as for a reader."""
    share, canonical = rng.random(), MIXED[0]
    chosen = solutions.CANONICAL if share < canonical else solutions.APART
    if share >= sum(MIXED):
        chosen = rng.choice(solutions.known_schedules(source))
    text = solutions.write(source, chosen, plan=plan)
    return {} if OLDER_FORM in text else {heading(chosen.name) + text: schedule_name(chosen)}


def _texts(source: str, schedules: str, plan: bool) -> dict[str, str]:
    """Texts with the names of their schedules."""
    one = {"canonical": solutions.CANONICAL, "apart": solutions.APART}
    every: Sequence[Schedule] = solutions.schedules(source) if schedules == "all" else [one[schedules]]
    # The canonical one first: where another schedule changes nothing, the text is named after it.
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
    """An answer, by chance with one of the mistakes that can be planted in it."""
    planted = []
    if rng.random() < share:
        planted = [(name, wrong) for name, wrong in mistakes(text, rng.getrandbits(32)) if name not in LATENT]
    name, chosen = rng.choice(planted) if planted else ("", text)
    return WrittenAnswer(chosen, schedule, trace(source, chosen) if traces else "", name)
