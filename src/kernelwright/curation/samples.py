"""The records of curation: one judged answer, and the turns of one rollout."""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from dataclasses import dataclass
from functools import cached_property

from kernelwright import syntax
from kernelwright.backends.source_text.tokens import tokenize
from kernelwright.corpus.fingerprint import fingerprint
from kernelwright.prompts.answers import thoughts
from kernelwright.records import Evaluation, Message, Task
from kernelwright.tasks.language import suffix_of

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class CuratedSample:
    """One answer to one task, with its evaluation."""

    task: Task
    answer: str
    """The policy's text, reasoning included; for judged files the file itself."""
    code: str
    """The candidate's text; empty where the answer held none."""
    evaluation: Evaluation | None
    """None where the answer held no candidate."""
    run: str
    rollout: str = ""
    turn: int = 0
    messages: tuple[Message, ...] = ()
    """The request; empty for judged files."""
    policy: str = ""
    parse_failure: str | None = None
    note: str = ""
    """Reasoning stored beside the answer, not in it (a corpus's trace)."""
    tokens: int | None = None
    """Completion tokens, where the policy reported them."""

    @property
    def verdict(self) -> str:
        """The verdict; `no_candidate` where the answer held no candidate."""
        return self.evaluation.verdict if self.evaluation else "no_candidate"

    @property
    def correct(self) -> bool:
        return self.verdict == "correct"

    @property
    def judgeable(self) -> bool:
        """Tells whether the verdict is about the answer, and not about a fault or limit of the harness."""
        return self.verdict not in ("harness_error", "unsupported")

    @property
    def speedup(self) -> float | None:
        """The speedup over eager PyTorch; None where it was not timed."""
        timing = self.evaluation.timing if self.evaluation else None
        return timing.speedup if timing else None

    @cached_property
    def reasoning(self) -> str:
        """The reasoning: the text in think tags, else the text before the first code block, else the note."""
        found = thoughts(self.answer)
        if found:
            return found
        if self.answer.strip() != self.code.strip() and "```" in self.answer:
            return self.answer.split("```", 1)[0].strip()
        return self.note

    @cached_property
    def tree(self) -> str:
        """The hash of the code without comments and layout (`tree_hash`)."""
        return tree_hash(self.code)

    @cached_property
    def length(self) -> int:
        """The length of the reasoning in words and punctuation marks, a measure without a tokenizer."""
        return len(_WORD.findall(self.reasoning))

    @cached_property
    def one_operator(self) -> bool:
        """Tells whether the task computes a single operation."""
        return fingerprint(self.task.source).one_operator

    @cached_property
    def operators(self) -> frozenset[str]:
        """The task's operations, which `retrieve` compares."""
        return frozenset(n for n in fingerprint(self.task.source).nodes if n not in ("input", "weight"))


@dataclass(frozen=True)
class Episode:
    """The turns of one rollout, in order; a judged file is an episode of one turn."""

    turns: tuple[CuratedSample, ...]

    @property
    def task(self) -> Task:
        return self.turns[0].task

    @property
    def name(self) -> str:
        return f"{self.turns[0].run}/{self.turns[0].rollout or self.turns[0].task.task_id}"


def digest(text: str) -> str:
    """Hashes a text (SHA-256), lone surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _bare(text: str) -> str:
    """Returns the tokens of C++ text, without comments and layout."""
    return " ".join("#" + _bare(t.text[1:]) if t.kind == "directive" else t.text for t in tokenize(text))


def tree_hash(code: str) -> str:
    """Hashes code without comments and layout: Python by its tree, C++ (in strings or as a file) by its tokens.

    Python that does not parse is hashed as text.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax.parse(code)
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and ";" in node.value:
                    node.value = _bare(node.value)
            return digest(ast.dump(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return digest(code if suffix_of(code) == ".py" else _bare(code))


def by_task(samples: list[CuratedSample]) -> dict[str, list[CuratedSample]]:
    """Groups samples by their task's problem hash; groups and members are in order of first appearance."""
    found: dict[str, list[CuratedSample]] = {}
    for sample in samples:
        found.setdefault(sample.task.problem_hash, []).append(sample)
    return found
