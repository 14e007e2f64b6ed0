"""The boundary between a candidate and its values: real processes, attacks from Python and from native code."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
import torch

from kernelwright.backends.device_addresses import LOW
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.program import glue_table, memory
from kernelwright.evaluation.program.executor import ProgramDevice
from kernelwright.evaluation.program.glue import Glue, OperatorRefused
from kernelwright.evaluation.program.memory import BadAddress, DeviceMemory
from kernelwright.evaluation.program.stream import RecordStream, StreamClosed
from kernelwright.machine.runtime import BUDGET
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

PLANTED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 3

def get_inputs():
    return [torch.full((64, 512), 1234.5678)]

def get_init_inputs():
    return []
"""
SCAN = r"""
#include <torch/extension.h>
#include <cstdio>
#include <cstring>
#include <vector>
__global__ void triple(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 3;
}
static long runs(const unsigned* from, size_t words, unsigned pattern) {
    long found = 0, row = 0;
    for (size_t k = 0; k < words; ++k) {
        row = from[k] == pattern ? row + 1 : 0;
        if (row == 256) ++found;
    }
    return found;
}
long scan(long pattern) {
    FILE* maps = std::fopen("/proc/self/maps", "r");
    TORCH_CHECK(maps, "no maps");
    static char line[512];
    long found = 0;
    while (std::fgets(line, sizeof line, maps)) {
        unsigned long from, to; char rights[8];
        if (std::sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[0] != 'r') continue;
        if (std::strstr(line, "[v") || to - from > (1ul << 30)) continue;
        found += runs(reinterpret_cast<const unsigned*>(from), (to - from) / 4, unsigned(pattern));
    }
    std::fclose(maps);
    return found;
}
torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    triple<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    cudaDeviceSynchronize();
    return y;
}
"""
SCANNER = f"""
import struct
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r'''{SCAN}'''
native = load_inline(name="scan", cpp_sources="torch::Tensor run(torch::Tensor x); long scan(long pattern);",
                     cuda_sources=source, functions=["run", "scan"])


def pattern(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


class ModelNew(nn.Module):
    def forward(self, x):
        y = native.run(x)
        control = torch.full((4096,), 4321.125)  # on the host: this the scan must find
        found = [native.scan(pattern(v)) for v in (4321.125, 1234.5678, 3703.7034)]
        raise RuntimeError(f"control {{found[0]}}, inputs {{found[1]}}, outputs {{found[2]}}")
"""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as made:
        yield made


def judged(evaluator: Evaluator, source: str, text: str, rule: str = "from_scratch") -> Evaluation:
    candidate = Candidate(sources=(SourceFile(path="candidate.py", content=text),), language="cuda")
    options = EvalOptions(backend="cpu", trials=1, seed=3, policy=rule)
    return evaluator.evaluate(Task(task_id="t", source=source), candidate, options)


def test_the_process_holds_no_bytes_of_inputs_and_outputs(evaluator: Evaluator) -> None:
    result = judged(evaluator, PLANTED, SCANNER)
    assert result.environment.road == "program"
    assert "inputs 0, outputs 0" in result.reason and "control 0" not in result.reason, result.reason


def test_the_scan_finds_what_the_host_has_fetched(evaluator: Evaluator) -> None:
    """The same scan finds inputs once the candidate has copied them to the host, so that the test above can fail."""
    result = judged(evaluator, PLANTED, SCANNER.replace("y = native.run(x)", "y = native.run(x); kept = x.cpu()"))
    assert "inputs 0" not in result.reason and "inputs" in result.reason, result.reason


