"""The verdict cache between runs: equal questions get the stored answer, all others are judged."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from judging import candidate, task

from kernelwright.errors import StoreError
from kernelwright.evaluation import EvalOptions
from kernelwright.executor import Job, load_executor
from kernelwright.records import Candidate, Evaluation, Provenance
from kernelwright.runs.known_verdicts import Remembering, remembering, without_comments

OPTIONS = EvalOptions(backend="cpu", trials=1)
SECONDS = 60.0


def _opened(folder: Path) -> Remembering:
    found = remembering(load_executor("local", 1), folder)
    assert isinstance(found, Remembering)
    return found


def test_equal_questions_are_judged_once_by_all_runs(tmp_path: Path) -> None:
    kept: list[tuple[str, str]] = []

    def keep(job: Job, evaluation: Evaluation) -> None:
        kept.append((job.task.task_id, evaluation.verdict))

    with _opened(tmp_path / "verdicts") as first:
        assert first.submit(task(1), candidate(1), OPTIONS, keep=keep).result(SECONDS).verdict == "correct"
        assert first.submit(task(1), candidate(2), OPTIONS, keep=keep).result(SECONDS).verdict == "wrong"
        with _opened(tmp_path / "verdicts") as second:  # at the same time, as two trainings may
            found = second.submit(task(1), candidate(1), OPTIONS, keep=keep)
            assert found.done() and found.result().verdict == "correct"
            assert second.submit(task(1), candidate(2), OPTIONS).result(0).verdict == "wrong"
            assert (first.known, second.known) == (0, 2)
    assert kept == [("plus-1", "correct"), ("plus-1", "wrong"), ("plus-1", "correct")]


def test_where_a_task_was_read_from_makes_no_other_question(tmp_path: Path) -> None:
    with _opened(tmp_path) as executor:
        for name in ("train.jsonl", "part-of-it.jsonl"):
            asked = task(1).changed(provenance=Provenance(origin=f"{name}#plus-1"))
            assert executor.submit(asked, candidate(1), OPTIONS).result(SECONDS).verdict == "correct"
        assert executor.known == 1
        assert executor.submit(task(1).changed(tolerance=0.5), candidate(1), OPTIONS).result(SECONDS)
        assert executor.known == 1


def test_other_inputs_tasks_and_candidates_are_other_questions(tmp_path: Path) -> None:
    with _opened(tmp_path) as executor:
        for asked in (OPTIONS, OPTIONS.changed(seed=5), OPTIONS.changed(trials=2)):
            executor.submit(task(1), candidate(1), asked).result(SECONDS)
        assert executor.submit(task(2), candidate(1), OPTIONS).result(SECONDS).verdict == "wrong"
        assert executor.known == 0


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sqlite").write_text("no database")
    with pytest.raises(StoreError, match="verdicts that runs share"):
        remembering(load_executor("local", 1), tmp_path)


def test_without_a_folder_nothing_is_put_before_it() -> None:
    with load_executor("local", 1) as executor:
        assert remembering(executor, None) is executor


@given(st.lists(st.sampled_from([*"#'\"\\\n \t(){}[]:=ax1", "\r\n", "'''", "# b", "f'{", "\x0c", "\u2028", "é"])))
@example(["1\\\n# a"])
@example(["\0# a"])
def test_taking_comments_away_changes_nothing_that_python_runs(parts: list[str]) -> None:
    text = "".join(parts)
    plain = without_comments(text)
    assert plain.count("\n") == text.count("\n")
    warnings.simplefilter("ignore")
    try:
        meant = ast.dump(ast.parse(text), include_attributes=True)
    except (SyntaxError, ValueError):
        return
    assert ast.dump(ast.parse(plain), include_attributes=True) == meant
    assert without_comments(plain) == plain


def test_a_comment_makes_no_other_question_but_one_within_a_string_does(tmp_path: Path) -> None:
    def with_head(text: str) -> Candidate:
        (source,) = candidate(1).sources
        return candidate(1).changed(sources=(source.changed(content=text + source.content),))

    with _opened(tmp_path) as executor:
        assert executor.submit(task(1), candidate(1), OPTIONS).result(SECONDS).verdict == "correct"
        (source,) = candidate(1).sources
        other = candidate(1).changed(
            sources=(source.changed(content=source.content.replace("module = ", "# it\nmodule = ")),)
        )
        assert executor.submit(task(1), other, OPTIONS).result(SECONDS).verdict == "correct"
        assert executor.known == 0  # another number of lines
        for text in ("# schedule: block=512\n", "# schedule: canonical\n"):
            found = executor.submit(task(1), with_head(text), OPTIONS).result(SECONDS)
            assert found.candidate_id == with_head(text).content_hash
        assert executor.known == 1
        changed = source.content.replace("auto y", "/* # here */ auto y")
        executor.submit(task(1), candidate(1).changed(sources=(source.changed(content=changed),)), OPTIONS).result(
            SECONDS
        )
        assert executor.known == 1
