"""Resolves conditionals that cut through a declaration, such as `#if` around a signature with a shared body.

The splitter assigns each declaration to one side or to both, so a conditional must lie between declarations or within
one. For all others this module evaluates the condition, keeps the compiled branch and removes the rest. Conditions
that depend on macros of unread headers are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelwright.backends.source_text import known_names
from kernelwright.backends.source_text.tokens import CLOSERS, PAIRS, Token, blank, tokenize

_CONDITIONAL = re.compile(r"#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b(.*)", re.DOTALL)
_DEFINITION = re.compile(r"#\s*(define|undef)\s+(\w+)(\(?)(.*)", re.DOTALL)
_UNFINISHED = {"=", ",", "+", "-", "*", "/", "&", "|", "?", "<", "return"}
"""Tokens after which a conditional lies within an expression."""
_UNDEFINED = {"__CUDA_ARCH__", "__CUDACC_RTC__", "USE_ROCM", "NDEBUG", "_WIN32", "_MSC_VER", "__APPLE__", "__clang__"}
"""Names that look predefined but are not defined for the host half of a .cu file on Linux."""
_FOREIGN = re.compile(r"_|(?:AT|C10|CUB|CUDA|CUDART|CUTLASS|GLIBC|NV|PY|PYBIND11|THRUST|TORCH)_|M_|FLT_|INT|UINT|SIZE_")

Macros = Mapping[str, str | None]
"""Macros defined by the command line and the headers: bodies by name, None where the body is not known."""


@dataclass
class _Group:
    """The tokens of one conditional: `#if`, each `#elif` and `#else`, `#endif`."""

    marks: list[int]
    chosen: int | None = None
    """The compiled branch: the index of its mark, -1 for none; None if unknown."""
    doubtful: bool = False
    """Set when a branch's condition is unknown: no later branch can be chosen."""
    cuts: bool = False


@dataclass
class _MacroTable:
    """The macros at one place of a text. A body of None means possibly defined, or taking arguments."""

    bodies: dict[str, str | None]
    undefined: set[str] = field(default_factory=set)
    budget: int = 10_000
    """The bound on further macro expansions: nested macros can grow exponentially."""

    def defined(self, name: str) -> int | None:
        if name in self.bodies:
            return None if self.bodies[name] is None else 1
        if name in self.undefined or name in _UNDEFINED or name.startswith("__HIP"):
            return 0
        foreign = _FOREIGN.match(name) or known_names.is_api(name) or name in known_names.table()["anywhere"]
        return None if foreign else 0


def resolved(source: str, macros: Macros) -> str:
    """Resolves the conditionals of `source` that cut through a declaration, as far as `macros` and the text's own
    definitions decide them; keeps line numbers."""
    if not re.search(r"^[ \t]*#[ \t]*if", source, re.MULTILINE):
        return source
    tokens = tokenize(source)
    groups = _groups(tokens)
    _find_cuts(tokens, groups)
    if not any(group.cuts for group in groups):
        return source
    _decide(tokens, groups, macros)
    spans: list[tuple[int, int]] = []
    for group in groups:
        if group.cuts and group.chosen is not None:
            spans += _left_out(tokens, group)
    return _without(source, spans)


def without_untaken(source: str, macros: Macros) -> str:
    """Removes the branches of `source` that neither half of a build compiles, such as those for ROCm; keeps line
    numbers. Conditions on `__CUDA_ARCH__` and on unknown macros leave their branches."""
    if not re.search(r"^[ \t]*#[ \t]*if", source, re.MULTILINE):
        return source
    tokens = tokenize(source)
    groups = _groups(tokens)
    _decide(tokens, groups, {**macros, "__CUDA_ARCH__": None})
    spans: list[tuple[int, int]] = []
    for group in groups:
        if group.chosen is not None:
            spans += _left_out(tokens, group)
    return _without(source, spans)


