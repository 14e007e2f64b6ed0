"""The template policy: a small library of parametric CUDA kernels, chosen by reading the reference.

It needs no model, key or network. It reads the reference's text only; where forward does something that no template
knows, the answer says so. Later turns take other schedules, the plainest at last.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.errors import PolicyError
from kernelwright.policies import Answer
from kernelwright.policies.template import emit, rows
from kernelwright.policies.template.reading import Node, Reference, Unreadable, expression, read
from kernelwright.policies.template.schedule import Schedule, schedule
from kernelwright.policies.template.shaped import SHAPED
from kernelwright.records import Message, Task


class TemplatePolicy:
    """Answers with a candidate made from a template. Raises `PolicyError` when it has none for the task."""

    name = "template"

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        """One candidate; the turn is the number of answers in the conversation."""
        if task is None:
            raise PolicyError("the template policy needs the task itself", hint="use it through optimize")
        turn = sum(m.role == "assistant" for m in messages)
        try:
            text = write(task.source, schedule(seed - turn, turn))
        except Unreadable as reason:
            raise PolicyError(
                f"the template policy has no template for {task.task_id!r}: {reason}",
                hint="use a model: --policy openai:MODEL@BASE_URL",
            ) from reason
        return Answer(f"```python\n{text}```\n", model=self.name)


def write(source: str, plan: Schedule) -> str:
    """A candidate for a reference's source. Raises `Unreadable` where no template fits."""
    reference = read(source)
    node = expression(reference)
    cuda, declaration, body = _generate(reference, node, plan)
    return emit.candidate(reference, _slug(node), cuda, declaration, body)


def _generate(reference: Reference, node: Node, plan: Schedule) -> tuple[str, str, str]:
    if node.op in SHAPED:
        return SHAPED[node.op](reference, node, plan)
    return rows.generate(reference, node, plan)


def _slug(node: Node) -> str:
    return node.op if node.op.isidentifier() else "kernel"
