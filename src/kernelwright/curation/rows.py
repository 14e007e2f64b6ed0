"""Rows of training data in the forms that TRL's trainers take: prompt and completion, and preference pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kernelwright.curation.samples import CuratedSample
from kernelwright.inference.chat import task_prompt
from kernelwright.prompts.answers import fenced
from kernelwright.records import Message

Form = Literal["plain", "chat"]
"""`plain`: the user says the reference, the answer is the candidate's file, as for the starter model. `chat`: what was
asked and answered, reasoning included; files that nobody asked for in words get the standard request."""


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def prompt_of(sample: CuratedSample, form: Form) -> list[dict[str, str]]:
    """The messages before the answer."""
    if form == "plain":
        return [message("user", task_prompt(sample.task.source))]
    asked: Sequence[Message] = sample.messages
    if not asked:
        from kernelwright.prompts import initial_messages

        asked = initial_messages(sample.task)
    return [message(m.role, m.content) for m in asked]


def completion_of(sample: CuratedSample, form: Form) -> list[dict[str, str]]:
    """The answer as one message."""
    return [message("assistant", answer_text(sample, form))]


def answer_text(sample: CuratedSample, form: Form) -> str:
    """The answer's text. In `chat` form, a bare file is put in a code block, behind its notes where it has some."""
    if form == "plain":
        return sample.code
    if not sample.code.strip() or sample.answer.strip() != sample.code.strip():
        return sample.answer
    thought = f"<think>\n{sample.note}\n</think>\n\n" if sample.note else ""
    return f"{thought}{fenced(sample.code)}\n"


def facts_of(sample: CuratedSample) -> dict[str, Any]:
    """What every row says about the answer that it teaches."""
    return {
        "task_id": sample.task.task_id,
        "reference": sample.task.source,
        "code": sample.code,
        "verdict": sample.verdict,
        "speedup": sample.speedup,
        "reasoning_length": sample.length,
        "run": sample.run,
        "rollout": sample.rollout,
        "turn": sample.turn,
        "policy": sample.policy,
    }


def sft_row(sample: CuratedSample, form: Form, why: str, **more: Any) -> dict[str, Any]:
    """A row for supervised fine-tuning. `why` names the rule that chose it."""
    return {
        "prompt": prompt_of(sample, form),
        "completion": completion_of(sample, form),
        **facts_of(sample),
        "why": why,
        **more,
    }
