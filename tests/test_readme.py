"""The documents hold what they promise: commands that work, flags and modules that exist, nothing left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from running import Command

from kernelwright.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
EVALUATION = (ROOT / "docs" / "evaluation.md").read_text()
TREE = typer.main.get_command(app)


def commands() -> list[list[str]]:
    """The command lines in the README's sh blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines() if line.strip()]


def verbs() -> dict[str, set[str]]:
    """Each verb with its flags."""
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


def test_the_tree_names_every_module() -> None:
    tree = ARCHITECTURE.split("## What is in")[1]
    package = ROOT / "src" / "kernelwright"
    names = [p.name for p in package.glob("*.py") if p.name != "__init__.py"]
    names += [p.parent.name + "/" for p in package.glob("*/__init__.py")]
    assert [name for name in names if f"  {name}" not in tree] == []
    listed = re.findall(r"^  ([\w/]+(?:\.py)?) ", tree, re.MULTILINE)
    assert [name for name in listed if not (package / name).exists()] == []


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


@pytest.mark.parametrize("words", [w for w in commands() if w[1] == "eval" and "column_sum" in w or "row_softmax" in w])
def test_the_first_commands_run(words: list[str], kernelwright: Command) -> None:
    done = kernelwright(*words[1:], cwd=ROOT)
    assert done.returncode == 1
    assert done.stdout.startswith("wrong  data-race")


def test_the_verdict_that_the_readme_shows(kernelwright: Command) -> None:
    words = shlex.split(re.search(r"^\$ kernelwright (.*)$", README, re.MULTILINE)[1])  # type: ignore[index]
    shown = " ".join(kernelwright(*words, cwd=ROOT).stdout.split())
    block = " ".join(README.split("$ kernelwright eval")[1].split("```")[0].split("\n", 1)[1].split())
    for part in re.split(r"\S*…\S*", block):
        assert part.strip() in shown
