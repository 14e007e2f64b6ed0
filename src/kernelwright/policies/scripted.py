"""Replays answers from a file: recorded model output, written by hand, or made by another tool.

FILE.jsonl   one {"answer": TEXT} a line, with "task_id" and "turn" where the answer is for that turn only
other        the whole file is one answer; a .py file is taken as a candidate
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.policies import Answer
from kernelwright.records import Message, Task


class ScriptedPolicy:
    """Gives each conversation the answer that belongs to its turn. Holds no state between calls."""

    def __init__(self, path: Path) -> None:
        self.name = f"scripted:{path.name}"
        self.path = path
        self.answers = _read(path)

    def generate(self, messages: Sequence[Message], *, seed: int, task: Task | None = None) -> Answer:
        """The answer for this turn, which is the number of answers already in the conversation."""
        turn = sum(m.role == "assistant" for m in messages)
        name = task.task_id if task else None
        for key in ((name, turn), (None, turn)):
            if key in self.answers:
                return Answer(self.answers[key], model=self.name)
        raise PolicyError(
            f"the script {str(self.path)!r} has no answer for turn {turn + 1}" + (f" of {name}" if name else ""),
            hint="add a line, or ask for fewer turns",
        )


def _read(path: Path) -> dict[tuple[str | None, int], str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script {str(path)!r} is not UTF-8 text") from error
    except OSError as error:
        raise ConfigError(
            f"the script {str(path)!r} cannot be read: {error.strerror}", hint="check the path"
        ) from error
    if path.suffix != ".jsonl":
        return {(None, 0): f"```python\n{text}\n```" if path.suffix == ".py" else text}
    answers: dict[tuple[str | None, int], str] = {}
    following: dict[str | None, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            answer, name = row["answer"], row.get("task_id")
            turn = int(row.get("turn", following.get(name, 0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"line {number} of the script {str(path)!r} is no answer", hint='write {"answer": "…"} in each line'
            ) from error
        answers[(name, turn)] = str(answer)
        following[name] = turn + 1
    if not answers:
        raise ConfigError(f"the script {str(path)!r} holds no answers")
    return answers
