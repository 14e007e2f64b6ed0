"""The evaluation end to end: real children, a real compiler, one property per test."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kernelwright.errors import TaskError
from kernelwright.evaluation import EvalOptions, Evaluator, evaluate_many
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, Language, SourceFile, Task, Workload

SCALE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 3 + 1

batch_size = 16
dim = 1024

def get_inputs():
    return [torch.randn(batch_size, dim)]

def get_init_inputs():
    return []
"""

BIAS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return x + self.bias

batch = 32
features = 96

def get_inputs():
    return [torch.rand(batch, features)]

def get_init_inputs():
    return [features]
"""

EXTENSION = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
__global__ void scale(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale<<<{grid}, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""
module = load_inline(name="scale", cpp_sources="torch::Tensor forward(torch::Tensor x);", cuda_sources=cuda_source,
                     functions=["forward"])

class ModelNew(nn.Module):
    def forward(self, x):
        return module.forward(x)
'''
RIGHT = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.0f;", grid="(n + 255) / 256")

BIAS_KERNEL = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
__global__ void add_bias(const float* x, const float* b, float* y, int n, int features) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + b[i % features];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor b) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    add_bias<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, b.size(0));
    return y;
}
"""
module = load_inline(name="bias", cpp_sources="torch::Tensor forward(torch::Tensor x, torch::Tensor b);",
                     cuda_sources=cuda_source, functions=["forward"])

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return module.forward(x, self.bias)
'''


def python(text: str, language: Language = "cuda") -> Candidate:
    return Candidate(sources=(SourceFile(path="candidate.py", content=text),), language=language)


def forward(body: str, setup: str = "") -> Candidate:
    lines = "\n".join("        " + line for line in body.splitlines())
    head = f"import torch\nimport torch.nn as nn\n{setup}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
    text = head + lines + "\n"
    return python(text, "torch")


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(seed=7, timeout=20), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, candidate: Candidate, source: str = SCALE, **fields: object) -> Evaluation:
    return evaluator.evaluate(Task(task_id="t", source=source, **fields), candidate)  # type: ignore[arg-type]


def test_right_kernel_is_correct_and_says_what_was_checked(evaluator: Evaluator) -> None:
    result = judged(evaluator, python(RIGHT))
    assert result.verdict == "correct", result.reason
    assert len(result.workloads) >= 3
    assert len({w.shape for w in result.workloads}) >= 2
    assert len({w.distribution for w in result.workloads}) >= 2
    assert result.launches[0].count >= 3 and result.timing is None


def test_an_exception_is_no_sign_of_a_compiled_kernel(evaluator: Evaluator) -> None:
    plain = judged(evaluator, forward("raise ValueError()"))
    assert plain.verdict == "runtime_error" and plain.environment.builds == 0 and not plain.compiled
    built = judged(evaluator, python(RIGHT.replace("return module.forward(x)", "raise ValueError()")))
    assert built.verdict == "runtime_error" and built.environment.builds == 1 and built.compiled


def test_wrong_constant_is_wrong_with_the_element_named(evaluator: Evaluator) -> None:
    text = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.01f;", grid="(n + 255) / 256")
    result = judged(evaluator, python(text))
    assert result.verdict == "wrong" and "[" in result.reason


def test_missing_tail_is_wrong(evaluator: Evaluator) -> None:
    text = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.0f;", grid="n / 256")
    result = judged(evaluator, python(text))
    # The declared size is a multiple of 256, where this kernel is right.
    assert result.verdict == "unsupported" and result.reason.startswith("shape-specialised")


def test_small_sizes_never_run_a_large_stated_one(evaluator: Evaluator) -> None:
    small = EvalOptions(seed=7, backend="cpu", small_sizes=True)
    task = Task(task_id="t", source=SCALE.replace("dim = 1024", "dim = 8192"))
    wrong = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.01f;", grid="(n + 255) / 256")
    tail = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.0f;", grid="n / 256")
    texts = (RIGHT, wrong, tail)
    seen = [evaluator.evaluate(task, python(text), small) for text in texts]
    for found in seen:
        assert "declared" not in [w.name for w in found.workloads] and "sampled_size" not in found.environment
    # The last is correct where only the batch is smaller, so it may be correct at the stated size, which did not run.
    assert [e.verdict for e in seen] == ["correct", "wrong", "unsupported"]
    usual = evaluator.evaluate(task, python(wrong), small.changed(small_sizes=False))
    assert usual.verdict == "wrong" and [w.name for w in usual.workloads][-1] == "declared"


def test_small_sizes_have_a_key_of_their_own() -> None:
    task, candidate, usual = Task(task_id="t", source=SCALE), python(RIGHT), EvalOptions(backend="cpu")
    keys = {usual.changed(small_sizes=small).key(task, candidate) for small in (False, True)}
    assert len(keys) == 2 and usual.key(task, candidate) in keys
    on_gpus = {EvalOptions(backend="gpu", small_sizes=small).key(task, candidate) for small in (False, True)}
    assert len(on_gpus) == 1, "a GPU knows nothing of it"


def test_missing_tail_is_wrong_where_the_task_declares_that_size(evaluator: Evaluator) -> None:
    text = EXTENSION.format(body="if (i < n) y[i] = x[i] * 3.0f + 1.0f;", grid="n / 256")
    sizes = (Workload(name="odd", constants={"batch_size": 3, "dim": 101}),)
    assert judged(evaluator, python(text), workloads=sizes).verdict == "wrong"


def test_out_of_bounds_write_names_the_line(evaluator: Evaluator) -> None:
    text = EXTENSION.format(body="y[i] = x[i] * 3.0f + 1.0f;", grid="(n + 255) / 256 + 1")
    result = judged(evaluator, python(text))
    assert result.verdict == "runtime_error" and "out-of-bounds" in result.reason


def test_what_decides_comes_before_what_the_text_reminds_of(evaluator: Evaluator) -> None:
    habits = (
        "import subprocess\nimport multiprocessing\n\ndef never():\n    exec(open('x').read())\n    return x.half()\n"
    )
    result = judged(evaluator, python(RIGHT.replace("y[i] =", "y[i + 1000000] =") + habits))
    assert result.verdict == "runtime_error" and result.findings[0].severity == "fault"
    assert {"process-or-network", "dynamic-code", "lower-precision"} <= {f.rule for f in result.findings[1:]}


def test_device_compile_error(evaluator: Evaluator) -> None:
    text = EXTENSION.format(body="y[i] = undeclared_name;", grid="1")
    result = judged(evaluator, python(text))
    assert result.verdict == "compile_error" and "undeclared_name" in result.reason + result.log


def test_python_syntax_error(evaluator: Evaluator) -> None:
    result = judged(evaluator, python("def f(:\n"))
    assert result.verdict == "compile_error" and "line 1" in result.reason


def test_no_entry_point(evaluator: Evaluator) -> None:
    result = judged(evaluator, python("import torch\nx = 1\n"))
    assert result.verdict == "compile_error" and "ModelNew" in result.reason


def test_text_that_is_no_module(evaluator: Evaluator) -> None:
    assert judged(evaluator, python("None", "torch")).verdict == "compile_error"


def test_failed_build_decides_although_torch_answers(evaluator: Evaluator) -> None:
    broken = EXTENSION.format(body="y[i] = nonsense(;", grid="1").replace(
        "module = load_inline", "try:\n    module = load_inline"
    )
    text = broken.replace('functions=["forward"])', 'functions=["forward"])\nexcept Exception:\n    module = None')
    text = text.replace("return module.forward(x)", "return module.forward(x) if module else x * 3 + 1")
    assert judged(evaluator, python(text)).verdict == "compile_error"


def test_torch_only_is_rejected_by_a_named_rule(evaluator: Evaluator) -> None:
    result = judged(evaluator, forward("return x * 3 + 1"))
    assert result.verdict == "rejected" and result.reason.startswith("no-own-kernel")


def test_torch_only_is_judged_where_libraries_are_allowed(evaluator: Evaluator) -> None:
    assert judged(evaluator, forward("return x * 3 + 1"), policy="libraries").verdict == "correct"


def test_ghost_branch_is_rejected(evaluator: Evaluator) -> None:
    text = RIGHT.replace("return module.forward(x)", "return module.forward(x) if x.dim() == 7 else x * 3 + 1")
    assert judged(evaluator, python(text)).verdict == "rejected"


def test_weights_arrive_by_name(evaluator: Evaluator) -> None:
    assert judged(evaluator, python(BIAS_KERNEL), BIAS).verdict == "correct"


def test_weights_are_not_the_initial_zeros(evaluator: Evaluator) -> None:
    skipped = BIAS_KERNEL.replace("x[i] + b[i % features]", "x[i]")
    assert judged(evaluator, python(skipped), BIAS).verdict == "wrong"


def test_result_cached_by_shape_is_wrong(evaluator: Evaluator) -> None:
    text = RIGHT.replace(
        "return module.forward(x)",
        "self.cache = getattr(self, 'cache', {})\n"
        "        return self.cache.setdefault(tuple(x.shape), module.forward(x))",
    )
    assert judged(evaluator, python(text)).verdict == "wrong"


def test_mutated_input_is_rejected(evaluator: Evaluator) -> None:
    result = judged(
        evaluator, python(RIGHT.replace("return module", "y = module.forward(x); x.zero_(); return y; module"))
    )
    assert result.verdict == "rejected" and "input-mutated" in result.reason


def test_exception_names_the_candidates_line(evaluator: Evaluator) -> None:
    result = judged(evaluator, forward("raise ValueError('no such luck')"))
    assert result.verdict == "runtime_error" and "no such luck" in result.reason
    assert any(f.line == 6 for f in result.findings)


@pytest.mark.parametrize("call", ["sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()"])
def test_leaving_the_process_is_a_runtime_error(evaluator: Evaluator, call: str) -> None:
    result = judged(evaluator, forward(f"{call}\nreturn x", "import os, sys"))
    assert result.verdict == "runtime_error", result.reason


def test_endless_loop_is_a_timeout_in_bounded_time(pool: Pool) -> None:
    with Evaluator(EvalOptions(timeout=2, seed=1), pool=pool) as short:
        short.pool.warm()
        started = time.monotonic()
        result = judged(short, forward("while True: pass"))
        assert result.verdict == "timeout" and time.monotonic() - started < 30


def test_memory_bomb_ends(evaluator: Evaluator) -> None:
    result = judged(evaluator, forward("hoard = [bytearray(1 << 28) for _ in range(1000)]\nreturn x"))
    assert result.verdict == "runtime_error" and "memory" in result.reason


def test_library_that_is_not_here_is_unsupported(evaluator: Evaluator) -> None:
    name = next(n for n in ("cupy", "tilelang", "pycuda", "flash_attn") if importlib.util.find_spec(n) is None)
    result = judged(evaluator, forward("return x", f"import {name}"))
    assert result.verdict == "unsupported" and name in result.reason


def test_what_cannot_be_pretended_is_unsupported(evaluator: Evaluator) -> None:
    body = "try:\n    self.graph = torch.cuda.CUDAGraph()\nexcept RuntimeError:\n    pass\nreturn x * 3 + 1"
    result = judged(evaluator, forward(body), policy="libraries")
    assert result.verdict == "unsupported" and "CUDAGraph" in result.reason
    assert judged(evaluator, forward(body)).reason.startswith("no-own-kernel")


def test_compiled_torch_is_eager_torch(evaluator: Evaluator) -> None:
    setup = "@torch.compile\ndef f(x):\n    return x * 3\n\ng = torch.compile(lambda x: x + 1, mode='max-autotune')"
    assert judged(evaluator, forward("return g(f(x))", setup), policy="libraries").verdict == "correct"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SCALE.replace("return x * 3 + 1", "raise RuntimeError('reference is broken')"), "reference is broken"),
        (SCALE.replace("torch.randn(batch_size, dim)", "undefined_name"), "undefined_name"),
        (SCALE.replace("return x * 3 + 1", "import os; os._exit(3)"), "status 3"),
    ],
)
def test_reference_that_fails_is_a_task_error(evaluator: Evaluator, source: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        judged(evaluator, python(RIGHT), source)


def test_order_is_that_of_the_input() -> None:
    names = [f"t{i}" for i in range(6)]
    bodies = ["import os; os._exit(1)", "return x * 3 + 1"] * 3
    work = [(Task(task_id=n, source=SCALE), forward(b)) for n, b in zip(names, bodies, strict=True)]
    results = list(evaluate_many(work, EvalOptions(trials=1, seed=3), jobs=2))
    assert [r.task_id for r in results if isinstance(r, Evaluation)] == names
    assert [r.verdict for r in results if isinstance(r, Evaluation)] == ["runtime_error", "rejected"] * 3


def test_same_seed_same_evidence(evaluator: Evaluator) -> None:
    first, second = (judged(evaluator, python(RIGHT)) for _ in range(2))
    assert [w.max_abs_error for w in first.workloads] == [w.max_abs_error for w in second.workloads]


def test_nothing_is_left_behind() -> None:
    me = psutil.Process()
    before, descriptors = {p.pid for p in me.children(recursive=True)}, me.num_fds()
    with Evaluator(EvalOptions(trials=1, timeout=3, seed=5)) as short:
        home = Path(short.pool.home)
        for body in ("while True: pass", "import os; os._exit(4)", "return x * 3 + 1"):
            judged(short, forward(body))
    assert not home.exists()
    deadline = time.monotonic() + 10
    while (left := {p.pid for p in me.children(recursive=True)} - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left and me.num_fds() == descriptors


WEIGHTED = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.u = nn.Parameter(torch.randn(rows))
    def forward(self, x):
        return x * self.u[:, None]
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return [8]
"""


SCALED = """
#include <torch/extension.h>
__global__ void k(const float* x, const float* u, float* y, int n, int columns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * u[i / columns];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor u, int64_t rows) {
  auto y = torch::empty_like(x);
  k<<<(x.numel() + 63) / 64, 64>>>(x.data_ptr<float>(), u.data_ptr<float>(), y.data_ptr<float>(), x.numel(), x.size(1));
  return y;
}
"""


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", "correct"),
        ("u[i / columns]", "1.0f", "wrong"),
        ("auto y", "static auto first = u.clone(); u = first; auto y", "wrong"),  # the first call's weights for ever
    ],
)
@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_file_without_python_gets_the_weights_of_the_reference(
    old: str, new: str, verdict: str, device: str | None, pool: Pool
) -> None:
    text = SCALED.replace(old, new) if old else SCALED
    candidate = Candidate(language="cuda", sources=(SourceFile(path="candidate.cu", content=text),))
    options = EvalOptions(trials=3, timing_seconds=0.0)
    with Evaluator(options, device=device, pool=pool) as made:  # `cpu`: the GPU's way, without one
        result = made.evaluate(Task(task_id="t", source=WEIGHTED), candidate)
    assert result.verdict == verdict, (result.reason, result.log)


def test_a_file_without_python_is_told_how_it_was_called(evaluator: Evaluator) -> None:
    """The message names no line, since the line that ran is the wrapper's."""
    text = "#include <torch/extension.h>\n" + "\n" * 30
    text += "__global__ void k() {}\ntorch::Tensor forward(torch::Tensor x) { k<<<1, 1>>>(); return x; }\n"
    candidate = Candidate(language="cuda", sources=(SourceFile(path="candidate.cu", content=text),))
    result = evaluator.evaluate(Task(task_id="t", source=WEIGHTED), candidate)
    assert result.verdict == "runtime_error"
    assert "forward is called with 1 inputs, 1 weights and 1 constructor arguments" in result.reason
    assert "(line" not in result.reason and all(f.line is None for f in result.findings)


TILED_TASK = """
import torch
import torch.nn as nn
batch, inner, outer = 4096, 2048, 2048
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner))
    def forward(self, x):
        return x @ self.weight.t()
def get_inputs():
    return [torch.randn(batch, inner)]
def get_init_inputs():
    return [inner, outer]
"""
TILED = '''
import torch
import torch.nn as nn
from kernelwright.cuda import Module
kernels = Module(r"""
#define CHUNK 2048
extern "C" __global__ void go(const float* x, const float* w, float* y, int m, int k, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float s = 0.f;
  for (int c = 0; c < {k}; c += CHUNK)
    for (int j = c; j < c + CHUNK && j < {k}; ++j) s += x[i / n * {k} + j] * w[i % n * {k} + j];
  y[i] = s * {factor};
}}
""")
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outer, inner))
    def forward(self, x):
        y = torch.empty(x.shape[0], self.weight.shape[0], device=x.device)
        kernels.go[(y.numel() + 127) // 128, 128](x, self.weight, y, x.shape[0], x.shape[1], y.shape[1])
        return y
'''


@pytest.mark.parametrize(
    ("extent", "factor", "verdict"),
    [
        ("k", "1.f", "correct"),
        ("2048", "1.f", "unsupported"),
        ("2048", "1.01f", "runtime_error"),
        ("k", "1.01f", "wrong"),
    ],
)
def test_a_size_in_the_code_is_no_excuse_for_a_wrong_kernel(
    evaluator: Evaluator, extent: str, factor: str, verdict: str
) -> None:
    """The code holds a declared size that every derived size reduces, as an extent or as the length of a tile."""
    task = Task(task_id="tiled", source=TILED_TASK)
    options = EvalOptions(seed=7, timeout=20, small_sizes=True)
    result = evaluator.evaluate(task, python(TILED.format(k=extent, factor=factor)), options)
    assert result.verdict == verdict, result.reason
    assert verdict != "unsupported" or result.reason.startswith(
        "shape-specialised: it is right with the declared inner"
    )
