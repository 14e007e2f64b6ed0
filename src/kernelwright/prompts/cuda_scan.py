"""Finds the device code and the launches in a CUDA source by a scan over tree-sitter's tokens.

Tokens come from a parse, so brackets in comments, strings and directives do not count. The scan matches brackets over
tokens, so it also works on code that does not parse: cut off, or with a bracket missing.

Macros are not expanded: a `#define` that contains a kernel or a launch is one span, and a name that a `#define` gives
to a qualifier or a launch counts as that qualifier or launch. String literals that contain a kernel, as for NVRTC, are
scanned as separate sources.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tree_sitter import Node

Kind = Literal["kernel", "device", "launch", "config", "triton"]
"""Kinds of spans.

`kernel`, `device`: a function with its signature. `launch`: a statement that launches a kernel or prepares the launch.
`config`: a `dim3` declaration, or the definition of a name in a launch's brackets. `triton`: a jitted function with its
decorators.
"""


@dataclass(frozen=True)
class Span:
    """A range of characters: `text[start:end]`."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True)
class CudaToken:
    """One token of a source; `start` and `end` are byte offsets, `row` counts from 0."""

    text: str
    start: int
    end: int
    row: int
    literal: bool = False


_LAUNCH_CALLS = ("cudaLaunch", "cudaFuncSetAttribute", "cudaFuncSetCacheConfig", "cuLaunch", "hipLaunchKernel")
MARKERS = ("__global__", "__device__", "<<<", "dim3 ", *_LAUNCH_CALLS)
"""Every text with CUDA contains at least one of these."""

_ATOMS = (
    "string_literal",
    "raw_string_literal",
    "char_literal",
    "system_lib_string",
    "preproc_def",
    "preproc_function_def",
    "preproc_include",
    "preproc_call",
)
_LITERALS = ("string_literal", "raw_string_literal")
_RAW = re.compile(rb'\w*R"([^()\\\s]*)\(')
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"n": b" \n", b"t": b"  ", b"r": b"  "}
_INCLUDED = re.compile(rb"(#[ \t]*include[ \t]*)<")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {close: open_ for open_, close in _OPENING.items()}
_BOUNDARIES = (";", "{", "}")
_BEFORE_A_STATEMENT = frozenset((*_BOUNDARIES, ":", "else", "do"))
_DEFINED = re.compile(r"#[ \t]*define\b.*__global__.*\(", re.DOTALL)
"""A directive that defines a kernel; a mere alias of the qualifier does not match."""
_ALIAS = re.compile(r"#[ \t]*define[ \t]+(\w+)[ \t]((?:(?!//|/\*)[^(){};])*__(?:global|device)__[^(){};]*)$")
"""A directive that defines an alias of qualifiers: the name, and its replacement of words without code."""
_LAUNCHER = re.compile(r"#[ \t]*define[ \t]+(\w+)\(.*(?:<<<|cudaLaunch)", re.DOTALL)
"""A directive that defines a macro which launches."""
_REACH = 500
"""The bound on tokens of a signature or a statement; longer ones are cut there, which bounds the time of a scan."""
_HEADERS = ("if", "for", "while", "switch")
_HOPS = 50
"""The bound on a name's definitions that are checked for one use, nearest first."""
_NO_TYPES = frozenset(
    "return else new delete goto case throw sizeof do co_return co_yield using namespace typename".split()
)


def _is_name(text: str) -> bool:
    return text.isidentifier() or text == ">"


def _is_type(text: str) -> bool:
    """Tells whether a word can be a type, so that the name after it is declared."""
    return text.isidentifier() and text not in _NO_TYPES


@cache
def _parser() -> Any:
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_cuda.language()))


def scan(data: bytes, device_functions: bool = True) -> list[Span]:
    """Returns the spans of a CUDA source as byte offsets, unordered; they may overlap."""
    tokens = _named(list(_tokens(data)))
    found = _Scanner(tokens, data).spans(device_functions)
    for run in _literals(tokens):
        pieces = [_inside(token, data) for token in run]
        inner = scan_joined(data, pieces, b"", device_functions)
        found += inner if any(span.kind == "kernel" for span in inner) else []
    return found


