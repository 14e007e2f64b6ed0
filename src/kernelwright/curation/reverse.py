"""Reverse synthesis: the verified kernel first, then a statement of its task in words (OptiBench's way round).

Statements have the three levels of CUDABench (arXiv 2603.02236): 1 name, algorithm and guidance for CUDA; 2 name and
algorithm; 3 name only. Names and algorithms are read off the reference, guidance off the kernel's own text, so that
nothing is said that the answer does not do.
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
from kernelwright.tasks.candidates import detect_language, suffix_of

LEVELS = (1, 2, 3)
_ASKED = {
    "cuda": "a CUDA kernel for PyTorch",
    "triton": "a Triton kernel for PyTorch",
    "cpp": "a C++ kernel for PyTorch",
}
"""What the answer is, by its language: a Triton kernel is no answer to who asks for CUDA."""


@dataclass(frozen=True)
class Statement:
    """A task in words, and the verified answer that it was made from."""

    level: int
    text: str
    sample: CuratedSample


def statements(samples: Sequence[CuratedSample], levels: Sequence[int] = LEVELS) -> list[Statement]:
    """Statements for every correct answer, a level each; what has no readable forward is left out."""
    found: list[Statement] = []
    for sample in samples:
        if not sample.correct or unreadable(sample) is not None:
            continue
        found += [Statement(level, statement(sample, level), sample) for level in levels]
    return found


def unreadable(sample: CuratedSample) -> str | None:
    """Why no statement can be made of a task: a CUDA program was asked for, or the reference has no forward that can be
    read."""
    if fingerprint(sample.task.source).nodes:
        return None
    return "cuda-program" if whole_python(sample.task.source) is None else "unreadable-reference"


def statement(sample: CuratedSample, level: int) -> str:
    """The task of a sample in words."""
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
    """The operations in words: `conv2d, relu, mul`."""
    nodes = [n for n in fingerprint(source).nodes if n not in ("input", "weight") and not n.endswith(":")]
    return ", ".join(nodes) or "a copy of the input"


def algorithm(source: str) -> str:
    """What forward does, as its statements stand there, with the modules that it calls."""
    tree = syntax.parse(source)
    model = next(n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Model")
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
    lines = [ast.unparse(n) for n in methods["forward"].body if not _is_text(n)] if "forward" in methods else []
    init = methods["__init__"].body if "__init__" in methods else []
    made = [ast.unparse(n) for n in init if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call)]
    text = "Algorithm:\n" + "\n".join(lines)
    return text + ("\nwith\n" + "\n".join(made) if made else "")


def interface(source: str) -> str:
    """How the answer is called: the class, its constructor's and forward's parameters."""
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
