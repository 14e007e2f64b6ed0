"""Lets kernels read and write 16-bit tensors in their own type, in place of conversions of whole tensors on the host.

Works on a finished candidate's texts. `x = x.float().contiguous()` becomes `x = x.contiguous()` where every kernel that
is given `x` only reads elements (`x[i]`): its parameter becomes `const kw::Half*`, whose elements are read as float32.
A result that `forward` converts at its end is stored in that type, where kernels only store its elements. Where a
kernel uses a pointer in another way, the conversion stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.solutions.kernels.stages import Writer
from kernelwright.solutions.read.declared import Declared

TYPES = {"half": "kw::Half", "bfloat16": "kw::BFloat16"}
"""The type of a kernel's parameter, by a tensor's dtype."""
_HEADER = "#include <kernelwright/convert.cuh>"
_SIGNATURE = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)\s*\{")
_OPERANDS = r"kw::(?:dense|single|column|channel|row|gap)\("
"""Functions of `memory.cuh` that take a pointer to elements of any type."""
_RESULTS = r"kw::(?:map|fill)(?:<\w+>)?\("
_SIZES = frozenset("shape device ndim".split())
_ASKED = frozenset("numel size dim stride".split())
_VIEWS = frozenset("flatten transpose reshape view permute t unsqueeze squeeze expand contiguous".split())
"""Methods whose result has the same dtype."""

Slot = tuple[str, int]
"""A kernel's name and the number of one of its parameters."""


@dataclass
class _Source:
    """A tensor of 16 bits that the host converts: the edits that end the conversion, and where kernels take it."""

    kind: str
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    way: str = "read"
    """What kernels do with it: `read`, or for a result of forward `stored`."""


def in_place(
    writer: Writer, kernels: Sequence[str], lines: Sequence[str], result: str
) -> tuple[list[str], list[str], str]:
    """Returns the CUDA texts, forward's lines and its return value."""
    body = "\n".join([*lines, f"return {result}"])
    try:
        found = _ForwardText(body, lambda text: _dtype(writer, text), _counts(kernels))
    except SyntaxError:
        return list(kernels), list(lines), result
    chosen = _chosen(found, _usable(kernels))
    edits: dict[tuple[int, int], str] = {}
    for source in sorted(chosen, key=lambda source: source.way):  # a result's own dtype is the last word
        edits |= {(start, end): text for start, end, text in source.edits}
    for start, end in sorted(edits, reverse=True):
        body = body[:start] + edits[start, end] + body[end:]
    types = {slot: TYPES[source.kind] for source in chosen for slot in source.slots}
    changed = [_retyped(text, types) for text in kernels]
    if changed != list(kernels):
        changed.insert(0, _HEADER)
    head, _, result = body.rpartition("\nreturn ") if lines else ("", "", body.removeprefix("return "))
    return changed, head.split("\n") if lines else [], result


def _dtype(writer: Writer, text: str) -> str:
    """Returns the dtype of an input or of an attribute of the module as the text declares it; empty if unknown."""
    known = writer.facts.inputs.get(text) or writer.facts.tensors.get(text.removeprefix("self."))
    if isinstance(known, Declared):
        return known.dtype
    owner = text.removeprefix("self.").rpartition(".")[0]
    return str(writer.facts.attributes.get(f"{owner}.dtype", ""))