def _groups(tokens: list[Token]) -> list[_Group]:
    """Returns all complete conditionals, in the order of their `#if`."""
    found: list[_Group] = []
    open_groups: list[_Group] = []
    for k, token in enumerate(tokens):
        match = _CONDITIONAL.match(token.text) if token.kind == "directive" else None
        if match is None:
            continue
        if match[1].startswith("if"):
            open_groups.append(_Group([]))
        if not open_groups:
            continue
        open_groups[-1].marks.append(k)
        if match[1] == "endif":
            found.append(open_groups.pop())
    return sorted(found, key=lambda group: group.marks[0])


def _find_cuts(tokens: list[Token], groups: list[_Group]) -> None:
    """Marks groups with a branch of unbalanced brackets, or within parentheses or an expression."""
    opening = {group.marks[0]: group for group in groups}
    for group in reversed(groups):  # inner ones first
        shapes = [_shape(tokens, opening, a + 1, b) for a, b in zip(group.marks, group.marks[1:], strict=False)]
        group.cuts = any(shapes)
    ends = {mark: group.marks[-1] for group in groups for mark in group.marks[1:]}
    brackets: list[str] = []
    k, before = 0, ";"
    while k < len(tokens):
        token = tokens[k]
        if k in opening:
            inside = bool(brackets) and brackets[-1] == "("
            opening[k].cuts |= inside or before in _UNFINISHED
        elif token.kind == "punct" and token.text in PAIRS:
            brackets.append(token.text)
        elif token.kind == "punct" and token.text in CLOSERS and brackets:
            brackets.pop()
        k = ends.get(k, k)  # only first branches count for brackets
        if token.kind != "directive":
            before = token.text
        k += 1


def _shape(tokens: list[Token], opening: Mapping[int, _Group], start: int, stop: int) -> str:
    """Returns the unmatched brackets of a token range; of nested conditionals only the first branch counts."""
    left: list[str] = []
    skip: dict[int, int] = {}
    k = start
    while k < stop:
        if k in opening:
            skip[opening[k].marks[1]] = opening[k].marks[-1]
        k = skip.get(k, k)
        text = tokens[k].text
        if tokens[k].kind == "punct" and (text in PAIRS or text in CLOSERS):
            if left and PAIRS.get(left[-1]) == text:
                left.pop()
            else:
                left.append(text)
        k += 1
    return "".join(left)


def _decide(tokens: list[Token], groups: list[_Group], macros: Macros) -> None:
    """Chooses the compiled branch of each group by processing all directives in order."""
    table = _MacroTable(dict(macros))
    opening = {group.marks[0]: group for group in groups}
    lives: list[tuple[_Group, int | None]] = []  # the enclosing conditionals, and whether their branch is compiled
    for k, token in enumerate(tokens):
        if token.kind != "directive":
            continue
        text = re.sub(r"\\\r?\n", " ", token.text)
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
        if (match := _CONDITIONAL.match(text)) is not None:
            if k in opening:
                lives.append((opening[k], 0))
            if match[1] == "endif" and lives and k == lives[-1][0].marks[-1]:
                group = lives.pop()[0]
                if group.chosen is None and not group.doubtful:
                    group.chosen = -1
            elif lives and k in lives[-1][0].marks:
                lives[-1] = (lives[-1][0], _enter(lives[-1][0], k, match, table))
        elif (given := _DEFINITION.match(text)) is not None:
            states = [live for _, live in lives]
            if 0 not in states:
                _define(table, given, known=None not in states)


def _enter(group: _Group, k: int, match: re.Match[str], table: _MacroTable) -> int | None:
    """Tells whether the branch that begins at `k` is compiled: 1, 0 or None (unknown)."""
    word, rest = match[1], match[2].strip()
    if group.chosen is not None:
        return 0
    name = re.match(r"\w+", rest)
    if word == "else":
        value: int | None = 1
    elif word.endswith(("ifdef", "elifdef", "ifndef", "elifndef")):
        value = table.defined(name[0]) if name else None
        value = None if value is None else value ^ int("ndef" in word)
    else:
        value = _Expression(rest, table).value()
    if value is None or group.doubtful:
        group.doubtful = True
        return None if value != 0 else 0
    if value:
        group.chosen = group.marks.index(k)
    return int(value != 0)


