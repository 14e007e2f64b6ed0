"""Chooses the test files for `make check`: those of what changed, within a budget of processor time.

`python tests/changed.py` prints them, one a line, and says on stderr why. Changed is what differs from the merge base
with origin/main (or main), uncommitted and untracked files included. A changed test file stands for itself. A changed
module stands for the tests that import it, then for the tests in the folder named after its package. Where nothing or
too much changed, a subset is chosen: every file that is quick to run, and the quickest of each folder that has none.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from costs import TESTS, cost

ROOT = TESTS.parent

BUDGET = 60.0
"""Seconds of one core that the chosen files may take together; with lint and types, two cores need about 90 s."""

QUICK = 1.0
"""Seconds of one core: the subset has every file that takes at most this long."""

TOO_MUCH = 5 * BUDGET
"""Seconds of one core: a change whose tests take longer is checked by the subset and by its own test files."""

ALWAYS = "test_layers.py"


@cache
def files() -> tuple[str, ...]:
    """Returns all test files, relative to tests/."""
    return tuple(sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")))


@cache
def imports(name: str) -> frozenset[str]:
    """Returns the modules that a test file imports, with `from package import part` as `package.part`, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((TESTS / name).read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def git(*words: str) -> list[str]:
    """Returns the output lines of a git command; none where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed() -> list[str]:
    """Returns the files that differ from the merge base and still exist, relative to the repository."""
    base = next((found[0] for name in ("origin/main", "main") if (found := git("merge-base", "HEAD", name))), "HEAD")
    names = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    return [name for name in dict.fromkeys(names) if (ROOT / name).is_file()]


def tests_of(path: str) -> Iterator[str]:
    """Yields the test files for one changed file, the closest first."""
    parts = Path(path).parts
    if parts[0] == "tests":
        name = str(Path(*parts[1:]))
        if name in files():
            yield name
        elif path.endswith(".py"):
            module = ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
            yield from (test for test in files() if imports(test) & {module, module.rpartition(".")[2]})
    elif parts[:2] == ("src", "kernelwright") and len(parts) > 2:
        module = ".".join(Path(*parts[1:]).with_suffix("").parts).removesuffix(".__init__")
        importers = [test for test in files() if module in imports(test)]
        folder = [test for test in files() if Path(test).parts[0] in (parts[2], f"test_{Path(parts[2]).stem}.py")]
        named = f"test_{Path(path).stem}"
        yield from sorted([*importers, *folder], key=lambda test: (Path(test).stem != named, test not in folder))
    else:
        name = re.compile(rf"\b{re.escape(Path(path).stem)}\b")
        yield from (test for test in files() if name.search((TESTS / test).read_text()))


def within(names: Iterable[str], budget: float) -> tuple[list[str], list[str]]:
    """Returns the names that fit into the budget, in their order, and the others."""
    chosen: list[str] = []
    others: list[str] = []
    for name in names:
        fits = cost(name) + sum(map(cost, chosen)) <= budget
        (chosen if fits else others).append(name)
    return chosen, others


def subset() -> list[str]:
    """Returns test files of every folder that together fit into the budget."""
    folders: dict[str, list[str]] = {}
    for name in sorted(files(), key=cost):
        folders.setdefault(Path(name).parent.as_posix(), []).append(name)
    quickest = [names[0] for names in folders.values()]
    quick = [name for name in files() if cost(name) <= QUICK]
    return within(dict.fromkeys([ALWAYS, *quickest, *quick]), BUDGET)[0]


def choose(paths: list[str]) -> tuple[list[str], str]:
    """Returns the test files to run for changed `paths`, and why these."""
    own = [path.removeprefix("tests/") for path in paths if path.removeprefix("tests/") in files()]
    wanted = dict.fromkeys([ALWAYS, *own, *(name for path in paths for name in tests_of(path))])
    if len(wanted) == 1:
        return subset(), "nothing changed that has tests: a subset of all folders"
    why = f"the tests of {len(paths)} changed files"
    if sum(map(cost, wanted)) > TOO_MUCH:
        wanted = dict.fromkeys([ALWAYS, *own, *subset()])
        why = f"{len(paths)} changed files have too many tests: changed tests and a subset of all folders"
    chosen, others = within(wanted, BUDGET)
    if others:
        why += f"; {len(others)} more test files are left to `make test`"
    return chosen, why


if __name__ == "__main__":
    names, reason = choose(changed())
    print(f"check: {reason}", file=sys.stderr)
    print("\n".join(f"tests/{name}" for name in names))
