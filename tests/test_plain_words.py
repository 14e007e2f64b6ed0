"""The words of docstrings and of `--help`: a docstring opens with its effect, and help uses the glossary's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from kernelwright.cli import app

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "kernelwright"
OPENINGS = {"What", "Which", "Whether", "How", "Who", "Whose", "Whom", "Where", "When", "Why"}
"""Words that open a clause without a head. No docstring may open with one."""
HOMELY = re.compile(
    r"\b(whoever|whatever|whom|folk|house|people|nobody|somebody|those that|one that|such|meant|mended|goes on|"
    r"told|asked for|beside|at most|keep away|is free|what is|what it|given again|judge again what|the words)\b",
    re.IGNORECASE,
)
"""Stand-ins for terms of art, and pronouns without a noun."""
VERB = re.compile(r"[A-Z][a-z-]+ ")


def openings() -> list[str]:
    """Returns `file:line` of each docstring that opens with a headless clause."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] == "data":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and text.split()[0].strip(".,:;") in OPENINGS:
                    found.append(f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}")
    return found


def commands(command: click.Command, name: str = "kernelwright") -> Iterator[tuple[str, click.Command]]:
    """Returns every verb and group of verbs, with its words."""
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {word}")


VERBS = dict(commands(typer.main.get_command(app)))


def test_docstrings_open_with_what_they_do() -> None:
    found = openings()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", VERBS)
def test_help_says_it_plainly(name: str) -> None:
    command = VERBS[name]
    texts = [command.help or "", *(getattr(p, "help", None) or "" for p in command.params if not p.hidden)]
    assert [text for text in texts if HOMELY.search(text)] == []


@pytest.mark.parametrize("name", VERBS)
def test_help_opens_with_a_verb(name: str) -> None:
    """A verb in the imperative: the first word of the first line, which names no noun with an article."""
    text = (VERBS[name].help or "").strip()
    assert VERB.match(text) and text.split()[0] not in {"The", "A", "An", "What", "Which", "Whether", "How"}, text
