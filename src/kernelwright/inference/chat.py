"""The chat format of our own models, in training and as a prompt: ChatML.

The user's turn is the task's source in normal form; the assistant's turn is the candidate's file and nothing else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from kernelwright.records import Message
from kernelwright.solutions.kernels.schedule import named
from kernelwright.tasks.normal_form.normal import normal_form

END_OF_TEXT = "<|endoftext|>"
TURN = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN, TURN_END)
"""Special tokens with ids 0, 1 and 2: padding, begin of a turn, end of a turn (and of an answer)."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "<|im_start|>assistant\n{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}\n"
    "{% else %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template in Jinja, for transformers. The generation tags enclose the tokens that a loss may cover."""

HEADING = "# schedule: "
"""Begins the first line of an answer, which names its schedule, for a model trained on several schedules."""

OWN = "own"
"""The value of KERNELWRIGHT_SCHEDULE that lets the model choose the schedule."""

ROLES = ("system", "user", "assistant")

SPEED_TAGS = tuple(f"{decile}/10" for decile in range(1, 11))
"""Tags for `speed_line`: an answer's speed in tenths of the fastest known for its task (PIE, arXiv 2302.07867)."""

_SPEED = re.compile(r"\A(Speed: \d+/10 of the fastest known\.)\n\n")
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_MODEL = re.compile(r"^class\s+Model\b", re.MULTILINE)


def task_prompt(source: str) -> str:
    """Returns the user's turn for a task: its source in normal form (`tasks.normal_form.normal`)."""
    return normal_form(source)


def heading(schedule: str) -> str:
    """Returns the first line of an answer with the named schedule."""
    return f"{HEADING}{schedule}\n"


def begun(schedules: Sequence[str], number: int) -> str:
    """Returns the first line for try `number`: the heading of each schedule in turn, or of KERNELWRIGHT_SCHEDULE.

    It is empty where the variable is `own`, or the model knows no schedules. Raises `UsageError` for an unknown one.
    """
    stated = os.environ.get("KERNELWRIGHT_SCHEDULE", "")
    if not schedules or stated == OWN:
        return ""
    return heading(named(stated).name if stated else schedules[number % len(schedules)])


def speed_line(tag: str) -> str:
    """Returns the line before the task for a model trained on speed deciles; inference uses `10/10`."""
    return f"Speed: {tag} of the fastest known."


def with_speed(messages: Sequence[Message], tag: str) -> tuple[Message, ...]:
    """Puts a tag's speed line at the head of the first request, in place of any other speed line."""
    first = next((at for at, m in enumerate(messages) if m.role == "user"), len(messages))
    words = [f"{speed_line(tag)}\n\n{_SPEED.sub('', m.content, count=1)}" for m in messages[first : first + 1]]
    return (*messages[:first], *(Message(role="user", content=text) for text in words), *messages[first + 1 :])


def speed_asked(messages: Sequence[Message]) -> str:
    """Returns the speed line at the head of the first request; empty where it has none."""
    first = next((m.content for m in messages if m.role == "user"), "")
    found = _SPEED.match(first)
    return found.group(1) if found else ""


def source_of(messages: Sequence[Message]) -> str:
    """Extracts the task's source, in normal form, from a conversation written for larger models.

    It is the last Python block with a `class Model` in the latest user message that has one: requests may show an
    example before the task, and later turns hold feedback only. Without a block, it is the last user message.
    """
    asked = [m.content for m in messages if m.role == "user"]
    for text in reversed(asked):
        blocks = [b for b in _BLOCK.findall(text) if _MODEL.search(b)]
        if blocks:
            return task_prompt(blocks[-1])
    return task_prompt(asked[-1]) if asked else ""