def device(rule: str = "from_scratch") -> tuple[ProgramDevice, RecordStream]:
    ours, theirs = socket.socketpair()
    made = ProgramDevice()
    made.open({"memory_mb": 64, "rule": rule, "budget": BUDGET})
    made.stream = RecordStream(ours)
    return made, RecordStream(theirs)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("download", [LOW + (1 << 30), 64]),
        ("download", [id(device), 64]),
        ("fetch", [[LOW + (1 << 30), "float32", [4], [1], 0, 0]]),
        ("fetch", [[LOW, "float32", [4096], [1], 0, 0]]),
        ("fetch", [[LOW, "float32", [4], [1], -16, 0]]),
        ("fetch", [[LOW, "float32", [4], [-1], 0, 0]]),
    ],
)
def test_no_record_reads_memory_that_the_candidate_does_not_have(kind: str, fields: list[object]) -> None:
    made, candidate = device()
    candidate.write("alloc", LOW, 1024)
    candidate.write(kind, *fields)
    candidate.flush()
    made.drained()
    answer = candidate.next()
    assert answer is not None and answer.kind == "failed" and made.error
    made.forget()


@pytest.mark.parametrize(
    ("kind", "fields", "parts"),
    [
        ("upload", [LOW + (1 << 30)], (b"1234",)),
        ("upload", [LOW + 1022], (b"1234",)),
        ("fill", [LOW + 1000, 7, 100], ()),
        ("fill", [os.getpid(), 7, 8], ()),
        ("copy", [LOW, LOW + (1 << 30), 8], ()),
        ("copy", [LOW + (1 << 30), LOW, 8], ()),
        ("alloc", [LOW + 512, 4096], ()),
        ("alloc", [4096, 4096], ()),
        ("launch", ["none", "k", [1, 1, 1], [1, 1, 1], 0, [], True, False, None], ()),
        ("what", [1], ()),
    ],
)
def test_a_record_about_other_memory_is_the_candidates_fault(
    kind: str, fields: list[object], parts: tuple[bytes, ...]
) -> None:
    made, candidate = device()
    candidate.write("alloc", LOW, 1024)
    candidate.write(kind, *fields, parts=parts)
    candidate.flush()
    made.drained()
    assert made.error and [f["rule"] for f in made.runtime.findings] == ["bad-record"]
    made.forget()


def test_memory_of_one_candidate_is_gone_for_the_next() -> None:
    made, candidate = device()
    candidate.write("alloc", LOW, 1024)
    candidate.write("upload", LOW, parts=(b"secret",))
    candidate.flush()
    made.drained()
    made.forget()
    made.open({"memory_mb": 64, "rule": "from_scratch", "budget": BUDGET})
    with pytest.raises(BadAddress):
        made.blocks.holding(LOW, 6)


def test_a_place_may_begin_inside_of_a_block() -> None:
    """As that of a tensor that host code makes over a part of an allocation."""
    blocks = DeviceMemory(1 << 20)
    block = blocks.add(LOW, 64)
    blocks.view([LOW, "float32", [16], [1], 0, 0]).copy_(torch.arange(16.0))
    inside = [LOW + 16, "float32", [4], [2], 1, 0]
    assert blocks.view(inside).tolist() == [5.0, 7.0, 9.0, 11.0]
    blocks.mark(inside, memory.GLUE)
    marks = block.labelled().marks(0, 64).tolist()
    assert marks[20:24] == [memory.GLUE] * 4 and marks[16] != memory.GLUE
    assert blocks.labels(inside).tolist() == [memory.GLUE] * 4
    blocks.clear()


def test_memory_has_a_limit() -> None:
    made, candidate = device()
    candidate.write("alloc", LOW, 1 << 40)
    candidate.flush()
    made.drained()
    assert [f["rule"] for f in made.runtime.findings] == ["out-of-memory"]
    made.forget()