def scan_joined(
    data: bytes, pieces: Sequence[tuple[int, int, bool]], joint: bytes, device_functions: bool = True
) -> list[Span]:
    """Scans the source that pieces of `data` form when joined by `joint`; spans are byte offsets into `data`.

    A piece is its start, its end, and whether its escapes are interpreted (a newline ends a comment).
    """
    text = bytearray()
    places: list[int] = []
    for start, end, escaped in pieces:
        if places:
            text += joint
            places += [start] * len(joint)
        piece = data[start:end]
        text += _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], b" " + m[1]), piece) if escaped else piece
        places += range(start, end)
    if not any(marker.encode() in text for marker in MARKERS):
        return []
    spans = scan(bytes(text), device_functions)
    return [Span(places[s.start], places[s.end - 1] + 1, s.kind) for s in spans]


def _literals(tokens: Sequence[CudaToken]) -> Iterator[list[CudaToken]]:
    """Yields runs of adjacent string literals that contain a kernel; a run forms one string."""
    for is_literal, group in groupby(tokens, key=lambda t: t.literal):
        run = list(group) if is_literal else []
        if any("__global__" in token.text for token in run):
            yield run


def _inside(token: CudaToken, data: bytes) -> tuple[int, int, bool]:
    """Returns start and end of a literal's content in bytes, and whether it has escapes (raw strings have none)."""
    piece = data[token.start : token.end]
    raw = _RAW.match(piece)
    opening = raw.end() if raw else piece.index(b'"') + 1
    closing = b")" + raw[1] + b'"' if raw else b'"'
    end = len(piece) - len(closing) if piece.endswith(closing) else len(piece)
    return token.start + opening, token.start + max(end, opening), raw is None


def _tokens(data: bytes) -> Iterator[CudaToken]:
    """Yields the source's tokens in order, without comments; a literal or a directive is one token."""
    stack: list[Node] = [_parser().parse(_closed(data)).root_node]
    while stack:
        node = stack.pop()
        if node.type == "comment" or not data[node.start_byte : node.end_byte].strip():
            continue
        if node.child_count == 0 or node.type in _ATOMS:
            piece = data[node.start_byte : node.end_byte].rstrip()  # a directive's token includes its newline
            yield CudaToken(
                piece.decode("utf-8", "replace"),
                node.start_byte,
                node.start_byte + len(piece),
                node.start_point[0],
                node.type in _LITERALS,
            )
        else:
            stack.extend(reversed(node.children))


def _closed(data: bytes) -> bytes:
    """Replaces by a blank what opens a comment or an included name without an end: the parser would seek each end
    anew."""
    last = data.rfind(b"*/") + 2 if b"*/" in data else 0
    data = data[:last] + data[last:].replace(b"/*", b"/ ")
    lines = data.split(b"\n") if b"<" in data else []
    for number, line in enumerate(lines):
        rest = line.rfind(b">") + 1
        lines[number] = line[:rest] + _INCLUDED.sub(rb"\1 ", line[rest:])
    return b"\n".join(lines) if lines else data


def _named(tokens: Sequence[CudaToken]) -> list[CudaToken]:
    """Replaces the text of tokens that are aliases of qualifiers (`_ALIAS`) by the qualifier."""
    defined = [match for token in tokens if (match := _ALIAS.match(token.text))]
    names = {m[1]: "__global__" if "__global__" in m[2] else "__device__" for m in defined if "__" in m[2]}
    return [replace(t, text=names[t.text]) if t.text in names else t for t in tokens]


