"""Help texts are printed whole on narrow terminals: no sentence of a command, and no option's text, is cut."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
import typer

from kernelwright.cli import app


def commands(command: Any, name: str = "kernelwright") -> Iterator[tuple[str, Any]]:
    """Yields every command and group with its whole name."""
    yield name, command
    for part, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{name} {part}")


def joined(text: str) -> str:
    """Returns a text without blanks: help breaks lines after hyphens, too."""
    return "".join(text.split())


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", ALL)
def test_nothing_is_cut(name: str, width: int) -> None:
    command = ALL[name]
    context = command.context_class(command, info_name=name, terminal_width=width, max_content_width=width)
    shown = joined(command.get_help(context))
    wanted = [inspect.cleandoc(command.help or "")]
    wanted += [p.help for p in command.params if getattr(p, "help", None) and not getattr(p, "hidden", False)]
    for part in getattr(command, "commands", {}).values():
        wanted += [] if part.hidden else [inspect.cleandoc(part.help or "").split("\n\n")[0]]
    for text in wanted:
        assert text and joined(text) in shown, text
        assert "…" not in text.replace("hub:…", ""), "a text that looks cut"


def test_all_commands_are_tested() -> None:
    assert len(ALL) >= 30 and "kernelwright train rl" in ALL and "kernelwright machine run" in ALL


def test_help_names_every_recipe() -> None:
    recipes = {path.stem for path in (files("kernelwright") / "data" / "configs" / "recipes").iterdir()}
    told = " ".join(p.help or "" for name in ("sft", "dpo", "rl") for p in ALL[f"kernelwright train {name}"].params)
    assert recipes == {recipe for recipe in recipes if recipe in told}
