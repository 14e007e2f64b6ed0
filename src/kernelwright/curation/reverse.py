"""Reverse synthesis: writes a statement of the task in words for a verified kernel (OptiBench's direction).

Statements have the three levels of CUDABench (arXiv 2603.02236): 1 name, algorithm and guidance for CUDA; 2 name and
algorithm; 3 name only. Names and algorithms come from the reference, guidance from the kernel's text, so that a
statement never claims anything that the answer does not do.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright import syntax
from kernelwright.corpus.fingerprint import fingerprint
from kernelwright.corpus.traces import trace
from kernelwright.curation.samples import CuratedSample
from kernelwright.prompts.answers import whole_python
from kernelwright.tasks.language import detect_language, suffix_of

LEVELS = (1, 2, 3)
_ASKED = {
    "cuda": "a CUDA kernel for PyTorch",
    "triton": "a Triton kernel for PyTorch",
    "cpp": "a C++ kernel for PyTorch",
}
"""The requested kind of kernel, by the answer's language: a Triton kernel does not answer a request for CUDA."""


@dataclass(frozen=True)
class Statement:
    """A task in words, and the verified answer from which it was made."""

    level: int
    text: str
    sample: CuratedSample


def statements(samples: Sequence[CuratedSample], levels: Sequence[int] = LEVELS) -> list[Statement]:
    """Writes statements for every correct answer, one per level; leaves out tasks that are `unreadable`."""
    found: list[Statement] = []
    for sample in samples:
        if not sample.correct or unreadable(sample) is not None:
            continue
        found += [Statement(level, statement(sample, level), sample) for level in levels]
    return found


def unreadable(sample: CuratedSample) -> str | None:
    """Returns the reason why a task gets no statement, else None: it asks for a CUDA program, or its reference has no
    readable forward."""
    if fingerprint(sample.task.source).nodes:
        return None
    return "cuda-program" if whole_python(sample.task.source) is None else "unreadable-reference"


def statement(sample: CuratedSample, level: int) -> str:
    """Returns the statement of a sample's task at a level."""
    language = detect_language(sample.code, suffix_of(sample.code))
    parts = [f"Write {_ASKED.get(language, 'a PyTorch module')}: {task_name(sample.task.source)}."]
    if level <= 2:
        parts.append(algorithm(sample.task.source))
    if level == 1:
        guidance = sample.note or trace(sample.task.source, sample.code)
        if guidance:
            parts.append(f"Guidance:\n{guidance}")
    parts.append(interface(sample.task.source))
    return "\n\n".join(parts)


def task_name(source: str) -> str:
    """Returns the operations as text: `conv2d, relu, mul`."""
    nodes = [n for n in fingerprint(source).nodes if n not in ("input", "weight") and not n.endswith(":")]
    return ", ".join(nodes) or "a copy of the input"


def algorithm(source: str) -> str:
    """Returns the statements of forward, with the constructor's modules."""
    tree = syntax.parse(source)
    model = next(n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Model")
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    lines = [ast.unparse(n) for n in methods["forward"].body if not _is_text(n)] if "forward" in methods else []
    init = methods["__init__"].body if "__init__" in methods else []
    made = [ast.unparse(n) for n in init if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    text = "Algorithm:\n" + "\n".join(lines)
    return text + ("\nwith\n" + "\n".join(made) if made else "")


def interface(source: str) -> str:
    """Returns the answer's interface: the class with the parameters of constructor and forward."""
    tree = syntax.parse(source)
    model = next(n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Model")
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}

    def names(method: str) -> str:
        if method not in methods:
            return ""
        taken = copy.deepcopy(methods[method].args)
        del (taken.posonlyargs or taken.args)[:1]
        return ast.unparse(taken)

    return f"Interface: class ModelNew(nn.Module), __init__({names('__init__')}), forward({names('forward')})."


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
