"""Compares rows with a suite of whole CUDA programs: kernel by kernel, and by the operator's name.

A program has no Python reference, so its kernels are compared with the kernels of a row. They are parsed by tree-sitter
and never executed. Three rules compare two kernels, and one compares names:

- `exact`: equal sequences of tokens, without punctuation, qualifiers, comments and layout.
- `ast`: 2 l / (n + m) above the threshold, with n and m the lengths of the token sequences and l their longest common
  subsequence. Names of variables and parameters, numbers, comments and layout are dropped; types, operators and called
  names stay.
- `jaccard`: the Jaccard index of the sets of names and numbers above the threshold.
- `name`: the name of a task's single operator equals the program's, ignoring case and punctuation (`hardtanh`,
  `Hard_Tanh`). Synonyms are not known. `one_operator="keep"` turns this rule off, and exempts tasks of one operator
  from `ast`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.corpus.decontaminate import Near, Rules, common_subsequence
from kernelwright.corpus.fingerprint import fingerprint
from kernelwright.prompts.spans import cuda_spans

FEWEST_WORDS = 12
"""The least number of words of a compared kernel: shorter kernels match by chance."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAUNCH = re.compile(r"__(?:launch_bounds|cluster_dims|maxnreg|block_size)__\s*\([^()]*\)")
_WORD = re.compile(r"[A-Za-z_]\w*|\.?\d[\w.]*|[-+*/%&|^<>=!]=|<<|>>|&&|\|\||[^\s\w]")
_SILENT = frozenset("; , { } ( ) extern C const static inline __restrict__ __global__ : \" '".split())
_KEPT = frozenset(
    """void bool char short int long unsigned signed float double half auto if else for while do return break continue
    switch case struct template typename size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
    __half __nv_bfloat16 float2 float4 int2 int4 double2 threadIdx blockIdx blockDim gridDim warpSize x y z w
    __shared__ tl def lambda tile namespace""".split()
)


@dataclass(frozen=True)
class SuiteProgram:
    """One program of a suite; `name` is its task's name."""

    task_id: str
    name: str
    text: str


@dataclass(frozen=True)
class _KernelWords:
    words: tuple[str, ...]
    names: frozenset[str]
    text: tuple[str, ...]


def _kernels(source: str) -> list[_KernelWords]:
    """Extracts the kernels of a text."""
    spans = [s for s in cuda_spans(source, device_functions=False) if s.kind in ("kernel", "triton")]
    found = [_kernel(source[s.start : s.end]) for s in spans]
    return [kernel for kernel in found if len(kernel.words) >= FEWEST_WORDS]


def _kernel(text: str) -> _KernelWords:
    tokens = _WORD.findall(_LAUNCH.sub(" ", _COMMENT.sub(" ", text)))
    words = []
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        if token in _SILENT:
            continue
        named = token[0].isalpha() or token[0] == "_"
        if named:
            words.append(token if token in _KEPT or following == "(" else "v")
        else:
            words.append("n" if token[0].isdigit() or (token[0] == "." and len(token) > 1) else token)
    # The kernel's own name precedes a bracket, as a called name does, but must be dropped.
    if "(" in tokens and tokens.index("(") and (own := tokens[tokens.index("(") - 1]) in words:
        words[words.index(own)] = "v"
    names = frozenset(t for t in tokens if t[0].isalnum() or t[0] == "_")
    return _KernelWords(tuple(words), names - _SILENT, tuple(t for t in tokens if t not in _SILENT))


class ProgramIndex:
    """An index of a suite of programs, for comparison with many rows."""

    def __init__(self, programs: Sequence[SuiteProgram], rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._kernels = [(kernel, at) for at, program in enumerate(programs) for kernel in _kernels(program.text)]
        self._names = {_plain(p.name): at for at, p in reversed(list(enumerate(programs))) if _plain(p.name)}

    def near(self, reference: str, code: str) -> Near:
        """Measures how near a task and its answer's kernels are to the suite, by the nearest pair of kernels."""
        operator = _operator(reference)
        exact, ast, jaccard = -1, (0.0, -1), (0.0, -1)
        for mine in _kernels(code):
            for other, at in self._kernels:
                exact = at if exact < 0 and mine.text == other.text else exact
                jaccard = max(jaccard, (_overlap(mine.names, other.names), at), key=lambda found: found[0])
                n, m = len(mine.words), len(other.words)
                if 2 * min(n, m) / (n + m) > ast[0]:  # the upper bound of the similarity
                    score = 2 * common_subsequence(mine.words, other.words) / (n + m)
                    ast = max(ast, (score, at), key=lambda found: found[0])
        spared = operator is not None and self.rules.one_operator == "keep"
        named = self._names.get(_plain(operator or ""), -1)
        hits = {
            "exact": exact >= 0,
            "ast": ast[0] > self.rules.ast and not spared,
            "jaccard": jaccard[0] > self.rules.jaccard,
            "name": named >= 0 and not spared,
        }
        reasons = tuple(rule for rule, hit in hits.items() if hit)
        return Near(reasons, exact, *ast, *jaccard, one_operator=operator is not None, name_index=named)


def _operator(reference: str) -> str | None:
    """Returns the name of a task's single operator; None where it has none, or several."""
    operators = fingerprint(reference).operators
    return operators[0] if len(operators) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 0.0
