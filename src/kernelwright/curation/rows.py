"""Makes training rows in the forms of TRL's trainers: prompt and completion, and preference pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kernelwright.curation.samples import CuratedSample
from kernelwright.inference.chat import task_prompt
from kernelwright.prompts.answers import fenced
from kernelwright.records import Message

Form = Literal["plain", "chat"]
"""Forms of a row's messages.

`plain`: the user's turn is the reference, the answer is the candidate's file, as for the starter model. `chat`: the
original messages and answer, reasoning included; an answer without messages gets the standard request.
"""


def message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def prompt_of(sample: CuratedSample, form: Form) -> list[dict[str, str]]:
    """Returns the messages before the answer."""
    if form == "plain":
        return [message("user", task_prompt(sample.task.source))]
    asked: Sequence[Message] = sample.messages
    if not asked:
        from kernelwright.prompts import initial_messages

        asked = initial_messages(sample.task)
    return [message(m.role, m.content) for m in asked]


def completion_of(sample: CuratedSample, form: Form) -> list[dict[str, str]]:
    """Returns the answer as one message."""
    return [message("assistant", answer_text(sample, form))]


def answer_text(sample: CuratedSample, form: Form) -> str:
    """Returns the answer's text. In `chat` form, a bare file gets a code block, after its note in think tags."""
    if form == "plain":
        return sample.code
    if not sample.code.strip() or sample.answer.strip() != sample.code.strip():
        return sample.answer
    thought = f"<think>\n{sample.note}\n</think>\n\n" if sample.note else ""
    return f"{thought}{fenced(sample.code)}\n"


def facts_of(sample: CuratedSample) -> dict[str, Any]:
    """Returns the metadata fields that every row has for its answer."""
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
    """Makes a row for supervised fine-tuning. `why` names the rule that chose it; `more` are further fields."""
    return {
        "prompt": prompt_of(sample, form),
        "completion": completion_of(sample, form),
        **facts_of(sample),
        "why": why,
        **more,
    }
