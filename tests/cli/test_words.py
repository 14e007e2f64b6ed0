"""Nonsensical words on the command line: refused by name, with a hint, before any work."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from relu_task import RELU
from running import Command

from kernelwright.checks.program_checks import idle_flags
from kernelwright.cli import app

CANDIDATE = RELU.replace("Model", "ModelNew")
ROW = {"id": "a", "reference": RELU, "candidate": CANDIDATE}

REFUSED = {
    "eval task.py candidate.py --backend banana": "use 'auto', 'cpu' or 'gpu'",
    "eval task.py candidate.py --rule banana": "not from_scratch",
    "eval task.py candidate.py --rule libraries:": "not from_scratch",
    "eval task.py candidate.py --baselines banana": "use 'eager', 'compile' or 'max-autotune'",
    "eval task.py candidate.py --memory-mb 1": "at most 1073741824",
    "eval task.py candidate.py --priority 5": "--queue-only",
    "eval task.py candidate.py --executor ray": "--jsonl",
    "eval task.py candidate.py --limit 3": "--jsonl",
    "eval task.py candidate.py --banana": " eval --help",
    "eval --jsonl rows.jsonl --run r --priority 5": "--queue-only",
    "eval --jsonl rows.jsonl --run r --queue-only --priority 99999999999999999999": "--priority",
    "eval --jsonl binary.jsonl --run r": "UTF-8",
    "eval --jsonl list.jsonl --run r": "one JSON object a line",
    "worker r --lease-seconds inf": "--lease-seconds",
    "optimize task.py --run r --rule banana": "--rule",
    "bench starter --run r --rule banana": "--rule",
    "optimize task.py --run r --out folder": "name a file",
    "optimize task.py --run r --temperature nan": "--temperature",
    "optimize task.py --run r --policy scripted:empty.jsonl": '{"answer": "…"}',
    "optimize task.py --run r --policy scripted:binary.jsonl": "UTF-8",
    "bench task.py --run r --temperature inf": "--temperature",
    "bench task.py --run r --grid 2x1,2x1": "once",
    "bench cudabench:rows.jsonl --run r": "CUDABench",
    "report r --html folder": "name a file",
    "tasks list startre": "'starter'",
    "tasks check task.py --out folder": "name a file",
    "profile task.py candidate.py --rung banana": "use 'auto', 'ncu', 'trace' or 'static'",
    "profile task.py candidate.py --timeout inf": "at most 86400",
    "profile task.py candidate.py --arch banana": "--arch",
    "warm --idle inf": "--idle",
    "serve --rows 99999999999999999999": "--rows",
    "machine run program.cu --flag banana": "hyphen",
    "machine run program.cu --timeout 1e300": "at most 86400",
    "machine run program.cu --memory-mb 99999999999999999999": "--memory-mb",
    "solutions tune task.py --run r --timeout nan": "more than 0",
    "solutions tune task.py --run r --timing-seconds 1e300": "at most 86400",
    "solutions tune task.py --run r --backend banana": "use 'auto', 'cpu' or 'gpu'",
    "solutions write task.py --out folder": "another file",
    "solutions write task.py --schedule block=0": "from 1 to 1024",
    "solutions write task.py --schedule block=128,block=256": "once",
    "solutions write task.py --schedule shuffle=maybe": "True or False",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "task.py").write_text(RELU)
    (tmp_path / "candidate.py").write_text(CANDIDATE)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "list.jsonl").write_text("[1, 2]\n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(128, 256)))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused_comes_with_a_hint(here: Path, kernelwright: Command, command: str) -> None:
    done = kernelwright(*command.split(), cwd=here)
    lines = done.stderr.splitlines()
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert REFUSED[command] in done.stderr and lines[-1].startswith("hint: ") and lines[-2].startswith("error: ")
    assert "bug" not in done.stderr and not (here / "r").exists() and not list((here / "folder").iterdir())


def test_a_flag_that_changes_nothing_is_told() -> None:
    """A misspelt flag would leave the program different from the one that was meant."""
    given = ["-O3", "-DN=4", "--use_fast_math", "-std=c++20", "--std=c++17", "--use_fast_mth"]
    assert idle_flags(given) == ["-O3", "--use_fast_mth"]


def parameters(typed: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Returns each parameter's name, type and typer settings, for every verb."""
    for command in typed.registered_commands:
        assert command.callback is not None
        hints = typing.get_type_hints(command.callback, include_extras=True)
        for name in inspect.signature(command.callback).parameters:
            kind, told = typing.get_args(hints[name])[:2]
            yield " ".join((*path, command.name or command.callback.__name__, name)), kind, told
    for group in typed.registered_groups:
        assert group.typer_instance is not None
        yield from parameters(group.typer_instance, (*path, group.name or ""))


PATHS = {name: told for name, kind, told in parameters(app) if "Path" in str(kind)}


def test_there_are_names_of_files() -> None:
    assert len(PATHS) > 30 and "eval run" in PATHS and "tasks check out" in PATHS


@pytest.mark.parametrize("name", PATHS)
def test_no_empty_name_is_where_one_stands(name: str) -> None:
    """An unset shell variable leaves an empty name, whose path would be the current folder."""
    with pytest.raises(typer.BadParameter, match="empty"):
        PATHS[name].parser(" ")
    assert PATHS[name].parser("a b") == Path("a b")


@pytest.mark.parametrize(
    "command", ["eval task.py candidate.py --run", "tasks list", "tasks show", "solutions write", "serve --model"]
)
def test_an_empty_word(here: Path, kernelwright: Command, command: str) -> None:
    before = sorted(here.iterdir())
    done = kernelwright(*command.split(), "", cwd=here)
    assert done.returncode == 2 and "empty" in done.stderr and "hint: " in done.stderr, done.stderr
    assert sorted(here.iterdir()) == before


def test_a_name_that_no_file_can_hold_is_a_row_s_name(here: Path, kernelwright: Command) -> None:
    """JSON can spell half of a surrogate pair; a row's name is stored and shown without it."""
    (here / "odd.jsonl").write_text(json.dumps(ROW | {"id": "\ud800"}) + "\n")
    done = kernelwright("eval", "--jsonl", "odd.jsonl", "--run", "r", "--queue-only", "--json", cwd=here)
    assert done.returncode == 0 and json.loads(done.stdout)["queued"] == 1, done.stderr
