"""Rules that read a candidate's text. All are advice.

`ast` reads Python; `cuda_rules` reads the CUDA and C++ in its strings and in bare files. Text can hide anything, so
these rules are the second line of defence: verdicts rest on what runs. If a rule of KernelGuard means the same, the
evidence names it.
"""

from __future__ import annotations

import ast
import re
import time
import warnings
from collections.abc import Iterator

from kernelwright import __all__ as PUBLIC
from kernelwright import syntax
from kernelwright.device import INCLUDE, header_text, named
from kernelwright.evaluation.text import cuda_rules, forbidden_names, patch_rules, python_advice
from kernelwright.records import Candidate, Finding, Task

MOST_FINDINGS = 20
_GRAVE = ("frame-walk", "patched-function", "harness-access")
"""Rules whose findings come first: access to what belongs to others."""
CUDA_SECONDS = 1.0
"""Broken CUDA text can keep a parser busy for minutes: it is stopped at this deadline, and unread text gives no
hints."""
_SNOOPING = {
    "gc": {"get_objects", "get_referrers", "get_referents"},
    "sys": {"_getframe", "_current_frames", "settrace", "setprofile"},
    "inspect": {"stack", "currentframe", "getouterframes", "trace"},
    "traceback": {"extract_stack", "walk_stack"},
}
_OF_FRAMES = {"f_back", "f_locals", "f_globals", "f_builtins"}
"""Attributes of frames. A text may use the same names for attributes of its own; how a text gets a frame at all is seen
when it runs (`candidate.audit_hook`)."""
_INSIDE = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", *_OF_FRAMES}
_INSIDE |= {"__closure__", "__globals__", "__code__", "__subclasses__", "cell_contents"}
"""Attributes that lead from an object to frames, to a function's internals, or to all classes of the process."""
_OURS = re.compile(r"kernelwright\.(?!cuda$)[\w.]+")
_CUDA_TEXT = re.compile(r"__global__|__device__|#\s*include|torch::Tensor|extern \"C\"|PYBIND11_MODULE")
_LOW_PRECISION = re.compile(r"half|float16|bfloat16|float8|fp16|bf16|fp8|int8|autocast")


def static_findings(candidate: Candidate, task: Task | None = None) -> list[Finding]:
    """Returns the findings of the text alone, the grave ones first. Lower precision is flagged only for a `task` of
    precision float32 whose own text names no low precision."""
    found = list(_of_python(candidate))
    stop = time.process_time() + CUDA_SECONDS
    for text, line, exact in cuda_texts(candidate):
        for hint in cuda_rules.hints(text, stop):
            found.append(Finding(rule=hint.rule, evidence=hint.evidence, line=line + hint.line if exact else line))
        found += _of_headers(text, line, exact, stop)
    if task is None or task.precision != "float32" or _LOW_PRECISION.search(task.source):
        found = [f for f in found if f.rule != "lower-precision"]
    unique = {(f.rule, f.line): f for f in reversed(found)}
    ordered = sorted(unique.values(), key=lambda f: (f.rule not in _GRAVE, f.line or 0, f.rule))
    return _varied(ordered)[:MOST_FINDINGS]


def _of_headers(text: str, line: int, exact: bool, stop: float) -> Iterator[Finding]:
    """Yields the findings of the tile library's headers that a text includes, at the line of the include."""
    for include in INCLUDE.finditer(text):
        place = line + text.count("\n", 0, include.start()) if exact else line
        for header in named(include[0]):
            for hint in cuda_rules.hints(header_text(header), stop):
                evidence = f"{hint.evidence} (line {hint.line + 1} of {header})"
                yield Finding(rule=hint.rule, evidence=evidence, line=place)


def _varied(found: list[Finding]) -> list[Finding]:
    """Orders findings: grave ones, then the first of each rule, then the others, so that many of one kind hide no
    other."""
    seen: set[str] = set()
    first: list[Finding] = []
    again: list[Finding] = []
    for finding in found:
        (again if finding.rule in seen and finding.rule not in _GRAVE else first).append(finding)
        seen.add(finding.rule)
    return [*first, *again]


