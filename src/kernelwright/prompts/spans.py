"""Finds the CUDA characters of an answer: kernels, device functions, launches and their configuration.

    spans = cuda_spans(text)                       # character spans with their kinds
    mask = token_mask(text, offsets)               # one bool per token; any overlap counts

A text may be a plain `.cu` source, a Python file with Triton functions or with CUDA in strings (`load_inline`,
`kernelwright.cuda.Module`), or a chat answer with these files in fences. In Python, launches of Triton functions and of
a Module's kernels count as launches. Reasoning (`prompts.answers.reasoning`) is no code. A fence's label decides only
where the block's text does not. Broken and truncated code is scanned as far as it goes; no text makes this raise.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.errors import ConfigError
from kernelwright.prompts.answers import is_python, reasoning, whole_python
from kernelwright.prompts.cuda_scan import MARKERS, Kind, Span, scan, scan_joined

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tree_sitter import Node

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)
_WRAPPERS = r"(?:jit|autotune|heuristics)"
_TRITON_AS = re.compile(r"^[ \t]*import\b[^\n#]*\btriton[ \t]+as[ \t]+(\w+)", re.MULTILINE)
_FROM_TRITON = re.compile(r"^[ \t]*from[ \t]+triton[ \t]+import[ \t]*(\([^)]{0,1000}\)|[^\n]*)", re.MULTILINE)
_NAMED = re.compile(rf"\b({_WRAPPERS})\b(?:[ \t]+as[ \t]+(\w+))?")
_DEF = re.compile(r"^[ \t]*def[ \t]+(\w+)", re.MULTILINE)
_MARKED = re.compile("|".join(map(re.escape, MARKERS)).encode())
_NEAR = 200
"""The bound on a name's assignments that are checked before a launch, which bounds the time of a scan."""
_PYTHON_LABELS = ("python", "py", "python3")


@dataclass(frozen=True)
class _Jit:
    """Patterns for the names of Triton's function wrappers in a file, qualified and bare."""

    decorator: re.Pattern[bytes]
    """Matches the beginning of a decorator. Bare names need no import: an excerpt of a file may lack it."""
    call: re.Pattern[bytes]
    """Matches the whole callee of a call."""
    line: re.Pattern[str]
    """Matches a decorator at the beginning of a line; group 1 is the indent."""

    @classmethod
    def of(cls, source: str) -> _Jit:
        modules = "|".join(sorted({"triton", *_TRITON_AS.findall(source)}))
        imported = [name for found in _FROM_TRITON.findall(source) for name in _NAMED.findall(found)]
        names = sorted({re.escape(other or name) for name, other in imported})
        qualified = rf"(?:{modules})\s*\.\s*{_WRAPPERS}"
        return cls(
            re.compile(rf"^@\s*(?:{'|'.join([qualified, _WRAPPERS, *names])})\b".encode()),
            re.compile(rf"(?:{'|'.join([qualified, *names])})".encode()),
            re.compile(rf"^([ \t]*)@\s*{qualified}\b", re.MULTILINE),
        )


def cuda_spans(text: str, *, device_functions: bool = True) -> tuple[Span, ...]:
    """Returns the spans of a text ordered by start; they may overlap.

    `device_functions=False` leaves out spans of kind `device`.
    """
    found: set[Span] = set()
    text = _without_thoughts(text)
    for start, end, python in _sources(text):
        source = text[start:end]
        spans = _python_spans(source, device_functions) if python else _cuda_spans(source, device_functions)
        found |= {Span(start + s.start, start + s.end, s.kind) for s in spans}
    return tuple(sorted(found, key=lambda s: (s.start, s.end, s.kind)))


