"""Oracles shared by threads: one user at a time, a bounded number kept, equal trials asked once."""

from __future__ import annotations

import threading

import pytest

from kernelwright.errors import HarnessError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes import oracle_client, oracle_pool
from kernelwright.evaluation.processes.oracle_client import OracleClient
from kernelwright.evaluation.processes.oracle_pool import Oracles
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.trials import Trial, TrialData
from kernelwright.records import Candidate, SourceFile, Task, Workload

WAIT = 20.0
BUDGET = {"element_budget": 4096, "flop_budget": 100_000}
TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x + {number}
def get_inputs():
    return [torch.randn(24, 40)]
def get_init_inputs():
    return []
"""


def task(number: int) -> Task:
    return Task(task_id=f"plus-{number}", source=TASK.format(number=number), policy="libraries")


@pytest.fixture
def shared(pool: Pool) -> Oracles:
    made = Oracles(pool)
    made.join()
    return made


def _trial(asked: OracleClient, seed: int) -> TrialData:
    size: Workload = asked.plan(BUDGET, 1).workloads[0]
    return asked.trial(Trial(size, "own", 3, seed), 5)


def test_the_next_thread_has_the_oracle_that_is_there(shared: Oracles) -> None:
    found: list[OracleClient] = []

    def use() -> None:
        with shared.lent(task(1)) as one:
            _trial(one, 7)
            found.append(one)

    for _ in range(2):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(WAIT)
    with shared.lent(task(2)) as other, shared.lent(task(1)) as again, shared.lent(task(1)) as second:
        assert found == [again, again] and again.child is not None
        assert other is not again and second is not again  # one is lent already
    shared.close()
    assert again.child is None


def test_no_more_are_kept_than_there_is_room_for(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_pool, "KEPT_FOR_EACH", 1)
    shared = Oracles(pool)
    shared.join()
    shared.join()
    used = []
    for number in (1, 2, 3):
        with shared.lent(task(number)) as one:
            one.plan(BUDGET, 1)
            used.append(one)
    assert [one.child is None for one in used] == [True, False, False]
    shared.close()
    shared.close()


def test_who_keeps_none_ends_each(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_pool, "KEPT_FOR_EACH", 0)
    shared = Oracles(pool)
    shared.join()
    with shared.lent(task(1)) as one:
        one.plan(BUDGET, 1)
    assert one.child is None


def test_what_was_raised_ends_the_oracle(shared: Oracles) -> None:
    with pytest.raises(HarnessError), shared.lent(task(1)) as one:
        one.plan(BUDGET, 1)
        raise HarnessError("the worker process is gone")
    assert one.child is None
    with shared.lent(task(1)) as again:
        assert again is not one


def test_equal_trials_are_asked_once(shared: Oracles, monkeypatch: pytest.MonkeyPatch) -> None:
    with shared.lent(task(1)) as one:
        first = _trial(one, 7)
        assert _trial(one, 7) is first and _trial(one, 8) is not first
        monkeypatch.setattr(oracle_client, "KEPT_BYTES", first.nbytes)
        assert _trial(one, 9) is not first
        assert len(one._made) == 1  # the others made room
        monkeypatch.setattr(oracle_client, "KEPT_BYTES", 0)
        again = _trial(one, 7)
        assert again is not first and [t.data for t in again.exact] == [t.data for t in first.exact]
    shared.close()


def test_a_candidate_that_writes_into_its_inputs_spoils_them_for_nobody(pool: Pool) -> None:
    """The next candidate receives the arrays that an oracle made for this one."""
    text = (
        "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n"
    )
    wanted = EvalOptions(backend="cpu", trials=2, seed=11, policy="libraries")
    bodies = ("x.zero_(); return x", "return x + 1", "x.mul_(2); return x", "return x + 1")
    with Evaluator(wanted, pool=pool) as evaluator:
        verdicts = []
        for body in bodies:
            source = SourceFile(path="c.py", content=text.format(body=body))
            verdicts.append(evaluator.evaluate(task(1), Candidate(sources=(source,), language="cuda")).verdict)
    assert verdicts[1] == verdicts[3] and verdicts[0] != "correct" and verdicts[2] != "correct"


def test_far_values_do_not_make_a_maximum_a_move(shared: Oracles) -> None:
    source = TASK.replace("(self, x)", "(self, x, y)").replace("x + {number}", "torch.maximum(x, y).t()")
    source = source.replace("[torch.randn(24, 40)]", "[torch.randn(24, 40), torch.randn(24, 40)]")
    with shared.lent(Task(task_id="maximum", source=source)) as asked:
        size = asked.plan(BUDGET, 1).workloads[0]
        (found,) = asked.movements(Trial(size, "far_below", 3, 7), 5)
    assert found.computed > 0
