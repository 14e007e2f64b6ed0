"""Plants realistic mistakes in correct candidates: for negatives, pairs of wrong and repaired, and tests of the judge.

Each mistake is common among people and models: a forgotten barrier, a bound off by one, a wrong stride. It changes the
text of a candidate in the module form at one place, chosen by the seed. Most mistakes change the result or stop the
text from compiling; `LATENT` ones show only at sizes that a test does not have. Only an evaluation tells whether a
planted mistake is caught: no such text is taken to be wrong unjudged.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright import syntax
from kernelwright.solutions.kernels.plan import without_plan

LATENT = frozenset(("int32_overflow",))
"""Mistakes whose effect needs more than 2^31 elements."""


@dataclass(frozen=True)
class CutAnswer:
    """A candidate in the module form, cut into the text before the CUDA string, the CUDA string, and the text after
    it."""

    before: str
    cuda: str
    after: str

    @property
    def text(self) -> str:
        return self.before + self.cuda + self.after


Plant = Callable[[CutAnswer, random.Random], str | None]
_PLANTS: dict[str, Plant] = {}


def mistakes(text: str, seed: int) -> list[tuple[str, str]]:
    """Returns all mistakes that can be planted in a candidate: names and changed texts, in a fixed order.

    The same text and seed give the same result. Texts without a CUDA string give none.
    """
    answer = _cut(text)
    if answer is None:
        return []
    plain = without_plan(text)
    found = []
    for name, plant in _PLANTS.items():
        wrong = plant(answer, random.Random(f"{seed}:{name}"))
        if wrong is not None and without_plan(wrong) != plain:  # a change in a comment is no mistake
            found.append((name, wrong))
    return found


def names() -> list[str]:
    """Returns the names of all mistakes."""
    return list(_PLANTS)


def _cut(text: str) -> CutAnswer | None:
    match = re.search(r'Module\(r"""(.*?)"""\)', text, re.DOTALL)
    if match is None:
        return None
    return CutAnswer(text[: match.start(1)], match[1], text[match.end(1) :])


def _plant(name: str) -> Callable[[Plant], Plant]:
    def register(function: Plant) -> Plant:
        _PLANTS[name] = function
        return function

    return register


def _pick(where: str, pattern: str, draw: random.Random, change: Callable[[re.Match[str]], str | None]) -> str | None:
    """Changes one place that a pattern matches; returns None where no place can be changed."""
    places = list(re.finditer(pattern, where, re.MULTILINE))
    draw.shuffle(places)
    for match in places:
        new = change(match)
        if new is not None and new != match[0]:
            return where[: match.start()] + new + where[match.end() :]
    return None


def _in_cuda(pattern: str, change: Callable[[re.Match[str]], str | None]) -> Plant:
    def plant(answer: CutAnswer, draw: random.Random) -> str | None:
        cuda = _pick(answer.cuda, pattern, draw, change)
        return None if cuda is None else answer.before + cuda + answer.after

    return plant


def _in_host(pattern: str, change: Callable[[re.Match[str]], str | None]) -> Plant:
    def plant(answer: CutAnswer, draw: random.Random) -> str | None:
        host = _forward(answer.after)
        after = _pick(host[1], pattern, draw, change)
        return None if after is None else answer.before + answer.cuda + host[0] + after

    return plant


def _forward(after: str) -> tuple[str, str]:
    """Returns the text behind the CUDA string, cut before forward."""
    at = after.find("def forward")
    return (after, "") if at < 0 else (after[:at], after[at:])


_NEIGHBOURS = {
    **{"fmaxf": "fminf", "fminf": "fmaxf", "expf": "exp2f", "logf": "log2f", "tanhf": "sinhf", "sqrtf": "rsqrtf"},
    **{"rsqrtf": "sqrtf", "sinf": "cosf", "cosf": "sinf", "erff": "tanhf", "log1pf": "logf", "expm1f": "expf"},
    **{"floorf": "ceilf", "fabsf": "-"},
}
_STARTS = {"-INFINITY": "INFINITY", "INFINITY": "-INFINITY", "0.0f": "1.0f", "1.0f": "0.0f"}
_TYPES = {"float": "double", "long long": "int", "bool": "float", "int": "long long"}

# In the kernel -------------------------------------------------------------------------------------------------------

_plant("dropped_barrier")(_in_cuda(r"^ *__syncthreads\(\);\n", lambda m: ""))
_plant("missing_tail_guard")(_in_cuda(r"^ *if \([^\n]*>=[^\n]*\) return;\n", lambda m: ""))
_plant("guard_off_by_one")(_in_cuda(r"if \((\w+) >= ([^\n|]*)\) return;", lambda m: f"if ({m[1]} > {m[2]}) return;"))
_plant("loop_too_long")(_in_cuda(r"(for \([^;\n]*; *\w+) < (\w+; (?:\+\+|\w+\+\+))", lambda m: f"{m[1]} <= {m[2]}"))
_plant("loop_too_short")(
    _in_cuda(r"(for \([^;\n]*; *\w+) < (\w+); (\+\+|\w+\+\+)", lambda m: f"{m[1]} < {m[2]} - 1; {m[3]}")
)
_plant("loop_skips_first")(
    _in_cuda(r"for \((int|long long) (\w+) = 0; \2 < (\w+);", lambda m: m[0].replace("= 0", "= 1"))
)
_plant("int32_overflow")(_in_cuda(r"long long (\w+) = \(long long\)(\w+)", lambda m: f"int {m[1]} = {m[2]}"))
_plant("wrong_start")(
    _in_cuda(
        r"(float (?:acc|total|high|low|product|mean|best) = )(-INFINITY|INFINITY|0\.0f|1\.0f);",
        lambda m: f"{m[1]}{_STARTS[m[2]]};",
    )
)
_plant("unset_shared")(
    _in_cuda(r"^( *)(?:s|ta|tb|sx|sw|ws|parts)(?:\[[^\]]*\])+ = (?!.*(?:\+|fmax|fmin) ).*;\n", lambda m: "")
)
_plant("dropped_statement")(
    _in_cuda(r"^ *(acc|v\d*) [-+*/]?= [^\n]*\b\1\b[^\n]*;\n|^ *acc [*/]= [^\n]*;\n", lambda m: "")
)
_plant("wrong_function")(
    _in_cuda(
        r"\b(fmaxf|fminf|expf|logf|tanhf|sqrtf|rsqrtf|sinf|cosf|erff|log1pf|expm1f|floorf|fabsf)\(",
        lambda m: _NEIGHBOURS[m[1]] + "(",
    )
)
_plant("wrong_sign")(_in_cuda(r"(?<=[\w)\]]) ([-+]) (?=[\w(])(?=[^\n;]*;)", lambda m: " - " if m[1] == "+" else " + "))
_plant("undeclared_variable")(_in_cuda(r"(\] = )(acc|v\d*|total|high|low);", lambda m: f"{m[1]}result;"))
_plant("missing_semicolon")(_in_cuda(r";\n", lambda m: "\n"))
_plant("unbalanced_brace")(_in_cuda(r"^ *\}\n", lambda m: ""))
_plant("wrong_type")(_in_cuda(r"const (float|long long|bool|int)\* (?=\w)", lambda m: f"const {_TYPES[m[1]]}* "))
_plant("swapped_threads")(_in_cuda(r"\[ty\]\[tx\] = ", lambda m: "[tx][ty] = "))


@_plant("wrong_stride")
def _wrong_stride(answer: CutAnswer, draw: random.Random) -> str | None:
    """Takes another size of the same kernel for a size in an index."""
    kernels = list(re.finditer(r"__global__ void[^(]*\(([^)]*)\)", answer.cuda))
    draw.shuffle(kernels)
    for kernel in kernels:
        sizes = re.findall(r"\b(?:int|long long) (\w+)", kernel[1])
        end = answer.cuda.find("\n}", kernel.end())
        body = answer.cuda[kernel.end() : end]

        def other(match: re.Match[str], sizes: list[str] = sizes) -> str | None:
            alike = [s for s in sizes if s != match[2] and len(s) == len(match[2])] or [
                s for s in sizes if s != match[2]
            ]
            return f"{match[1]} * {draw.choice(alike)}" if match[2] in sizes and alike else None

        new = _pick(body, r"([\w)]) \* (\w+)(?=[^\n]*(?:\]|;))", draw, other)
        if new is not None:
            return answer.before + answer.cuda[: kernel.end()] + new + answer.cuda[end:] + answer.after
    return None


@_plant("swapped_statements")
def _swapped_statements(answer: CutAnswer, draw: random.Random) -> str | None:
    """Swaps two operators of a chain."""
    pattern = r"^( *)((acc|v\d*) = [^\n]*;)\n\1(\3 = [^\n]*;)\n"
    return _in_cuda(pattern, lambda m: f"{m[1]}{m[4]}\n{m[1]}{m[2]}\n")(answer, draw)


# On the host ---------------------------------------------------------------------------------------------------------

_plant("misspelt_kernel")(_in_host(r"kernels\.(\w+)\[", lambda m: f"kernels.{m[1].replace('_kernel', '_kernl')}["))
_plant("truncated_grid")(_in_host(r"\(([\w.()* ]+?) \+ \d+\) // ", lambda m: f"{m[1]} // "))
_plant("true_division")(_in_host(r"(kernels\.\w+\[(?!\(\()[^\n]*?) // ", lambda m: f"{m[1]} / "))
_plant("wrong_axis")(
    _in_host(r"\.shape\[(-?\d)\]", lambda m: f".shape[{ {'-1': '0', '0': '-1', '1': '0', '-2': '-1'}.get(m[1], '0') }]")
)
_plant("missing_transpose")(_in_host(r"\.(?:T|mT|transpose\([^)]*\))(?=[,.\n ])", lambda m: ""))
_plant("missing_cast")(_in_host(r"\.(?:float|half|bfloat16)\(\)", lambda m: ""))
_plant("wrong_return")(_in_host(r"return (y\d*)\n", lambda m: f"return {m[1]}.reshape(-1)\n"))
_plant("missing_colon")(_in_host(r"def forward\(([^)\n]*)\):", lambda m: f"def forward({m[1]})"))
_plant("unknown_name")(_in_host(r"(torch\.empty(?:_like)?\()(\w+)", lambda m: f"{m[1]}{m[2]}_in"))


_LAUNCH = r"^( *)kernels\.\w+\[.*\]\(.*\)$"


def _launch(match: re.Match[str]) -> ast.Call | None:
    """Returns the launch on a line of Python; None where it has fewer than two arguments."""
    try:
        call = syntax.expression(match[0].strip())
    except SyntaxError:
        return None
    return call if isinstance(call, ast.Call) and len(call.args) >= 2 else None


@_plant("swapped_arguments")
def _swapped_arguments(answer: CutAnswer, draw: random.Random) -> str | None:
    """Swaps two neighbouring arguments of a launch."""

    def swap(match: re.Match[str]) -> str | None:
        call = _launch(match)
        if call is None:
            return None
        texts = [ast.unparse(a) for a in call.args]
        at = [i for i in range(len(texts) - 1) if texts[i] != texts[i + 1] and "*" not in texts[i] + texts[i + 1]]
        if not at:
            return None
        i = draw.choice(at)
        call.args[i], call.args[i + 1] = call.args[i + 1], call.args[i]
        return f"{match[1]}{ast.unparse(call)}"

    return _in_host(_LAUNCH, swap)(answer, draw)


@_plant("missing_argument")
def _missing_argument(answer: CutAnswer, draw: random.Random) -> str | None:
    """Drops the last argument of a launch."""

    def drop(match: re.Match[str]) -> str | None:
        call = _launch(match)
        if call is None:
            return None
        call.args.pop()
        return f"{match[1]}{ast.unparse(call)}"

    return _in_host(_LAUNCH, drop)(answer, draw)
