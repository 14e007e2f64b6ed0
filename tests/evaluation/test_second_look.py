"""The second look forgives honest rounding at ill-conditioned elements and no wrong value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.compare import on_device, second_look
from kernelwright.evaluation.compare.on_host import Array, Comparison, OutputSpec, Ruler, compare
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.reference.referee import Referee
from kernelwright.evaluation.trials import noise
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task, Workload
from kernelwright.tasks import draws, metric, reference_runs

Function = Callable[..., torch.Tensor]


class Reference(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


class Case:
    """A reference with one set of inputs, with the results of judge and oracle."""

    def __init__(self, function: Function, values: list[torch.Tensor]) -> None:
        self.model, self.values, self.runs = Reference(function), values, 0
        self.exact = reference_runs.reference_outputs(self.model, values, torch.float64)
        honest = reference_runs.reference_outputs(self.model, values)
        self.honest = reference_runs.widen_honest(self.model, {}, values, self.exact, honest)
        self.low = reference_runs.low_precision_error(self.model, {}, values, self.exact)

    def nearby(self, run: int) -> list[np.ndarray] | None:
        self.runs += 1
        outputs = reference_runs.nearby_outputs(self.model, {}, self.values, 0, *noise(77, run))
        return None if outputs is None else [t.numpy() for t in outputs]

    def judge(self, got: torch.Tensor, again: bool = True) -> Comparison:
        """Returns the judge's verdict on an output; `again` adds the second look."""
        name = str(self.honest[0].dtype).removeprefix("torch.")
        spec = [OutputSpec(name, tuple(self.honest[0].shape))]
        exact, honest = [t.numpy() for t in self.exact], [t.numpy() for t in self.honest]
        nearby = self.nearby if again else None
        return compare([Array(got.numpy(), name)], exact, honest, spec, low_error=self.low, nearby=nearby)

    def looked_at_and_wrong(self, got: torch.Tensor) -> bool:
        """Tells whether the second look itself finds an output wrong, rather than being unavailable."""
        self.runs = 0
        result = self.judge(got)
        return not result.passed and result.forgiven == 0 and self.runs >= 2


