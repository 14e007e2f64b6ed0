"""Weights that a candidate packs once: right with every weight, on both roads, and no cover for cached results."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions.kernels.prepacked import ONCE, packed_once
from kernelwright.solutions.kernels.schedule import CANONICAL
from kernelwright.solutions.task_parts import lowered, with_parts
from kernelwright.tasks import candidate_from_text

TASK = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)
    def forward(self, x):
        return torch.relu(self.lin(x))
def get_inputs():
    return [torch.randn(33, 70)]
def get_init_inputs():
    return [70, 50]
"""
TURN = """def turned(weight):
    packed = torch.empty_like(weight)
    kernels.turn[(weight.numel() + 255) // 256, 256](weight, packed, weight.shape[0], weight.shape[1])
    return packed"""
CANDIDATE = f'''
import torch
import torch.nn as nn
from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void turn(const float* w, float* t, int N, int K) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N * K) t[i % K * N + i / K] = w[i];
}}
extern "C" __global__ void product(const float* x, const float* t, const float* b, float* y, int M, int N, int K) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    int m = i / N, n = i % N;
    float s = b[n];
    for (int k = 0; k < K; ++k) s += x[m * K + k] * t[k * N + n];
    y[i] = fmaxf(s, 0.0f);
}}
""")


{ONCE}


{TURN}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.lin = nn.Linear(n, m)

    def computed(self, x, t):
        M, N, K = x.shape[0], self.lin.weight.shape[0], x.shape[1]
        y = torch.empty(M, N, device=x.device)
        kernels.product[(M * N + 255) // 256, 256](x, t, self.lin.bias, y, M, N, K)
        return y

    def forward(self, x):
        BODY
'''
HONEST = """t = once(self, "lin.weight", self.lin.weight, turned)
        return self.computed(x, t)"""
ATTACKS = {
    "copied input": """x = once(self, "x", x, lambda value: value.clone())
        return self.computed(x, turned(self.lin.weight))""",
    "result": """t = once(self, "lin.weight", self.lin.weight, turned)
        return once(self, "y", x, lambda value: self.computed(value, t))""",
    "result of the weight": """return once(self, "y", self.lin.weight, lambda w: self.computed(x, turned(w)))""",
}


@pytest.fixture(scope="module", params=["functional machine", "program"])
def evaluator(request: pytest.FixtureRequest, pool: Pool) -> Iterator[Evaluator]:
    """Judges on the functional machine, or as on a GPU by repeating a candidate's program."""
    if request.param == "program":
        options = EvalOptions(timing_seconds=0.05, timeout=20)
        with Evaluator(options, device="cpu", pool=pool) as made:
            yield made
    else:
        with Evaluator(EvalOptions(backend="cpu"), pool=pool) as made:
            yield made


def judged(evaluator: Evaluator, body: str) -> str:
    text = CANDIDATE.replace("BODY", body)
    task = Task(task_id="linear", source=TASK, policy="from_scratch")
    found = evaluator.evaluate(task, candidate_from_text(text, "test"))
    if found.environment.replayed:
        assert found.environment.replayed == "1 launches a call", (found.environment.replayed, found.reason)
    return found.verdict


def test_packed_weights_are_no_cached_work(evaluator: Evaluator) -> None:
    assert judged(evaluator, HONEST) == "correct"


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_depends_on_inputs_may_not_be_kept(evaluator: Evaluator, attack: str) -> None:
    text = CANDIDATE.replace("BODY", ATTACKS[attack])
    task = Task(task_id="linear", source=TASK, policy="from_scratch")
    assert evaluator.evaluate(task, candidate_from_text(text, "test")).verdict in ("wrong", "rejected")


@pytest.mark.parametrize("change", ["in place", "another tensor"])
def test_a_changed_weight_is_packed_again(change: str) -> None:
    names: dict[str, object] = {}
    exec(ONCE, names)
    module, calls = torch.nn.Linear(3, 2), []

    def pack(weight: torch.Tensor) -> torch.Tensor:
        calls.append(weight)
        return weight.detach().clone()

    def packed() -> torch.Tensor:
        return names["once"](module, "weight", module.weight, pack)  # type: ignore[operator]

    packed(), packed()
    assert len(calls) == 1
    with torch.no_grad():
        if change == "in place":
            module.weight.add_(1.0)
        else:
            module.weight = torch.nn.Parameter(torch.ones(2, 3))
    assert torch.equal(packed(), module.weight) and len(calls) == 2


def test_a_writer_adds_the_functions_once() -> None:
    writer, _ = with_parts(TASK, lambda parts: lowered(parts, CANONICAL))
    names = [packed_once(writer, "self.lin.weight", TURN) for _ in range(2)]
    assert writer.functions == [ONCE, TURN] and len(set(names)) == 2
    assert writer.lines[-1] == f'{names[1]} = once(self, "lin.weight.turned", self.lin.weight, turned)'
    with pytest.raises(ValueError, match="no attribute"):
        packed_once(writer, "x", TURN)
