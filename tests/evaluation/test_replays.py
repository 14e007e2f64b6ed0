"""Candidates judged on a GPU by their programs: traced without values, repeated in a process that stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelwright.backends.triton import triton_support
from kernelwright.builds import BuildResult
from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate.replayer import Replayer
from kernelwright.evaluation.device import devices
from kernelwright.evaluation.device.devices import HostDevice
from kernelwright.evaluation.judge import timing, timing_in_rows
from kernelwright.evaluation.processes import program_client
from kernelwright.evaluation.processes.channel import Frame
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.program.memory import DeviceMemory
from kernelwright.evaluation.program.tracing import TracedCode
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

TASK = """
import torch
import torch.nn as nn
rows, cols = 24, 40
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return torch.relu(x) * self.scale
def get_inputs():
    return [torch.randn(rows, cols)]
def get_init_inputs():
    return [cols]
"""
CANDIDATE = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module
kernels = Module(r"""
extern "C" __global__ void scaled_relu(const float* x, const float* s, float* y, int rows, int cols) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = {wrong} fmaxf(x[i], 0.f) * s[i % cols];
}}
extern "C" __global__ void added(const float* x, const float* s, float* y, int rows, int cols) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) atomicAdd(y + i, fmaxf(x[i], 0.f) * s[i % cols]);
}}
extern "C" __global__ void across(const float* x, const float* s, float* y, int rows, int cols) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = fmaxf(x[i % cols * rows + i / cols], 0.f) * s[i % cols];
}}
""")
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.kept, self.calls = None, 0
    def launched(self, name, x, y, rows):
        cols = self.scale.numel()
        getattr(kernels, name)[(rows * cols + 127) // 128, 128](x, self.scale, y, rows, cols)
        return y
    def forward(self, x):
        rows = x.shape[0]
        {body}
'''


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    """Repeats programs, and does not ask the functional machine before."""
    options = EvalOptions(timing_seconds=0.05, trials=1, timeout=20, program_first=False)
    with Evaluator(options, device="cpu", pool=pool) as made:
        yield made


@pytest.fixture(scope="module")
def whole(pool: Pool) -> Iterator[Evaluator]:
    """Judges as `kernelwright eval` does on a GPU."""
    with Evaluator(EvalOptions(timing_seconds=0.05, trials=1, timeout=20), device="cpu", pool=pool) as made:
        yield made


def candidate(body: str, wrong: str = "") -> Candidate:
    text = CANDIDATE.format(body=body.replace("\n", "\n        "), wrong=wrong)
    return Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda")


def judged(evaluator: Evaluator, body: str, wrong: str = "") -> Evaluation:
    task = Task(task_id="scaled-relu", source=TASK, policy="from_scratch")
    return evaluator.evaluate(task, candidate(body, wrong))


def way(found: Evaluation) -> str:
    return found.environment.replayed


PLAIN = "return self.launched('scaled_relu', x, torch.empty_like(x), rows)"


def test_launches_stand_for_a_call(evaluator: Evaluator) -> None:
    found = judged(evaluator, PLAIN)
    assert found.verdict == "correct" and way(found) == "1 launches a call", found.reason
    assert found.timing is not None and found.timing.speedup and len(found.timing.samples["candidate"]) >= 2
    assert found.environment.own_kernel_share == 1.0 and found.launches[0].kernel == "scaled_relu"
    again = judged(evaluator, PLAIN)  # the process that stays has the next candidate's code and weights
    assert again.verdict == "correct" and way(again) == way(found)


_NO_TIME, _LONG = 1e-9, 1e9
"""Milliseconds that no call and every call takes less than."""
WAYS = {
    "rows": {"PERHAPS_MS": _LONG, "SHORT_MS": _LONG},
    "one by one": {"PERHAPS_MS": _NO_TIME},
    "not short": {"PERHAPS_MS": _LONG, "SHORT_MS": _NO_TIME},  # taken for short, and are not
}
Facts = dict[str, Any]


@pytest.fixture(params=WAYS)
def measured(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """Returns who was timed over how many calls, with calls classified as short, as long, or first as short."""
    for name, bound in WAYS[request.param].items():
        monkeypatch.setattr(timing_in_rows, name, bound)
    monkeypatch.setattr(timing, "_LATE_SHARE", 1e9)  # CPU times of a row vary, since other processes run
    asked: list[tuple[str, int]] = []
    clock = timing_in_rows._measured

    def noted(bench: Any, laid: Any, who: str, first: int, count: int, **way: bool) -> timing_in_rows.Clocked:
        asked.append((who, count))
        return clock(bench, laid, who, first, count, **way)

    monkeypatch.setattr(timing_in_rows, "_measured", noted)
    yield asked
    single = [("candidate", 1), ("eager", 1)]
    start = [] if request.param == "one by one" else single
    count = 12 if request.param == "rows" else 1
    expected = [*start, ("candidate", count), ("eager", count), ("eager", count), ("candidate", count)]
    assert asked[: len(expected)] == expected


def test_calls_are_timed_either_way(evaluator: Evaluator, measured: list[tuple[str, int]]) -> None:
    found = judged(evaluator, PLAIN)
    assert found.verdict == "correct" and way(found) == "1 launches a call", (found.reason, way(found))
    assert found.timing is not None and found.timing.speedup
    found = judged(evaluator, "y = self.launched('scaled_relu', x, torch.empty_like(x), rows)\nreturn y.clone()")
    assert found.verdict == "correct" and way(found) == "1 launches and 1 copies, fills or operators a call", way(found)
    assert 0.0 <= (found.environment.own_kernel_share or 0.0) < 1.0


def test_what_is_looked_at_was_left_by_timed_calls(
    evaluator: Evaluator, measured: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the outputs were not computed, their places hold nothing."""
    clock = timing_in_rows._measured

    def skipped(bench: Any, laid: Any, who: str, first: int, count: int, **way: bool) -> timing_in_rows.Clocked:
        found = clock(bench, laid, "eager", first, count)
        measured[-1] = who, count
        return timing_in_rows.Clocked(found.times, found.times)

    monkeypatch.setattr(timing_in_rows, "_measured", skipped)
    found = judged(evaluator, PLAIN)
    assert "in a timed call: output 0 differs" in way(found), way(found)


