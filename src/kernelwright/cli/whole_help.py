"""Prints the first sentence of each command whole in a list of commands, where click cuts it to one line."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup


class WholeHelp(TyperGroup):
    """A group of commands whose help wraps the commands' first sentences over as many lines as they need."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the name and the first paragraph of each command that is not hidden."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first(command)) for name, command in found if command is not None and not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _first(command: Any) -> str:
    text = inspect.cleandoc(command.help or "").split("\n\n")[0]
    return " ".join(text.split())
