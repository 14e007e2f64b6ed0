"""Detects the language of a candidate's text, in time proportional to the text's length.

This happens where a text arrives, in the user's process, so no parser is asked: a scanner tells names from strings and
comments, and a text that is not Python is scanned alike.
"""

from __future__ import annotations

import re

from kernelwright.records import Language
from kernelwright.syntax import MAX_TEXT

SUFFIXES: dict[str, Language] = {".cu": "cuda", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".hip": "hip"}

MAX_CHAIN = 200
"""Characters of names joined by dots that are looked at as one."""
_EITHER = re.compile(r"^[ \t]*#[ \t]*(?:el)?if\w*\b.*\b(?:USE_ROCM|__HIP\w*|__AMD\w*)\b", re.MULTILINE)
"""A text with a preprocessor test for ROCm or AMD is CUDA as well as HIP."""
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b", re.MULTILINE)
_PYTHON = re.compile(r"^(import \w|from [\w.]+ import|class \w.*:[ \t]*$|\w+[ \t]*=[ \t]*r?[\"']{3})", re.MULTILINE)
# Possessive and closed at the end of the text, so that each character is looked at once.
_TOKEN = re.compile(
    r"""
    (?P<skipped> [^\S\n]++ | \\\n | \#[^\n]*+ )
  | (?P<string> [rRbBuUfF]{0,2}+ (?:
        \"\"\" (?: [^\\"] | \\. | "(?!"") )*+ (?: \"\"\" | \Z | \\\Z )
      | ''' (?: [^\\'] | \\. | '(?!'') )*+ (?: ''' | \Z | \\\Z )
      | " (?: [^\\"\n] | \\. )*+ "?
      | ' (?: [^\\'\n] | \\. )*+ '?
    ) )
  | (?P<name> [^\W\d]\w*+ )
  | (?P<end> [\n;] )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def detect_language(text: str, suffix: str = ".py") -> Language:
    """Returns a candidate's language: by its suffix, or for Python by its kernels (`torch` where it has none).

    Comments and docstrings do not count.
    """
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    words, strings = _words_and_strings(text[:MAX_TEXT])
    if "hip/hip_runtime" in strings and not _EITHER.search(strings):
        return "hip"
    device_code = "__global__" in strings or words & {
        "__global__",
        "cuda_source",
        "cuda_sources",
        "_compile_kernel",
        "jiterator",
    }
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


def _words_and_strings(text: str) -> tuple[set[str], str]:
    """Returns names that the code uses (variables, attributes, keywords, modules), and all its strings joined."""
    words: set[str] = set()
    strings: list[str] = []
    depth, before, chain, module = 0, "", "", ""
    alone: list[str] | None = []
    """The strings of a statement that has nothing else so far: a docstring, or code that was put into one."""
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "skipped":
            continue
        if kind == "end" and depth == 0:
            alone, module = [], ""
        elif kind == "string":
            (strings if alone is None else alone).append(token.lstrip("rRbBuUfF").strip("\"'").replace("\\n", "\n"))
        elif kind != "end":
            strings += alone or ()
            alone = None
            depth = max(0, depth + (token in "([{") - (token in ")]}"))
        if kind == "name":
            chain = f"{chain}.{token}" if before == "." and len(chain) < MAX_CHAIN else token
            words |= {token, chain, f"{module}.{token}"}
            if before == "from" or (module and before == "."):
                module = chain
        elif token != ".":
            chain = ""
        before = token
    return words, "\n".join(strings)