def test_a_size_that_others_were_judged_at_is_no_matter(evaluator: Evaluator) -> None:
    other = Task(task_id="wider", source=TASK.replace("24, 40", "7, 300"), policy="from_scratch")
    found = evaluator.evaluate(other, candidate(PLAIN))
    assert found.verdict == "correct" and way(found) == "1 launches a call", found.reason


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return self.launched('added', x, torch.zeros_like(x), rows)",
            "1 launches and 1 copies, fills or operators a call",
        ),
        ("return self.launched('added', x, torch.empty_like(x).zero_(), rows)", "1 launches and 1 copies, fills"),
        (
            "return self.launched('across', x.t().contiguous(), torch.empty_like(x), rows)",
            "1 launches and 1 copies, fills",
        ),
        (
            "y = self.launched('scaled_relu', x, torch.empty_like(x), rows)\nreturn y.clone()",
            "1 launches and 1 copies, fills",
        ),
        (
            "if self.kept is None: self.kept = torch.empty_like(x)\n"
            "return self.launched('scaled_relu', x, self.kept, rows).clone()",
            "1 launches and 1 copies, fills",
        ),
        (
            "y = self.launched('scaled_relu', x, torch.empty(2, *x.shape, device=x.device)[1], rows)\nreturn y",
            "1 launches a call",
        ),
    ],
)
def test_fills_and_copies_are_repeated_with_them(evaluator: Evaluator, body: str, said: str) -> None:
    found = judged(evaluator, body)
    assert found.verdict == "correct" and way(found).startswith(said), (found.reason, way(found))
    if "copies" in said:
        assert 0.0 <= (found.environment.own_kernel_share or 0.0) < 1.0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if float(x[0, 0]) > 1e9: return x\n" + PLAIN, "it reads values"),
        ("if x.cpu()[0, 0] > 1e9: return x\n" + PLAIN, "it reads values"),
        ("try:\n    x.sum().item()\nexcept RuntimeError:\n    pass\n" + PLAIN, "it reads values"),
        (
            "self.calls += 1\nif self.calls > 3: return torch.empty_like(x)\n" + PLAIN,
            "differs from call to call",
        ),
        (
            "if self.kept is None: self.kept = torch.empty_like(x)\n"
            "return self.launched('scaled_relu', x, self.kept, rows)",
            "in no memory that a kernel of the call was given",
        ),
        (
            "self.calls += 1\ny = torch.empty_like(x)\n"
            "for _ in range(self.calls): self.launched('scaled_relu', x, y, rows)\nreturn y",
            "differs from call to call",
        ),
        ("y = torch.mm(x, x.t())\n" + PLAIN, "computes with mm"),
    ],
)
def test_what_does_more_goes_the_usual_way(evaluator: Evaluator, body: str, why: str) -> None:
    found = judged(evaluator, body)
    assert way(found).startswith("no: ") and why in way(found), (found.verdict, found.reason, way(found))
    assert found.verdict in ("correct", "rejected", "wrong"), found.reason
    assert found.environment.road == "in-process"


