"""Reads the rows of a data set for fine-tuning as conversations; counts and names bad rows.

A row is one of three forms. `{"messages": […]}`, with optional `actions` that mark the messages to train on. A prompt
and an answer under one of their usual names: texts, or lists of messages as TRL and `curate` write them; a `system`
text, and an `input` with an `instruction`, become part of the prompt. Or `reference` and `answer`, as in our corpora.
A bad row has one of `REASONS`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.errors import ConfigError
from kernelwright.inference.chat import task_prompt
from kernelwright.syntax import json_value, repeated_key
from kernelwright.training.fine_tune.settings import TextSettings

REASONS = {
    "unreadable": "the line is no JSON object",
    "broken-utf8": "bytes that are no UTF-8, or their replacement character, in prompt or answer",
    "no-field": "a prompt or an answer is missing, or is no text",
    "role": "a message is of nobody that chat templates know",
    "empty-prompt": "nothing is asked: the prompt is empty, or blank",
    "empty-answer": "the answer is empty, or blank",
    "special-token": "prompt or answer spell a special token of the tokenizer",
    "too-long": "prompt and answer have more tokens than data.length",
    "no-cuda": "the answer has no kernel and no launch",
    "all-masked": "not one token is left to train on",
    "same-answers": "the preferred answer is the rejected one",
    "template": "the chat template refuses the conversation",
    "rewritten": "the chat template changes earlier turns when later ones follow",
}
"""The reasons for a bad row, with their descriptions."""

_PROMPTS = ("prompt", "question", "instruction", "input", "query")
_ANSWERS = ("answer", "completion", "response", "output", "solution", "chosen")
_NAMES = ("row_id", "id", "task_id", "name", "uuid")

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The allowed roles of messages."""

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Conversation:
    """One sample: the last message is the answer to train on. `reference` marks a task of ours."""

    name: str
    messages: Messages
    reference: bool = False
    own: tuple[int, ...] = ()
    """Indices of the messages to train on instead of the last one, in a multi-turn rollout."""


@dataclass(frozen=True)
class BadRow:
    """A row that is not trained on, with its reason from `REASONS`."""

    name: str
    reason: str
    detail: str = ""


@dataclass
class RowReport:
    """The number of rows, and the bad rows."""

    rows: int = 0
    bad: list[BadRow] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Bad rows by reason."""
        return dict(sorted(Counter(row.reason for row in self.bad).items()))

    def lines(self, shown: int = 3) -> list[str]:
        """Formats one line per reason, with the names of the first rows."""
        found = []
        for reason, count in self.counts.items():
            names = [row.name for row in self.bad if row.reason == reason]
            more = f", and {count - shown} more" if count > shown else ""
            found.append(f"{count} rows left out, {reason} ({REASONS[reason]}): {', '.join(names[:shown])}{more}")
        return found

    def why_none(self, where: dict[str, Any] | None) -> str:
        """Explains why none of the rows selected by `where` is left."""
        return "; ".join(self.lines()) or (f"no row has data.where = {where}" if where else "there are no rows")

    def write(self, path: Path) -> None:
        """Writes all bad rows as JSONL."""
        rows = ({"row": row.name, "reason": row.reason, "detail": row.detail} for row in self.bad)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def conversations(settings: TextSettings, report: RowReport) -> Iterator[Conversation]:
    """Yields the good rows in order; adds bad rows to `report`. Raises `ConfigError` if there is no data set."""
    for name, row in named_rows(settings, report):
        found = conversation(row, name, settings)
        if isinstance(found, BadRow):
            report.bad.append(found)
        else:
            yield found


def named_rows(settings: TextSettings, report: RowReport) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the selected, readable rows with their names; adds unreadable rows to `report`."""
    given = 0
    for name, row in _rows(settings):
        if isinstance(row, BadRow):
            report.rows += 1
            report.bad.append(row)
            continue
        if settings.where and any(row.get(key) != value for key, value in settings.where.items()):
            continue
        if settings.limit is not None and given >= settings.limit:
            return
        given += 1
        report.rows += 1
        yield _name(row, settings, name), row


def conversation(row: Mapping[str, Any], name: str, settings: TextSettings) -> Conversation | BadRow:
    """Converts a row to messages, or returns it as a bad row with the reason."""
    reference = False
    own: tuple[int, ...] = ()
    messages: Any
    if settings.prompt is None and settings.answer is None and isinstance(row.get("messages"), Sequence):
        messages = row["messages"]
        whole = all(isinstance(m, Mapping) and isinstance(m.get("content"), str) and "role" in m for m in messages)
        if not whole or len(messages) < 2 or messages[-1]["role"] != "assistant":
            return BadRow(name, "no-field", "messages must end with one of the assistant, after another one")
        messages = [{"role": m["role"], "content": m["content"]} for m in messages]
        if "actions" in row:
            marks = row["actions"]
            own = _marked(marks)
            if not own or len(marks) != len(messages):
                return BadRow(name, "no-field", "actions must mark some of the messages, each true or false")
            if any(messages[at]["role"] != "assistant" or at == 0 for at in own):
                return BadRow(name, "no-field", "actions may mark messages of the assistant, after another one")
        asked = messages[: own[0] if own else -1]
    else:
        prompt_field = settings.prompt or _first(row, (*_PROMPTS, "reference"))
        answer_field = settings.answer or _first(row, _ANSWERS)
        prompt, answer = _turns(row.get(prompt_field or ""), "user"), _turns(row.get(answer_field or ""), "assistant")
        if not prompt or not answer or answer[-1]["role"] != "assistant":
            missing = "answer" if prompt else "prompt"
            return BadRow(name, "no-field", f"no {missing} among {', '.join(map(str, row))}")
        # A task of ours: the prompt is its source alone, the answer the file alone.
        source = prompt[0]["content"] if len(prompt) == len(answer) == 1 else None
        reference = prompt_field == "reference" or source is not None and source in _asked_as(row)
        if settings.prompt is None and isinstance(row.get(prompt_field or ""), str):
            prompt = _with_its_context(row, prompt_field or "", prompt)
        asked, messages = prompt, [*prompt, *answer]
    if not any(m["content"].strip() for m in asked):
        return BadRow(name, "empty-prompt")
    if any(not messages[at]["content"].strip() for at in own or (-1,)):
        return BadRow(name, "empty-answer")
    if any(m["role"] not in ROLES for m in messages):
        return BadRow(name, "role", f"messages are of {', '.join(ROLES)}")
    if any(_broken(m["content"]) for m in messages):
        return BadRow(name, "broken-utf8")
    return Conversation(name, messages, reference, own)