def token_mask(text: str, offsets: Sequence[tuple[int, int]], *, device_functions: bool = True) -> NDArray[np.bool_]:
    """Tells for each token whether it overlaps a span; returns booleans of shape (tokens,).

    `offsets` are (start, end) in characters of `text`, as tokenizers give them. Special tokens have equal offsets and
    are false. Raises `ConfigError` for offsets outside the text.
    """
    places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    if len(places) and (places.min() < 0 or places.max() > len(text)):
        raise ConfigError(f"offsets reach from {places.min()} to {places.max()} in a text of {len(text)} characters")
    covered = np.zeros(len(text) + 1, dtype=np.int64)
    for span in cuda_spans(text, device_functions=device_functions):
        covered[span.start + 1 : span.end + 1] = 1
    upto = covered.cumsum()
    return (places[:, 1] > places[:, 0]) & (upto[places[:, 1]] > upto[places[:, 0]])


def thought_mask(text: str, offsets: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Tells for each token whether it overlaps reasoning, which CuSeT's windows leave out; shape (tokens,)."""
    places = np.asarray(offsets, dtype=np.int64).reshape(-1, 2)
    mask = np.zeros(len(places), dtype=bool)
    for start, end in reasoning(text):
        mask |= (places[:, 0] < end) & (places[:, 1] > start) & (places[:, 1] > places[:, 0])
    return mask


def _without_thoughts(text: str) -> str:
    """Replaces reasoning by blanks, so that offsets stay the same."""
    out, position = [], 0
    for start, end in reasoning(text):
        out += [text[position:start], re.sub(r"[^\n]", " ", text[start:end])]
        position = end
    return "".join([*out, text[position:]])


def _sources(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yields the files of an answer as start, end and is-Python: its fenced blocks, or the whole text."""
    opened: tuple[str, str, int] | None = None
    fenced = False
    for match in () if _FENCE.search(text) and whole_python(text) else _FENCE.finditer(text):
        fence, label = match[1], match[2].lower()
        if opened is None:
            opened, fenced = (fence, label, match.end()), True
        elif not label and fence.startswith(opened[0]):
            yield opened[2], match.start(), is_python(text[opened[2] : match.start()], opened[1] in _PYTHON_LABELS)
            opened = None
    if opened is not None:
        yield opened[2], len(text), is_python(text[opened[2] :], opened[1] in _PYTHON_LABELS)
    if not fenced:
        undecided = is_python(text, True) and not is_python(text, False)  # an excerpt in which no line decides
        yield 0, len(text), whole_python(text) is not None if undecided else is_python(text)


def _cuda_spans(source: str, device_functions: bool) -> list[Span]:
    if not any(marker in source for marker in MARKERS):
        return []
    data = source.encode("utf-8", "replace")
    return _in_characters(scan(data, device_functions), source, data)


def _in_characters(spans: Sequence[Span], source: str, data: bytes) -> list[Span]:
    """Converts byte spans to character spans. A lone surrogate was encoded as one byte, `?`."""
    if len(data) == len(source):
        return list(spans)
    codes = np.frombuffer(source.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    widths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
    widths = np.where((codes >= 0xD800) & (codes <= 0xDFFF), 1, widths)
    starts = np.concatenate([[0], widths.cumsum()])
    return [Span(int(np.searchsorted(starts, s.start)), int(np.searchsorted(starts, s.end)), s.kind) for s in spans]


# Python.


@cache
def _parser() -> Any:
    import tree_sitter_python
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_python.language()))


def _python_spans(source: str, device_functions: bool) -> list[Span]:
    data = source.encode("utf-8", "replace")
    root = _parser().parse(data).root_node
    nodes = list(_walk(root))
    texts = list(_texts(nodes, data))
    if root.has_error:
        loose = _loose_strings(data, [(start, end) for pieces, _ in texts for start, end, _ in pieces])
        texts += [([(start, end, False)], b"") for start, end in loose]
    filled = _filled(nodes, data)
    spans = [span for pieces, joint in texts for span in scan_joined(filled, pieces, joint, device_functions)]
    jit = _Jit.of(source)
    jitted = [node for node in nodes if node.type == "decorated_definition" and _is_jitted(node, data, jit)]
    wrapped = _wrapped(nodes, data, jit)
    plain = [node for node in nodes if node.type == "function_definition"] if wrapped else []
    jitted += [node for node in plain if _text(node.child_by_field_name("name"), data) in wrapped]
    jitted = [node for node in jitted if not node.has_error]  # the parser does not know their ends
    spans += [Span(node.start_byte, node.end_byte, "triton") for node in jitted]
    found = _in_characters(spans, source, data)
    unended = _loose_jitted(source, found, jit) if root.has_error else []
    defined = {m[1].encode() for span in unended if (m := _DEF.search(source, span.start, span.end))}
    kernels = {name for names in wrapped.values() for name in names}
    launches = _Launches(nodes, data, _kernel_names(jitted, nodes, data, defined | kernels), _module_names(nodes, data))
    return found + unended + _in_characters(list(launches.spans()), source, data)


def _walk(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if node.type != "string":
            stack.extend(reversed(node.children))


def _texts(nodes: Sequence[Node], data: bytes) -> Iterator[tuple[list[tuple[int, int, bool]], bytes]]:
    """Yields the strings that a file builds, each as pieces of literals and the text between the pieces.

    A string is a literal, adjacent literals, literals joined by `+`, text appended to a name later, or the list that
    `"…".join` joins, directly or by its name.
    """
    seen: set[int] = set()
    named: dict[bytes, list[Node]] = {}
    lists = dict(found for node in nodes if (found := _joined_name(node, data)) is not None)
    texts: list[tuple[list[Node], bytes]] = []
    for node in nodes:
        grown = _grown(node, data)
        if grown is not None and (name := grown[0]) in named:
            named[name] += _strings(grown[1], seen) if name in lists else _added(grown[1], seen)
        elif node.type == "assignment":
            name, right = _text(node.child_by_field_name("left"), data), node.child_by_field_name("right")
            listed = name in lists and right is not None and right.type in ("list", "tuple")
            named[name] = _strings(right, seen) if listed else list(_added(right, seen))
            texts.append((named[name], lists[name] if listed else b""))
        elif node.type == "call" and (joined := _joined(node, data)) is not None:
            texts.append((_strings(joined[0], seen), joined[1]))
        else:
            texts.append((list(_added(node, seen)), b""))
    for strings, joint in texts:
        pieces = [piece for string in strings if (piece := _content(string, data))]
        if pieces:
            yield pieces, joint


def _strings(node: Node | None, seen: set[int]) -> list[Node]:
    """Returns all string literals within a node and adds them to `seen`."""
    found = [n for n in _walk(node) if n.type == "string"] if node is not None else []
    seen |= {string.id for string in found}
    return found


def _grown(node: Node, data: bytes) -> tuple[bytes, Node | None] | None:
    """Returns the name that a node appends to, and the appended expression; None for other nodes.

    Forms: `name += …`, `name = name + …`, `name.append(…)`, `name.extend(…)`.
    """
    if node.type == "augmented_assignment":
        return _text(node.child_by_field_name("left"), data), node.child_by_field_name("right")
    if node.type == "assignment":
        name, right = _text(node.child_by_field_name("left"), data), node.child_by_field_name("right")
        first = right
        while first is not None and first.type == "binary_operator":
            first = first.child_by_field_name("left")
        grows = first is not None and first is not right and first.type == "identifier" and _text(first, data) == name
        return (name, right) if grows else None
    function = node.child_by_field_name("function") if node.type == "call" else None
    name, dot, method = _text(function, data).rpartition(b".") if function is not None else (b"", b"", b"")
    return (name, node.child_by_field_name("arguments")) if dot and method in (b"append", b"extend") else None


def _added(node: Node | None, seen: set[int]) -> Iterator[Node]:
    """Yields the literals of an expression: one, adjacent ones, or operands of `+`, whatever the other operands are.

    Skips expressions in `seen`, and adds this one and its parts there.
    """
    stack = [node] if node is not None and node.id not in seen else []
    while stack:
        node = stack.pop()
        seen.add(node.id)
        if node.type == "string":
            yield node
        elif node.type in ("concatenated_string", "parenthesized_expression") or (
            node.type == "binary_operator" and any(child.type == "+" for child in node.children)
        ):
            stack += reversed(node.named_children)


def _filled(nodes: Sequence[Node], data: bytes) -> bytes:
    """Replaces each interpolation in a file's strings by a name of the same length, without quotes or brackets."""
    filled = bytearray(data)
    for node in nodes:
        for child in node.children if node.type == "string" else ():
            if child.type == "interpolation":
                filled[child.start_byte : child.end_byte] = b"x" * (child.end_byte - child.start_byte)
    return bytes(filled)


def _joined(call: Node, data: bytes) -> tuple[Node, bytes] | None:
    """Returns the argument of `"…".join(…)` (a list, a tuple or a name) and the separator; None for other calls."""
    function, given = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    owner = function.child_by_field_name("object") if function is not None and function.type == "attribute" else None
    if owner is None or owner.type != "string" or not _text(function, data).endswith(b".join") or given is None:
        return None
    parts = next((n for n in given.named_children if n.type in ("list", "tuple", "identifier")), None)
    return None if parts is None else (parts, b"\n" if b"\\n" in _text(function, data) else b"")


def _joined_name(node: Node, data: bytes) -> tuple[bytes, bytes] | None:
    """Returns the name whose list `"…".join(name)` joins, and the separator; None for other nodes."""
    found = _joined(node, data) if node.type == "call" else None
    return (_text(found[0], data), found[1]) if found is not None and found[0].type == "identifier" else None


def _content(string: Node, data: bytes) -> tuple[int, int, bool] | None:
    """Returns start and end of a string literal's content in bytes, and whether its escapes are interpreted.

    Interpolations belong to the content. Escapes are not interpreted in triple quotes, which hold sources verbatim.
    """
    if string.child_count < 2:
        return None
    first, last = string.children[0], string.children[-1]
    end = last.start_byte if last.type == "string_end" else string.end_byte
    opening = _text(first, data).lower()
    return first.end_byte, end, not opening.endswith((b'"""', b"'''")) and b"r" not in opening


def _loose_strings(data: bytes, strings: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Finds CUDA in triple quotes outside all parsed literals, in a file that does not parse; spans in bytes."""
    found: list[tuple[int, int]] = []
    for match in _MARKED.finditer(data):
        place = match.start()
        if any(start <= place < end for start, end in [*strings, *found]):
            continue
        quote = max(data.rfind(b'"""', 0, place), data.rfind(b"'''", 0, place))
        if quote < 0:
            continue
        close = data.find(data[quote : quote + 3], place)
        found.append((quote + 3, close if close >= 0 else len(data)))
    return found


def _is_jitted(definition: Node, data: bytes, jit: _Jit) -> bool:
    decorators = [child for child in definition.children if child.type == "decorator"]
    return any(jit.decorator.match(data[d.start_byte : d.end_byte]) for d in decorators)


def _wrapped(nodes: Sequence[Node], data: bytes, jit: _Jit) -> dict[bytes, set[bytes]]:
    """Maps functions wrapped by a call, as in `kernel = triton.jit(f)`, to the names of the wrapped kernels."""
    found: dict[bytes, set[bytes]] = {}
    for node in nodes:
        value = node.child_by_field_name("right") if node.type == "assignment" else None
        called = False
        while value is not None and value.type == "call":
            function, given = value.child_by_field_name("function"), value.child_by_field_name("arguments")
            while function is not None and function.type == "call":  # `triton.autotune(…)(f)`
                function = function.child_by_field_name("function")
            if jit.call.fullmatch(_text(function, data)) is None or given is None:
                break
            called, value = True, next(iter(given.named_children), None)
        if called and value is not None and value.type == "identifier":
            found.setdefault(_text(value, data), set()).add(_last(node.child_by_field_name("left"), data))
    return found


def _loose_jitted(source: str, found: Sequence[Span], jit: _Jit) -> list[Span]:
    """Finds Triton functions in a file that does not parse.

    A span goes from a jit decorator to the first line after its `def` without a deeper indent.
    """
    spans: list[Span] = []
    for match in jit.line.finditer(source):
        if any(s.start <= match.start(1) + len(match[1]) < s.end for s in [*found, *spans]):
            continue
        end, defined = match.start(), False
        for line in source[match.start() :].splitlines(keepends=True):
            words = line.strip()
            outside = len(line) - len(line.lstrip()) <= len(match[1]) and not words.startswith((")", "@", "def", "#"))
            if (
                defined
                and words
                and (outside or (words.startswith(("def", "@")) and not line.startswith(match[1] + " ")))
            ):
                break
            defined = defined or words.startswith("def")
            end += len(line)
        spans.append(Span(match.start() + len(match[1]), end, "triton"))
    return spans


def _kernel_names(jitted: Sequence[Node], nodes: Sequence[Node], data: bytes, more: set[bytes]) -> set[bytes]:
    """Returns the names of Triton functions, `more` included, and of variables and attributes that alias them."""
    definitions = (node.child_by_field_name("definition") for node in jitted if node.type == "decorated_definition")
    found = more | {_text(inner.child_by_field_name("name"), data) for inner in definitions if inner is not None}
    aliases: dict[bytes, list[bytes]] = {}
    for node in nodes if found else []:
        right = node.child_by_field_name("right") if node.type == "assignment" else None
        if right is not None and right.type in ("identifier", "attribute"):
            aliases.setdefault(_last(right, data), []).append(_last(node.child_by_field_name("left"), data))
    left = list(found)
    while left:
        new = set(aliases.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _last(node: Node | None, data: bytes) -> bytes:
    """Returns a name, or the last part of an attribute path."""
    return _text(node.child_by_field_name("attribute") if node is not None and node.type == "attribute" else node, data)


def _module_names(nodes: Sequence[Node], data: bytes) -> set[bytes]:
    """Returns the variables that are assigned a `Module(...)`."""
    found = set()
    for node in nodes:
        if node.type != "assignment":
            continue
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is not None and right is not None and right.type == "call":
            if re.search(rb"(?:^|\.)Module$", _text(right.child_by_field_name("function"), data)):
                found.add(_text(left, data))
    return found


class _Launches:
    """Finds launches in Python, and the definitions of the names in their grids.

    Forms: `kernel[grid](x)`, `module.kernel[grid, block](x)`, `run = kernel[grid]` with `run(x)`, and
    `kernel.run(x, grid=grid)`.
    """

    def __init__(self, nodes: Sequence[Node], data: bytes, kernels: set[bytes], modules: set[bytes]) -> None:
        self.nodes = nodes
        self.data = data
        self.kernels = kernels
        self.modules = modules
        # tree-sitter stores no parents: each lookup of `node.parent` walks down from the root.
        self.parents = {child.id: node for node in nodes if node.type != "string" for child in node.children}
        self.assigned: dict[bytes, list[Node]] = {}

    def spans(self) -> Iterator[Span]:
        """Yields all spans; returns at once for a file without kernels and modules."""
        if not self.kernels and not self.modules:
            return
        bound = set()
        for node in self.nodes:
            left = node.child_by_field_name("left") if node.type == "assignment" else None
            left = node.child_by_field_name("name") if node.type == "function_definition" else left
            for name in {_text(n, self.data) for n in _walk(left) if n.type == "identifier"} if left else ():
                self.assigned.setdefault(name, []).append(node)
            if node.type == "assignment" and self._is_kernel_with_brackets(node.child_by_field_name("right")):
                bound.add(_last(left, self.data))
        for node in self.nodes:
            target = node.child_by_field_name({"call": "function", "assignment": "right"}.get(node.type, ""))
            if self._is_kernel_with_brackets(target):
                assert target is not None
                yield self._whole(node)
                value = target.child_by_field_name("value")
                yield from self._assignments([child for child in target.named_children if child != value], node)
            elif (grid := self._grid_of_run(node, target)) is not None:
                yield self._whole(node)
                yield from self._assignments([grid], node)
            elif node.type == "call" and target is not None and _last(target, self.data) in bound:
                yield self._whole(node)

    def _is_kernel_with_brackets(self, node: Node | None) -> bool:
        value = node.child_by_field_name("value") if node is not None and node.type == "subscript" else None
        return value is not None and self._launches(value)

    def _grid_of_run(self, node: Node, target: Node | None) -> Node | None:
        """Returns the grid of a Triton function's `kernel.run(…, grid=…)`; None for other nodes."""
        owner = target.child_by_field_name("object") if target is not None and target.type == "attribute" else None
        given = node.child_by_field_name("arguments") if node.type == "call" else None
        if given is None or _last(target, self.data) != b"run" or owner is None or not self._launches(owner):
            return None
        for word in given.named_children:
            if word.type == "keyword_argument" and _text(word.child_by_field_name("name"), self.data) == b"grid":
                return word.child_by_field_name("value")
        return None

    def _whole(self, node: Node) -> Span:
        statement = self._statement(node)
        return Span(statement.start_byte, statement.end_byte, "launch")

    def _is_variable(self, node: Node) -> bool:
        """Tells whether a node is a plain name: no part of an attribute, and no callee."""
        parent = self.parents.get(node.id)
        if node.type != "identifier" or parent is None or parent.type == "attribute":
            return False
        called = parent.child_by_field_name("function") if parent.type == "call" else None
        return called is None or called.id != node.id

    def _launches(self, value: Node) -> bool:
        """Tells whether a subscripted value is a Triton function, by any path, or a kernel of a Module.

        `module.get(name)` counts as a kernel of a Module.
        """
        if value.type in ("identifier", "attribute") and _last(value, self.data) in self.kernels:
            return True
        if value.type == "call":
            value = value.child_by_field_name("function") or value
        owner = value.child_by_field_name("object") if value.type == "attribute" else None
        return owner is not None and _text(owner, self.data) in self.modules

    def _assignments(self, within: Sequence[Node], use: Node) -> Iterator[Span]:
        """Yields for each name in nodes its nearest assignment before `use`, in the same function or at top level."""
        names = {_text(n, self.data) for part in within for n in _walk(part) if self._is_variable(n)}
        home = self._function(use)
        for name in sorted(names):
            known = self.assigned.get(name, [])
            upto = bisect_left(known, use.start_byte, key=lambda n: n.start_byte)
            for node in reversed(known[max(0, upto - _NEAR) : upto]):
                scope = self._function(node)
                if scope is None or (home is not None and scope.id == home.id):
                    yield Span(node.start_byte, node.end_byte, "config")
                    break

    def _function(self, node: Node) -> Node | None:
        parent = self.parents.get(node.id)
        while parent is not None and parent.type not in ("function_definition", "lambda"):
            parent = self.parents.get(parent.id)
        return parent

    def _statement(self, node: Node) -> Node:
        parent = self.parents.get(node.id)
        while parent is not None and parent.type not in ("block", "module", "ERROR"):
            node, parent = parent, self.parents.get(parent.id)
        return node


def _text(node: Node | None, data: bytes) -> bytes:
    return data[node.start_byte : node.end_byte] if node is not None else b""


__all__ = ["Kind", "Span", "cuda_spans", "thought_mask", "token_mask"]
