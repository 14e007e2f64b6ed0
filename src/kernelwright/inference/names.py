"""Replaces names that a small model cannot copy by names of its training data, and restores them in the answer.

A model of some millions of parameters, trained on the task generator's names, misspells others (`self.conv1d8` for
`self.conv1d_transpose`) in answers that are otherwise right. So attributes, constructor arguments and arguments of
forward that the generator could not have named get names from the generator's words in the prompt. The answer gets the
task's own names back, so that its parameters are named as the reference's.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import keyword
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from kernelwright import syntax
from kernelwright.generate import words

Names = Mapping[str, str]
"""Names in the prompt -> names in the task, only where they differ."""

_SYLLABLES = re.compile(f"(?:{'|'.join(words.SYLLABLES)}){{2,3}}\\d?")
_REGISTER = ("register_buffer", "register_parameter", "add_module")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SHORTEST = 4
"""The least length of a replaced name: answers define short names, which a restored name must not clash with."""
_OWN = {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "kernels", "start", "torch", "total"}
_CUDA = set("auto char class const delete double enum explicit export extern inline long namespace operator".split())
_CUDA |= set("private public register short signed sizeof static struct switch template this typename union".split())
_CUDA |= set("unsigned using virtual void volatile".split())
"""Keywords of CUDA C++ of at least `_SHORTEST` letters."""
_TEXT = '"""'
"""The quotes around the kernels of an answer."""


@functools.lru_cache(maxsize=128)
def familiar(text: str) -> tuple[str, Names]:
    """Renames a task in normal form to names that the generator knows; returns it with the map of names.

    Renames in class Model only. A name with another meaning in the text (a method, a key, a string) stays. A text that
    is no task is returned unchanged.
    """
    try:
        tree = syntax.parse(text)
        found = _Found(tree)
        new = _names(found, set(_WORD.findall(text)))
        if not new:
            return text, {}
        _Rename(new, found).visit(found.model)
        return re.sub(r"\n\n+", "\n", ast.unparse(tree)), {alias: name for name, alias in new.items()}
    except (SyntaxError, ValueError, RecursionError, MemoryError, StopIteration):
        return text, {}


def restored(answer: str, names: Names) -> str:
    """Restores the task's own names in an answer, or in a prefix of one that ends with a whole word.

    Within the kernels, a name that is a CUDA C++ keyword gets an underscore.
    """
    if not names:
        return answer
    inside = {alias: f"{name}_" if name in _CUDA else name for alias, name in names.items()}
    parts = answer.split(_TEXT)
    return _TEXT.join(_renamed(part, inside if number == 1 else names) for number, part in enumerate(parts))


def _renamed(text: str, names: Names) -> str:
    return _WORD.sub(lambda word: names.get(word.group(), word.group()), text)


class _Found:
    """The names of class Model that an answer repeats."""

    def __init__(self, tree: ast.Module) -> None:
        self.model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        self.functions = {n.name: n for n in self.model.body if isinstance(n, ast.FunctionDef)}
        given = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.attributes = set(_attributes(self.model))
        self.arguments: dict[str, set[str]] = {}
        for name, source in (("__init__", "get_init_inputs"), ("forward", "get_inputs")):
            function, inputs = self.functions.get(name), given.get(source)
            if function is None or inputs is None or any(isinstance(n, ast.Dict) for n in ast.walk(inputs)):
                continue  # inputs by name would no longer be found
            self.arguments[name] = {a.arg for a in function.args.args[1:]}
        every = set().union(self.attributes, *self.arguments.values())
        self.names = [] if _made_up(self.model) else sorted(every - set(_elsewhere(tree, self.model)))


def _attributes(model: ast.ClassDef) -> Iterator[str]:
    """Yields names that are assigned on self, or registered by a string."""
    for node in ast.walk(model):
        if _of_self(node) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif registered := _registered(node):
            yield registered.value


def _made_up(model: ast.ClassDef) -> bool:
    """Tells whether names may be composed at run time (`getattr(self, f"stage{i}")`)."""
    nodes = list(ast.walk(model))
    return any(isinstance(n, ast.JoinedStr) for n in nodes) or any(
        isinstance(n, ast.Name) and n.id in ("getattr", "setattr", "hasattr", "vars") for n in nodes
    )


def _of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _registered(node: ast.AST) -> Any:
    """Returns the string node under which a call registers something on self; None for any other node."""
    if isinstance(node, ast.Call) and _of_self(node.func) and node.func.attr in _REGISTER and node.args:
        first = node.args[0]
        return first if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    return None


def _elsewhere(tree: ast.Module, model: ast.ClassDef) -> Iterator[str]:
    """Yields names with another meaning: attributes of other objects, methods, strings, module and class names."""
    inside = {id(node) for node in ast.walk(model)}
    registered = {id(text) for node in ast.walk(model) if (text := _registered(node)) is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (_of_self(node) and id(node) in inside):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in registered:
            yield node.value
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
    for statement in [*tree.body, *model.body]:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield from (n.id for n in ast.walk(statement) if isinstance(n, ast.Name))
            yield from (n.asname or n.name for n in ast.walk(statement) if isinstance(n, ast.alias))


@functools.cache
def _known() -> frozenset[str]:
    """Returns the generator's own names."""
    pools = (words.EXTENTS, words.INPUTS, words.ATTRIBUTES, words.SYNONYMS)
    named = {name for pool in pools for names in pool.values() for name in names}
    named |= {name for name, _ in words.UNUSED_ARGUMENTS}
    return frozenset(named.union(words.ARGUMENT_NOTES, words.HYPERPARAMETERS, words.CONTAINERS, words.WEIGHTS))


def _is_known(name: str) -> bool:
    """Tells whether the generator can give a name: one of its own, with or without an ending, or random syllables."""
    known = _known()
    if name in known or re.sub(r"_?\d+$|_[dhw]$", "", name) in known or _SYLLABLES.fullmatch(name):
        return True
    if any(name.removesuffix(ending) in known for ending in words.ENDINGS):
        return True
    return all(part in words.WORDS for part in name.split("_"))


def _names(found: _Found, taken: set[str]) -> dict[str, str]:
    """Maps each name that the generator does not know to two of the generator's words, unrelated to the name."""
    odd = [name for name in found.names if len(name) >= _SHORTEST and name not in _OWN and not _is_known(name)]
    pairs = (f"{a}_{b}" for a, b in itertools.product(words.WORDS[::7], words.WORDS[3::11]))
    free = (pair for pair in pairs if pair not in taken)
    return dict(zip(odd, free, strict=False))


class _Rename(ast.NodeTransformer):
    """Writes new names in class Model."""

    def __init__(self, new: dict[str, str], found: _Found) -> None:
        self.new, self.found = new, found
        self.here: dict[str, str] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        outer = self.here
        if self.found.functions.get(node.name) is node:
            own = self.found.arguments.get(node.name, set())
            self.here = {name: new for name, new in self.new.items() if name in own}
        self.generic_visit(node)
        self.here = outer
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.here.get(node.arg, node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.here.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        self.generic_visit(node)
        if _of_self(node) and node.attr in self.found.attributes:
            node.attr = self.new.get(node.attr, node.attr)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        text = _registered(node)
        self.generic_visit(node)
        if text is not None:
            text.value = self.new.get(text.value, text.value)
        return node
