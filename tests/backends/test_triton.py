"""Triton candidates judged without a GPU, through Triton's own compiler and the machine: the verdicts and the lines."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="needs Triton: pip install 'kernelwright[triton]'")

import subprocess
import sys
from collections.abc import Iterator

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Candidate, Evaluation, SourceFile, Task

HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n"
FLAT = "torch.randn(n)"


def task(inputs: str, body: str, args: str = "x", sizes: str = "n = 5003", **fields: float) -> Task:
    source = f"import torch\nimport torch.nn as nn\n{sizes}\nclass Model(nn.Module):\n    def forward(self, {args}):\n"
    source += f"        {body}\ndef get_inputs():\n    return [{inputs}]\ndef get_init_inputs():\n    return []\n"
    return Task(task_id="triton-test", source=source, **fields)


def candidate(kernel: str, launch: str, args: str = "x") -> str:
    body = "\n".join("        " + line for line in launch.strip().split("\n"))
    return HEAD + kernel.strip("\n") + f"\n\n\nclass ModelNew(nn.Module):\n    def forward(self, {args}):\n{body}\n"


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", trials=3, seed=3), pool=pool) as shared:
        yield shared


def judged(evaluator: Evaluator, given: Task, source: str) -> Evaluation:
    files = (SourceFile(path="candidate.py", content=source),)
    return evaluator.evaluate(given, Candidate(sources=files, language="triton"))


def line_of(source: str, text: str) -> int:
    return next(n for n, line in enumerate(source.split("\n"), 1) if text in line)


PLUS = """
@triton.jit
def plus(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x + 1.5, mask=at < n)
"""
PLUS_LAUNCH = "y = torch.empty_like(x)\nplus[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)\nreturn y"
PLUS_TASK = task(FLAT, "return x + 1.5")


def test_a_kernel_is_compiled_launched_and_recorded(evaluator: Evaluator) -> None:
    result = judged(evaluator, PLUS_TASK, candidate(PLUS, PLUS_LAUNCH))
    assert result.verdict == "correct", result.log
    (launch,) = result.launches
    assert launch.kernel == "plus" and launch.instructions > 0
    told = [f.evidence for f in result.findings if f.rule == "kernel-resources"]
    assert len(told) == 1 and "registers" in told[0]


MATMUL = """
@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, k, B):
        q = start + tl.arange(0, B)
        a = tl.load(a_ptr + i[:, None] * k + q[None, :], mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
        b = tl.load(b_ptr + q[:, None] * n + j[None, :], mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i[:, None] * n + j[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(i[:, None] < m) & (j[None, :] < n))
"""
MATMUL_LAUNCH = """
(m, k), n = a.shape, b.shape[1]
c = torch.empty((m, n), device=a.device, dtype=a.dtype)
product[triton.cdiv(m, 16), triton.cdiv(n, 16)](a, b, c, m, n, k, B=16)
return c
"""


def test_products_in_bf16_are_right(evaluator: Evaluator) -> None:
    given = task(
        "torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()", "return a @ b", "a, b", "m = 50\nk = 70\nn = 45"
    )
    result = judged(evaluator, given, candidate(MATMUL, MATMUL_LAUNCH, "a, b"))
    assert result.verdict == "correct", result.reason


TUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 1), (256, 4))], key=["n"]RESET)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at) if EVEN else tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(y_ptr, tl.sum(x, axis=0))
"""
TUNED_LAUNCH = """
y = torch.zeros(1, device=x.device)
total[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
return y
"""


@pytest.mark.parametrize(("reset", "verdict"), [(', reset_to_zero=["y_ptr"]', "correct"), ("", "wrong")])
def test_every_configuration_is_run_as_on_a_card(evaluator: Evaluator, reset: str, verdict: str) -> None:
    source = candidate(TUNED.replace("RESET", reset), TUNED_LAUNCH)
    result = judged(evaluator, task("torch.rand(n)", "return x.sum().reshape(1)"), source)
    assert result.verdict == verdict, result.reason


@pytest.mark.parametrize(
    ("old", "new", "rule", "marked"),
    [
        ("tl.load(x_ptr + at, mask=at < n)", "tl.load(x_ptr + at)", "out-of-bounds-read", "tl.load"),
        ("x + 1.5, mask=at < n", "x + 1.5", "out-of-bounds-write", "tl.store"),
        ("    tl.store", "    tl.device_assert(x > 1e30, 'small')\n    tl.store", "assert", "tl.device_assert"),
    ],
)
def test_a_fault_names_the_line(evaluator: Evaluator, old: str, new: str, rule: str, marked: str) -> None:
    source = candidate(PLUS.replace(old, new), PLUS_LAUNCH.replace("BLOCK=256)", "BLOCK=256, debug=True)"))
    result = judged(evaluator, PLUS_TASK, source)
    assert result.verdict == "runtime_error", result.reason
    found = next(f for f in result.findings if f.severity == "fault")
    assert found.rule == rule and found.line == line_of(source, marked)


def test_a_race_between_programs_is_found(evaluator: Evaluator) -> None:
    kernel = """
@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    tl.store(y_ptr, tl.load(y_ptr) + part)
"""
    source = candidate(
        kernel,
        TUNED_LAUNCH.replace("(x, y, x.numel())", "(x, y, x.numel(), BLOCK=256)").replace(
            'lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)', "(triton.cdiv(x.numel(), 256),)"
        ),
    )
    result = judged(evaluator, task("torch.rand(n)", "return x.sum().reshape(1)"), source)
    assert result.verdict == "wrong" and "data-race" in result.reason
    assert any(f.rule == "data-race" and f.line == line_of(source, "tl.store") for f in result.findings)


@pytest.mark.parametrize(
    ("old", "new", "marked"),
    [("x + 1.5", "x + tl.missing(x)", "tl.missing"), ("BLOCK=256", "BLOCK=250", "tl.arange")],
)
def test_what_does_not_compile(evaluator: Evaluator, old: str, new: str, marked: str) -> None:
    source = candidate(PLUS.replace(old, new), PLUS_LAUNCH.replace(old, new))
    result = judged(evaluator, PLUS_TASK, source)
    assert result.verdict == "compile_error", result.reason
    found = next(f for f in result.findings if f.rule == "kernel-compile-error")
    assert found.line == line_of(source, marked) and found.evidence in result.reason


def test_falling_back_to_torch_does_not_help(evaluator: Evaluator) -> None:
    launch = "y = torch.empty_like(x)\ntry:\n    plus[(1,)](x, y, 5, BLOCK=250)\n"
    launch += "except Exception:\n    y = x + 1.5\nreturn y"
    assert judged(evaluator, PLUS_TASK, candidate(PLUS, launch)).verdict == "compile_error"


def test_too_much_shared_memory_is_refused_as_on_a_card(evaluator: Evaluator) -> None:
    given = task(
        "torch.randn(m, k), torch.randn(k, n)", "return a @ b", "a, b", "m = 40\nk = 50\nn = 40", tolerance=1e-2
    )
    kernel = MATMUL.replace("range(0, k, B)", "range(0, k, 1024)").replace(
        "tl.arange(0, B)\n        a", "tl.arange(0, 1024)\n        a"
    )
    result = judged(evaluator, given, candidate(kernel, MATMUL_LAUNCH.replace("B=16", "B=32"), "a, b"))
    assert result.verdict == "runtime_error" and "OutOfResources" in result.reason, result.reason


def test_gradients_go_through_own_kernels(evaluator: Evaluator) -> None:
    kernel = """
@triton.jit
def times(x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * tl.load(w_ptr + at, mask=at < n), mask=at < n)


def product(x, w):
    y = torch.empty_like(x)
    times[(triton.cdiv(x.numel(), 128),)](x, w, y, x.numel(), BLOCK=128)
    return y


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return product(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return product(g.contiguous(), w), product(g.contiguous(), x)
"""
    given = task("torch.randn(n), torch.randn(n)", "return x * w", "x, w", "GRADIENTS = True\nn = 1003")
    result = judged(evaluator, given, candidate(kernel, "return Product.apply(x, w)", "x, w"))
    assert result.verdict == "correct", result.reason


def test_a_cooperative_grid_waits_for_its_last_program(evaluator: Evaluator) -> None:
    kernel = """
@triton.jit
def halves(x_ptr, y_ptr, count_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1.5, mask=at < n)
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="release")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < tl.num_programs(0):
        pass
"""
    launch = "y, count = torch.empty_like(x), torch.zeros(1, device=x.device, dtype=torch.int32)\n"
    launch += (
        "halves[(triton.cdiv(x.numel(), 256),)](x, y, count, x.numel(), 256, launch_cooperative_grid=True)\nreturn y"
    )
    result = judged(evaluator, PLUS_TASK, candidate(kernel, launch))
    assert result.verdict == "correct", result.reason


def test_tuning_ends_with_its_seconds() -> None:
    from kernelwright.backends.triton.triton_driver import TuningBench
    from kernelwright.machine.runtime import Runtime

    bench, calls = TuningBench(Runtime(lambda _request: pytest.fail("nothing is built"))), []

    def call() -> None:
        calls.append(1)

    bench.begin()
    bench.left = -1.0
    first, second = (bench.tune(call, quantiles=(0.5, 0.2, 0.8)) for _ in range(2))
    assert len(calls) == 1 and second == [float("inf")] * 3 and first < second
    bench.begin()
    assert bench.tune(call, quantiles=(0.5,)) != [float("inf")]
    assert bench.do_bench(call, return_mode="all") == [bench.do_bench(call)]


def test_lines_within_inline_assembly_are_those_of_its_call() -> None:
    from kernelwright.backends.triton.triton_compiler import with_true_lines

    asm = "// begin inline asm\n.loc 1 9 1\nmov.u32 %r1, 0;\n.loc 1 10 1\nld.global.b32 %r1, [%rd1];\n// end inline asm"
    text = f".loc 1 9 3\n{asm}\n.loc 1 12 1\nadd.s32 %r1, %r1, 1;"
    assert with_true_lines(text) == text.replace(".loc 1 10 1\n", "")


def test_preparing_leaves_the_backend_of_a_gpu() -> None:
    """A process that a warm one forks may have a GPU, and then launches by Triton's own driver."""
    code = "from kernelwright.backends.triton import triton_support; triton_support.prepare()\n"
    code += "from triton.backends import backends; print(backends['nvidia'].driver.__module__)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "triton.backends.nvidia.driver", done.stderr
