"""The stream of pairs: equal arguments give equal pairs, answers are correct by construction, failures are counted."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from kernelwright.corpus import pairs
from kernelwright.corpus.pairs import make_chunk, recipe
from kernelwright.errors import ConfigError, UsageError
from kernelwright.inference.chat import HEADING


def test_the_stream_does_not_depend_on_the_number_of_processes() -> None:
    alone = list(pairs(5, 70))
    with pairs(5, 70, workers=2) as stream:
        together = list(stream)
    assert together == alone
    assert len(alone) == 70


def test_a_longer_stream_begins_with_a_shorter_one_and_seeds_differ() -> None:
    short, long = list(pairs(1, 10)), list(pairs(1, 40))
    assert long[:10] == short
    assert [p.task.source for p in pairs(2, 10)] != [p.task.source for p in short]


def test_answers_are_files_that_define_model_new() -> None:
    for pair in pairs(3, 20):
        names = {n.name for n in ast.parse(pair.answer).body if isinstance(n, ast.ClassDef)}
        assert "ModelNew" in names and pair.right and pair.schedule == "canonical"
        assert pair.task.split == "train"


def test_all_schedules_give_each_text_once() -> None:
    found = make_chunk(recipe(seed=3, schedules="all"), 0, 6).pairs
    texts = [(p.task.name, p.answer) for p in found]
    assert len(set(texts)) == len(texts) > 6
    assert len({p.schedule for p in found}) > 1
    few = make_chunk(recipe(seed=3, schedules="all", per_task=2), 0, 6).pairs
    assert set(few) <= set(found) and max(Counter(p.task.name for p in few).values()) == 2


def test_operators_may_have_kernels_of_their_own() -> None:
    apart, fused = (make_chunk(recipe(seed=3, schedules=s, chains=1.0), 0, 12).pairs for s in ("apart", "canonical"))
    assert [p.task.source for p in apart] == [p.task.source for p in fused]
    assert {p.schedule for p in apart} <= {"fuse=False", "canonical"} and "fuse=False" in {p.schedule for p in apart}
    assert all(a.answer.count("__global__") >= b.answer.count("__global__") for a, b in zip(apart, fused, strict=True))


def test_mixed_answers_name_their_schedule_first() -> None:
    found = [p for i in range(3) for p in make_chunk(recipe(seed=3, schedules="mixed"), i).pairs]
    canonical = [p for i in range(3) for p in make_chunk(recipe(seed=3), i).pairs]
    assert [p.task.source for p in found] == [p.task.source for p in canonical]
    heads: Counter[str] = Counter()
    for one, other in zip(found, canonical, strict=True):
        head, text = one.answer.split("\n", 1)
        assert head == HEADING + one.schedule
        assert one.schedule != "canonical" or text == other.answer
        heads[one.schedule] += 1
    share = {name: heads[name] / len(found) for name in ("canonical", "fuse=False")}
    assert 0.3 < share["canonical"] < 0.6 and 0.2 < share["fuse=False"] < 0.5 and len(heads) > 5, heads


def test_what_cannot_be_written_is_counted() -> None:
    made = make_chunk(recipe(seed=11), 0)
    tasks = sum(c["tasks"] for c in made.families.values())
    assert tasks == 32
    assert tasks == len({p.task.name for p in made.pairs}) + sum(made.skipped.values())


def test_split_is_passed_on() -> None:
    made = make_chunk(recipe(seed=1, split="combos"), 0, 3)
    assert sum(c["tasks"] for c in made.families.values()) == 3
    assert {p.task.split for p in made.pairs} <= {"combos"}


@pytest.mark.parametrize("arguments", [{"mistakes": 1.5}, {"schedules": "best"}, {"workers": -1}])
def test_what_is_out_of_range_is_said(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        pairs(1, 1, **arguments)  # type: ignore[arg-type]


def test_an_unknown_split_is_said_by_processes_too() -> None:
    with pytest.raises(UsageError):
        list(pairs(1, 1, split="nothing"))


def test_a_stream_that_is_left_early_ends_its_processes() -> None:
    import psutil

    others = {c.pid for c in psutil.Process().children()}
    stream = pairs(9, 10_000, workers=2)
    next(stream)
    children = [c for c in psutil.Process().children() if c.pid not in others]
    stream.close()
    assert children and not any(c.is_running() and c.status() != psutil.STATUS_ZOMBIE for c in children)


def test_mistakes_are_planted_in_their_share_and_marked() -> None:
    right = make_chunk(recipe(seed=8), 0)
    wrong = make_chunk(recipe(seed=8, mistakes=1.0), 0)
    some = make_chunk(recipe(seed=8, mistakes=0.5), 0)
    assert all(p.right and not p.mistake for p in right.pairs)
    assert all(p.mistake and not p.right for p in wrong.pairs)
    assert 0 < sum(p.right for p in some.pairs) < len(some.pairs)
    assert len({p.mistake for p in wrong.pairs}) > 3
    pairs_of = zip(right.pairs, wrong.pairs, strict=True)
    assert all(a.task == b.task and a.answer != b.answer for a, b in pairs_of)


def test_shares_of_chunks_that_are_chains_or_programs_alone() -> None:
    made = list(pairs(6, 200, chains=0.4, programs=0.6))
    groups = {"program" if p.task.family.startswith("program_") else "other" for p in made}
    assert groups == {"program", "other"}
    assert all(p.task.family.startswith("program_") for p in pairs(6, 40, programs=1.0))
    with pytest.raises(ConfigError, match="more than all"):
        pairs(6, 10, chains=0.6, programs=0.6)
    with pytest.raises(ConfigError, match="not a share"):
        pairs(6, 10, programs=-0.1)
