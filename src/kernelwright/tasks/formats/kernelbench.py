"""Reads KernelBench's task format: one Python module with `Model`, `get_inputs` and `get_init_inputs`.

Checks by AST only: the module is executed only in the oracle.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import get_args

from kernelwright import syntax
from kernelwright.errors import TaskError
from kernelwright.records import LibraryRule, Precision, Provenance, Task
from kernelwright.tasks.files import read_text

PRECISION = "KERNELWRIGHT_PRECISION"
REQUIRED = ("Model", "get_inputs")


def check_reference(source: str, where: str) -> ast.Module:
    """Returns the tree of a reference. `where` names it in messages.

    Raises `TaskError` unless the source defines what a task needs.
    """
    if not source.strip():
        raise TaskError(f"the reference of {where} is empty")
    if len(source) > syntax.MAX_TEXT:
        most = f"at most {syntax.MAX_TEXT} are read"
        raise TaskError(f"the reference of {where} has {len(source)} characters, and {most}", hint="generate its data")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax.parse(source)
    except SyntaxError as error:
        raise TaskError(
            f"the reference of {where} is not Python: {error.msg} (line {error.lineno})",
            hint="a task is a Python module with class Model, get_inputs() and get_init_inputs()",
        ) from error
    except ValueError as error:
        raise TaskError(f"the reference of {where} cannot be parsed: {error}") from error
    names = defined_names(tree)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise TaskError(
            f"the reference of {where} defines no {' and no '.join(missing)}",
            hint="a task is a Python module with class Model, get_inputs() and get_init_inputs()",
        )
    return tree


def defined_names(tree: ast.Module) -> set[str]:
    """Returns names bound at the module's top level, within `if` and `try` as well."""
    names: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.ExceptHandler)]
            waiting += [n for part in (node, *inner) for n in ast.iter_child_nodes(part) if isinstance(n, ast.stmt)]
    return names


def description_of(tree: ast.Module) -> str:
    """Returns the first line of the Model's docstring, for lists."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            text = (ast.get_docstring(node) or "").strip()
            return text.splitlines()[0].strip() if text else ""
    return ""


def stated_precision(tree: ast.Module, where: str) -> Precision:
    """Returns the precision of products that a reference states by `KERNELWRIGHT_PRECISION = "tf32"` at its top level;
    float32 if it states none. Raises `TaskError` for another value."""
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        if PRECISION not in [t.id for t in node.targets if isinstance(t, ast.Name)]:
            continue
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        for known in get_args(Precision):
            if value == known:
                return known  # type: ignore[no-any-return]
        allowed = " or ".join(f'"{known}"' for known in get_args(Precision))
        raise TaskError(f"{PRECISION} of {where} is {ast.unparse(node.value)[:60]}", hint=f"write {allowed}")
    return "float32"


def load_file(path: Path, policy: LibraryRule | None = None) -> Task:
    """Loads a task from one `.py` file, named after the file."""
    source = read_text(path, TaskError, "the task")
    tree = check_reference(source, repr(str(path)))
    return Task(
        task_id=path.stem,
        source=source,
        policy=policy or "from_scratch",
        precision=stated_precision(tree, repr(str(path))),
        description=description_of(tree),
        provenance=Provenance(origin=path.name),
    )


def tasks_of(loaders: Iterable[Callable[[], Task]], on_problem: Callable[[str], None]) -> list[Task]:
    """Returns the loaders' tasks; passes a `TaskError` to `on_problem`, and raises it where no task loads."""
    tasks: list[Task] = []
    first: TaskError | None = None
    for load in loaders:
        try:
            tasks.append(load())
        except TaskError as error:
            first = first or error
            on_problem(str(error))
    if not tasks and first is not None:
        raise first
    return tasks
