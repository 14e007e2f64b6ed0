"""Replayed answers: by turn and task, from JSONL or whole files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.errors import ConfigError, PolicyError
from kernelwright.policies import Request, load_policy
from kernelwright.policies.asking import Asker
from kernelwright.records import Message, Task
from kernelwright.search.rollout import Budget, Exchange, rollout

FIRST = (Message(role="user", content="write"),)
SECOND = (*FIRST, Message(role="assistant", content="a"), Message(role="user", content="again"))
TASK = Task(task_id="relu", source="x = 1")


def script(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(json.dumps(r) if not isinstance(r, str) else r for r in rows))
    return path


def test_answers_follow_the_turns(tmp_path: Path) -> None:
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', {'answer': 'one'}, {'answer': 'two'})}")
    assert policy.generate(FIRST, seed=0).text == "one"
    assert policy.generate(SECOND, seed=0).text == "two"


def test_the_turn_is_what_the_asker_says(tmp_path: Path) -> None:
    """A context may show fewer turns than were played."""
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', *({'answer': word} for word in ('a', 'b', 'c')))}")
    said: list[str] = []

    def converse(task: Task, turns: object, candidates: object) -> tuple[Message, ...]:
        return FIRST

    rollout(
        TASK,
        policy,
        lambda *_: pytest.fail("no answer is a candidate"),
        budget=Budget(turns=3),
        exchange=Exchange(converse),
        on_turn=lambda turn, _: said.append(turn.answer),
    )
    assert said == ["a", "b", "c"]
    with Asker(policy) as asker:
        assert asker.ask(Request(FIRST, 0, turn=2)).text == "c"


def test_task_and_turn_may_be_named(tmp_path: Path) -> None:
    rows = ({"answer": "any"}, {"answer": "mine", "task_id": "relu"}, {"answer": "late", "task_id": "relu", "turn": 1})
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', *rows)}")
    assert policy.generate(FIRST, seed=0, task=TASK).text == "mine"
    assert policy.generate(SECOND, seed=0, task=TASK).text == "late"
    assert policy.generate(FIRST, seed=0).text == "any"


def test_an_answer_may_be_for_one_seed(tmp_path: Path) -> None:
    rows = ({"answer": "any"}, {"answer": "third", "seed": 3}, {"answer": "late", "seed": 3})
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', *rows)}")
    assert [policy.generate(FIRST, seed=n).text for n in (0, 3, 4)] == ["any", "third", "any"]
    assert policy.generate(SECOND, seed=3).text == "late"


def test_python_file_is_one_candidate(tmp_path: Path) -> None:
    file = tmp_path / "c.py"
    file.write_text("class ModelNew: pass\n")
    assert "```python" in load_policy(f"scripted:{file}").generate(FIRST, seed=0).text


def test_end_of_the_script_is_said(tmp_path: Path) -> None:
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', {'answer': 'one'})}")
    with pytest.raises(PolicyError, match="no answer for turn 2"):
        policy.generate(SECOND, seed=0)


@pytest.mark.parametrize("rows", [["not json"], [{"text": "x"}], ["[1]"], [""], ['{"answer": "x", "turn": "soon"}']])
def test_broken_script(tmp_path: Path, rows: list[object]) -> None:
    with pytest.raises(ConfigError, match="script"):
        load_policy(f"scripted:{script(tmp_path / 's.jsonl', *rows)}")


def test_missing_script() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy("scripted:nowhere.jsonl")


def test_signs_that_end_lines_elsewhere_do_not_end_a_row(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    file.write_text(json.dumps({"answer": "a\u2028b\x85c"}, ensure_ascii=False) + "\r\n", newline="")
    assert load_policy(f"scripted:{file}").generate(FIRST, seed=0).text == "a\u2028b\x85c"


@pytest.mark.parametrize("answer", [None, 5, ["a"], {"text": "a"}, True])
def test_an_answer_is_a_text(tmp_path: Path, answer: object) -> None:
    with pytest.raises(ConfigError, match="line 2 of"):
        load_policy(f"scripted:{script(tmp_path / 's.jsonl', {'answer': 'one'}, {'answer': answer})}")


def test_two_answers_to_one_question_are_refused(tmp_path: Path) -> None:
    one = {"answer": "one", "task_id": "relu", "turn": 0, "seed": 3}
    rows = [one, {**one, "seed": 4}, {**one, "answer": "two"}]
    with pytest.raises(ConfigError, match="lines 1 and 3 of"):
        load_policy(f"scripted:{script(tmp_path / 's.jsonl', *rows)}")
    policy = load_policy(f"scripted:{script(tmp_path / 's.jsonl', *rows[:2], one)}")
    assert policy.generate(FIRST, seed=3, task=TASK).text == "one"
