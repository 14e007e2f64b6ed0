"""The template policy: answers from the solution library, without model, key or network.

It reads the reference's text only and raises where `forward` uses something that no template covers. Later turns take
other schedules, the plainest last.
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
    """Answers with a candidate made from a template."""

    name = "template"

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, turn: int | None = None
    ) -> Answer:
        """Returns one candidate. Raises `PolicyError` where no template covers the task.

        Without `turn`, the turn is the count of assistant messages.
        """
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
