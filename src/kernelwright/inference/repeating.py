"""Rewrites a task for our own models, and restores names and constructor in their answers.

A model of some millions of parameters learns which kernels a forward needs, but misspells text that it only has to
copy: names (`names.py`) and forms of constructors (`register_buffer('.bias', ...`) that were not in its training data.
An answer's constructor always equals the reference's. So the copy in the answer is replaced by the constructor that the
solution library writes for the task. The rest of the answer stays as the model wrote it.
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
    """A task rewritten for the model, with the data to turn the model's answer into an answer to the task."""

    text: str
    """The user's turn."""
    names: Names = field(default_factory=dict)
    """Names in the prompt -> names in the task, where they differ."""
    source: str = ""
    """The task under its own names; empty where answers stay unchanged."""

    def answered(self, text: str) -> str:
        """Restores names and constructor in an answer, or in a prefix of one that ends at `ready`."""
        return with_constructor(restored(text, self.names), self.source) if self.source else text

    def ready(self, text: str) -> int:
        """Returns the length of an unfinished answer's prefix that later text cannot change."""
        if not self.source:
            return len(text)
        end, begins = len(text), text.find(CLASS)
        if begins >= 0 and text.find(FORWARD, begins) < 0:
            end = begins
        elif begins < 0:
            end = max(0, end - len(CLASS) + 1)
        while self.names and end > 0 and (text[end - 1].isalnum() or text[end - 1] == "_"):
            end -= 1  # a partial name may still grow
        return end


def asking(source: str) -> Asking:
    """Rewrites a task's normal form for the model: submodules flattened, weights by shape, names the model knows."""
    flat, paths = flattened(source)
    text, names = familiar(_plain(flat))
    kept = {name: path for name, path in paths.items() if name not in names.values()}
    return Asking(text, kept | {alias: paths.get(name, name) for alias, name in names.items()}, source)


@functools.lru_cache(maxsize=128)
def _plain(source: str) -> str:
    """Replaces a task's weights by plain ones (`plain_weights`); returns any other text unchanged."""
    try:
        tree = syntax.parse(source)
        models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
        for model in models:
            plain_weights(model)
        return re.sub(r"\n\n+", "\n", ast.unparse(tree)) if models else source
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source


def with_constructor(answer: str, source: str) -> str:
    """Replaces an answer's constructor by the task's; returns an answer without a constructor unchanged."""
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
    """Returns the imports, constants and helpers that the constructor uses and the file lacks."""
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
    """Parses the parts of a task that its constructor is written from; None where the text is no task."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)} if model is not None else {}
    if model is None or not {"__init__", "forward"} <= set(methods):
        return None
    return ReferenceText(source, tree, model, methods["forward"], ())
