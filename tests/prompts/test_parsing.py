"""Parsing of answers to candidates: the last whole block with the entry point, or one clear reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.prompts import ParseFailure, conversation, feedback, initial_messages, parse_answer, parse_program
from kernelwright.prompts.answers import is_python
from kernelwright.prompts.contexts import CONTEXTS, answer_of, converse
from kernelwright.records import Candidate, Evaluation, Finding, Message, SourceFile, Task, Turn

FILE = "import torch.nn as nn\n\nclass ModelNew(nn.Module):\n    pass\n"


def text_of(answer: str) -> str:
    parsed = parse_answer(answer)
    assert isinstance(parsed, Candidate), parsed
    return parsed.text


def failure(answer: str) -> str:
    parsed = parse_answer(answer)
    assert isinstance(parsed, ParseFailure)
    return parsed.reason


@pytest.mark.parametrize("label", ["python", "py", "", "Python title=x"])
def test_fenced_file(label: str) -> None:
    assert text_of(f"Here you are:\n```{label}\n{FILE}```\nDone.") == FILE


def test_bare_file() -> None:
    assert text_of(FILE) == FILE
    assert "no fenced code block" in failure(FILE.replace("ModelNew", "Other"))
    assert "no fenced code block" in failure(FILE + "Here you are.")
    assert "taken whole it is not Python: " in failure(FILE.replace("class ModelNew", "x = (\nclass ModelNew"))


def test_fences_in_the_strings_of_a_bare_file_are_no_blocks() -> None:
    for fence in ("```\nx = 1\n```", "```python\nclass ModelNew: ...\n```"):
        documented = f'"""Use:\n\n{fence}\n"""\n{FILE}'
        assert text_of(documented) == documented
    assert text_of(f"Here it is.\n```python\n{FILE}```") == FILE


def test_last_whole_file_wins() -> None:
    later = FILE.replace("pass", "x = 2")
    assert text_of(f"```python\n{FILE}```\nBetter:\n```python\n{later}```\n```cuda\n__global__ void k();\n```") == later


def test_thinking_does_not_count() -> None:
    draft = FILE.replace("pass", "draft = True")
    assert text_of(f"<think>\n```python\n{draft}```\n</think>\n```python\n{FILE}```") == FILE
    assert "empty" in failure(f"<think>\n```python\n{FILE}```\n")


def test_fence_within_a_longer_fence() -> None:
    nested = FILE + '\nTEXT = """\n```\n"""\n'
    assert text_of(f"````python\n{nested}````") == nested


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "empty"),
        ("I cannot do that.", "no fenced code block"),
        (f"```python\n{FILE}", "not closed"),
        ("```python\nx = 1\n```", "class ModelNew"),
        ("```python\nclass ModelNew(:\n    pass\n```", "line 1"),
        (f"```cpp\n{FILE}```", "must be Python"),
    ],
)
def test_reason_is_clear(answer: str, said: str) -> None:
    assert said in failure(answer)


@given(st.text(alphabet="`~\npython class ModelNew(){}<think>/", max_size=200))
def test_any_text_gives_a_candidate_or_a_reason(answer: str) -> None:
    parsed = parse_answer(answer)
    assert isinstance(parsed, Candidate) or parsed.reason


def test_reasoning_that_began_in_the_prompt_is_no_answer() -> None:
    draft = "draft:\n```python\nclass ModelNew:\n    pass\n```\nWait, no.\n</think>\n"
    assert isinstance(parse_answer(draft + "I could not do it."), ParseFailure)
    found = parse_answer(draft + "```python\nclass ModelNew:\n    x = 1\n```\n")
    assert isinstance(found, Candidate) and "x = 1" in found.text
    program = "```cuda\nint main() {}\n```\n</think>\nnothing"
    assert isinstance(parse_program(program), ParseFailure)


def test_a_summary_drops_reasoning_that_began_in_the_prompt() -> None:
    turn = Turn(index=0, messages=(), answer="well\n</think>\n\nthe answer", parse_failure="no code")
    assert answer_of(turn, "summary") == "the answer" and answer_of(turn, "recent") == turn.answer


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("import torch\n", True),
        ('s = r"""\n#include <cuda.h>\n', True),
        ("// import\n__global__ void k() {}\n", False),
        ("/*\nfrom here\n*/\n#include <cuda.h>\n", False),
        ('extern "C" __global__ void k() {}', False),
        ("# include the kernels\nimport torch\n", True),
    ],
)
def test_a_files_language_is_that_of_its_first_telling_line(text: str, python: bool) -> None:
    assert is_python(text, not python) is python


def test_prompt_holds_task_format_and_rules() -> None:
    task = Task(task_id="t", source="class Model:\n    unusual_name = 1\n")
    text = "\n".join(m.content for m in initial_messages(task))
    assert "unusual_name" in text and "ModelNew" in text and "load_inline" in text
    assert text != "\n".join(m.content for m in initial_messages(task.model_copy(update={"policy": "libraries"})))


def evaluation(**fields: object) -> Evaluation:
    base = {"task_id": "t", "task_hash": "h", "candidate_id": "c", "verdict": "wrong", "reason": "all differ"}
    return Evaluation.model_validate({**base, **fields})


def test_feedback_quotes_the_candidates_line() -> None:
    candidate = Candidate(sources=(SourceFile(path="c.py", content="a = 1\nb = a / 0\n"),), language="torch")
    found = Finding(rule="exception", evidence="ZeroDivisionError", severity="fault", line=2)
    said = feedback(candidate, evaluation(findings=(found,)), None).content
    assert "b = a / 0" in said and "all differ" in said


@pytest.mark.parametrize("context", [None, *CONTEXTS])
def test_a_fault_of_ours_is_not_told_in_any_context(context: str | None) -> None:
    """Neither its verdict nor its message is shown: they describe the machine and not the answer."""
    candidate = Candidate(sources=(SourceFile(path="c.py", content="a = 1"),), language="torch")
    found = Finding(rule="our_rule", evidence="our evidence", severity="fault")
    fields = {"verdict": "harness_error", "reason": "OSError: no space", "log": "Traceback: referee.py"}
    faulty = evaluation(**fields, findings=(found,))
    turn = Turn(index=0, messages=(), answer="mine", candidate_id="c", evaluation=faulty)
    if context is None:
        messages = conversation(Task(task_id="t", source="x = 1"), [turn], [candidate], 10**6)
    else:
        first = (Message(role="user", content="the task"),)
        messages = converse(
            first, [turn], [candidate], kind=context, top_w=4, score=lambda _: None, fits=lambda _: True
        )
    said = messages[-1].content
    assert messages[-2].content == "mine" and "could not be judged" in said and "nothing to do with it" in said
    for word in ("harness", "OSError", "space", "Traceback", "referee", "our", "mistake"):
        assert word not in said.replace("Your", ""), word


def test_old_answers_are_dropped_first() -> None:
    task = Task(task_id="t", source="x = 1")
    turns = [Turn(index=i, messages=(), answer=f"answer {i} " + "x" * 4000, parse_failure="no code") for i in range(5)]
    messages = conversation(task, turns, [None] * 5, budget=len(initial_messages(task)[1].content) + 10_000)
    text = "\n".join(m.content for m in messages)
    assert "answer 4" in text and "answer 0" not in text
    assert [m.role for m in messages[:2]] == ["system", "user"]
