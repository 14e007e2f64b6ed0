"""Finds text that replaces functions of torch, time and the like, under whatever name a module is imported.

The running objects are compared as well (`patched_functions`). The text also shows a replacement that is undone before
that comparison, and is the only source when a candidate does not run. Values are not followed through calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.evaluation.text.python_advice import dotted

_PATCHABLE = {"torch", "time", "os", "sys", "builtins", "json", "nn", "F", "np", "numpy"}
_EXEMPT = {"backends", "_dynamo", "_inductor", "_C", "cpp_extension"}
_OWN_SETTINGS = {
    "sys.stdout", "sys.stderr", "sys.dont_write_bytecode", "sys.path", "sys.argv", "sys.tracebacklimit"
}  # fmt: skip
"""Settings that a process may change for itself: the judge does not read a candidate's output."""
_PUTTERS = {"update", "setdefault", "__setitem__"}
_SETTERS = {("setattr",), ("delattr",), ("type", "__setattr__"), ("object", "__setattr__")}


def of_tree(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields the full name of everything that a module's text replaces, with the line."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        for target in _targets(node):
            yield from _of_target(target, aliases)
        if isinstance(node, ast.Call):
            yield from _of_call(node, aliases)


def _aliases(tree: ast.Module) -> dict[str, list[str]]:
    """Returns the names that stand for a module, or for an attribute of one, with the full name."""
    known: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    known[alias.asname] = alias.name.split(".")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                known[alias.asname or alias.name] = [*node.module.split("."), alias.name]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (value := dotted(node.value)):
            full = _full(value, known)
            if full[0] in _PATCHABLE:
                known |= {t.id: full for t in node.targets if isinstance(t, ast.Name) and t.id not in known}
    return {name: full for name, full in known.items() if full[0] in _PATCHABLE and name != full[0]}


def _full(name: list[str], aliases: dict[str, list[str]]) -> list[str]:
    return [*aliases.get(name[0], name[:1]), *name[1:]] if name else []


def _foreign(node: ast.expr, aliases: dict[str, list[str]]) -> str:
    """Returns the full name of an object that is not the candidate's and not a setting; empty for anything else."""
    name = _full(dotted(node), aliases)
    return ".".join(name) if name and name[0] in _PATCHABLE and not _EXEMPT & set(name) else ""


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """Yields the targets that a statement assigns to or deletes, one by one."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, ast.Delete):  # removing a module of one's own from `sys.modules` is no patch
        found = [target for target in node.targets if isinstance(target, ast.Attribute)]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension)):
        found = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        found = [node.optional_vars]
    while found:
        target = found.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            found += target.elts
        elif isinstance(target, ast.Starred):
            found.append(target.value)
        else:
            yield target


def _of_target(target: ast.expr, aliases: dict[str, list[str]]) -> Iterator[tuple[str, int]]:
    if isinstance(target, ast.Attribute) and (owner := _foreign(target.value, aliases)):
        if target.attr not in _EXEMPT and f"{owner}.{target.attr}" not in _OWN_SETTINGS:
            yield f"{owner}.{target.attr}", target.lineno
    elif isinstance(target, ast.Subscript):
        if _full(dotted(target.value), aliases) == ["sys", "modules"]:
            yield "sys.modules", target.lineno
        elif space := _namespace(target.value, aliases):
            yield f"names of {space}", target.lineno


def _namespace(node: ast.expr, aliases: dict[str, list[str]]) -> str:
    """Returns the owner of a namespace dictionary, `m.__dict__` or `vars(m)`, if `m` is not the candidate's; empty
    otherwise."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return _foreign(node.value, aliases)
    if isinstance(node, ast.Call) and dotted(node.func) == ["vars"] and len(node.args) == 1:
        return _foreign(node.args[0], aliases)
    return ""


def _of_call(node: ast.Call, aliases: dict[str, list[str]]) -> Iterator[tuple[str, int]]:
    name = tuple(dotted(node.func))
    owner = _foreign(node.args[0], aliases) if node.args else ""
    if name in _SETTERS and owner:
        yield owner, node.lineno
    elif isinstance(node.func, ast.Attribute) and node.func.attr in _PUTTERS:
        if space := _namespace(node.func.value, aliases):
            yield f"names of {space}", node.lineno
    if name[-2:] in (("patch", "object"), ("monkeypatch", "setattr")) and owner:
        yield owner, node.lineno
    if name[-1:] == ("patch",) and node.args and isinstance(node.args[0], ast.Constant):
        what = str(node.args[0].value).split(".")
        if len(what) > 1 and what[0] in _PATCHABLE and not _EXEMPT & set(what):
            yield ".".join(what), node.lineno
