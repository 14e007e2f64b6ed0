"""Reads candidates from files and detects their language. Judges nothing, executes nothing."""

from __future__ import annotations

import ast
import re
import warnings
from pathlib import Path

from kernelwright import syntax
from kernelwright.errors import CandidateError
from kernelwright.records import Candidate, Language, Provenance, SourceFile
from kernelwright.tasks.files import read_text

_SUFFIXES: dict[str, Language] = {".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".hip": "hip"}


_EITHER = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\w*\b.*\b(?:USE_ROCM|__HIP\w*|__AMD\w*)\b", re.MULTILINE)
"""A text with a preprocessor test for ROCm or AMD is CUDA as well as HIP."""


def detect_language(text: str, suffix: str = ".py") -> Language:
    """Returns a candidate's language: by its suffix, or for Python by its kernels (`torch` where it has none).

    Comments and docstrings do not count. A text that is not Python is classified by all its words.
    """
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    words, strings = _words_and_strings(text)
    if "hip/hip_runtime" in strings and not _EITHER.search(strings):
        return "hip"
    device_code = "__global__" in strings or words & {"cuda_source", "cuda_sources", "_compile_kernel", "jiterator"}
    if device_code or "kernelwright.cuda" in words:
        return "cuda"
    if "triton" in words and "jit" in words:
        return "triton"
    if "load_inline" in words or {"cpp_extension", "load"} <= words:
        return "cpp"
    return "torch"


def suffix_of(text: str) -> str:
    """Returns the file suffix for a text without a name: `.cu` or `.cpp` for C++, else `.py`.

    C++ has `#include` lines and no lines that begin like Python's imports and classes. Python with an unclosed CUDA
    string has both.
    """
    if not _INCLUDE.search(text) or _PYTHON.search(text):
        return ".py"
    return ".cu" if "__global__" in text or "<<<" in text else ".cpp"


_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b", re.MULTILINE)
_PYTHON = re.compile(r"^(import \w|from [\w.]+ import|class \w+.*:\s*$|\w+\s*=\s*r?[\"']{3})", re.MULTILINE)


def _words_and_strings(text: str) -> tuple[set[str], str]:
    """Returns names that the code uses (variables, attributes, keywords, modules), and all its strings joined."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"[\w.]*\w", text)) | set(re.findall(r"\w+", text)), text
    words: set[str] = set()
    strings: list[str] = []
    comments = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            words.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            modules = [prefix + a.name for a in node.names] + [prefix.rstrip(".")]
            words |= {part for m in modules for part in (m, *m.split("."))}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
            strings.append(node.value)
    return words, "\n".join(strings)


def candidate_from_text(text: str, origin: str, suffix: str = ".py") -> Candidate:
    """Returns a candidate from text, named after its origin."""
    return Candidate(
        sources=(SourceFile(path=f"candidate{suffix}", content=text),),
        language=detect_language(text, suffix),
        provenance=Provenance(origin=origin),
    )


def load_candidate(path: Path | str) -> Candidate:
    """Returns a candidate from a `.py`, `.cu`, `.cpp` or `.hip` file. Raises `CandidateError`.

    Does not check for the class `ModelNew`: a candidate without it gets a verdict from the judge.
    """
    file = Path(path)
    text = read_text(file, CandidateError, "the candidate")
    if file.suffix not in (".py", *_SUFFIXES):
        raise CandidateError(f"the candidate {str(file)!r} ends in {file.suffix!r}", hint="use .py, .cu, .cpp or .hip")
    return candidate_from_text(text, file.name, file.suffix)
