"""benchmarks/red_team.py: attacks compose, the split is fixed, feedback repairs, and a run goes on where it ended."""

from __future__ import annotations

import ast
import sys
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import red_team
from redteam.compose import Attack, attacks, covers_for
from redteam.covers import COVERS
from redteam.disguises import DISGUISES
from redteam.doors import DOORS
from redteam.intervals import exact_interval
from redteam.judging import Row, plainly
from redteam.pieces import part_of
from redteam.report import summary
from redteam.tasks import TASKS

TASK = {t.name: t for t in TASKS}
DOOR = {d.name: d for d in DOORS}
DISGUISE = {d.name: d for d in DISGUISES}


@pytest.mark.parametrize("family", sorted({d.family for d in DOORS}))
def test_every_spelling_is_python(family: str) -> None:
    for door in (d for d in DOORS if d.family == family):
        for task in filter(door.fits, TASKS):
            cover = covers_for(task)[0] if door.covered else None
            for number in range(len(door.spellings(task))):
                ast.parse(Attack(task, door, cover, spelling=number).text())


@pytest.mark.parametrize("name", DISGUISE)
def test_a_disguise_keeps_the_meaning(name: str) -> None:
    """The disguised attack gives the right answer where nothing stops it, as the plain attack does."""
    task = TASK["row_shares"]
    attack = Attack(task, DOOR["torch as it is"], covers_for(task)[0], (DISGUISE[name],))
    assert attack.text() != Attack(task, attack.door, attack.cover).text()
    assert plainly({attack.key: attack}) == {attack.key: "works"}


def test_names_differ() -> None:
    for pieces in (TASKS, DOORS, DISGUISES):
        names = [p.name for p in pieces]
        assert len(names) == len(set(names))


def test_the_page_states_the_numbers_of_pieces() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "red_team.md").read_text(encoding="utf-8")
    for kind, pieces in (("task", TASKS), ("door", DOORS), ("cover", COVERS), ("disguise", DISGUISES)):
        assert f"| {kind} | {len(pieces)} |" in page


def test_the_split_follows_from_the_name_alone() -> None:
    assert part_of("door", "torch as it is") == "development"
    assert part_of("door", "einsum") == part_of("door", "einsum")
    held = [d.part == "held-out" for d in (*DOORS, *DISGUISES)]
    assert 0.3 < sum(held) / len(held) < 0.5


def test_the_development_part_shows_nothing_held_out() -> None:
    for attack in attacks("development", "cpu", 1, 200):
        assert attack.door.part == "development"
        assert all(d.part == "development" for d in attack.disguises)


def test_the_held_out_part_holds_a_piece_that_is_held_out() -> None:
    for attack in attacks("held-out", "cpu", 1, 200):
        assert "held-out" in {attack.door.part, *(d.part for d in attack.disguises)}


def test_a_seed_gives_the_same_attacks_and_a_longer_run_begins_with_them() -> None:
    short = [a.key for a in attacks("all", "cpu", 5, 50)]
    assert short == [a.key for a in islice(attacks("all", "cpu", 5, 400), 50)]
    assert short != [a.key for a in attacks("all", "cpu", 6, 50)]


def test_an_attack_that_fails_by_itself_does_not_count_as_working() -> None:
    task = TASK["row_shares"]
    attack = Attack(task, DOOR["output that nobody writes"], None)
    row = Row(key=attack.key, tier="cpu", part="development", verdict="wrong", plain="wrong")
    line = summary([row]).lines[0]
    assert (line.all.count, line.working.count) == (1, 0)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"), [(0, 300, 0.0, 0.01222), (1, 10, 0.00253, 0.44502), (10, 10, 0.69150, 1.0)]
)
def test_the_interval_is_exact(hits: int, count: int, low: float, high: float) -> None:
    assert exact_interval(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_a_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    arguments = ["judge", str(rows), "--only", "loops over device pointers", "--jobs", "1"]
    first = CliRunner().invoke(red_team.app, [*arguments, "--count", "250"])
    assert first.exit_code == 0, first.output
    found = [Row.model_validate_json(line) for line in rows.read_text().splitlines()]
    assert found and all(r.verdict in ("runtime_error", "rejected") for r in found)
    assert all(r.plain == "works" for r in found)
    again = CliRunner().invoke(red_team.app, [*arguments, "--count", "250"])
    assert again.exit_code == 0 and rows.read_text().splitlines() == [r.model_dump_json() for r in found]