def _marked(marks: Any) -> tuple[int, ...]:
    """Returns the indices of the marked messages: marked by true, or by 1, as some table writers store true."""
    if not isinstance(marks, list | tuple) or not all(isinstance(mark, int) and mark in (0, 1) for mark in marks):
        return ()
    return tuple(at for at, mark in enumerate(marks) if mark)


def _turns(value: Any, role: str) -> Messages:
    """Converts a prompt or an answer, a text or TRL's list of messages, to messages; empty for other values."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, Sequence) or isinstance(value, bytes):
        return []
    whole = all(isinstance(m, Mapping) and isinstance(m.get("content"), str) and "role" in m for m in value)
    return [{"role": m["role"], "content": m["content"]} for m in value] if whole else []


def _with_its_context(row: Mapping[str, Any], field: str, prompt: Messages) -> Messages:
    """Adds other common fields to a prompt: Alpaca's `input` to an `instruction`, and a `system` message."""
    (asked,), more, system = prompt, row.get("input"), row.get("system")
    if field == "instruction" and isinstance(more, str) and more.strip():
        asked = {**asked, "content": f"{asked['content']}\n\n{more}"}
    return [{"role": "system", "content": system}, asked] if isinstance(system, str) and system.strip() else [asked]


def _broken(text: str) -> bool:
    return "\ufffd" in text or any("\ud800" <= character <= "\udfff" for character in text)


def _asked_as(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the prompts that ask for a row's reference."""
    reference = row.get("reference")
    return (reference, task_prompt(reference)) if isinstance(reference, str) else ()


def _first(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _name(row: Mapping[str, Any], settings: TextSettings, number: str) -> str:
    key = settings.name or _first(row, _NAMES)
    value = row.get(key or "")
    return str(value) if value not in (None, "") else number


def _rows(settings: TextSettings) -> Iterator[tuple[str, dict[str, Any] | BadRow]]:
    """Yields each row with a name from its file and line."""
    path = Path(settings.path).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".jsonl", ".parquet") and p.is_file())
        if not files:
            raise ConfigError(f"there is no .jsonl or .parquet file in {str(path)!r}")
    elif path.is_file():
        files = [path]
    elif path.suffix or path.is_absolute() or settings.path.count("/") != 1:
        raise ConfigError(f"there is no data set {settings.path!r}", hint="name a file, a folder or OWNER/NAME")
    else:
        yield from _hub(settings.path)
        return
    for file in files:
        yield from _parquet(file) if file.suffix == ".parquet" else _jsonl(file)


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any] | BadRow]]:
    try:
        file = open(path, "rb")
    except OSError as error:
        raise ConfigError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            name = f"{path.name}:{number}"
            try:  # the first line of a file may begin with a byte order mark
                row = json_value(line.decode("utf-8-sig" if number == 1 else "utf-8"), _object)
            except UnicodeDecodeError as error:
                yield name, BadRow(name, "broken-utf8", f"byte {error.start} of the line")
                continue
            except ValueError as error:
                yield name, BadRow(name, "unreadable", str(error)[:200])
                continue
            yield name, row if isinstance(row, dict) else BadRow(name, "unreadable", "not an object")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes a JSON object. Raises `ValueError` for a repeated key."""
    if (twice := repeated_key(pairs)) is not None:
        raise ValueError(f"the key {twice!r} stands there twice")
    return dict(pairs)


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any] | BadRow]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ConfigError(f"{str(path)!r} needs pyarrow", hint="pip install pyarrow, or use JSONL") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for row in _as_rows(batch):
                number += 1
                name = f"{path.name}:{number}"
                yield name, BadRow(name, "broken-utf8", row) if isinstance(row, str) else row
    except (ArrowException, OSError, OverflowError, ValueError) as error:  # damaged pages, dates out of Python's range
        raise ConfigError(f"{str(path)!r} cannot be read: {str(error)[:200]}") from error


def _as_rows(batch: Any) -> list[dict[str, Any] | str]:
    """Returns the rows of a table; an error text replaces a row that is not UTF-8, which Parquet does not forbid."""
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [f"byte {error.start} of a text"]
    half = batch.num_rows // 2
    return [*_as_rows(batch.slice(0, half)), *_as_rows(batch.slice(half))]


def _hub(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError(f"the data set {name!r} needs the library datasets", hint="pip install datasets") from error
    try:
        found = datasets.load_dataset(name, split="train")
    except Exception as error:  # the Hub client's errors: unknown data set, no network, no access
        raise ConfigError(f"the data set {name!r} cannot be loaded: {str(error).splitlines()[0][:200]}") from error
    for number, row in enumerate(found, 1):
        yield f"{name}:{number}", dict(row)
