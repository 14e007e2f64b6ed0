"""The shape of the code: one-way imports, no torch where it is not needed, sizes that a person can read.

The layers are read from docs/architecture.md, so that the page cannot drift from the code.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
# Bundled tasks are data: they have a module's suffix, but nothing imports them.
FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] != "data")
MAX_FUNCTION_LINES = 80
MAX_FILE_LINES = 600

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _layers() -> dict[str, int]:
    """Module or package directly below `kernelwright` -> the number of its layer."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Layers", 1)[1].split("\n|", 1)[0]
    steps = section[section.index("`errors`") :].split("→")
    return {name: number for number, step in enumerate(steps) for name in re.findall(r"`([\w]+)`", step)}


def _unit(path: Path) -> str:
    """The module or package directly below `kernelwright` that a file belongs to."""
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def _imported(path: Path) -> Iterator[tuple[str, int]]:
    """Units of `kernelwright` that a file imports anywhere in it, functions included, with line numbers."""
    known = {_unit(p) for p in FILES}
    for node in ast.walk(_tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "kernelwright" and len(parts) > 1 and parts[1] in known:
                yield parts[1], node.lineno


def _functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(_tree(path)) if isinstance(node, Function))


def test_every_module_has_a_layer() -> None:
    missing = {_unit(p) for p in FILES} - set(_layers()) - {"__init__", "__main__"}
    assert not missing, f"name these in the layers of docs/architecture.md: {sorted(missing)}"


def test_imports_go_one_way() -> None:
    layers = _layers()
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line} imports {unit}, which is to the right of {_unit(path)}"
        for path in FILES
        for unit, line in _imported(path)
        if layers.get(unit, -1) > layers.get(_unit(path), len(layers))
    ]
    assert not wrong, "\n".join(wrong)


def test_units_of_one_layer_do_not_import_each_other_in_a_circle() -> None:
    edges = {(_unit(path), unit) for path in FILES for unit, _ in _imported(path) if unit != _unit(path)}
    assert not {(a, b) for a, b in edges if (b, a) in edges}


def test_the_root_of_the_package_imports_nothing() -> None:
    assert list(_imported(PACKAGE / "__init__.py")) == []


@pytest.mark.parametrize(
    "module",
    ["records", "errors", "config", "store", "jobqueue", "tasks", "evaluation", "executor"]
    + ["executor.apart", "executor.ray_actors", "policies", "rollout", "report", "cli"],
)
def test_imports_without_torch(module: str) -> None:
    heavy = ("torch", "datasets", "openai", "fastapi", "transformers", "ray")
    code = f"import sys, kernelwright.{module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_files_are_short() -> None:
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text(encoding="utf-8").splitlines()) for p in FILES}
    assert {name: n for name, n in lengths.items() if n > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name} has {lines} lines"
        for path in FILES
        for node in _functions(path)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(p.relative_to(PACKAGE)) for p in FILES if len((ast.get_docstring(_tree(p)) or "").strip()) < 20]
    assert not silent


def _is_stub(node: Function) -> bool:
    """Whether a function raises NotImplementedError only, or does nothing and does not say why.

    A callback of the command line may be empty: its options do the work.
    """
    if any("callback" in ast.unparse(decorator) for decorator in node.decorator_list):
        return False
    body = [n for n in node.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    if len(body) > 1:
        return False
    if body and isinstance(body[0], ast.Raise) and body[0].exc is not None:
        return "NotImplementedError" in ast.unparse(body[0].exc)
    return (not body or isinstance(body[0], ast.Pass)) and ast.get_docstring(node) is None


def _explained(path: Path) -> set[Function]:
    """Methods that may be empty: those written `...` in one line, in a class that says what it stands for."""
    classes = [n for n in ast.walk(_tree(path)) if isinstance(n, ast.ClassDef) and ast.get_docstring(n)]
    methods = [f for c in classes for f in c.body if isinstance(f, Function)]
    return {f for f in methods if len(f.body) == 1 and ast.unparse(f.body[0]) == "..."}


def test_no_function_is_a_stub() -> None:
    stubs = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path in FILES
        for node in _functions(path)
        if _is_stub(node) and node not in _explained(path)
    ]
    assert not stubs, "\n".join(stubs)


def test_no_module_is_called_after_nothing() -> None:
    assert not [p.name for p in FILES if p.stem in ("utils", "helpers", "common", "misc")]
