"""The optimize job end to end: real evaluations, scripted answers, and a second call that repeats no evaluation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from policies.server import serving

from kernelwright.errors import ConfigError, PolicyError, UsageError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.policies import Policy, load_policy
from kernelwright.records import Task
from kernelwright.runs.store import Store
from kernelwright.search.optimize import OptimizeResult, Search, open_run, optimize, search
from kernelwright.search.rollout import Budget

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2 + 1

rows = 16

def get_inputs():
    return [torch.randn(rows, 64)]

def get_init_inputs():
    return []
"""
TASK = Task(task_id="double", source=SOURCE)
GOOD = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module

module = Module("""
extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.k[(x.numel() + 127) // 128, 128](x, y, x.numel())
        return y
'''
BAD = GOOD.replace("2.0f + 1.0f", "2.0f + 1.5f")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=2, trials=2), pool=pool) as shared:
        yield shared


def script(folder: Path, *answers: str) -> Policy:
    file = folder / "script.jsonl"
    file.write_text("\n".join(json.dumps({"answer": a}) for a in answers))
    return load_policy(f"scripted:{file}")


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def run(
    folder: Path, policy: Policy, evaluator: Evaluator, turns: int = 4, tokens: int | None = None
) -> OptimizeResult:
    with Store.open_or_create(folder / "run") as store:
        return search(TASK, policy, evaluator, store, Search(budget=Budget(turns=turns, tokens=tokens)))


def test_mistake_is_fed_back_and_mended(tmp_path: Path, evaluator: Evaluator) -> None:
    result = run(tmp_path, script(tmp_path, "no code", fenced(BAD), fenced(GOOD), fenced(BAD)), evaluator)
    turns = result.trajectories[0].turns
    assert [t.evaluation.verdict if t.evaluation else None for t in turns] == [None, "wrong", "correct"]
    assert turns[0].parse_failure and "differs" in turns[2].messages[-1].content
    assert result.trajectories[0].stop_reason == "found"
    assert result.path == tmp_path / "run" / "best.py" and "ModelNew" in result.path.read_text()
    facts = result.public()
    assert facts["verdict"] == "correct" and facts["timing"] is None


def test_rerun_judges_nothing_again(tmp_path: Path, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(tmp_path, script(tmp_path, fenced(BAD), fenced(GOOD)), evaluator)
    calls: list[object] = []
    monkeypatch.setattr(evaluator, "evaluate", lambda *a: calls.append(a))
    again = run(tmp_path, script(tmp_path, fenced(BAD), fenced(GOOD)), evaluator)
    assert not calls
    assert again.public() == first.public()


def test_budget_of_turns_keeps_the_best_so_far(tmp_path: Path, evaluator: Evaluator) -> None:
    result = run(tmp_path, script(tmp_path, "nothing", fenced(BAD), "nothing"), evaluator, turns=3)
    assert result.trajectories[0].stop_reason == "turns"
    assert result.evaluation is not None and result.evaluation.verdict == "wrong"


def test_nothing_found(tmp_path: Path, evaluator: Evaluator) -> None:
    result = run(tmp_path, script(tmp_path, "nothing"), evaluator, turns=1)
    assert result.path is None and result.public()["verdict"] is None


def test_script_at_its_end_keeps_what_was_done(tmp_path: Path, evaluator: Evaluator) -> None:
    with pytest.raises(PolicyError):
        run(tmp_path, script(tmp_path, fenced(BAD)), evaluator, turns=3)
    with Store.open(tmp_path / "run", writable=False) as store:
        assert [e.verdict for e in store.evaluations()] == ["wrong"]
        assert [len(turns) for turns in store.turns().values()] == [1]


def test_model_behind_http_is_asked_once_for_each_turn(tmp_path: Path, evaluator: Evaluator) -> None:
    with serving() as endpoint:
        endpoint.answer = fenced(GOOD)
        for _ in range(2):
            policy = load_policy(f"openai:m@{endpoint.url}", cache=tmp_path / "answers")
            result = run(tmp_path, policy, evaluator)
            assert result.public()["verdict"] == "correct" and result.public()["tokens"] == 120
        assert len(endpoint.requests) == 1


def test_budget_of_tokens_ends_the_search(tmp_path: Path, evaluator: Evaluator) -> None:
    with serving() as endpoint:
        endpoint.answer = "no code"
        # Two answers spend it: a third equal one would end the search for its circles.
        result = run(tmp_path, load_policy(f"openai:m@{endpoint.url}"), evaluator, turns=9, tokens=200)
    assert len(result.trajectories[0].turns) == 2 and result.trajectories[0].stop_reason == "tokens"


def test_template_solves_it(tmp_path: Path, evaluator: Evaluator) -> None:
    assert run(tmp_path, load_policy("template"), evaluator).public()["verdict"] == "correct"


def test_a_call_without_a_run_folder_keeps_nothing(tmp_path: Path) -> None:
    answers = script(tmp_path, fenced(BAD), fenced(GOOD))
    seen: list[int] = []
    found = optimize(TASK, answers, options=EvalOptions(seed=2, trials=2), on_turn=lambda turn: seen.append(turn.index))
    assert found.public()["verdict"] == "correct" and found.path is None and seen == [0, 1]
    assert found.best is not None and "ModelNew" in found.best.text
    assert [path.name for path in tmp_path.iterdir()] == ["script.jsonl"]


def test_a_call_with_a_run_folder_continues_it(tmp_path: Path) -> None:
    options = EvalOptions(seed=2, trials=2)
    for _ in range(2):
        found = optimize(TASK, "template", run=tmp_path / "run", options=options, out=tmp_path / "found.py")
        assert found.path == tmp_path / "found.py" and found.public()["verdict"] == "correct"
    with Store.open(tmp_path / "run", writable=False) as store:
        assert len(list(store.evaluations())) == 1 and store.meta["policy"] == "template"


def test_unknown_strategy(tmp_path: Path, evaluator: Evaluator) -> None:
    with Store.create(tmp_path / "run") as store, pytest.raises(ConfigError, match="no strategy"):
        search(TASK, script(tmp_path, "x"), evaluator, store, Search("refin"))


def test_a_run_of_another_verb_is_left_alone(tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", {"verb": "bench"}):
        pass
    with pytest.raises(UsageError, match="is of another verb, bench"):
        open_run(tmp_path / "run", {"verb": "optimize"})
    with Store.open(tmp_path / "run", writable=False) as store:
        assert store.events() == []
    for _ in range(2):
        open_run(tmp_path / "own", {"verb": "optimize"}).close()