def _tree(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _of_python(candidate: Candidate) -> Iterator[Finding]:
    if not candidate.sources[0].path.endswith(".py"):
        return
    tree = _tree(candidate.text)
    if tree is None:
        return
    inside = _INSIDE - {name for node in ast.walk(tree) for name in _introduced(node)}
    for node in ast.walk(tree):
        yield from _of_node(node, inside)
    for name, line in patch_rules.of_tree(tree):
        yield _patched(name, line)
    for habit in python_advice.of_tree(tree):
        yield Finding(rule=habit.rule, evidence=habit.evidence, line=habit.line)


def cuda_texts(candidate: Candidate) -> Iterator[tuple[str, int, bool]]:
    """Yields the candidate's CUDA and C++ texts: the text, its first line in the candidate, and whether its further
    lines follow there one to one."""
    if not candidate.sources[0].path.endswith(".py"):
        yield candidate.text, 1, True
        return
    tree = _tree(candidate.text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.JoinedStr):
            parts = [v.value for v in node.values if isinstance(v, ast.Constant) and isinstance(v.value, str)]
            text, exact = " x ".join(parts), False
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            exact = (node.end_lineno or node.lineno) - node.lineno == text.count("\n")
        else:
            continue
        if _CUDA_TEXT.search(text):
            yield text, node.lineno, exact


def _introduced(node: ast.AST) -> Iterator[str]:
    """Yields the names of frames' attributes that a node gives to something of the candidate's own."""
    if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Store):
        names = [node.attr if isinstance(node, ast.Attribute) else node.id]
    elif isinstance(node, (ast.arg, ast.keyword)):
        names = [node.arg or ""]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = [node.name]
    else:
        return
    yield from _OF_FRAMES.intersection(names)


def _of_node(node: ast.AST, inside: set[str]) -> Iterator[Finding]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from _of_import(node)
    elif isinstance(node, ast.Attribute):
        yield from _of_attribute(node, inside)
    elif isinstance(node, ast.Name) and node.id in forbidden_names.NAMES:
        yield _reaching(f"names {node.id}", node.lineno)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and (_OURS.fullmatch(node.value) or node.value in forbidden_names.NAMES):
            yield _reaching(f"names {node.value}", node.lineno)


def _of_attribute(node: ast.Attribute, inside: set[str]) -> Iterator[Finding]:
    name = python_advice.dotted(node)
    if len(name) == 2 and name[1] in _SNOOPING.get(name[0], ()):
        yield _walking(f"{'.'.join(name)} looks at frames or objects of others", node.lineno)
    if node.attr in inside:
        yield _walking(f".{node.attr} leads to what belongs to others", node.lineno)
    if len(name) == 2 and name[0] == "kernelwright" and name[1] in PUBLIC:
        yield _reaching(f"uses {'.'.join(name)}", node.lineno)
    if node.attr in forbidden_names.NAMES or (node.attr == "redispatch" and name[:1] != ["self"]):
        yield _reaching(f"names {node.attr}", node.lineno)


def _of_import(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    for name in names:
        if name.split(".")[0] == "kernelwright" and name not in ("kernelwright", "kernelwright.cuda"):
            yield _reaching(f"imports {name}", node.lineno)
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name in _SNOOPING.get(node.module or "", ()):
                yield _walking(f"imports {node.module}.{alias.name}", node.lineno)
            if alias.name in forbidden_names.NAMES or (node.module == "kernelwright" and alias.name in PUBLIC):
                yield _reaching(f"imports {alias.name}", node.lineno)


def _walking(what: str, line: int) -> Finding:
    return Finding(rule="frame-walk", evidence=f"{what} (KernelGuard FRAME_WALK)", severity="warning", line=line)


def _reaching(what: str, line: int) -> Finding:
    evidence = f"{what}: only kernelwright.cuda is meant for candidates"
    return Finding(rule="harness-access", evidence=evidence, severity="warning", line=line)


def _patched(name: str, line: int) -> Finding:
    timer = name.startswith("time.") or any(word in name for word in ("Event", "synchronize", "elapsed"))
    known = "KernelGuard: timer patch" if timer else "KernelGuard MONKEY_PATCH"
    evidence = f"replaces {name} ({known})"
    return Finding(rule="patched-function", evidence=evidence, severity="warning", line=line)