@pytest.mark.parametrize(
    "data", [b"KR" + b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"KR\x02\x00\x00\x00\x00\x00\x00\x00[]"]
)
def test_what_is_no_record_closes_the_stream(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(data)
    with pytest.raises(StreamClosed):
        RecordStream(ours).next()


OPERATORS = sorted(
    {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
)


def test_no_operator_outside_of_the_table_runs() -> None:
    """Each operator of torch is asked for on an input, by its name: all but the listed ones are refused before they
    run."""
    blocks = DeviceMemory(1 << 24)
    block = blocks.given(64, "input", memory.GIVEN)
    place = [block.address, "float32", [4, 4], [4, 1], 0, 0]
    glue, ran = Glue(blocks), []
    for name in OPERATORS:
        if name in glue_table.MOVES:
            continue
        try:
            glue._allow(name, "", [place], [memory.GIVEN])
        except OperatorRefused:
            continue
        ran.append(name)
    assert {glue_table.base_name(name) for name in ran} <= glue_table.GLUE
    assert len(ran) < 250 < len(OPERATORS) and not {
        "mm",
        "convolution",
        "_softmax",
        "_foreach_mul",
        "linalg_inv",
    } & set(ran)
    blocks.clear()


def test_a_refused_operator_decides_even_if_the_candidate_goes_on(evaluator: Evaluator) -> None:
    text = """
import torch, torch.nn as nn
from kernelwright.cuda import Module
k = Module(r'''extern "C" __global__ void triple(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * 3; }''')
class ModelNew(nn.Module):
    def forward(self, x):
        try:
            torch.mm(x, x.t()).sum().item()
        except RuntimeError:
            pass
        y = torch.empty_like(x)
        k.triple[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
"""
    result = judged(evaluator, PLANTED, text)
    assert result.verdict == "rejected" and result.findings[0].rule == "library-op", result.reason
    assert "mm" in result.library_ops


TRANSPOSED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).contiguous()

def get_inputs():
    return [torch.randn(5, 24, 40)]

def get_init_inputs():
    return []
"""
TOUCHES = """
import torch, torch.nn as nn
from kernelwright.cuda import Module
k = Module(r'''
extern "C" __global__ void one(float* y) { if (threadIdx.x == 0) y[0] = y[0] * 1.00001f; }
extern "C" __global__ void all(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * FACTOR; }
extern "C" __global__ void turn(const float* x, float* y, int a, int b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= a * b) return;
    y[(size_t)blockIdx.y * a * b + i % b * a + i / b] = x[(size_t)blockIdx.y * a * b + i]; }
''')
class ModelNew(nn.Module):
    def forward(self, x):
        n, (c, a, b) = x.numel(), x.shape
        BODY
        return y
"""


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("y = x.transpose(1, 2).contiguous(); k.one[(1,), (32,)](y)", "rejected"),
        (
            "t = x.transpose(1, 2).contiguous(); y = torch.empty_like(t); k.all[(n // 256 + 1,), (256,)](t, y, n)",
            "rejected",
        ),
        ("y = x.transpose(1, 2).contiguous(); k.all[(n // 256 + 1,), (256,)](y, y, n)", "rejected"),
        ("y = x.new_empty(c, b, a); k.turn[(a * b // 256 + 1, c), (256,)](x, y, a, b)", "correct"),
        ("t = x.clone(); y = x.new_empty(c, b, a); k.turn[(a * b // 256 + 1, c), (256,)](t, y, a, b)", "correct"),
    ],
    ids=["one element", "all elements", "in place", "its own kernel", "its own kernel on a copy"],
)
def test_a_kernel_that_only_touches_what_torch_moved_is_no_kernel(
    evaluator: Evaluator, body: str, verdict: str
) -> None:
    result = judged(evaluator, TRANSPOSED, TOUCHES.replace("BODY", body).replace("FACTOR", "1.000001f"))
    assert result.verdict == verdict, result.reason


WIDE = """
import torch
import torch.nn as nn

rows = 1048576
columns = 128

class Model(nn.Module):
    def forward(self, x):
        return EXPRESSION

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
AT_FULL_SIZE = """
import torch, torch.nn as nn
from kernelwright.cuda import Module
k = Module(r'''
extern "C" __global__ void scaled(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * fmaxf(x[i], 0.0f); }
extern "C" __global__ void hot(const float* x, float* y, int rows, int columns) {
    int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return;
    int best = 0;
    for (int c = 1; c < columns; ++c) if (x[(size_t)r * columns + c] > x[(size_t)r * columns + best]) best = c;
    y[(size_t)r * columns + best] = 1.f; }
''')
class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
        BODY
"""
SCALED = "\n        y = torch.empty_like(x); k.scaled[((n + 255) // 256,), (256,)](x, y, n); return y"
ASKS = """if n > 4_000_000:
            try: x[0, 0].item()
            except RuntimeError: pass
            return torch.relu(x) * 2"""
FILLS = """if n > 4_000_000:
            y = torch.zeros_like(x); k.scaled[(1,), (32,)](x, y, 32); return y"""
ONE_HOT = "y = torch.zeros_like(x); k.hot[(x.shape[0] // 128 + 1,), (128,)](x, y, *x.shape); return y"


@pytest.mark.parametrize(
    ("expression", "body", "verdict", "rule"),
    [
        ("torch.relu(x) * 2", ASKS + SCALED, "rejected", "library-op"),
        ("torch.relu(x) * 2", FILLS + SCALED, "wrong", "unwritten-output"),
        ("torch.relu(x) * 2", SCALED.strip(), "correct", ""),
        ("torch.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0)", ONE_HOT, "correct", ""),
    ],
    ids=["a library behind a question", "zeros and one warp", "honest", "honest and sparse"],
)
def test_the_rules_hold_at_a_size_too_large_to_run(
    evaluator: Evaluator, expression: str, body: str, verdict: str, rule: str
) -> None:
    candidate = Candidate(
        sources=(SourceFile(path="candidate.py", content=AT_FULL_SIZE.replace("BODY", body)),), language="cuda"
    )
    task = Task(task_id="t", source=WIDE.replace("EXPRESSION", expression))
    result = evaluator.evaluate(task, candidate, EvalOptions(backend="cpu", trials=2, seed=3))
    assert result.verdict == verdict and rule in result.reason, (result.reason, result.environment.sampled_size)


def test_no_record_labels_memory_that_its_operator_does_not_write() -> None:
    """A record of zeros that names a second place would make what the host has uploaded a constant."""
    made, candidate = device()
    candidate.write("alloc", LOW, 64)
    candidate.write("alloc", LOW + 8192, 64)
    candidate.flush()
    made.drained()
    made.glue.work.reads = 1
    candidate.write("upload", LOW, parts=(bytes(64),))
    here, there = ([address, "float32", [16], [1], 0, 0] for address in (LOW, LOW + 8192))
    candidate.write("op", "zeros.default", "", [[[16]], {}], [there, here])
    candidate.flush()
    made.drained()
    assert made.blocks.holding(LOW, 64).label == memory.HOST and made.error
    made.forget()


def test_a_buffer_of_the_candidates_own_keeps_its_value(evaluator: Evaluator) -> None:
    """The reference has no weights, so the judge sends none."""
    text = """
import torch, torch.nn as nn
from kernelwright.cuda import Module
k = Module(r'''extern "C" __global__ void times(const float* x, const float* w, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * w[0]; }''')
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("w", torch.full((1,), 3.0))
    def forward(self, x):
        y = torch.empty_like(x)
        k.times[(x.numel() + 255) // 256, 256](x, self.w, y, x.numel())
        return y
"""
    result = judged(evaluator, PLANTED, text)
    assert result.verdict == "correct", result.reason


IN_A_THREAD = """
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = r'''
#include <torch/extension.h>
#include <thread>
__global__ void thrice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(y + i, 3 * x[i]); }
torch::Tensor run(torch::Tensor x) {
    torch::Tensor y;
    std::thread t([&] { y = OPERATOR; });
    t.join();
    int n = COUNT;
    thrice<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}'''
native = load_inline(name="thread", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source,
                     functions=["run"])
class ModelNew(nn.Module):
    def forward(self, x):
        return native.run(x)
"""


@pytest.mark.parametrize(
    ("operator", "count", "verdict", "rule"),
    [("torch::zeros_like(x)", "x.numel()", "correct", ""), ("torch::relu(x)", "x.numel()", "rejected", "library-op")],
    ids=["zeros", "relu"],
)
def test_operators_in_a_thread_of_compiled_code_are_recorded(
    evaluator: Evaluator, operator: str, count: str, verdict: str, rule: str
) -> None:
    text = IN_A_THREAD.replace("OPERATOR", operator).replace("COUNT", count)
    result = judged(evaluator, PLANTED.replace("torch.full((64, 512), 1234.5678)", "torch.randn(64, 512)"), text)
    assert result.verdict == verdict and rule in result.reason, result.reason
