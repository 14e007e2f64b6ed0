"""Replays answers from a file: recorded model output, written by hand, or made by another tool.

FILE.jsonl   one {"answer": TEXT} a line, with "task_id", "turn" or "seed" to restrict an answer to them
other        the whole file is one answer; a .py file is taken as a candidate
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright import syntax
from kernelwright.errors import ConfigError, PolicyError
from kernelwright.policies.base import Answer, turn_of
from kernelwright.records import Message, Task

_Key = tuple[str | None, int, int | None]
"""Task, turn and seed of an answer; None matches any."""


class ScriptedPolicy:
    """Returns the recorded answer for each turn of a conversation. Holds no state between calls."""

    def __init__(self, path: Path) -> None:
        self.name = f"scripted:{path.name}"
        self.path = path
        self.answers = _read(path)

    def generate(
        self, messages: Sequence[Message], *, seed: int, task: Task | None = None, turn: int | None = None
    ) -> Answer:
        """Returns the answer for a turn; without `turn`, for the count of assistant messages. Raises `PolicyError`."""
        turn = turn_of(messages, turn)
        name = task.task_id if task else None
        for key in ((name, turn, seed), (name, turn, None), (None, turn, seed), (None, turn, None)):
            if key in self.answers:
                return Answer(self.answers[key], model=self.name)
        raise PolicyError(
            f"the script {str(self.path)!r} has no answer for turn {turn + 1}" + (f" of {name}" if name else ""),
            hint="add a line, or ask for fewer turns",
        )


def _read(path: Path) -> dict[_Key, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the script {str(path)!r} is not UTF-8 text", hint="convert it to UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"the script {str(path)!r} cannot be read: {error.strerror}", hint="check the path"
        ) from error
    if path.suffix != ".jsonl":
        return {(None, 0, None): f"```python\n{text}\n```" if path.suffix == ".py" else text}
    answers: dict[_Key, str] = {}
    lines: dict[_Key, int] = {}
    following: dict[tuple[str | None, int | None], int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = syntax.json_value(line)
            answer, name = row["answer"], row.get("task_id")
            if not isinstance(answer, str):
                raise TypeError("an answer is a text")
            seed = None if row.get("seed") is None else int(row["seed"])
            turn = int(row.get("turn", following.get((name, seed), 0)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"line {number} of the script {str(path)!r} is no answer", hint='write {"answer": "…"} in each line'
            ) from error
        key = (name, turn, seed)
        if answers.get(key, answer) != answer:
            raise ConfigError(
                f"lines {lines[key]} and {number} of the script {str(path)!r} are different answers to one question",
                hint="leave one of them, or give each a task_id, turn or seed of its own",
            )
        answers[key], lines[key] = answer, number
        following[(name, seed)] = turn + 1
    if not answers:
        raise ConfigError(f"the script {str(path)!r} holds no answers", hint='write {"answer": "…"} in each line')
    return answers
