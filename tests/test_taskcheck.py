"""`kernelwright tasks check` end to end: states, tables, files, and the gate stored in a task's folder."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from running import Command

from kernelwright.checks import task_checks
from kernelwright.errors import TaskError
from kernelwright.evaluation.judge import null_kernel_gate
from kernelwright.tasks import load_task, task_folders, write_gate

MODULE = """
import torch
import torch.nn as nn

rows = 32
cols = 96

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.randn(rows, cols)]

def get_init_inputs():
    return []
"""
SETTINGS = """# Sizes that we care for.
name = "{name}"

[[workloads]]
name = "odd"
constants = {{ rows = 7 }}   # not a multiple of anything
"""


def _folder(parent: Path, name: str, expression: str) -> Path:
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "reference.py").write_text(MODULE.format(expression=expression))
    (folder / "task.toml").write_text(SETTINGS.format(name=name))
    return folder


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("check") / "suite"
    _folder(made, "1_sound", "x * 3 + 1")
    _folder(made, "2_void", "torch.relu(-1 - x.abs())")
    (made / "3_raises.py").write_text(MODULE.format(expression="x + nothing"))
    return made


def test_states_on_stdout_as_json(suite: Path, kernelwright: Command) -> None:
    done = kernelwright("tasks", "check", suite, "--json")
    assert done.returncode == 1, done.stderr
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [task_checks.state(f) for f in facts] == ["sound", "quarantined", "cannot run"]
    assert {"task_id", "ok", "workloads", "distributions", "gate", "nulls", "seconds"} <= set(facts[0])
    zeros = next(n for n in facts[1]["nulls"] if n["name"] == "zeros")
    assert zeros["passed"] and not zeros["failed"] and "zeros" in facts[1]["gate"]["reason"]
    assert "nothing" in facts[2]["reason"]


def test_a_table_and_a_page_for_several_sources(suite: Path, kernelwright: Command, tmp_path: Path) -> None:
    page = tmp_path / "gate.md"
    done = kernelwright("tasks", "check", suite / "1_sound", suite / "2_void", "--out", page)
    assert done.returncode == 0, done.stderr
    assert "1_sound" in done.stdout and "quarantined" in done.stdout
    assert "2_void: quarantined, zeros passes everywhere" in done.stderr
    text = page.read_text()
    assert "2 tasks: 1 sound, 1 quarantined." in text
    assert [line.split("|")[2].strip() for line in text.splitlines() if line.startswith(("| 1_", "| 2_"))] == [
        "sound",
        "quarantined",
    ]


def test_states_are_kept_in_native_folders_and_used(tmp_path: Path, kernelwright: Command) -> None:
    folder = _folder(tmp_path, "void", "torch.relu(-1 - x.abs())")
    for _ in range(2):  # the second run replaces the file of the first
        assert kernelwright("tasks", "check", folder, "--write", "--json").returncode == 0
    text = (folder / "task.toml").read_text()
    assert text.startswith("# Sizes that we care for.") and text.count("[gate]") == 1 and "# not a multiple" in text
    kept = load_task(folder)
    assert kept.gate is not None and kept.gate.state == "quarantined" and kept.workloads[0].name == "odd"
    assert null_kernel_gate.stored(kept, tmp_path / "nowhere") == kept.gate

    candidate = tmp_path / "candidate.py"
    candidate.write_text(MODULE.format(expression="torch.zeros_like(x)").replace("Model(", "ModelNew("))
    done = kernelwright("eval", folder, candidate, "--rule", "libraries_allowed", "--json")
    assert "quarantined-task" in [f["rule"] for f in json.loads(done.stdout)["findings"]]

    (folder / "reference.py").write_text(MODULE.format(expression="x * 3"))
    assert null_kernel_gate.stored(load_task(folder), tmp_path / "nowhere") is None


def test_a_gate_that_is_no_gate_names_the_key(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "odd", "x")
    for table, key in (("state = 'fine'", "gate.state"), ("of = 3", "gate.of"), ("nonsense = 1", "gate.nonsense")):
        fields = {"protocol": "protocol = 1", "of": "of = 'a'", "state": "state = 'sound'"}
        fields[table.split()[0]] = table
        (folder / "task.toml").write_text("name = 'odd'\n[gate]\n" + "\n".join(fields.values()))
        with pytest.raises(TaskError, match=key):
            load_task(folder)


def test_a_write_keeps_what_a_person_wrote(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "odd", "x")
    (folder / "task.toml").write_text("name = 'odd'\n\n[gate] # old\nprotocol = 0\n\n" + SETTINGS.split("\n\n")[1])
    text = (folder / "task.toml").read_text().replace("{{", "{").replace("}}", "}")
    (folder / "task.toml").write_text(text)
    state = {"protocol": 1, "of": "f" * 64, "state": "hardened", "distributions": ["wide"], "notes": ['a "b" [c]']}
    write_gate(folder, state)
    settings = tomllib.loads((folder / "task.toml").read_text())
    assert settings["workloads"][0]["name"] == "odd" and settings["gate"]["notes"] == ['a "b" [c]']
    loaded = load_task(folder).gate
    assert loaded is not None and loaded.distributions == ("wide",)


def test_native_folders_of_a_source(suite: Path) -> None:
    assert sorted(task_folders(suite)) == ["1_sound", "2_void"]
    assert list(task_folders(suite / "2_void")) == ["2_void"]
    assert task_folders(suite / "3_raises.py") == {}
    assert "row_softmax" in task_folders("starter") and list(task_folders("row_softmax")) == ["row_softmax"]


def test_a_page_s_cells_stay_cells() -> None:
    assert "\\|" in task_checks.markdown([{"task_id": "a|b", "ok": False, "reason": "x\ny", "seconds": 1}], "T")
