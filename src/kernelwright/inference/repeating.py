"""How a task is put to one of our own models, and what its answer becomes: what it copies wrongly, it need not copy.

A model of some millions of parameters that has learnt what kernels a forward needs still misspells what it only has to
repeat: names that it has not met (`names.py`), and constructors in forms that it has not met
(`register_buffer('.bias', ...`). The constructor of an answer is the reference's own, always; so it is put there, as
the solution library would have written it, in place of the copy. Everything else is what the model wrote.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass, field

from kernelwright import syntax
from kernelwright.inference.flat import flattened
from kernelwright.inference.names import Names, familiar, restored
from kernelwright.inference.weights import plain_weights
from kernelwright.solutions.kernels.frame import constructor, lacking
from kernelwright.solutions.read.reading import ReferenceText

CLASS = "class ModelNew(nn.Module):\n"
FORWARD = "    def forward("


@dataclass(frozen=True)
class Asking:
    """A task as the model reads it, and what turns its answer into one to the task itself."""

    text: str
    """What the user's turn holds."""
    names: Names = field(default_factory=dict)
    """Names in the prompt -> names in the task, of those that differ."""
    source: str = ""
    """The task under its own names; empty where the answer stays as it is."""

    def answered(self, text: str) -> str:
        """The answer to the task; of the beginning of an answer up to `ready`, the beginning of that."""
        return with_constructor(restored(text, self.names), self.source) if self.source else text

    def ready(self, text: str) -> int:
        """Characters at the beginning of an unfinished answer that what follows cannot change."""
        if not self.source:
            return len(text)
        end, begins = len(text), text.find(CLASS)
        if begins >= 0 and text.find(FORWARD, begins) < 0:
            end = begins
        elif begins < 0:
            end = max(0, end - len(CLASS) + 1)
        while self.names and end > 0 and (text[end - 1].isalnum() or text[end - 1] == "_"):
            end -= 1  # a name is replaced whole
        return end


def asking(source: str) -> Asking:
    """A task's normal form, put to the model: without modules of its own, weights by their shapes, under names that it
    knows."""
    flat, paths = flattened(source)
    text, names = familiar(_plain(flat))
    kept = {name: path for name, path in paths.items() if name not in names.values()}
    return Asking(text, kept | {alias: paths.get(name, name) for alias, name in names.items()}, source)


@functools.lru_cache(maxsize=128)
def _plain(source: str) -> str:
    """The task with plain weights; any other text as it is."""
    try:
        tree = syntax.parse(source)
        models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
        for model in models:
            plain_weights(model)
        return re.sub(r"\n\n+", "\n", ast.unparse(tree)) if models else source
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


def with_constructor(answer: str, source: str) -> str:
    """An answer with the constructor of the task; as it is where it has none, or one that is the same."""
    begins = answer.find(CLASS)
    ends = answer.find(FORWARD, begins)
    if begins < 0 or ends < 0:
        return answer
    reference = _reference(source)
    wanted = constructor(reference) if reference is not None else ""
    if not wanted or answer[begins + len(CLASS) : ends] == wanted:
        return answer
    assert reference is not None
    head = answer[:begins]
    return f"{head}{_missing(reference, wanted, head)}{CLASS}{wanted}{answer[ends:]}"


def _missing(reference: ReferenceText, init: str, head: str) -> str:
    """Imports, constants and helpers that the constructor names and the file does not have."""
    try:
        tree = syntax.parse(head)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    has = {a.asname or a.name for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    has |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    has |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
    lines = lacking(reference, init, has)
    return "\n".join([*lines, "", ""]) if lines else ""


@functools.lru_cache(maxsize=128)
def _reference(source: str) -> ReferenceText | None:
    """The parts of a task that its constructor is written from; None of a text that is no task."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)} if model is not None else {}
    if model is None or not {"__init__", "forward"} <= set(methods):
        return None
    return ReferenceText(source, tree, model, methods["forward"], ())
