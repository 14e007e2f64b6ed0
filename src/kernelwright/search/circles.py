"""Notices a policy that goes in circles: it repeats answers that it has given before in the same rollout."""

from __future__ import annotations

import io
import re
import tokenize

from kernelwright.records import Candidate, Task
from kernelwright.syntax import MAX_TEXT

REPEATS = 2
"""Consecutive turns without a new answer after which a search stops: one repeated answer may be followed by a new one,
and two show a loop, of one answer or of several."""

_C_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError, IndexError, SystemError)
"""Errors of the tokenizer. Python 3.12.1 raises `SystemError` for a null byte."""


class Circles:
    """Counts the consecutive turns of a rollout that brought no new answer."""

    def __init__(self) -> None:
        self.repeats = 0
        self._known: set[str] = set()

    def turn(self, answer: str, candidate: Candidate | None) -> int:
        """Counts one turn, by its candidate, or by the answer's text where there is none; returns `repeats`."""
        if candidate is None:
            words = " ".join(answer.split())
        else:
            words = "\0".join(in_words(s.content, s.path.endswith(".py")) for s in candidate.sources)
        self.repeats = self.repeats + 1 if words in self._known else 0
        self._known.add(words)
        return self.repeats


def in_words(text: str, python: bool) -> str:
    """Returns a source without what changes nothing: comments, also of CUDA in strings, and blanks between words."""
    if len(text) > MAX_TEXT:
        return text
    if not python:
        return " ".join(_without_c_comments(text).split())
    words: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.INDENT, tokenize.DEDENT):
                words.append(tokenize.tok_name[token.type])
            elif token.type == tokenize.NEWLINE:
                words.append("\n")
            elif token.type not in _LAYOUT:
                words += _without_c_comments(token.string).split() if _is_text(token.type) else [token.string]
    except _UNREADABLE:
        return text
    return " ".join(words)


def _is_text(kind: int) -> bool:
    """Tells whether a token is a string, or a part of one: Python 3.12 splits f-strings."""
    return kind == tokenize.STRING or tokenize.tok_name[kind].startswith("FSTRING")


def _without_c_comments(text: str) -> str:
    return _C_COMMENT.sub(" ", text)


def advice(task: Task, policy: str) -> str:
    """Returns what to try after a search by the policy of that name which did not find what was wanted."""
    from kernelwright.solutions import write
    from kernelwright.solutions.read.reading import Unreadable

    other = "--policy openai:MODEL@BASE_URL asks a larger model"
    if policy.partition(":")[0] == "template":
        return f"kernelwright solutions tune tries more schedules of the solution library; {other}"
    try:
        write(task.source)
    except Unreadable:
        return f"{other}; another --temperature or --seed draws other samples (--policy template does not cover it)"
    return "--policy template has kernels for this task; another --temperature or --seed draws other samples"