INLINE = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
template <typename T, int BLOCK>
__global__ void scaled_relu(const T* x, const T* s, T* y, int rows, int cols) {
  extern __shared__ float unused[];
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < rows * cols) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor s) {
  auto y = torch::empty_like(x);
  auto part = torch::zeros({4}, x.options());
  scaled_relu<float, 128><<<(x.numel() + 127) / 128, 128, 512>>>(
      x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
  TORCH_CHECK(cudaGetLastError() == cudaSuccess);
  return y;
}
"""
module = load_inline("replayed", "torch::Tensor forward(torch::Tensor x, torch::Tensor s);", source, ["forward"])
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return module.forward(x, self.scale)
'''


def test_compiled_host_code_is_traced_too(evaluator: Evaluator) -> None:
    made = Candidate(sources=(SourceFile(path="c.py", content=INLINE),), language="cuda")
    found = evaluator.evaluate(Task(task_id="scaled-relu", source=TASK, policy="from_scratch"), made)
    assert found.verdict == "correct" and way(found) == "1 launches and 1 copies, fills or operators a call", (
        found.reason,
        way(found),
    )


def test_what_is_wrong_is_never_right_by_its_launches(evaluator: Evaluator) -> None:
    found = judged(evaluator, PLAIN, wrong="1.01f *")
    assert found.verdict == "wrong" and "output 0 differs" in way(found)
    found = judged(evaluator, PLAIN, wrong="i > 900 ? 0.f :")
    assert found.verdict == "wrong" and way(found).startswith("no: ")


def test_answers_of_the_call_before_are_not_there(evaluator: Evaluator) -> None:
    found = judged(evaluator, "return torch.empty_like(x)")
    assert found.verdict in ("wrong", "rejected") and way(found).startswith("no: ")


def test_a_fault_ends_the_process_and_not_the_next_candidate(evaluator: Evaluator) -> None:
    found = judged(evaluator, PLAIN, wrong="x[1 << 28] +")
    assert found.verdict == "runtime_error" and way(found).startswith("no: "), (found.verdict, found.reason)
    assert way(judged(evaluator, PLAIN)) == "1 launches a call"


def test_a_decoy_beside_a_copy_is_no_answer(evaluator: Evaluator) -> None:
    task = Task(task_id="same", source=TASK.replace("torch.relu(x) * self.scale", "x + 0"), policy="from_scratch")
    body = "self.launched('scaled_relu', x, torch.empty_like(x), rows)\nreturn x.clone()"
    assert "no memory that a kernel of the call was given" in way(evaluator.evaluate(task, candidate(body)))


def test_a_verdict_in_the_process_has_a_name_of_its_own() -> None:
    task = Task(task_id="t", source=TASK)
    gpu, cpu = EvalOptions(backend="gpu"), EvalOptions(backend="cpu")
    for changed in ({"replay": False}, {"program_first": False}):
        assert gpu.key(task, candidate(PLAIN)) != gpu.changed(**changed).key(task, candidate(PLAIN))
        assert cpu.key(task, candidate(PLAIN)) == cpu.changed(**changed).key(task, candidate(PLAIN))


MADE: dict[str, Any] = {"blocks": [{"kind": "made", "nbytes": 16}], "outputs": [[0, "float32", [4], [1], 0, 0, 0]]}
FILL = {"kind": "fill", "to": [0, 0], "value": 0, "nbytes": 16}


def loaded(**more: Any) -> Replayer:
    replayer = Replayer(HostDevice())
    replayer.load(Frame({"kind": "load", "keep": False, "trace": {**MADE, **more}, "codes": {}}))
    replayer.weights(Frame({"kind": "weights"}))
    return replayer


def test_memory_that_still_holds_the_answer_is_not_what_copies_have_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reused memory may hold the outputs of an earlier call, as they lie in the shared block."""
    answer = torch.arange(4, dtype=torch.float32)
    ways = dict.fromkeys(("fresh", "late", "reuse", "watch"), False)
    asked = {**ways, "moves": True, "calls": [[]], "inputs": [], "outputs": [[0, "float32", [4]]], "stride": 16}
    asked |= {"forms": [], "changed": []}
    asked["call_seed"] = 0
    monkeypatch.setattr(torch, "empty", lambda *_size, **_how: answer.clone().view(torch.uint8))
    monkeypatch.setattr(devices, "poison", lambda *_: None)
    replayer = loaded()
    replayer.calls.shared = answer.clone().view(torch.uint8)
    assert replayer.run(Frame({"kind": "run", **asked}))["idle"] is False
    replayer = loaded(call=[FILL])
    replayer.calls.shared = torch.zeros(4).view(torch.uint8)
    assert replayer.run(Frame({"kind": "run", **asked}))["idle"] is True  # a fill alone has made these


TENSOR = {"t": [0, "float32", [4], [1], 0, 0, 0]}
FAR = {"t": [7, "float32", [4], [1], 0, 0, 0]}
FORGED: list[tuple[dict[str, Any], str]] = [
    ({**FILL, "to": [7, 0]}, "does not have"),
    ({**FILL, "nbytes": 17}, "beyond its memory"),
    ({"kind": "copy", "to": [0, 0], "source": [0, 8], "nbytes": 16}, "beyond its memory"),
    ({"kind": "upload", "to": [0, 0], "part": 0}, "not sent"),
    ({"kind": "operator", "name": "neg.default", "arguments": [[FAR], {}], "results": [None]}, "does not have"),
    ({"kind": "operator", "name": "mm.default", "arguments": [[TENSOR, TENSOR], {}], "results": [None]}, "no glue"),
    (
        {"kind": "operator", "name": "from_file.default", "arguments": [["/etc/passwd"], {}], "results": []},
        "no program",
    ),
    (
        {"kind": "launch", "module": "m", "entry": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "shared_bytes": 0}
        | {"args": ["00" * 8], "pointers": [[0, 0, 7, 0]]},
        "does not fit its code",
    ),
]


@pytest.mark.parametrize(("record", "why"), FORGED)
def test_a_record_names_no_other_memory_and_no_other_operator(record: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        loaded(call=[record])


FORGES = """
import gc
stream = next(o for o in gc.get_objects() if type(o).__name__ == "RecordStream")
stream.write("copy", {address}, 0x2000_0000_0000, 64)
"""


@pytest.mark.parametrize("address", ["0x28F0_0000_0000", "0x2000_7000_0000", "0x7fff_0000_0000", "id(stream)"])
def test_a_forged_record_is_a_fault(whole: Evaluator, address: str) -> None:
    """Device memory of another candidate, host memory: whatever is not a block of its own."""
    found = judged(whole, FORGES.format(address=address).replace("\n", "\n").strip() + "\n" + PLAIN)
    assert found.verdict in ("runtime_error", "rejected"), (found.verdict, found.reason)
    assert found.environment.road == "program"


def test_the_program_decides_before_a_gpu_is_touched(whole: Evaluator) -> None:
    cheating = "y = self.launched('scaled_relu', x, torch.empty_like(x), rows)\nreturn torch.relu(x) * self.scale"
    found = judged(whole, cheating)
    assert found.verdict == "rejected" and found.environment.road == "program", (found.verdict, found.reason)
    assert "program" in found.environment.gpu_seconds and "construct" not in found.environment.gpu_seconds
    wrong = judged(whole, PLAIN, wrong="1.01f *")
    assert wrong.verdict == "wrong" and list(wrong.environment.gpu_seconds) == ["program"]


def test_a_right_candidate_goes_by_program(whole: Evaluator) -> None:
    found = judged(whole, PLAIN)
    assert found.verdict == "correct" and found.environment.road == "program", (found.reason, way(found))
    assert found.timing is not None and found.environment.issue_ms is not None
    assert {"program", "construct"} <= set(found.environment.gpu_seconds)


def test_what_only_fails_at_other_sizes_is_right_by_its_program_or_not_at_all(whole: Evaluator) -> None:
    """The declared size is too large to run on the functional machine, and smaller ones are wrong."""
    task = Task(task_id="many", source=TASK.replace("24, 40", "4096, 40"), policy="from_scratch")
    right = "if rows < 2048: return self.launched('across', x, torch.empty_like(x), rows)\n" + PLAIN
    found = whole.evaluate(task, candidate(right))
    assert found.verdict == "correct" and found.environment.road == "program", (found.reason, way(found))
    assert "shape-specialised" in [f.rule for f in found.findings]
    waits = candidate(right.replace("return self.launched('scaled", "x[0, 0].item()\nreturn self.launched('scaled"))
    reads = whole.evaluate(task, waits)
    assert reads.verdict == "wrong" and "it reads values" in way(reads), (reads.verdict, reads.reason)
    live = whole.evaluate(task, waits, whole.options.changed(live=True))
    assert live.verdict == "correct" and live.environment.road == "program", (live.reason, way(live))
    assert "shape-specialised" in [f.rule for f in live.findings]


def test_what_the_first_call_on_new_weights_prepares_is_prepared_again(whole: Evaluator) -> None:
    scaled = "scaled_relu[(rows * x.shape[1] + 127) // 128, 128](x, self.kept, y, rows, x.shape[1])\nreturn y"
    body = "if self.calls != {key}:\n    self.kept, self.calls = self.scale * 2, {key}\n"
    text = body + "y = torch.empty_like(x)\nkernels." + scaled
    follows = judged(whole, text.format(key="self.scale._version"), "0.5f *")
    assert follows.verdict == "correct" and way(follows) == "1 launches a call", (follows.reason, way(follows))
    stays = judged(whole, text.format(key="1"), "0.5f *")
    assert stays.verdict != "correct", way(stays)


def test_a_copy_of_a_weight_made_in_the_first_call_follows_it(whole: Evaluator) -> None:
    body = "if self.kept is None: self.kept = self.scale.clone()\ny = torch.empty_like(x)\n"
    body += "kernels.scaled_relu[(x.numel() + 127) // 128, 128](x, self.kept, y, rows, x.shape[1])\nreturn y"
    found = judged(whole, body)
    assert found.verdict == "correct" and way(found) == "1 launches a call", (found.reason, way(found))


@pytest.mark.skipif(not triton_support.installed(), reason="Triton is not installed")
def test_triton_goes_by_program(whole: Evaluator) -> None:
    text = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def scaled(x_ptr, s_ptr, y_ptr, n, cols, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, s = tl.load(x_ptr + i, mask=i < n), tl.load(s_ptr + i % cols, mask=i < n)
    tl.store(y_ptr + i, tl.maximum(x, 0.0) * s, mask=i < n)
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(triton.cdiv(x.numel(), 128),)](x, self.scale, y, x.numel(), x.shape[1], BLOCK=128)
        return y
"""
    made = Candidate(sources=(SourceFile(path="c.py", content=text),), language="triton")
    found = whole.evaluate(Task(task_id="scaled-relu", source=TASK, policy="from_scratch"), made)
    assert found.verdict == "correct" and way(found) == "1 launches a call", (found.reason, way(found))


def test_device_code_that_only_the_card_runs_is_traced() -> None:
    """The functional machine cannot run it, and a trace needs no more than its signature."""
    text = ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry own(.param .u64 a, .param .u32 n)\n"
    text += "{\n  unheard.of.instruction %r1;\n  ret;\n}\n"
    code = TracedCode(DeviceMemory(1 << 20, sparse=True)).program(BuildResult("ok", ptx=text))
    assert {name: kernel.params for name, kernel in code.kernels.items()} == {"own": ((8, 8), (4, 4))}


def test_large_weights_are_never_drawn_on_the_host(whole: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_client, "MOST_DRAWN", 0)
    body = "assert self.scale.is_cuda\n" + PLAIN
    found = judged(whole, body)
    assert found.verdict == "correct" and way(found) == "1 launches a call", (found.reason, way(found))
    assert judged(whole, body, wrong="1.01f *").verdict == "wrong"