class _Scanner:
    """Finds spans in one list of tokens."""

    def __init__(self, tokens: Sequence[CudaToken], data: bytes) -> None:
        self.tokens = tokens
        self.data = data

    def spans(self, device_functions: bool) -> list[Span]:
        functions = list(self._functions(device_functions))
        inside = [False] * len(self.tokens)
        found = []
        for kind, first, last, end in functions:
            found.append(Span(self.tokens[first].start, end, kind))
            inside[first : last + 1] = [True] * (last + 1 - first)
        found += [self._span(at, at, "kernel") for at, token in enumerate(self.tokens) if _DEFINED.match(token.text)]
        launches, names = self._launches()
        declared, more = self._dim3(inside)
        found += [self._span(first, last, "launch") for first, last in launches]
        found += [self._span(first, last, "config") for first, last in declared]
        found += [self._span(first, last, "config") for first, last in self._definitions(names + more, inside)]
        return found

    def _span(self, first: int, last: int, kind: Kind) -> Span:
        return Span(self.tokens[first].start, self.tokens[last].end, kind)

    # Functions.

    def _functions(self, device_functions: bool) -> Iterator[tuple[Kind, int, int, int]]:
        """Yields kind, first token, last token and end byte of each function with a device qualifier."""
        done = -1
        for at, token in enumerate(self.tokens):
            if at <= done or token.text not in ("__global__", "__device__"):
                continue
            body = self._body(at)
            if body is None:
                continue
            head = [t.text for t in self.tokens[at:body]]
            kind: Kind = "kernel" if "__global__" in head else "device"
            done, end = self._end_of_body(body)
            if kind == "kernel" or device_functions:
                yield kind, self._head(at), done, end

    def _body(self, at: int) -> int | None:
        """Returns the token that opens the body of the function whose qualifier is token `at`.

        Returns the last token where the text ends within the signature, None for a variable or a declaration.
        """
        called = listed = False
        place = at
        while place < min(len(self.tokens), at + _REACH):
            text = self.tokens[place].text
            listed = listed or (called and text == ":")
            if text == "{" and not (listed and _is_name(self.tokens[place - 1].text)):
                return place if called else None
            if text == "{":  # `: member{value}` of a constructor
                place = self._closing(place, stop_at_semicolon=True) + 1
                continue
            if text in (";", "=", "}") or (place > at and text == "__global__" and called):
                return None
            if text in ("(", "["):
                called = called or text == "("
                place = self._closing(place, stop_at_semicolon=True)
            place += 1
        return min(place, len(self.tokens)) - 1 if called else None

    def _head(self, at: int) -> int:
        """Returns the declaration's first token (template line, `extern "C"`, qualifiers); stops at a blank line."""
        first = at
        while first > max(0, at - _REACH):
            before, here = self.tokens[first - 1], self.tokens[first]
            between = self.data[before.end : here.start]
            if before.text in (*_BOUNDARIES, ":", "(") or before.text.startswith("#") or between.count(b"\n") > 1:
                break
            if before.text == ")":
                opening = self._opening(first - 1)
                if opening is None:
                    break
                first = opening + 1
            first -= 1
        return self._past_directive(first, at)

    def _opening(self, closing: int) -> int | None:
        """Returns the `(` that matches the `)` at a token; None where it is not in the same statement."""
        depth = 0
        for place in range(closing, max(-1, closing - _REACH), -1):
            text = self.tokens[place].text
            depth += (text == ")") - (text == "(")
            if depth == 0:
                return place
            if text in _BOUNDARIES:
                return None
        return None

    def _past_directive(self, first: int, at: int) -> int:
        """Skips the rest of an `#if` line, whose words are separate tokens."""
        if first > 0 and self.tokens[first - 1].text.startswith("#"):
            row = self.tokens[first - 1].row
            while first < at and self.tokens[first].row == row:
                first += 1
        return first

    def _end_of_body(self, body: int) -> tuple[int, int]:
        """Returns the last token and the end byte of the body that opens at token `body`.

        A body without its closing brace ends at a brace in the first column, at the next kernel, or with the text.
        """
        depth = 0
        limit = len(self.tokens)
        for place in range(body, len(self.tokens)):
            text = self.tokens[place].text
            if text == "__global__":  # kernels do not nest: a brace is missing
                limit = self._head(place)
                break
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return place, self.tokens[place].end
        for place in range(body + 1, limit):
            token = self.tokens[place]
            if token.text == "}" and self.data[token.start - 1 : token.start] == b"\n":
                return place, token.end
        last = max(limit - 1, body)
        return last, self.tokens[last].end

    # Statements.

    def _closing(self, at: int, stop_at_semicolon: bool = False) -> int:
        """Returns the closing bracket for token `at`, or the last token before one that brackets cannot contain."""
        wanted = [_OPENING[self.tokens[at].text]]
        last = min(len(self.tokens), at + _REACH) if stop_at_semicolon else len(self.tokens)
        for place in range(at + 1, last):
            text = self.tokens[place].text
            if text in _OPENING:
                wanted.append(_OPENING[text])
            elif wanted and text == wanted[-1]:
                wanted.pop()
                if not wanted:
                    return place
            elif text == "__global__" or (stop_at_semicolon and text == ";" and "}" not in wanted):
                return place - 1
        return last - 1

    def _start_of_statement(self, at: int) -> int:
        """Returns the first token of the innermost statement around token `at`."""
        first, least, depth = at, max(0, at - _REACH), 0
        while first > least:
            before = self.tokens[first - 1].text
            if before == ")" or before == "]":
                depth += 1
            elif before in ("(", "["):
                if depth == 0:  # `at` is an argument: the call belongs to the statement
                    first -= 1
                    continue
                depth -= 1
                if depth == 0 and first > 1 and self.tokens[first - 2].text in _HEADERS:
                    return min(self._closing(first - 1, stop_at_semicolon=False) + 1, at)
            elif depth == 0 and (before in _BEFORE_A_STATEMENT or before.startswith("#")):
                break
            first -= 1
        return self._past_directive(first, at)

    def _end_of_statement(self, at: int) -> int:
        """Returns the last token of the statement around token `at`: its semicolon, where it has one."""
        place = at
        stop = min(len(self.tokens), at + _REACH)
        while place < stop:
            text = self.tokens[place].text
            if text == ";":
                return place
            if text in ("(", "[", "{"):
                place = self._closing(place, stop_at_semicolon=True)
            elif text in ("}", ")", "]") or text == "__global__" or text.startswith("#"):
                return max(place - 1, at)
            place += 1
        return min(place, len(self.tokens)) - 1

    # Launches.

    def _launches(self) -> tuple[list[tuple[int, int]], list[tuple[str, int]]]:
        """Returns launching statements as (first, last) token, and the names in their brackets with their tokens."""
        found: list[tuple[int, int]] = []
        names: list[tuple[str, int]] = []
        defined = (_LAUNCHER.match(token.text) for token in self.tokens)
        calls = tuple(match[1] for match in defined if match)
        for at, token in enumerate(self.tokens):
            if token.text.startswith("#") and "<<<" in token.text:
                found.append((at, at))
            elif self._opens_launch(at):
                close = self._launch_brackets(at)
                if self._is_prose(close):
                    continue
                names += self._names(at + 1, close)
                if not found or at > found[-1][1]:
                    first, last = self._start_of_statement(at), self._end_of_statement(close)
                    # A launch that is an argument, as in `CHECK((k<<<1, 2>>>(x), last_error()));`, ends with the call.
                    last = max(last, self._end_of_statement(first)) if self._text(last + 1) in (")", "]") else last
                    found.append((first, last))
            elif token.text.startswith(_LAUNCH_CALLS) or token.text in calls:
                if found and at <= found[-1][1]:
                    continue
                found.append((self._start_of_statement(at), self._end_of_statement(at)))
        return found, names

    def _opens_launch(self, at: int) -> bool:
        """Tells whether `<<<` begins at token `at`, even where the parser split it in broken code."""
        if self.tokens[at].text == "<<<":
            return True
        start = self.tokens[at].start
        whole = self.tokens[at].text in ("<<", "<") and self.data[start : start + 3] == b"<<<"
        return whole and self.data[start - 1 : start] != b"<"

    def _launch_brackets(self, at: int) -> int:
        """Returns the token of `>>>`, or the last token before the statement ends or another launch begins.

        Launch brackets do not nest. Stopping at the next launch keeps the scan linear where many are never closed.
        """
        stop = min(len(self.tokens), at + _REACH)
        braces = 0
        for place in range(at + 1, stop):
            token = self.tokens[place]
            if self.data[token.start : token.start + 3] == b">>>":
                return place
            if token.text == "{" and _is_name(self.tokens[place - 1].text):  # `dim3{blocks, 1}`
                braces += 1
            elif token.text == "}" and braces:
                braces -= 1
            elif token.text in _BOUNDARIES or self._opens_launch(place):
                return place - 1
        return stop - 1

    def _is_prose(self, close: int) -> bool:
        """Tells whether a word follows `>>>`, as in `use <<<grid, block>>> syntax`, which launches nothing."""
        end = self.tokens[close].start + 3
        closed = self.data[end - 3 : end] == b">>>"
        following = next((t.text for t in self.tokens[close : close + 4] if t.start >= end), "")
        return closed and following[:1].isalpha()

    def _dim3(self, inside: Sequence[bool]) -> tuple[list[tuple[int, int]], list[tuple[str, int]]]:
        """Returns declarations of `dim3` variables as (first, last) token, and the names in their initializers."""
        found: list[tuple[int, int]] = []
        names: list[tuple[str, int]] = []
        declared: set[str] = set()
        for at, token in enumerate(self.tokens[:-1]):
            if token.text in declared and self._sets_a_side(at) and not inside[at]:
                first, last = self._start_of_statement(at), self._end_of_statement(at)
                found.append((first, last))
                names += self._names(at + 3, last)
            if token.text == "dim3" and not inside[at] and self.tokens[at + 1].text.isidentifier():
                first, last = self._start_of_statement(at), self._end_of_statement(at)
                if self.tokens[first].text in ("dim3", "::", "const", "static", "constexpr", "auto"):
                    declared.add(self.tokens[at + 1].text)
                    found.append((first, last))
                    names += self._names(at + 2, last)
        return found, names

    def _sets_a_side(self, at: int) -> bool:
        """Tells whether `.x =`, `.y =` or `.z =` follows token `at`, which sets one side of a `dim3`."""
        behind = [token.text for token in self.tokens[at + 1 : at + 4]]
        return behind in ([".", side, "="] for side in "xyz")

    def _names(self, first: int, last: int) -> list[tuple[str, int]]:
        """Returns the plain variables among tokens (no calls, members or scopes), each with token `first`."""
        found = []
        for place in range(first, min(last + 1, len(self.tokens))):
            text = self.tokens[place].text
            before = self.tokens[place - 1].text if place else ""
            after = self.tokens[place + 1].text if place + 1 < len(self.tokens) else ""
            plain = before not in (".", "->", "::") and after not in ("(", ".", "->", "::")
            if text.isidentifier() and plain:
                found.append((text, first))
        return found

    def _definitions(self, names: Sequence[tuple[str, int]], inside: Sequence[bool]) -> Iterator[tuple[int, int]]:
        """Yields the statements that give each name its value before its use, as (first, last) token.

        These are the nearest visible declaration and the assignments since. Without a declaration, as for a function's
        argument, it is the nearest assignment. A `#define` counts as a declaration.
        """
        places = self._places(inside)
        blocks = self._blocks()
        for name, used in dict.fromkeys(names):
            for seen in self._values_of(places.get(name, []), used, blocks):
                directive = self.tokens[seen].text.startswith("#")
                yield (seen, seen) if directive else (self._start_of_statement(seen), self._end_of_statement(seen))

    def _places(self, inside: Sequence[bool]) -> dict[str, list[int]]:
        """Maps each name to the tokens where it may get a value.

        Forms: `name = …`, `type name{…}`, `type name(…)`, `type name;`, `auto [name, …] = …`, and directives.
        """
        places: dict[str, list[int]] = {}
        for at, token in enumerate(self.tokens[:-1]):
            before, after = self.tokens[at - 1].text if at else "", self.tokens[at + 1].text
            if token.text.startswith("#"):
                places.setdefault(" ".join(token.text.split()[1:2]), []).append(at)
            elif inside[at]:
                continue
            elif token.text == "auto" and after == "[":
                close = self._closing(at + 1, stop_at_semicolon=True)
                for bound in self.tokens[at + 2 : close] if self._text(close + 1) == "=" else ():
                    places.setdefault(bound.text, []).append(at)
            elif before not in (".", "->", "::") and (after == "=" or (after in ("{", "(", ";") and _is_type(before))):
                places.setdefault(token.text, []).append(at)
        return places

    def _values_of(self, known: Sequence[int], used: int, blocks: Sequence[int]) -> Iterator[int]:
        """Yields those of a name's definitions that determine its value at token `used`."""
        before = [known[i] for i in range(bisect_left(known, used) - 1, -1, -1)][:_HOPS]
        declared = next((at for at in before if self._declares(at) and self._sees(blocks, used, at)), None)
        if declared is None:
            yield from [at for at in before if self._sees(blocks, used, at)][:1]
            return
        bare = self._text(declared + 1) == ";"
        assigned = [at for at in before if at > declared and not self._declares(at)]
        yield from assigned if bare and assigned else [*assigned, declared]

    def _declares(self, at: int) -> bool:
        """Tells a declaration at token `at` from an assignment."""
        return (
            self.tokens[at].text.startswith("#") or self.tokens[at].text == "auto" or self._start_of_statement(at) < at
        )

    def _text(self, at: int) -> str:
        return self.tokens[at].text if at < len(self.tokens) else ""

    def _blocks(self) -> list[int]:
        """Returns for each token the brace that opens its block; -1 outside all blocks."""
        blocks, opened = [], [-1]
        for at, token in enumerate(self.tokens):
            if token.text == "}" and len(opened) > 1:
                opened.pop()
            blocks.append(opened[-1])
            if token.text == "{":
                opened.append(at)
        return blocks

    @staticmethod
    def _sees(blocks: Sequence[int], used: int, defined: int) -> bool:
        """Tells whether the block of `defined` is the block of `used`, or encloses it."""
        block = blocks[used]
        while block > blocks[defined]:
            block = blocks[block]
        return block == blocks[defined]
