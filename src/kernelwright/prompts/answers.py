"""Parses an answer's text into a candidate, or into a clear reason why it holds none.

The candidate is the last complete fenced block that defines the entry point. Reasoning (`reasoning`) is skipped. An
answer without any block may be the file itself: small models trained on bare files answer so.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from kernelwright import syntax
from kernelwright.records import Candidate, Provenance, SourceFile
from kernelwright.tasks.language import detect_language

_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_LINES = re.compile(
    r"^[ \t]*(?:(?P<python>(?:import|from) +\w|class +\w[^\n;{]*:\s*$|def +\w|@triton"
    r"|[\w.]+[ \t]*=[ \t]*\w{0,2}[\"']{3})"
    r"|//|/\*|#[ \t]*include[ \t]*[<\"]|#(?:define|pragma|ifn?def)\b|template\b[ \t]*<|extern[ \t]+\"C\""
    r"|using[ \t]+namespace\b"
    r"|(?:static[ \t]+|inline[ \t]+)*__(?:global|device|host|constant|launch_bounds)__\b)",
    re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)
_PYTHON = ("", "python", "py", "python3")
_CUDA = ("", "cuda", "cu", "cpp", "c++", "c", "cuda-cpp", "cuda-c")
_MAIN = re.compile(r"\bmain\s*\(")


def reasoning(text: str) -> list[tuple[int, int]]:
    """Finds an answer's reasoning as (start, end) in characters: from `<think>` to `</think>`, tags included.

    Reasoning that is never closed goes to the end. Chat templates that end the prompt with `<think>` leave the answer
    only the closing tag: its reasoning begins at 0.
    """
    found: list[tuple[int, int]] = []
    opened: int | None = None
    for match in _TAG.finditer(text):
        if not match[1]:
            opened = match.start() if opened is None else opened
        elif opened is not None or not found:
            found.append((opened or 0, match.end()))
            opened = None
    return found if opened is None else [*found, (opened, len(text))]


def thoughts(text: str) -> str:
    """Returns the reasoning of an answer, without its tags."""
    return "\n".join(_TAG.sub("", text[start:end]).strip() for start, end in reasoning(text))


def without_reasoning(text: str) -> str:
    """Removes the reasoning from an answer."""
    for start, end in reversed(reasoning(text)):
        text = text[:start] + text[end:]
    return text


def is_python(text: str, unknown: bool = True) -> bool:
    """Tells Python from C++ by the first line that only one of them can contain; returns `unknown` without any."""
    match = _LINES.search(text)
    return unknown if match is None else match["python"] is not None


def fenced(code: str) -> str:
    """Wraps a file in a code block with the label of its language."""
    label = "python" if is_python(code) else "cuda" if detect_language(code) == "cuda" else "cpp"
    return f"```{label}\n{code.strip()}\n```"


@dataclass(frozen=True)
class ParseFailure:
    """The reason why an answer holds no candidate, in one sentence that the policy can act on."""

    reason: str


@dataclass(frozen=True)
class _Block:
    label: str
    text: str
    closed: bool


def parse_answer(
    text: str, entry_point: str = "ModelNew", provenance: Provenance | None = None
) -> Candidate | ParseFailure:
    """Returns the candidate of an answer, or the reason why it holds none."""
    if len(text) > syntax.MAX_TEXT:
        return ParseFailure(f"the answer has {len(text)} characters, and at most {syntax.MAX_TEXT} are read")
    text = without_reasoning(text)
    if not text.strip():
        return ParseFailure("the answer is empty")
    blocks = [_Block("", text, True)] if _is_file(text, entry_point) else _blocks(text)
    if not blocks:
        return ParseFailure(f"the answer has no fenced code block{_unfenced(text, entry_point)}")
    named = re.compile(rf"^[ \t]*class[ \t]+{re.escape(entry_point)}\b", re.MULTILINE)
    whole = [b for b in blocks if b.closed and named.search(b.text)]
    if not whole:
        if any(not b.closed for b in blocks):
            return ParseFailure("the last code block is not closed: the answer was cut off; write a shorter file")
        return ParseFailure(f"no code block defines class {entry_point}(nn.Module)")
    chosen = whole[-1]
    if chosen.label not in _PYTHON:
        return ParseFailure(f"the block with class {entry_point} is marked {chosen.label!r}; it must be Python")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            syntax.parse(chosen.text)
    except SyntaxError as error:
        return ParseFailure(f"the code block is not Python: {error.msg} (line {error.lineno} of the block)")
    except (ValueError, RecursionError, MemoryError) as error:
        return ParseFailure(f"the code block cannot be parsed: {error}")
    return Candidate(
        sources=(SourceFile(path="candidate.py", content=chosen.text),),
        language=detect_language(chosen.text),
        entry_point=entry_point,
        provenance=provenance or Provenance(),
    )


def parse_program(text: str, provenance: Provenance | None = None) -> Candidate | ParseFailure:
    """Returns the CUDA program of an answer: its last complete fenced block that defines `main`.

    An answer without any block is taken whole where it is a CUDA program as it stands.
    """
    text = without_reasoning(text)
    if not text.strip():
        return ParseFailure("the answer is empty")
    blocks = _blocks(text)
    if not blocks and _MAIN.search(text) and text.lstrip().startswith(("#", "//", "/*", "__global__")):
        blocks = [_Block("", text, True)]
    whole = [b for b in blocks if b.closed and _MAIN.search(b.text) and b.label in _CUDA]
    if not whole:
        if not blocks:
            return ParseFailure("the answer has no fenced code block; put the whole program between ```cuda and ```")
        if any(not b.closed for b in blocks):
            return ParseFailure("the last code block is not closed: the answer was cut off; write a shorter program")
        return ParseFailure("no CUDA block defines main")
    source = SourceFile(path="program.cu", content=whole[-1].text)
    return Candidate(sources=(source,), language="cuda", entry_point="main", provenance=provenance or Provenance())


def _unfenced(text: str, entry_point: str) -> str:
    """Advises on an answer without a block; for an almost valid file, names the syntax error."""
    advice = "; put the whole file between ```python and ```"
    if not text.lstrip().startswith(("import ", "from ", "#", '"""')) or f"class {entry_point}" not in text:
        return advice
    try:
        syntax.parse(text)
    except SyntaxError as error:
        return f", and taken whole it is not Python: {error.msg} (line {error.lineno})"
    except (ValueError, RecursionError, MemoryError):
        return ", and taken whole it cannot be parsed"
    return advice


def whole_python(text: str) -> ast.Module | None:
    """Parses a text that is one Python file with nothing around it; None where it does not parse.

    A fence in a text that parses stands in a string literal: anywhere else it would be a syntax error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_file(text: str, entry_point: str) -> bool:
    """Tells whether an answer is a Python file that defines the entry point."""
    tree = whole_python(text)
    return tree is not None and any(isinstance(n, ast.ClassDef) and n.name == entry_point for n in tree.body)


def _blocks(text: str) -> list[_Block]:
    """Returns the fenced blocks in order; a fence of at least the same length, without a label, closes one."""
    blocks: list[_Block] = []
    opened: tuple[str, str, int] | None = None
    for match in _FENCE.finditer(text):
        fence, label = match[1], match[2].lower()
        if opened is None:
            opened = (fence, label, match.end() + 1)
        elif not label and fence.startswith(opened[0]):
            blocks.append(_Block(opened[1], text[opened[2] : match.start()], True))
            opened = None
    if opened is not None:
        blocks.append(_Block(opened[1], text[opened[2] :], False))
    return blocks
