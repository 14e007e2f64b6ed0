"""The template policy: answers from the solution library, without model, key or network.

It reads the reference's text only; where forward does something that no template knows, the answer says so. Later turns
take other schedules, the plainest at last.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.errors import PolicyError
from kernelwright.policies.base import Answer, turn_of
from kernelwright.records import Message, Task
from kernelwright.solutions import write
from kernelwright.solutions.kernels.schedule import schedule
from kernelwright.solutions.read.reading import Unreadable


class TemplatePolicy:
    """Answers with a candidate made from a template. Raises `PolicyError` when it has none for the task."""

    name = "template"

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, turn: int | None = None
    ) -> Answer:
        """One candidate; the turn, where it is not given, is the number of answers in the conversation."""
        if task is None:
            raise PolicyError("the template policy needs the task itself", hint="use it through optimize")
        turn = turn_of(messages, turn)
        try:
            text = write(task.source, schedule(seed - turn, turn))
        except Unreadable as reason:
            raise PolicyError(
                f"the template policy has no template for {task.task_id!r}: {reason}",
                hint="use a model: --policy openai:MODEL@BASE_URL",
            ) from reason
        return Answer(f"```python\n{text}```\n", model=self.name)