def _define(table: _MacroTable, given: re.Match[str], known: bool) -> None:
    word, name, parenthesis, body = given.groups()
    if not known:
        table.bodies[name] = None
    elif word == "undef":
        table.bodies.pop(name, None)
        table.undefined.add(name)
    else:
        table.bodies[name] = "(" if parenthesis else body.strip()


def _left_out(tokens: list[Token], group: _Group) -> list[tuple[int, int]]:
    """Returns the source ranges to remove: the group except its chosen branch."""
    first, last = tokens[group.marks[0]].start, tokens[group.marks[-1]].end
    if group.chosen is None or group.chosen < 0:
        return [(first, last)]
    head, after = tokens[group.marks[group.chosen]], tokens[group.marks[group.chosen + 1]]
    return [(first, head.end), (after.start, last)]


def _without(source: str, spans: list[tuple[int, int]]) -> str:
    out, position = [], 0
    for start, stop in sorted(spans):
        if stop > position:
            out += [source[position : max(start, position)], blank(source[max(start, position) : stop])]
            position = stop
    return "".join([*out, source[position:]])


_WORDS = re.compile(r"\d[\w']*|[A-Za-z_]\w*|&&|\|\||[<>=!]=|<<|>>|\S")
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b},
)


class _Expression:
    """Evaluates the condition of an `#if`: a number, or None if it depends on unknown macros."""

    def __init__(self, text: str, table: _MacroTable, depth: int = 0) -> None:
        self.words, self.table, self.depth = _WORDS.findall(text), table, depth

    def value(self) -> int | None:
        result = self._level(0)
        return None if self.words else result  # an unsupported operator

    def _next(self) -> str:
        return self.words.pop(0) if self.words else ""

    def _level(self, level: int) -> int | None:
        if level == len(_LEVELS):
            return self._unary()
        left = self._level(level + 1)
        while self.words and self.words[0] in _LEVELS[level]:
            operator = self._next()
            right = self._level(level + 1)
            certain = {"&&": 0, "||": 1}.get(operator)
            if certain is not None and certain in [None if v is None else int(v != 0) for v in (left, right)]:
                left = certain
            else:
                left = None if left is None or right is None else _LEVELS[level][operator](left, right)
        return left

    def _unary(self) -> int | None:
        word = self._next()
        if word == "(":
            inner = self._level(0)
            return inner if self._next() == ")" else None
        if word in ("!", "-", "+", "~"):
            value = self._unary()
            return None if value is None else {"!": int(not value), "-": -value, "+": value, "~": ~value}[word]
        if word == "defined":
            name = self._next()
            if name == "(":
                name, _ = self._next(), self._next()
            return self.table.defined(name)
        return self._number(word) if word[:1].isdigit() else self._name(word)

    def _skip_arguments(self) -> None:
        depth = 0
        while self.words:
            depth += {"(": 1, ")": -1}.get(self._next(), 0)
            if depth == 0:
                return

    def _number(self, word: str) -> int | None:
        plain = re.sub(r"[uUlLzZ]+$|'", "", word)
        plain = "0o" + plain if re.fullmatch(r"0\d+", plain) else plain
        try:
            return int(plain, 0)
        except ValueError:
            return None

    def _name(self, word: str) -> int | None:
        if word in ("true", "false"):
            return int(word == "true")
        if self.words and self.words[0] == "(":
            self._skip_arguments()
            return None
        if not re.fullmatch(r"\w+", word) or self.depth > 20:
            return None
        body = self.table.bodies.get(word)
        self.table.budget -= 1
        if self.table.budget < 0:
            return None
        if body is None:
            return self.table.defined(word) if word not in self.table.bodies else None
        return _Expression(body, self.table, self.depth + 1).value()
