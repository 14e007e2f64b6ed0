"""Rules that read CUDA and C++ text: they flag suspicious names and shapes of code.

All findings are advice. The text comes from a candidate, so reading it is bounded in time and size and never raises. If
the parser gives up, there are no findings. Nothing here decides a verdict.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_BYTES = 400_000


@dataclass(frozen=True)
class Hint:
    """A rule that some text triggers: its name, the evidence, and the line of the text, counted from 0."""

    rule: str
    evidence: str
    line: int


_PRECISION = r"__half2?|half2?|nv_half|__nv_bfloat162?|nv_bfloat16|__nv_fp8\w*|Half|BFloat16|kHalf|kBFloat16"
_NAMES: tuple[tuple[str, str, str], ...] = (
    (
        "l2-persistence",
        r"accessPolicyWindow|cudaAccessProperty\w+|cudaLimitPersistingL2CacheSize|cudaCtxResetPersistingL2Cache",
        "keeps lines in L2 beyond a call",
    ),
    (
        "programmatic-launch",
        r"cudaTriggerProgrammaticLaunchCompletion|cudaGridDependencySynchronize|cudaLaunchAttributeProgrammatic\w+"
        r"|programmaticStreamSerializationAllowed",
        "lets the next kernel start before this one is done",
    ),
    (
        "own-stream",
        r"cudaStreamCreate\w*|cuStreamCreate\w*|getStreamFromPool|cudaStreamPerThread",
        "makes a stream of its own: the caller must wait for it",
    ),
    (
        "cuda-graph",
        r"cudaGraphLaunch|cudaStreamBeginCapture\w*|cudaGraphInstantiate\w*",
        "replays a graph (KernelGuard: graph batching)",
    ),
    (
        "background-thread",
        r"pthread_create|std::j?thread|std::async|cudaLaunchHostFunc|cudaStreamAddCallback",
        "starts a thread of its own",
    ),
    ("process-or-network", r"fork|vfork|system|popen|execve?|execl|posix_spawn\w*|socket", "starts a program"),
    ("file-access", r"std::[io]?fstream|fopen|open|open64|freopen|mmap64", "opens files"),
    (
        "code-replacement",
        r"mprotect|dlsym|dlopen|ptrace|process_vm_readv|process_vm_writev|__malloc_hook|sigaction",
        "reaches for code or memory of others (KernelGuard CODE_REPLACEMENT)",
    ),
    (
        "timer-patch",
        r"cu(?:da)?EventElapsedTime\w*|clock_gettime|gettimeofday|std::chrono::\w+",
        "names the functions by which time is taken (KernelGuard: timer patch)",
    ),
    ("evaluator-branch", r"getenv|secure_getenv", "asks where it runs (KernelGuard EVALUATOR_MODE_BRANCH)"),
    ("lower-precision", _PRECISION, "computes in a lower precision than the task's"),
)
_BY_NAME = tuple((rule, re.compile(rf"(?:::)?(?:{names})\Z"), evidence) for rule, names, evidence in _NAMES)
_IN_ASSEMBLY: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("l2-persistence", re.compile(r"evict_last|createpolicy|L2::cache_hint|applypriority"), "asks L2 to keep lines"),
    (
        "programmatic-launch",
        re.compile(r"griddepcontrol"),
        "lets the next kernel start before this one is done",
    ),
    ("lower-precision", re.compile(r"\.tf32|\.f16|\.bf16|\.e4m3|\.e5m2"), "computes in a lower precision"),
)
_WORTH = re.compile(
    "|".join(rf"\b(?:{names})" for _, names, _ in _NAMES)
    + "|"
    + "|".join(p.pattern for _, p, _ in _IN_ASSEMBLY)
    + "|##"
)
"""A text that matches none of these cannot trigger a rule and need not be parsed."""
_TOOLKIT = re.compile(r"\b(?:cu|cuda|cublas|cudnn|nvrtc)(?:[A-Z_]\w*)?\b")
_PLAIN_CALL = frozenset("fork vfork system popen execve exec execl socket fopen open open64 freopen getenv".split())
_CALLS_ONLY = re.compile(r"(?:::)?(?:std::)?(?:" + "|".join(_PLAIN_CALL) + r")\Z")


def hints(text: str, stop: float) -> list[Hint]:
    """Returns the hints of a CUDA or C++ text, each rule once a line, in the order of lines. Never raises.

    `stop` is the deadline by `time.process_time`; a text that was not read to its end by then gives no hints, or fewer.
    """
    data = text.encode("utf-8", errors="replace")
    if len(data) > MAX_BYTES or not _WORTH.search(text):
        return []
    root = _parsed(data, stop)
    if root is None:
        return []
    found = {(h.rule, h.line): h for h in _walked(root, data, stop)}
    return sorted(found.values(), key=lambda h: (h.line, h.rule))


@cache
def _language() -> Any:
    """Returns the grammar; None if it is not installed."""
    try:
        import tree_sitter_cuda
        from tree_sitter import Language

        return Language(tree_sitter_cuda.language())
    except (ImportError, ValueError, TypeError, OSError):
        return None


def _parsed(data: bytes, stop: float) -> Node | None:
    language = _language()
    if language is None:
        return None
    from tree_sitter import Parser

    try:
        tree = Parser(language).parse(
            lambda offset, _place: data[offset : offset + 65536],
            progress_callback=lambda *_state: time.process_time() > stop,
        )
    except (ValueError, TypeError, RuntimeError):  # stopped by the deadline
        return None
    return tree.root_node if tree is not None else None


def _walked(root: Node, data: bytes, stop: float) -> Iterator[Hint]:
    stack, pasting, seen = [root], set[str](), 0
    while stack:
        seen += 1
        if seen % 1024 == 0 and time.process_time() > stop:
            return
        node = stack.pop()
        yield from _of_node(node, data, pasting)
        if node.type != "qualified_identifier":
            stack.extend(reversed(node.children))


def _of_node(node: Node, data: bytes, pasting: set[str]) -> Iterator[Hint]:
    kind, line = node.type, node.start_point[0]
    if kind in ("identifier", "type_identifier", "field_identifier", "qualified_identifier"):
        yield from _of_name(node, _text(node, data))
    elif kind in ("gnu_asm_expression", "asm_statement"):
        text = _text(node, data)
        for rule, pattern, evidence in _IN_ASSEMBLY:
            if found := pattern.search(text):
                yield Hint(rule, f"{found[0]} in assembly: {evidence}", line)
    elif kind in ("preproc_function_def", "preproc_def"):
        yield from _of_macro(node, _text(node, data), pasting)
    elif kind == "call_expression" and pasting:
        yield from _of_pasting_call(node, data, pasting)


def _of_name(node: Node, name: str) -> Iterator[Hint]:
    last = name.rsplit("::", 1)[-1]
    spellings = {name, last} if last not in _PLAIN_CALL else {name}
    for rule, pattern, evidence in _BY_NAME:
        if not any(pattern.match(spelling) for spelling in spellings):
            continue
        parent = node.parent
        called = parent is not None and parent.type == "call_expression" and parent.child(0) == node
        if _CALLS_ONLY.match(name) and not called:
            continue  # a variable of that name, or a method
        if name in ("half", "half2") and node.type != "type_identifier":
            continue
        yield Hint(rule, f"{name} {evidence}", node.start_point[0])


def _of_macro(node: Node, text: str, pasting: set[str]) -> Iterator[Hint]:
    """Records macros that paste tokens; yields a hint for a macro that itself pastes onto a name of the toolkit."""
    if "##" not in text:
        return
    head, _, body = text.partition(")")
    pasting.add(re.split(r"\W+", head.replace("#", " ").replace("define", " ", 1).strip())[0])
    if found := re.search(r"\b(?:cu|cuda|cublas|cudnn)\w*\s*##", body):
        yield Hint("pasted-name", _pasted(found[0]), node.start_point[0])


def _of_pasting_call(node: Node, data: bytes, pasting: set[str]) -> Iterator[Hint]:
    function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or arguments is None:
        return
    name = _text(function, data)
    words = _text(arguments, data)[:200]
    # A macro often passes its arguments on to a pasting macro with a longer or shorter name, so a common prefix counts.
    if any(name == macro or macro.startswith(name) or name.startswith(macro) for macro in pasting if macro):
        if found := _TOOLKIT.search(words):
            yield Hint("pasted-name", _pasted(f"{name}({found[0]}, ...)"), node.start_point[0])


def _pasted(what: str) -> str:
    return f"{what} puts a name of the toolkit together from pieces (KernelGuard: token-pasted CUDA APIs)"


def _text(node: Node, data: bytes) -> str:
    return data[node.start_byte : node.end_byte].decode("utf-8", errors="replace")
