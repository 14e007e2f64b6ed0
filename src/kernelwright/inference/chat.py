"""The text that our own models are trained on and asked with: ChatML, the task's source as the user's turn.

The user's turn is the task's source in normal form; the assistant's turn is the candidate's file, and nothing else.
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
"""In the order of their ids, which are the first ones: padding, begin of a turn, end of a turn (and of an answer)."""

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
"""As Jinja, for transformers. What is between the generation tags is what a loss may be taken on."""

HEADING = "# schedule: "
"""Begins the first line of an answer of a model that was trained on several schedules: it names the answer's."""

OWN = "own"
"""Value of KERNELWRIGHT_SCHEDULE that leaves the schedule to the model."""

ROLES = ("system", "user", "assistant")

SPEED_TAGS = tuple(f"{decile}/10" for decile in range(1, 11))
"""How near an answer comes to the fastest known for its task (PIE, arXiv 2302.07867): what `speed_line` may name."""

_SPEED = re.compile(r"\A(Speed: \d+/10 of the fastest known\.)\n\n")
_BLOCK = re.compile(r"^[ \t]*```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_MODEL = re.compile(r"^class\s+Model\b", re.MULTILINE)


def task_prompt(source: str) -> str:
    """What the user's turn holds for a task: its source in normal form (`tasks.normal_form.normal`)."""
    return normal_form(source)


def heading(schedule: str) -> str:
    """The first line of an answer with a schedule, by its name."""
    return f"{HEADING}{schedule}\n"


def begun(schedules: Sequence[str], number: int) -> str:
    """What a try's answer is begun with: the heading of each schedule in turn, or of the one that KERNELWRIGHT_SCHEDULE
    states; nothing where that leaves it to the model, or the model knows no schedules. Raises `UsageError`."""
    stated = os.environ.get("KERNELWRIGHT_SCHEDULE", "")
    if not schedules or stated == OWN:
        return ""
    return heading(named(stated).name if stated else schedules[number % len(schedules)])


def speed_line(tag: str) -> str:
    """What stands before the task for a model that was trained on speed deciles; with `10/10` at inference."""
    return f"Speed: {tag} of the fastest known."


def with_speed(messages: Sequence[Message], tag: str) -> tuple[Message, ...]:
    """The conversation whose first request begins with the line of a tag, and with no other one's."""
    first = next((at for at, m in enumerate(messages) if m.role == "user"), len(messages))
    words = [f"{speed_line(tag)}\n\n{_SPEED.sub('', m.content, count=1)}" for m in messages[first : first + 1]]
    return (*messages[:first], *(Message(role="user", content=text) for text in words), *messages[first + 1 :])


def speed_asked(messages: Sequence[Message]) -> str:
    """The line that the first request begins with; empty where it has none."""
    first = next((m.content for m in messages if m.role == "user"), "")
    found = _SPEED.match(first)
    return found.group(1) if found else ""


def source_of(messages: Sequence[Message]) -> str:
    """The task's source in a conversation that was written for larger models, or the last user's words.

    It is the last Python block with a `class Model` in the latest user message that has one: requests may show an
    example before the task, and later turns hold feedback only.
    """
    asked = [m.content for m in messages if m.role == "user"]
    for text in reversed(asked):
        blocks = [b for b in _BLOCK.findall(text) if _MODEL.search(b)]
        if blocks:
            return task_prompt(blocks[-1])
    return task_prompt(asked[-1]) if asked else ""