class _ForwardText:
    """The statements of forward: its launches, and the tensors that it converts."""

    def __init__(self, text: str, dtype: Callable[[str], str], counts: Mapping[str, int]) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.arguments: dict[int, Slot] = {}
        """The slot of an argument of a launch, by the identity of its node."""
        self.given: dict[Slot, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if (name := _launched(node)) and isinstance(node, ast.Call):
                for k, argument in _numbered(node.args, counts.get(name, 0)):
                    self.arguments[id(argument)] = name, k
                    self.given.setdefault((name, k), []).append(argument)
        self.sources = [*self._inputs(dtype), *self._weights(dtype), *self._results()]

    def _place(self, node: ast.expr) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def _stores(self, name: str) -> int:
        return sum(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(self.tree)
        )

    def _inputs(self, dtype: Callable[[str], str]) -> list[_Source]:
        """Returns the inputs that a statement `x = x.float().contiguous()` converts."""
        found = []
        for node in self.tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            if ast.unparse(node) != f"{name} = {name}.float().contiguous()" or self._stores(name) != 1:
                continue
            if (kind := dtype(name)) in TYPES:
                source = _Source(kind, [(*self._place(node.value), f"{name}.contiguous()")])
                if self._follow(source, name, {id(n) for n in ast.walk(node)}):
                    found.append(source)
        return found

    def _weights(self, dtype: Callable[[str], str]) -> list[_Source]:
        """Returns the module's tensors that arguments of launches convert: `self.lin.weight.float()`."""
        found: dict[str, _Source] = {}
        for node in ast.walk(self.tree):
            if not _is_method(node, "float") or not isinstance(node, ast.Call) or node.args:
                continue
            assert isinstance(node.func, ast.Attribute)
            text, parent = ast.unparse(node.func.value), self.parents.get(node)
            first, dot, rest = text.partition(".")
            whole = f"{self._attribute(first)}{dot}{rest}"
            if not whole.startswith("self.") or (kind := dtype(whole)) not in TYPES:
                continue
            source = found.setdefault(whole, _Source(kind))
            if id(node) in self.arguments:
                source.slots.append(self.arguments[id(node)])
                source.edits.append((*self._place(node), text))
            elif isinstance(parent, ast.Attribute) and parent.attr in _SIZES | _ASKED:
                source.edits.append((*self._place(node), text))
        return list(found.values())

    def _attribute(self, name: str) -> str:
        """Returns the module's attribute that a name of forward stands for (`conv = self.conv`), else the name."""
        made = [n.value for n in self.tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
        alone = len(made) == 1 and self._stores(name) == 1
        return ast.unparse(made[0]) if alone and isinstance(made[0], ast.Attribute) else name

    def _results(self) -> list[_Source]:
        """Returns the tensors that forward allocates and converts where it returns them."""
        found = []
        returned = self.tree.body[-1]
        values = returned.value if isinstance(returned, ast.Return) else None
        for node in values.elts if isinstance(values, ast.Tuple) else [values]:
            kind = next((k for k in TYPES if _is_method(node, k)), "")
            if not kind or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            made = [n for n in self.tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name]
            if len(made) != 1 or self._stores(name) != 1 or not (allocated := self._allocated(made[0].value, kind)):
                continue
            source = _Source(kind, [(*self._place(node), name), allocated], way="stored")
            if self._follow(source, name, {id(n) for n in ast.walk(node)}) and source.slots:
                found.append(source)
        return found

    def _allocated(self, value: ast.expr, kind: str) -> tuple[int, int, str] | None:
        """Returns the edit that gives an allocation another dtype."""
        if not isinstance(value, ast.Call) or any(k.arg == "dtype" for k in value.keywords):
            return None
        name = ast.unparse(value.func)
        if name == "torch.empty_like" and len(value.args) == 1:
            return *self._place(value), f"torch.empty_like({ast.unparse(value.args[0])}, dtype=torch.{kind})"
        if name == "torch.empty" and value.keywords:
            end = self._place(value)[1] - 1
            return end, end, f", dtype=torch.{kind}"
        return None

    def _follow(self, source: _Source, name: str, own: set[int]) -> bool:
        """Adds the uses of a name to its source; False where a use needs the converted tensor."""
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.Name) or node.id != name or isinstance(node.ctx, ast.Store) or id(node) in own:
                continue
            view = self._view(node)
            parent = self.parents.get(view)
            if id(view) in self.arguments:
                source.slots.append(self.arguments[id(view)])
            elif source.way == "read" and (other := self._alias(view)):
                if self._stores(other) != 1 or not self._follow(source, other, set()):
                    return False
            elif view is node and isinstance(parent, ast.Call) and ast.unparse(parent.func) == "torch.empty_like":
                if parent.args != [node] or (parent.keywords and [k.arg for k in parent.keywords] != ["dtype"]):
                    return False
                if not parent.keywords:  # where its result is converted, too, that edit gives it a dtype
                    source.edits.append((*self._place(parent), f"torch.empty_like({name}, dtype=torch.float32)"))
            elif not isinstance(parent, ast.Attribute) or parent.attr not in _SIZES | _ASKED:
                return False
        return True

    def _view(self, node: ast.expr) -> ast.expr:
        """Returns the outermost view of a tensor: `x.flatten(0, 1).t()` for the `x` in it."""
        while True:
            method = self.parents.get(node)
            if isinstance(method, ast.Attribute) and method.attr in ("T", "mT"):
                node = method
                continue
            call = self.parents.get(method) if isinstance(method, ast.Attribute) and method.attr in _VIEWS else None
            if not isinstance(call, ast.Call) or call.func is not method:
                return node
            node = call

    def _alias(self, node: ast.expr) -> str:
        """Returns the name that a statement gives to a tensor: `a_, b_ = a, b`; empty for any other use."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
            target: ast.expr = parent.targets[0]
        elif isinstance(parent, ast.Tuple) and isinstance(above := self.parents.get(parent), ast.Assign):
            target = above.targets[0]
            if len(above.targets) != 1 or not isinstance(target, ast.Tuple) or len(target.elts) != len(parent.elts):
                return ""
            target = target.elts[parent.elts.index(node)]
        else:
            return ""
        return target.id if isinstance(target, ast.Name) else ""


def _numbered(arguments: Sequence[ast.expr], count: int) -> Iterator[tuple[int, ast.expr]]:
    """Yields arguments with the numbers of their parameters, of which there are `count`; none between two starred
    ones."""
    starred = [k for k, argument in enumerate(arguments) if isinstance(argument, ast.Starred)]
    first, last = (starred[0], starred[-1]) if starred else (len(arguments), len(arguments))
    yield from enumerate(arguments[:first])
    for k in range(last + 1, len(arguments)):
        yield count - len(arguments) + k, arguments[k]


def _launched(node: ast.AST) -> str:
    """Returns the name of the kernel that a call launches; empty for another node."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Subscript):
        return ""
    kernel = node.func.value
    if isinstance(kernel, ast.Attribute) and isinstance(kernel.value, ast.Name) and kernel.value.id == "kernels":
        return kernel.attr
    return ""


def _is_method(node: object, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name


def _chosen(body: _ForwardText, usable: Mapping[Slot, str]) -> list[_Source]:
    """Returns the sources all of whose slots can take them, in every launch."""
    chosen = list(body.sources)
    while True:
        takers: dict[Slot, list[_Source]] = {}
        for source in chosen:
            for slot in source.slots:
                takers.setdefault(slot, []).append(source)
        fitting = {slot for slot, found in takers.items() if _fits(body.given[slot], found, usable.get(slot, ""))}
        kept = [source for source in chosen if fitting.issuperset(source.slots)]
        if len(kept) == len(chosen):
            return kept
        chosen = kept


def _fits(given: Sequence[ast.expr], takers: Sequence[_Source], way: str) -> bool:
    """Tells whether a kernel's parameter can have the type of its `takers`: all that it is `given`, but for None."""
    absent = sum(isinstance(node, ast.Constant) and node.value is None for node in given)
    alike = len({source.kind for source in takers}) == 1
    return alike and len(takers) + absent == len(given) and all(way == s.way for s in takers)


def _counts(kernels: Sequence[str]) -> dict[str, int]:
    """Returns each kernel's number of parameters."""
    return {match[1]: match[2].count(",") + 1 for text in kernels for match in _SIGNATURE.finditer(text)}


def _usable(kernels: Sequence[str]) -> dict[Slot, str]:
    """Returns the parameters that a kernel only reads or only stores, element by element: `read` or `stored`."""
    found: dict[Slot, str] = {}
    for text in kernels:
        for match in _SIGNATURE.finditer(text):
            body = _body(text, match)
            for k, parameter in enumerate(match[2].split(",")):
                declared = re.fullmatch(r"\s*(const )?float\s*\*\s*(?:__restrict__ )?(\w+)\s*", parameter)
                if declared is None:
                    continue
                way = _only_read if declared[1] else _only_stored
                if way(body, declared[2]):
                    found[match[1], k] = "read" if declared[1] else "stored"
    return found


def _body(text: str, signature: re.Match[str]) -> str:
    end = text.find("\n}", signature.end())
    return text[signature.end() : end if end >= 0 else len(text)]


def _pointers(body: str, name: str) -> list[str]:
    """Returns the pointers of a kernel that begin at another one: `const float* p = x + …;`."""
    return re.findall(rf"\b(?:const )?float\* (\w+) = {name}\b(?! *\[)", body)


def _only_read(body: str, name: str) -> bool:
    """Tells whether a kernel uses a pointer, and pointers that begin at it, to read elements alone."""
    plain = rf"(?<![\w.&]){name}\[|{_OPERANDS}{name}\b|\bif \({name}\)|(?<![\w.*&]){name} (?:\?|&&) "
    plain += rf"|(?m:^ +{name} \+= )|\bconst float\* (?!{name}\b)\w+ = {name}(?= \+|;)"
    if _uses(body, name) != len(re.findall(plain, body)) + _of_rows(body, name) or re.search(rf"&\s*{name}\[", body):
        return False
    if re.search(rf"\b{name}\[[^;\n]*\] (?:[-+*/]?=) ", body):
        return False
    return all(_only_read(_after(body, p), p) and body.count(f"float* {p} ") == 1 for p in _pointers(body, name))


def _of_rows(body: str, name: str) -> int:
    """Returns how often a kernel gives a pointer to the rows of `reduce.cuh`, which take elements of any type."""
    made = re.findall(r"\bauto r = kw::(?:rows|columns)<[\d, ]+>\(\w+, \w+(.*)\);", body)
    tails = list(made)
    for call in re.finditer(r"\br\.\w+\(", body) if made else ():
        depth, k = 1, call.end()
        while k < len(body) and depth:
            depth += {"(": 1, ")": -1}.get(body[k], 0)
            k += 1
        _, brace, tail = body[call.end() : k].rpartition("}")
        tails.append(tail if brace else "")
    return sum(_uses(tail, name) for tail in tails)


def _after(body: str, pointer: str) -> str:
    """Returns a kernel's text behind the declaration of a pointer."""
    return body.partition(f"float* {pointer} = ")[2]


def _only_stored(body: str, name: str) -> bool:
    """Tells whether a kernel uses a pointer to store elements alone, as statements."""
    stores = 0
    for match in re.finditer(rf"(?m)(?:^|[;{{}})]|else)\s*{name}\[", body):
        depth, k = 1, match.end()
        while k < len(body) and depth:
            depth += {"[": 1, "]": -1}.get(body[k], 0)
            k += 1
        stores += re.match(r" = ", body[k:]) is not None
    return _uses(body, name) == stores + len(
        re.findall(rf"{_RESULTS}{name},|\br\.store\({name},|(?m:^ +{name} \+= )", body)
    )


def _uses(body: str, name: str) -> int:
    return len(re.findall(rf"(?<![\w.]){name}\b", body))


def _retyped(text: str, types: Mapping[Slot, str]) -> str:
    """Returns a CUDA text with other types of its kernels' parameters, and of pointers that begin at them."""
    out, position = [], 0
    for match in _SIGNATURE.finditer(text):
        parts, body = match[2].split(","), _body(text, match)
        waiting: list[tuple[str, str]] = []
        for k, part in enumerate(parts):
            if (kind := types.get((match[1], k))) is not None:
                parts[k] = re.sub(r"\bfloat\b", kind, part)
                waiting.append((re.findall(r"\w+", part)[-1], kind))
        out += [text[position : match.start(2)], ",".join(parts), text[match.end(2) : match.end()]]
        position = match.end() + len(body)
        while waiting:
            name, kind = waiting.pop()
            for pointer in _pointers(body, name):
                body = body.replace(f"float* {pointer} = ", f"{kind}* {pointer} = ", 1)
                waiting.append((pointer, kind))
        out.append(body)
    return "".join([*out, text[position:]])