def in_a_row(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Computes a float32 matmul with one accumulator per element, first to last."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator) for s in shapes]


def attention_scores(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.softmax(a @ b, 1)


SIZE = (24, 4096, 128)


@cache
def logits(seed: int = 1) -> Case:
    """Returns logits of deviation 45, whose rounding the exponential amplifies."""
    return Case(attention_scores, drawn(seed, (16, 2048), (2048, 256)))


def test_sums_in_a_row_before_an_exponential_are_honest() -> None:
    needed = 0
    for case in map(logits, (1, 2, 3)):
        got = torch.softmax(in_a_row(*case.values), 1)
        result = case.judge(got)
        assert result.passed and not result.reason, result
        assert (result.forgiven > 0) is not case.judge(got, again=False).passed
        needed += result.forgiven
    assert needed, "the first look took all of them: this tests nothing"


def rounded(kind: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    return lambda a, b: torch.softmax(kind(a).double() @ kind(b).double(), 1).float()


def damaged(change: Callable[[torch.Tensor], Any]) -> Function:
    def candidate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.softmax(in_a_row(a, b), 1)
        change(out)
        return out

    return candidate


def largest(out: torch.Tensor) -> tuple[int, int]:
    return divmod(int(out.argmax()), out.shape[1])


WRONG: dict[str, Function] = {
    "tf32": rounded(tf32),
    "fp16": rounded(lambda t: t.half()),
    "bf16": rounded(lambda t: t.bfloat16()),
    "last term left out": lambda a, b: torch.softmax(in_a_row(a[:, :-1], b[:-1]), 1),
    "a wrong constant": lambda a, b: torch.softmax(in_a_row(a, b) * 1.0001, 1),
    "one element not written": damaged(lambda out: out.__setitem__(largest(out), 0.0)),
    "one element too large": damaged(lambda out: out.__setitem__(largest(out), out.max() * 1.01)),
    "one element of another row": damaged(lambda out: out[3].__setitem__(int(out[3].argmax()), out[2].max() / 2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_stays_wrong(name: str) -> None:
    result = logits().judge(WRONG[name](*logits().values))
    assert not result.passed and result.forgiven == 0, result


@pytest.mark.parametrize("name", ["tf32", "one element not written", "one element too large"])
def test_few_wrong_elements_are_looked_at_and_not_forgiven(name: str) -> None:
    case = logits()
    got = WRONG[name](*case.values)
    if name == "tf32":  # only the worst elements stay wrong, so that they are few
        got, bad = case.exact[0].float().clone(), got
        worst = (bad - got).abs().flatten().topk(5).indices
        got.view(-1)[worst] = bad.view(-1)[worst]
    assert case.looked_at_and_wrong(got)


def test_a_softmax_without_its_maximum_overflows() -> None:
    def careless(t: torch.Tensor) -> torch.Tensor:
        return t.exp() / t.exp().sum(1, keepdim=True)

    case = logits()
    result = case.judge(careless(in_a_row(*case.values)))
    assert not result.passed and result.forgiven == 0


# Jumps


def shrink(threshold: float) -> Function:
    return lambda a, b: F.hardshrink(a @ b, threshold)


def at_a_jump() -> tuple[list[torch.Tensor], torch.Tensor, float, int]:
    """Returns inputs, their product, and a threshold between that and the exact product at one element (its number)."""
    values = drawn(5, (32, 512), (512, 128))
    near, exact = in_a_row(*values), values[0].double() @ values[1].double()
    apart = torch.where(near.sign() == exact.sign(), (near.double().abs() - exact.abs()), 0.0).abs()
    place = int((apart * (exact.abs() > 5)).argmax())
    return values, near, float((near.double().abs() + exact.abs()).flatten()[place] / 2), place


def test_either_side_of_a_threshold_is_honest_within_rounding() -> None:
    values, near, threshold, place = at_a_jump()
    case = Case(shrink(threshold), values)
    got = torch.where(near.double().abs() > threshold, near, 0.0)
    assert (got.view(-1)[place] == 0) != (case.exact[0].view(-1)[place] == 0)
    assert not case.judge(got, again=False).passed
    assert case.judge(got).passed and case.judge(got).forgiven == 1


@pytest.mark.parametrize("kind", ["between", "neighbour", "beyond"])
def test_a_jump_gives_nothing_but_its_two_sides(kind: str) -> None:
    values, near, threshold, place = at_a_jump()
    case = Case(shrink(threshold), values)
    got = torch.where(near.double().abs() > threshold, near, 0.0)
    if kind == "between":
        got.view(-1)[place] = near.view(-1)[place] / 2
    elif kind == "neighbour":
        got.view(-1)[place ^ 1] += 0.3
    else:
        got.view(-1)[place] = -near.view(-1)[place]
    assert case.looked_at_and_wrong(got)


def test_another_threshold_is_wrong() -> None:
    a, b = drawn(6, (64, 484), (484, 512))
    values = [a / 22, b]
    case = Case(shrink(0.5), values)
    near = in_a_row(*values)
    assert case.judge(torch.where(near.abs() > 0.5, near, 0.0)).passed
    assert case.looked_at_and_wrong(torch.where(near.abs() > 0.5001, near, 0.0))


def test_comparing_an_exact_input_with_its_threshold_stays_exact() -> None:
    (x,) = drawn(7, (64, 512))
    x[3, 5] = 0.5
    case = Case(lambda t: torch.where(t > 0.5, t, 0.0), [x])
    assert case.judge(torch.where(x > 0.5, x, 0.0)).passed
    assert case.looked_at_and_wrong(torch.where(x >= 0.5, x, 0.0))


def test_a_mask_is_no_measurement() -> None:
    (x,) = drawn(8, (64, 512))
    mask = torch.ones_like(x)
    mask[9, 9] = 0
    case = Case(lambda t, m: torch.where(m == 1, t, -1e4), [x, mask])
    assert case.looked_at_and_wrong(x.clone())


# Integers


def nearest(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b).argmax(1)


def tied() -> tuple[Case, int, int, int]:
    """Returns an argmax case whose one row has two largest values within rounding: the row, its answer, the other one.

    It takes the first draw whose float32 run has the same answer, which depends on the processor's libraries.
    """
    for seed in range(9, 60):
        a, b = drawn(seed, (200, 256), (256, 32))
        order = (a.double() @ b.double()).argsort(1, descending=True)
        first, second = int(order[17, 0]), int(order[17, 1])
        b[:, second] = b[:, first] + 0.3 * (b[:, second] - a[17] * (a[17] @ b[:, second]) / (a[17] @ a[17]))
        b[:, second] -= a[17] * (a[17] @ (b[:, second] - b[:, first])) / (a[17] @ a[17])
        case = Case(nearest, [a, b])
        answer = int(case.exact[0][17])
        if answer == int(case.honest[0][17]) and answer in (first, second):
            return case, 17, answer, first + second - answer
    raise AssertionError("no drawing has a tie that both runs see alike")


def test_an_index_of_a_tie_within_rounding_may_be_either() -> None:
    case, row, answer, other = tied()
    got = case.exact[0].clone()
    assert answer != other and got[row] == answer
    got[row] = other
    assert not case.judge(got, again=False).passed
    assert case.judge(got).passed and case.judge(got).forgiven == 1


def test_any_other_index_is_wrong() -> None:
    case, row, answer, other = tied()
    third = next(i for i in range(32) if i not in (answer, other))
    for where, index in ((row, third), (row + 1, int(case.exact[0][row + 1] + 1) % 32)):
        got = case.exact[0].clone()
        got[where] = index
        assert case.looked_at_and_wrong(got)


def test_an_argmax_in_lower_precision_is_wrong() -> None:
    case = Case(nearest, drawn(10, (4000, 64), (64, 256)))
    a, b = case.values
    assert case.judge(in_a_row(a, b).argmax(1)).passed
    assert case.looked_at_and_wrong(nearest(a.half().double(), b.half().double()))


# Conditions for a second look


def test_it_costs_nothing_where_nothing_or_much_fails() -> None:
    case = logits()
    right = case.exact[0].float()
    assert case.judge(right).passed
    for wrong in (torch.zeros_like(right), right * 1.01, torch.where(right == right.max(), torch.nan, right)):
        case.runs = 0
        assert not case.judge(wrong).passed and case.runs == 0
    assert second_look.few(1, 1) and second_look.few(10, 1000) and not second_look.few(11, 1000)
    assert not second_look.few(second_look.MOST + 1, 1 << 40)


def test_a_reference_that_takes_no_other_inputs_gives_no_second_look() -> None:
    (x,) = drawn(4, (64, 64))

    def picky(t: torch.Tensor) -> torch.Tensor:
        if not torch.equal(t.float(), x):
            raise ValueError("not these")
        return t * 2

    case = Case.__new__(Case)
    case.model, case.values, case.runs, case.low = Reference(picky), [x], 0, [None]
    case.exact, case.honest = [x.double() * 2], [x * 2]
    got = x * 2
    got[1, 2] += 1
    result = case.judge(got)
    assert not result.passed and case.runs == 2 and "1 of 4096" in result.reason


def test_opposite_runs_move_full_precision_values_only_and_opposite_ways() -> None:
    x = torch.tensor([0.0, 1.0, -3.0, 0.5, 1.2345678, -7.7777777, float("inf")])
    moved = [reference_runs.nearby_outputs(Reference(lambda t: t), {}, [x], 0, 5, sign) for sign in (1, -1)]
    up, down = (m[0] - x.double() for m in moved if m is not None)
    assert torch.equal(up[:4], torch.zeros(4, dtype=torch.float64)) and torch.equal(up[4:6], -down[4:6])
    assert torch.allclose(up[4:6].abs(), x[4:6].double().abs() * 2**-19, rtol=1e-6)


@given(st.lists(st.integers(1, 200), min_size=0, max_size=3).map(tuple), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_the_surroundings_are_whole_segments(shape: tuple[int, ...], seed: int) -> None:
    size = int(np.prod(shape))
    starts = metric.segment_starts(shape)
    where = np.unique(np.random.default_rng(seed).integers(0, size, 3))
    mine = np.unique(np.searchsorted(starts, where, side="right") - 1)
    ends = np.append(starts, size)
    wanted = np.concatenate([np.arange(ends[s], ends[s + 1]) for s in mine])
    places, begins = metric.around(shape, where)
    assert np.array_equal(places, wanted) and np.array_equal(places[begins], starts[mine])


@pytest.mark.parametrize("block", [1 << 25, 600])
def test_the_blockwise_comparison_has_the_same_doubts(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "BLOCK", block)
    case = logits()
    got = WRONG["one element too large"](*case.values)
    exact, honest = case.exact[0], case.honest[0]
    mine = on_device.compare_output(0, got, exact, honest, Ruler(case.low[0]), 1.0, None).doubt
    other = case.judge(got, again=False).doubt
    assert mine is not None and other is not None
    for name in ("places", "starts", "where", "segment", "got"):
        assert np.array_equal(getattr(mine, name), getattr(other, name)), name
    assert np.allclose(mine.room, other.room, rtol=1e-9)
    picked = on_device.taken([exact], [mine])[0]
    assert np.array_equal(picked, exact.numpy().reshape(-1)[other.places])
    indices = exact.argmax(1)
    indices[2] += 1
    doubt = on_device.compare_output(0, indices, exact.argmax(1), exact.argmax(1), Ruler(), 1.0, None).doubt
    assert doubt is not None and doubt.places.tolist() == [2] and not doubt.smooth


# Whole candidates

TASK = """
import torch
import torch.nn as nn
rows, depth, columns = {rows}, {depth}, {columns}
class Model(nn.Module):
    def forward(self, a, b):
        return torch.softmax(a @ b, dim=1)
def get_inputs():
    return [torch.randn(rows, depth), torch.randn(depth, columns)]
def get_init_inputs():
    return []
"""
CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
STATED
__global__ void product(const float* a, const float* b, float* y, int m, int k, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    float total = 0.0f;
    for (int j = 0; j < k; ++j) total += ROUND(a[i / n * k + j]) * ROUND(b[j * n + i % n]);
    y[i] = total;
}
__global__ void softmax(const float* x, float* y, int n) {
    __shared__ float high, total;
    const float* row = x + blockIdx.x * n;
    if (threadIdx.x == 0) {
        high = row[0];
        for (int j = 1; j < n; ++j) high = fmaxf(high, row[j]);
        total = 0.0f;
        for (int j = 0; j < n; ++j) total += expf(row[j] - high);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += blockDim.x) y[blockIdx.x * n + j] = expf(row[j] - high) / total;
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto x = torch::empty({m, n}, a.options());
    auto y = torch::empty_like(x);
    product<<<(m * n + 127) / 128, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(), x.data_ptr<float>(), m, k, n);
    softmax<<<m, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
module = load_inline("scores", "torch::Tensor forward(torch::Tensor a, torch::Tensor b);", source, ["forward"])
class ModelNew(nn.Module):
    def forward(self, a, b):
        return module.forward(a, b)
'''
TORCH = """
import torch
import torch.nn as nn
class ModelNew(nn.Module):
    def forward(self, a, b):
        total = torch.zeros(a.shape[0], b.shape[1])
        for k in range(a.shape[1]):
            total += a[:, k : k + 1] * b[k : k + 1]
        return torch.softmax(total, 1)
"""


def evaluated(evaluator: Evaluator, text: str, size: tuple[int, int, int], policy: LibraryRule) -> Evaluation:
    names = ("rows", "depth", "columns")
    constants = dict(zip(names, size, strict=True))
    workloads = (Workload(name="full", constants=constants),)
    task = Task(task_id="scores", source=TASK.format(**constants), policy=policy, workloads=workloads)
    return evaluator.evaluate(task, Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda"))


def test_a_kernel_with_sums_in_a_row_is_correct_and_says_what_was_forgiven(pool: Pool) -> None:
    with Evaluator(EvalOptions(seed=3, timeout=30, trials=1), pool=pool) as evaluator:
        result = evaluated(evaluator, CUDA.replace("STATED", "#define ROUND(x) (x)"), SIZE, "from_scratch")
        assert result.verdict == "correct", result.reason
        assert sum(w.forgiven for w in result.workloads) > 0, result.workloads
        half = "#include <cuda_fp16.h>\n#define ROUND(x) __half2float(__float2half(x))"
        result = evaluated(evaluator, CUDA.replace("STATED", half), SIZE, "from_scratch")
        assert result.verdict == "wrong" and "differs" in result.reason


def test_the_referee_looks_twice_as_well(pool: Pool) -> None:
    """The candidate adds on the host what lies on a device: only a runner whose device is the host runs it."""
    options = EvalOptions(seed=3, timeout=30, trials=1, timing_seconds=0, program_first=False)
    with Evaluator(options, device="cpu", pool=pool) as evaluator:
        result = evaluated(evaluator, TORCH, SIZE, "libraries")
        assert result.verdict == "correct" and result.backend == "host", result.reason
        assert sum(w.forgiven for w in result.workloads) > 0, result.workloads
        result = evaluated(
            evaluator,
            TORCH.replace("total = t", "a, b = a.half().float(), b.half().float(); total = t"),
            SIZE,
            "libraries",
        )
        assert result.verdict == "wrong" and "differs" in result.reason


class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lower: torch.dtype) -> torch.Tensor:
    """Computes the same as fused kernels do: probabilities are rounded before the division by their sum."""
    scores = q.float() @ k.float().transpose(-1, -2) / 8
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), float("-inf"))
    parts = (scores - scores.amax(-1, keepdim=True)).exp()
    return ((parts.to(lower).float() @ v.float()) / parts.sum(-1, keepdim=True)).half()


@pytest.mark.parametrize("thorough", [True, False])
@pytest.mark.parametrize(("lower", "passes"), [(torch.float16, True), (torch.bfloat16, False)])
def test_rows_of_constants_that_cancel_are_looked_at_twice(lower: torch.dtype, passes: bool, thorough: bool) -> None:
    """Each row is one draw of rounding. The inputs are moved although every precision holds them exactly."""
    generator = torch.Generator().manual_seed(0)
    values = [draws._constant_rows(torch.Size((2, 600, 64)), generator, False).contiguous().half() for _ in "qkv"]
    referee = Referee(cast(Any, SimpleNamespace(name="cpu")))
    referee.model, referee.state = Attention(), {}
    header = {"call_seed": 0, "tolerance": None, "seed": 0}
    got = flash(*values, lower)
    (found,) = referee._compared(header, [got], [values], lambda: values, thorough)
    assert found.passed == passes and (found.forgiven > 0) == passes, found
