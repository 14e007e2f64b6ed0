"""The shape of the code: one-way imports, no torch where it is not needed, sizes that a person can read.

The layers are read from docs/architecture.md, so that the page cannot drift from the code.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
    """Returns the number of the layer of each module or package directly below `kernelwright`."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## Layers", 1)[1].split("\n|", 1)[0]
    steps = section[section.index("`errors`") :].split("→")
    return {name: number for number, step in enumerate(steps) for name in re.findall(r"`([\w]+)`", step)}


def _unit(path: Path) -> str:
    """Returns the module or package directly below `kernelwright` that a file belongs to."""
    part = path.relative_to(PACKAGE).parts[0]
    return part.removesuffix(".py")


def _imported(path: Path) -> Iterator[tuple[str, int]]:
    """Returns the units of `kernelwright` that a file imports, within functions too, with line numbers."""
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
    """Its public names are imported when they are used (`tests/test_surface.py`)."""
    assert list(_imported(PACKAGE / "__init__.py")) == []
    code = "import sys; before = set(sys.modules); import kernelwright; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "['kernelwright']", done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    ["records", "errors", "config", "runs.store", "runs.jobqueue", "tasks", "evaluation", "executor"]
    + ["executor.apart", "executor.ray_actors", "policies", "search.rollout", "report.terminal", "cli"],
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
    """Tells whether a function only raises NotImplementedError, or does nothing without an explanation.

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
    """Returns the methods that may be empty: written `...` in one line, in a class whose docstring gives its role."""
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


# The rules below hold for every import, in functions and under TYPE_CHECKING too.

MAX_FILES = 25
"""Python files directly in one folder of the package."""
NEVER = {
    "candidate": {"judge", "reference", "compare"},
    "reference": {"candidate", "judge"},
    "processes": {"judge", "candidate", "reference", "compare", "text"},
}
"""Folder of `evaluation/` -> the folders that its modules never import. Only `processes.roles` names the children."""
WITHOUT_TORCH = ("judge", "text")
"""Folders of `evaluation/` whose modules import without torch."""
SAME_NAME: dict[str, str] = {}
"""Class names that are defined more than once, with the reason why that is right."""


@cache
def _modules() -> dict[str, Path]:
    """Returns the package's modules by their dotted names."""
    found = {}
    for path in FILES:
        parts = ("kernelwright", *path.relative_to(PACKAGE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _targets(name: str, path: Path) -> set[str]:
    """Returns the modules of the package that a module imports; a package counts where a name is taken from it."""
    modules, found = _modules(), set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in modules}
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")
            above = ".".join(up[: len(up) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found |= {full} if full in modules else {base} & modules.keys()
    return found - {name}


@cache
def _graph() -> dict[str, set[str]]:
    return {name: _targets(name, path) for name, path in _modules().items()}


def _circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the strongly connected components with more than one member (Tarjan, 1972)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return found


def _folder(name: str) -> str:
    """Returns a module's folder of `evaluation/`; empty for the package's own top and for other packages."""
    parts = name.split(".")
    is_package = _modules()[name].name == "__init__.py"
    return parts[2] if parts[1:2] == ["evaluation"] and len(parts) > (2 if is_package else 3) else ""


def _folder_imports() -> dict[str, set[str]]:
    """Maps each folder of `evaluation/` to the folders that its modules import; the top of the package is `.`."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, targets in _graph().items():
        if name.startswith("kernelwright.evaluation"):
            inside = {_folder(t) or "." for t in targets if t.startswith("kernelwright.evaluation")}
            found[_folder(name) or "."] |= inside - {_folder(name) or "."}
    return found


def test_no_module_imports_itself_through_others() -> None:
    assert _circles(_graph()) == []


@pytest.mark.parametrize("folder", NEVER)
def test_processes_of_an_evaluation_keep_apart(folder: str) -> None:
    wrong = [
        f"{name} imports {target}"
        for name, targets in _graph().items()
        for target in sorted(targets)
        if _folder(name) == folder and _folder(target) in NEVER[folder]
    ]
    assert not wrong, "\n".join(wrong)


def test_folders_of_evaluation_form_no_circle_and_few_floors() -> None:
    imports = {folder: targets - {"."} for folder, targets in _folder_imports().items() if folder != "."}
    assert _circles(imports) == []

    @cache
    def floor(folder: str) -> int:
        return 1 + max((floor(other) for other in imports[folder]), default=0)

    assert max(map(floor, imports)) <= 6


def test_judge_and_text_import_without_torch() -> None:
    modules = [name for name in _modules() if _folder(name) in WITHOUT_TORCH]
    code = f"import sys, importlib\nfor name in {modules}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert modules and done.stdout.strip() == "False", done.stdout + done.stderr


def test_the_launch_table_names_a_module_for_each_role() -> None:
    from kernelwright.evaluation.processes import roles

    for role, name in roles.MODULES.items():
        assert name in _modules(), f"{role}: {name}"
        functions = [f.name for f in _functions(_modules()[name])]
        assert "serve" in functions, f"{role}: {name} has no function `serve`"


def test_folders_hold_few_files() -> None:
    counts = Counter(str(path.parent.relative_to(PACKAGE)) for path in FILES)
    assert {folder: n for folder, n in counts.items() if n > MAX_FILES} == {}


def test_a_class_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name, path in _modules().items():
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name.removeprefix("kernelwright."))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in SAME_NAME} == {}
    assert SAME_NAME.keys() <= twice.keys(), "remove what is no longer defined twice"
