"""The documents keep their promises: commands work, flags and modules exist, nothing is left out."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from pathlib import Path

import pytest
import typer
from running import Command

from kernelwright.cli import app

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
README = (ROOT / "README.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
EVALUATION = (ROOT / "docs" / "evaluation.md").read_text()
TREE = typer.main.get_command(app)


def commands() -> list[list[str]]:
    """Returns the command lines in the README's sh blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
    return [words for words in lines if words]


def verbs() -> dict[str, set[str]]:
    """Returns each verb with its flags."""
    found: dict[str, set[str]] = {}
    for name, command in TREE.commands.items():  # type: ignore[attr-defined]
        for path, leaf in [(f"{name} {n}", c) for n, c in getattr(command, "commands", {}).items()] or [
            (name, command)
        ]:
            found[path] = {o for p in leaf.params for o in getattr(p, "opts", []) if o.startswith("--")} - {"--help"}
    return found


def test_readme_is_short_and_every_command_parses() -> None:
    assert len(README.splitlines()) <= 150
    assert len(commands()) >= 8
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = verbs()
    for words in commands():
        program, verb = words[0].removeprefix(".venv/bin/"), words[1]
        if program == "make":
            assert verb in targets
            continue
        assert program == "kernelwright"
        verb = " ".join(words[1:3]) if " ".join(words[1:3]) in known else verb
        assert verb in known, words
        flags = words[: words.index("--")] if "--" in words else words
        assert {w for w in flags if w.startswith("--")} <= known[verb], words


def test_every_verb_and_flag_is_documented() -> None:
    for verb, flags in verbs().items():
        assert f"kernelwright {verb}" in CLI
        for flag in flags:
            assert flag in CLI, (verb, flag)


def test_the_list_of_modules_is_up_to_date() -> None:
    module = runpy.run_path(str(ROOT / "docs" / "make_module_list.py"))
    written = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
    assert written == module["module_list"](), "run: python docs/make_module_list.py"


def test_readme_links_every_page() -> None:
    pages = [f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")]
    assert [page for page in pages if f"({page})" not in README] == []


def _defined(path: Path) -> set[str]:
    """The dotted names that a module defines, those of its classes' members included, and the names it imports."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.ImportFrom):
                found.update(alias.asname or alias.name for alias in node.names)

    visit(ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def _exists(name: str) -> bool:
    """Tells whether some module, named by the end of its dotted name, defines the rest of `name`."""
    parts = name.split(".")
    for cut in range(1, len(parts)):
        module, rest = "/".join(parts[:cut]), ".".join(parts[cut:])
        paths = [*PACKAGE.glob(f"**/{module}.py"), *PACKAGE.glob(f"**/{module}/__init__.py")]
        if any(rest in _defined(path) for path in paths):
            return True
    return False


def test_the_walks_name_what_exists() -> None:
    text = ARCHITECTURE.split("## Three walks", 1)[1]
    walks = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    assert len(walks) == 3
    for walk in walks:
        numbers = [int(n) for n in re.findall(r"^(\d+)\. ", walk, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) <= 20
    names = [n for n in re.findall(r"`([\w.]+)`", text) if "." in n and not n.endswith(".py")]
    assert len(names) > 50
    assert [name for name in names if not _exists(name)] == []


def test_files_and_folders_of_the_architecture_exist() -> None:
    names = set(re.findall(r"`([\w/]+(?:\.py|/))`", ARCHITECTURE))
    roots = (ROOT, PACKAGE, PACKAGE / "evaluation", PACKAGE / "evaluation" / "judge")
    assert len(names) > 40
    assert [name for name in sorted(names) if not any((root / name).exists() for root in roots)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/measured.md"])
def test_every_measured_figure_names_its_script(page: str) -> None:
    tables = (ROOT / page).read_text(encoding="utf-8").split("| what | result |", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    assert {len(row) for row in rows} == {4}
    for row in rows:
        for script in re.findall(r"`([\w/]+\.py)`", row[3]):
            assert (ROOT / script).exists() or (ROOT / "benchmarks" / script).exists(), script


def test_every_rule_and_verdict_is_documented() -> None:
    from kernelwright.records import VERDICTS

    rules: set[str] = set()
    for path in (ROOT / "src" / "kernelwright" / "evaluation").rglob("*.py"):
        text = path.read_text()
        rules |= set(re.findall(r'rule="([\w-]+)"', text)) | set(re.findall(r'\(\s*"([a-z-]+)", f"output', text))
    assert len(rules) > 14
    assert [rule for rule in sorted(rules) if f"`{rule}`" not in EVALUATION] == []
    assert [v for v in VERDICTS if f"`{v}`" not in README + EVALUATION] == []


def test_tolerances_are_those_of_the_code() -> None:
    from kernelwright.evaluation.compare.on_host import TOLERANCES

    for dtype in ("float64", "float32", "float16", "bfloat16"):
        found = re.search(rf"^\| {dtype} \| (\S+) \| (\S+) \|$", EVALUATION, re.MULTILINE)
        assert found is not None
        assert (float(found[1]), float(found[2])) == TOLERANCES[dtype]


def test_the_first_command_runs(kernelwright: Command) -> None:
    words = next(w for w in commands() if w[0] == ".venv/bin/kernelwright")
    done = kernelwright(*words[1:], cwd=ROOT)
    assert done.returncode == 1
    assert done.stdout.startswith("wrong  data-race")


def test_commands_run_as_written(kernelwright: Command, tmp_path: Path) -> None:
    """The commands of one kernel, of one program, and of tasks and solutions run in the README's order."""
    for name in ("src", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "runs").mkdir()
    some = ("eval rms_norm", "machine run", "tasks", "solutions", "export")
    chosen = [w for w in commands() if " ".join(w[1:3]).startswith(some)]
    assert len(chosen) >= 6
    for words in chosen:
        done = kernelwright(*words[1:], cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)


def test_the_python_of_the_readme_uses_public_names() -> None:
    import kernelwright as package

    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    compile(block, "README.md", "exec")
    assert {name for name in re.findall(r"kw\.(\w+)", block) if name not in package.__all__} == set()


def test_the_verdict_that_the_readme_shows(kernelwright: Command) -> None:
    words = shlex.split(re.search(r"^\$ kernelwright (.*)$", README, re.MULTILINE)[1])  # type: ignore[index]
    shown = " ".join(kernelwright(*words, cwd=ROOT).stdout.split())
    block = " ".join(README.split("$ kernelwright eval")[1].split("```")[0].split("\n", 1)[1].split())
    for part in re.split(r"\S*…\S*", block):
        assert part.strip() in shown
