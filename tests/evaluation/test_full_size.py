"""The GPU's protocol run on the CPU: referee and runner share memory, and timed calls are verified."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.candidate import gpu_runner
from kernelwright.evaluation.device.devices import HostDevice
from kernelwright.evaluation.device.timed_calls import TimedCalls
from kernelwright.evaluation.judge import full_size, hardware_limits, timing
from kernelwright.evaluation.judge import rules as guards
from kernelwright.evaluation.judge.attempt import Attempt
from kernelwright.evaluation.judge.gpu_case import CallWay
from kernelwright.evaluation.judge.hardware_limits import floor_ms
from kernelwright.evaluation.judge.intervals import process_spread, ratio_interval
from kernelwright.evaluation.processes import gpu_seats, wire
from kernelwright.evaluation.processes.messages import Called, CallTimes
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.evaluation.text.mentions import declared_sizes, device_functions
from kernelwright.records import Candidate, Evaluation, LibraryRule, SourceFile, Task

TASK = """
import torch
import torch.nn as nn
rows, cols = 48, 160
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
MODEL = """
import torch
import torch.nn as nn
{setup}
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.kept = {{}}
    def forward(self, x):
        self.calls += 1
{body}
"""
CUDA = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
source = """
__global__ void scaled_relu(const float* x, const float* s, float* y, int rows, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * cols) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor s) {
  auto y = torch::empty_like(x);
  scaled_relu<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(),
                                                x.size(0), x.size(1));
  return y;
}
"""
module = load_inline("scaled_relu", "torch::Tensor forward(torch::Tensor x, torch::Tensor s);", source, ["forward"])
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
    def forward(self, x):
        return module.forward(x, self.scale)
'''


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    """Runs the candidate's host code where the values are: `test_replays` is about the other road."""
    options = EvalOptions(timing_seconds=0.1, trials=3, timeout=20, program_first=False, replay=False)
    with Evaluator(options, device="cpu", pool=pool) as made:
        yield made


def judged(evaluator: Evaluator, text: str, policy: LibraryRule = "libraries") -> Evaluation:
    task = Task(task_id="scaled-relu", source=TASK, policy=policy)
    return evaluator.evaluate(task, Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda"))


def model(body: str, setup: str = "") -> str:
    return MODEL.format(setup=setup, body="\n".join("        " + line for line in body.splitlines()))


def test_an_honest_kernel_is_correct_and_timed(evaluator: Evaluator) -> None:
    result = judged(evaluator, CUDA, "from_scratch")
    assert result.verdict == "correct", result.reason
    assert result.backend == "host" and {w.distribution for w in result.workloads} >= {"own", "far_below"}
    timing = result.timing
    assert timing is not None and timing.eager_ms is not None and timing.interval is not None
    assert timing.interval[0] < (timing.speedup or 0) < timing.interval[1]
    assert len(timing.samples["candidate"]) == len(timing.samples["eager"]) >= 2
    assert "fill" in result.environment.gpu_seconds and "scaled_relu" in result.launches[0].kernel


def test_weights_are_the_judges(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("return torch.relu(x)"))
    assert result.verdict == "wrong", "a scale of ones was left out"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return torch.relu(x)[:-1] * self.scale", "shape [47, 160], expected [48, 160]"),
        ("return (torch.relu(x) * self.scale).half()", "dtype float16, expected float32"),
        ("return torch.relu(x) * self.scale, x", "1 outputs, the candidate 2"),
        ("return torch.relu(x) * self.scale + 1e-3", "output 0 differs"),
        ("y = torch.relu(x) * self.scale\ny[-1, -1] = float('nan')\nreturn y", "1 of 7680 elements are wrong"),
    ],
)
def test_wrong_outputs(evaluator: Evaluator, body: str, reason: str) -> None:
    result = judged(evaluator, model(body))
    assert result.verdict == "wrong" and reason in result.reason and result.timing is None


@pytest.mark.parametrize(
    "body",
    [
        # The first answer again: by shape, by address, and by a few of the values.
        "y = self.kept.setdefault(x.shape, torch.relu(x) * self.scale)\nreturn y.clone()",
        "y = self.kept.setdefault(x.data_ptr(), torch.relu(x) * self.scale)\nreturn y.clone() if self.calls > 6 else "
        "torch.relu(x) * self.scale",
        # Honest while it is checked, lazy when it is likely to be timed.
        "return torch.relu(x) * self.scale if self.calls <= 8 else torch.empty_like(x)",
        "return torch.relu(x) * self.scale if self.calls % 7 else torch.zeros_like(x)",
    ],
)
def test_what_is_timed_is_verified(evaluator: Evaluator, body: str) -> None:
    result = judged(evaluator, model(body))
    assert result.verdict == "wrong", (result.verdict, result.reason)


def test_one_buffer_for_all_calls_is_timed_call_by_call(evaluator: Evaluator) -> None:
    """A replayed CUDA graph does the same: it is honest if each call's answer is correct when it returns."""
    body = "y = self.kept.setdefault('y', torch.empty_like(x))\nreturn y.copy_(torch.relu(x) * self.scale)"
    result = judged(evaluator, model(body))
    assert result.verdict == "correct", result.reason
    assert result.timing is not None and len(result.timing.samples["candidate"]) >= 2


def test_scribbling_over_the_inputs_is_seen(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("y = torch.relu(x) * self.scale\nx.zero_()\nreturn y"))
    assert result.verdict == "rejected" and result.reason.startswith("input-mutated")


@pytest.mark.parametrize(("second", "verdict"), [("x", "correct"), ("x.view(-1)", "correct"), ("x + 0", "rejected")])
def test_an_input_may_be_handed_through_where_the_reference_does(
    evaluator: Evaluator, second: str, verdict: str
) -> None:
    source = TASK.replace("* self.scale", f"* self.scale, {second}")
    text = CUDA.replace("(x, self.scale)", f"(x, self.scale), {second.replace(' + 0', '')}")
    task = Task(task_id="handed", source=source, policy="from_scratch")
    result = evaluator.evaluate(task, Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda"))
    assert result.verdict == verdict, result.reason
    assert verdict == "correct" and result.timing is not None or "output 1 shares the memory" in result.reason


def test_returning_the_input_is_seen(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("return x.relu_().mul_(self.scale)"))
    assert result.verdict == "rejected" and "input" in result.reason


def test_torch_alone_is_rejected_from_scratch(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("return torch.relu(x) * self.scale"), "from_scratch")
    assert result.verdict == "rejected" and result.reason.startswith("no-own-kernel")


def test_death_and_hang_end_in_bounded_time_and_leave_the_next_untouched(evaluator: Evaluator, pool: Pool) -> None:
    killed = judged(evaluator, model("import os; os.kill(os.getpid(), 9)"))
    assert killed.verdict == "runtime_error" and "SIGKILL" in killed.reason
    with Evaluator(EvalOptions(timing_seconds=0.1, trials=1, timeout=4), device="cpu", pool=pool) as impatient:
        hung = judged(impatient, model("while True: pass"))
        assert hung.verdict == "timeout" and hung.seconds.total < 30
        assert judged(impatient, model("return torch.relu(x) * self.scale")).verdict == "correct"


def test_a_size_that_nobody_declared_is_a_warning(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("assert x.shape == (48, 160)\nreturn torch.relu(x) * self.scale"))
    declared = [w for w in result.workloads if w.scope == "declared"]
    assert result.verdict == "correct" and declared


def test_inputs_in_one_place_that_the_reference_writes_to(evaluator: Evaluator) -> None:
    """The referee's copies of the inputs of a row of calls must be neither the task's own nor written to."""
    task = """
import torch
import torch.nn as nn
place = torch.empty(48, 160)
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
    def forward(self, x):
        return x.relu_().mul_(self.scale).clone()
def get_inputs():
    return [place.copy_(torch.randn(48, 160))]
def get_init_inputs():
    return [160]
"""
    asked = Task(task_id="in-place", source=task, policy="libraries")
    verdicts = []
    for body in ("", " if self.calls % 7 else torch.zeros_like(x)"):
        # Short calls are made in rows.
        text = model("x.relu_().mul_(self.scale)\nreturn x.clone()" + body)
        candidate = Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda")
        verdicts.append(evaluator.evaluate(asked, candidate).verdict)
    assert verdicts == ["correct", "wrong"]
    out_of_place = model("return torch.relu(x) * self.scale")
    candidate = Candidate(sources=(SourceFile(path="c.py", content=out_of_place),), language="cuda")
    assert evaluator.evaluate(asked, candidate).verdict == "wrong"  # the reference changes x


def test_memory_that_is_not_there_is_unsupported(pool: Pool) -> None:
    options = EvalOptions(trials=1, gpu_memory_gb=1e-5)
    with Evaluator(options, device="cpu", pool=pool) as small:
        result = judged(small, model("return torch.relu(x) * self.scale"))
    assert result.verdict == "unsupported" and result.reason.startswith("size: about")


def test_a_task_gets_the_room_that_it_needs(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts with little memory, beside others; the verdict is that of a judgement with enough memory."""
    monkeypatch.setattr(gpu_seats, "HEADROOMS", (1 << 10, 1 << 11))
    task = Task(task_id="scaled-relu", source=TASK, policy="libraries")
    text = model("return torch.relu(x) * self.scale")
    candidate = Candidate(sources=(SourceFile(path="c.py", content=text),), language="cuda")
    options = EvalOptions(timing_seconds=0.05, trials=1)
    with Evaluator(options, device="cpu", pool=pool) as small:
        results = [small.evaluate(task, candidate) for _ in range(2)]
        gpu = small._gpu
        assert gpu is not None and gpu._needs == {task.content_hash: 2}
    assert [result.verdict for result in results] == ["correct", "correct"]
    with Evaluator(options.changed(gpu_memory_gb=1e-6), device="cpu", pool=pool) as none:
        result = none.evaluate(task, candidate)
    assert result.verdict == "unsupported" and result.reason.startswith("size: about")


def test_intervals() -> None:
    ratio, low, high = ratio_interval([2.0, 2.1, 1.9] * 10, [1.0, 1.05, 0.95] * 10)
    assert ratio == 2.0 and 1.8 < low <= 2.0 <= high < 2.2
    assert ratio_interval([1.0], [1.0]) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError):
        ratio_interval([], [1.0])
    assert process_spread(0.005) > 0.01 > process_spread(1.0)


def test_the_floor_of_physics() -> None:
    assert floor_ms("NVIDIA H200", 4_800_000_000, 0) == pytest.approx(1.0)
    assert floor_ms("NVIDIA H200", 0, 50_000_000) == 0.0, "L2 may hold what was written"
    assert floor_ms("Some Card", 1, 1) is None


def test_a_call_that_is_wrong_only_when_repeated(evaluator: Evaluator) -> None:
    body = (
        "key = float(x.double().sum())\nseen = key in self.kept\nself.kept[key] = True\n"
        "y = torch.relu(x) * self.scale\nreturn y * 1.01 if seen else y"
    )
    result = judged(evaluator, model(body))
    assert result.verdict == "wrong" and "called again on equal inputs" in result.reason


def test_other_bits_are_noted(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("return torch.relu(x) * self.scale * (1 + 1e-6 * (self.calls % 2))"))
    assert result.verdict == "correct", result.reason
    assert "nondeterministic" in [f.rule for f in result.findings]


def test_a_crash_is_tried_again(evaluator: Evaluator) -> None:
    result = judged(evaluator, model("import ctypes\nctypes.string_at(0)"))
    assert result.verdict == "runtime_error" and "SIGSEGV" in result.reason
    assert "repeated-fault" in [f.rule for f in result.findings]


def test_a_crash_that_does_not_come_again(evaluator: Evaluator) -> None:
    """The scratch folder ends with the runner, so only chance could let a process crash once; time replaces chance."""
    body = (
        "import ctypes, time\nif time.monotonic() < LIMIT:\n    ctypes.string_at(0)\nreturn torch.relu(x) * self.scale"
    )
    for seconds in (1.0, 4.0, 16.0):  # a machine with other work may come to the first call too late to die in it
        setup = f"LIMIT = {time.monotonic() + seconds}\nimport time\ntime.sleep({0.7 * seconds})"
        result = judged(evaluator, model(body, setup=setup))
        assert result.verdict == "correct", result.reason
        if "unrepeated-fault" in [f.rule for f in result.findings]:
            break
    assert "unrepeated-fault" in [f.rule for f in result.findings]


def clock(device_ms: float, slack_ms: float = 0.0, issue_ms: float = 0.0, hidden: bool = True) -> CallTimes:
    """Returns the clock's answer for a call."""
    return CallTimes(device_ms=device_ms, slack_ms=slack_ms, issue_ms=issue_ms, hidden=hidden)


def called(fields: dict[str, Any]) -> Called:
    """Returns a call's answer with only these fields."""
    nothing: dict[str, Any] = {"facts": {}, "operators": [], "mutated": [], "problems": []}
    return Called.model_validate({"kind": "called", **nothing, **fields})


def test_named_libraries() -> None:
    facts = {"operators": [["relu", 7680], ["mm", 5000]], "facts": {"launches": [], "own_calls": 0}, "foreign": []}
    rules = {
        policy: [f.rule for f in guards.call_findings(called(facts), policy, 7680, "w")]
        for policy in ("from_scratch", "libraries", "libraries:cublas", "libraries:cublas,torch")
    }
    assert rules == {
        "from_scratch": ["no-own-kernel"],
        "libraries": [],
        "libraries:cublas": ["no-own-kernel"],
        "libraries:cublas,torch": [],
    }
    launched = facts | {"facts": {"launches": [{"count": 1}], "own_calls": 0, "written": {"0": 4}}}
    assert [f.rule for f in guards.call_findings(called(launched), "libraries:cublas", 7680, "w")] == ["library-op"]
    with pytest.raises(ValidationError, match="libraries:NAMES with names among"):
        Task(task_id="x", source=TASK, policy="libraries:cudn")


PICKS = """
import torch
import torch.nn as nn
entries = 3000
class Model(nn.Module):
    def forward(self, table, ids):
        return table[ids]
def get_inputs():
    return [torch.randn(entries, 64), torch.randint(0, entries, (3,))]
def get_init_inputs():
    return []
"""


def test_inputs_that_need_not_be_read_do_not_count(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hardware_limits.PEAK_BYTES, "host", (1000.0, 1e9))  # a card that reads a kilobyte a second
    honest = judged(evaluator, model("return torch.relu(x) * self.scale"))
    assert honest.verdict == "rejected" and honest.reason.startswith("physics-floor")
    assert honest.environment.inputs_needed == 1.0, "ReLU passes NaN on, from everywhere"
    picking = PICKS.replace("Model(", "ModelNew(")
    candidate = Candidate(sources=(SourceFile(path="c.py", content=picking),), language="cuda")
    result = evaluator.evaluate(Task(task_id="picks", source=PICKS, policy="libraries"), candidate)
    assert result.verdict == "correct", result.reason
    needed = result.environment.inputs_needed
    assert needed is not None and needed < 0.2


def test_a_kernel_that_the_text_defines_is_its_own_whatever_its_name() -> None:
    text = """
    template <int N> __global__ void __launch_bounds__(256) tiled_gemm_kernel(const float* a) {}
    namespace { __global__ void fft_radix2(float2* a) {} }
    @triton.jit
    def flash_fwd_kernel(q, k):
    """
    mine = [
        "void tiled_gemm_kernel<16>(float const*)",
        "(anonymous namespace)::fft_radix2(float2*)",
        "flash_fwd_kernel",
    ]
    libraries = ["void at::native::vectorized_elementwise_kernel<4>(int)", "ampere_sgemm_128x64_nn", "nvjet_tst_128x8"]
    kernels = [[name, 1, 1.0] for name in (*mine, *libraries, "unknown")]
    assert [name for name, _, _ in full_size._own(kernels, device_functions(text))] == [*mine, "unknown"]
    assert [name for name, _, _ in full_size._own(kernels, ())] == ["unknown"]


GEMM, RELU = "sm90_xmma_gemm_f32f32", "void at::native::vectorized_elementwise_kernel<4, clamp>"
COPY = "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>"


@pytest.mark.parametrize(
    ("kernels", "operators", "rejected"),
    [
        ([["touch", 1, 2.0], [GEMM, 1, 90.0]], [], True),
        ([["mine", 1, 30.0], [RELU, 1, 60.0]], [["relu", 1]], True),
        ([["mine", 1, 3.0], [RELU, 1, 2.0]], [], True),
        ([["mine", 1, 2.0], [RELU, 3, 6.0]], [["sqrt", 1]], False),
        ([["mine", 1, 3.0], [COPY, 1, 90.0]], [], False),
        ([["mine", 1, 3.0]], [], False),
        ([], [], False),
    ],
)
def test_library_kernels_that_no_operator_shows(
    kernels: list[list[Any]], operators: list[list[Any]], rejected: bool
) -> None:
    bench = SimpleNamespace(
        policy="from_scratch", kernels=kernels, layout={"largest_input": 1 << 20}, attempt=Attempt()
    )
    bench.own_kernels = full_size._own(kernels, {"mine"})
    bench.workload = SimpleNamespace(name="own")
    facts, total = {"operators": operators}, sum(k[2] for k in kernels)
    assert (full_size._hidden_library(bench, called(facts), total) is not None) == rejected  # type: ignore[arg-type]
    bench.policy = "libraries"
    assert full_size._hidden_library(bench, called(facts), total) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("in_a_row", "alone", "hidden", "rejected"),
    [
        (0.003, [0.11], True, True),  # answered ahead
        (0.003, [0.11], False, False),  # the device may only have waited for the host
        (0.003, [0.11, 0.006], True, False),  # a slow start, once
        (0.10, [0.11], True, False),
        (0.003, [0.009], True, False),  # too short to tell
    ],
)
def test_calls_that_were_answered_ahead(
    monkeypatch: pytest.MonkeyPatch, in_a_row: float, alone: list[float], hidden: bool, rejected: bool
) -> None:
    samples = timing.TimedSamples(["candidate", "eager"])
    samples.times = {"candidate": [in_a_row] * 9, "eager": [0.02] * 9}
    samples.alone = {"candidate": alone[0], "eager": 0.023}
    samples.hidden["candidate"] = True
    left = iter(alone[1:])
    monkeypatch.setattr(timing, "_times", lambda *_: clock(next(left, alone[-1]), hidden=hidden))
    bench = SimpleNamespace(one_by_one=False, attempt=Attempt(), workload=SimpleNamespace(name="own"), seed=lambda: 7)
    timing._in_a_row(bench, samples, in_a_row)  # type: ignore[arg-type]
    assert (bench.attempt.failed is not None) == rejected
    assert [f.rule for f in bench.attempt.findings] == (["answered-ahead"] if rejected else [])


@pytest.mark.parametrize(
    ("late", "hidden", "rejected"),
    [
        ([0.11] * 8, True, True),  # computed in time, where in a row of calls it was ready
        ([0.11] * 7 + [0.04], True, False),  # a busy device
        ([0.02], True, False),
        ([0.045] * 8, True, False),  # within the share, and what starting the copies takes
        ([0.065] * 8, False, False),  # the device may only have waited for the host
        ([0.11] * 8, False, True),
    ],
)
def test_calls_whose_inputs_come_late(
    monkeypatch: pytest.MonkeyPatch, late: list[float], hidden: bool, rejected: bool
) -> None:
    samples = timing.TimedSamples(["candidate", "eager"])
    samples.times, samples.alone = {"candidate": [0.02] * 9, "eager": [0.02] * 9}, {"candidate": 0.03, "eager": 0.03}
    samples.hidden["candidate"], samples.issues = True, [0.03] * 9
    left, verified = iter(late), []

    def called(_bench: Any, _kind: str, seeds: list[int], way: CallWay) -> Any:
        assert way.late and len(seeds) == 4
        times, copies = clock(0.004 + next(left), hidden=hidden), clock(0.004, issue_ms=0.005)
        return SimpleNamespace(times=times, copies=copies, outputs=[])

    monkeypatch.setattr(timing, "call", called)
    monkeypatch.setattr(timing, "_verify", lambda *given: verified.append(given))
    bench = SimpleNamespace(
        one_by_one=False, attempt=Attempt(), workload=SimpleNamespace(name="own"), layout={"slots": 4}, seed=lambda: 7
    )
    timing._before_it_is_there(bench, samples, 0.02)  # type: ignore[arg-type]
    assert [f.rule for f in bench.attempt.findings] == (["answered-ahead"] if rejected else [])
    assert (bench.attempt.failed is not None) == rejected
    assert verified, "what such calls return is compared, too"


@pytest.mark.parametrize(
    ("candidate", "baseline", "rejected"),
    [
        ([1.6, 1.9], [0.05], True),
        ([0.9, 0.5, 2.1], [1.1, 0.04, 0.7, 2.0], False),  # another process computes on the device: both wait
        ([1.6, 1.9], [0.9, 0.04, 0.7], True),  # and unawaited work as well
        ([0.4, 0.4, 0.08], [0.05], False),  # a busy host
    ],
)
def test_work_beside_the_stream(
    monkeypatch: pytest.MonkeyPatch, candidate: list[float], baseline: list[float], rejected: bool
) -> None:
    seen = {"candidate": itertools.cycle(candidate), "eager": itertools.cycle(baseline)}
    monkeypatch.setattr(timing, "_times", lambda _bench, who, _seeds: clock(0.0, slack_ms=next(seen[who])))
    bench = SimpleNamespace(attempt=Attempt(), workload=SimpleNamespace(name="own"), seed=lambda: 7)
    bench.options = EvalOptions()
    slacks = {"candidate": [next(seen["candidate"]) for _ in range(4)], "eager": [min(baseline)]}
    timing._beside_the_stream(bench, slacks, 0.01)  # type: ignore[arg-type]
    assert [f.rule for f in bench.attempt.findings] == (["side-stream"] if rejected else [])


def test_other_contents_lie_where_late_inputs_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    device = HostDevice()
    _, handle = device.create(3 * 64)
    calls = TimedCalls(device)
    calls.exchange(handle, 3 * 64)
    forms = [{**wire.forms_of([torch.empty(4)])[0]}]
    header = {"stride": 64, "calls": [[], [], []], "inputs": [[0, "uint8", [16]]], "forms": forms}
    for slot in range(3):
        calls.view(64 * slot, 0, "float32", [4]).fill_(float(slot))
    given = calls.decoys(header)
    assert [int(tensors[0][0]) for tensors in given] == [0, 0, 1]
    places = [tensors[0].data_ptr() for tensors in given]
    for place in calls.placements(header, given):
        place()
    assert [tensors[0].tolist() for tensors in given] == [[float(slot)] * 4 for slot in range(3)]
    assert [tensors[0].data_ptr() for tensors in given] == places
    device.release(torch.empty(0), owner=True)


@pytest.mark.parametrize(
    "rule, body",
    [
        (
            "harness-access",
            "module.forward(x, self.scale)\nwith torch._C._DisableTorchDispatch():\n"
            "    return torch.relu(x) * self.scale",
        ),
        (
            "library-op",
            "module.forward(x, self.scale)\nimport threading\nout = []\n"
            "t = threading.Thread(target=lambda: out.append(torch.relu(x) * self.scale))\n"
            "t.start()\nt.join()\nreturn out[0]",
        ),
    ],
)
def test_what_neither_kernels_nor_glue_made_is_seen_at_full_size(evaluator: Evaluator, rule: str, body: str) -> None:
    lines = "\n".join("        " + line for line in body.splitlines())
    result = judged(evaluator, CUDA.replace("        return module.forward(x, self.scale)", lines), "from_scratch")
    assert result.verdict == "rejected" and result.reason.startswith(rule), result.reason


def test_a_rule_that_no_size_explains_decides_at_every_size(evaluator: Evaluator) -> None:
    body = "y = torch.relu(x) * self.scale\nif x.shape != (48, 160):\n    x.zero_()\nreturn y"
    result = judged(evaluator, model(body))
    assert result.verdict == "rejected" and result.reason.startswith("input-mutated"), result.reason


def test_no_time_at_all_is_no_time() -> None:
    samples = timing.TimedSamples(["candidate", "eager"])
    samples.times = {"candidate": [0.0] * 9, "eager": [0.02] * 9}
    bench = SimpleNamespace(one_by_one=False, attempt=Attempt(), workload=SimpleNamespace(name="own"))
    timing._suspicious(bench, samples, {"name": "NVIDIA H200"})  # type: ignore[arg-type]
    assert bench.attempt.failed is not None and bench.attempt.failed.reason.startswith("physics-floor")


@pytest.mark.parametrize(
    ("eager", "doubtful"),
    [
        ([0.023, 0.024], False),
        ([0.304, 0.131], True),  # both of two, as measured on a card with a training beside: 13 times too slow
        ([0.023, 0.304], True),
        ([0.023], True),
        ([0.304, 0.024, 0.023, 0.025], False),  # the median is a call without a delay
        ([0.304, 0.024, 0.131, 0.025], True),
        ([0.02, 0.04] * 5, False),  # enough samples: the time varies
    ],
)
def test_few_times_that_a_stall_may_have_made_are_not_enough(eager: list[float], doubtful: bool) -> None:
    samples = timing.TimedSamples(["candidate", "eager"])
    samples.times = {"candidate": [0.02] * len(eager), "eager": eager}
    assert samples.doubtful() == doubtful


def test_doubts_end_too() -> None:
    """Calls that take a second are not repeated until ten of them agree."""
    samples = timing.TimedSamples(["candidate", "eager"])
    assert not samples.enough(0.05)  # there is none yet
    for took in ((150.0, 0.02), (150.0, 0.3)):
        for who, device_ms in zip(samples.times, took, strict=True):
            samples.add(who, clock(device_ms), 0.0)
    assert samples.doubtful() and not samples.enough(0.1) and samples.enough(0.05)
    samples.times["eager"] = [0.02, 0.021]
    assert samples.enough(0.05)


def test_a_stall_of_the_host_is_not_a_slow_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([0.02, 0.304, 0.131, 0.02])

    def times(_bench: Any, who: str, _batch: int, **_: Any) -> dict[str, Any]:
        took = 0.02 if who == "candidate" else next(calls, 0.02)
        return clock(took, issue_ms=0.01)

    for name, instead in {"_times": times, "launch_extra": lambda _: 0.0, "_suspicious": lambda *_: None}.items():
        monkeypatch.setattr(timing, name, instead)
    bench = SimpleNamespace(
        one_by_one=False,
        attempt=Attempt(),
        options=EvalOptions(backend="gpu", timing_seconds=0.0),
        layout={"slots": 1},
        span_ms=0.0,
        has=lambda _: contextlib.nullcontext(),
        referee=lambda _: {"device": {}},
        seed=lambda: 7,
    )
    timing.timed(bench)  # type: ignore[arg-type]
    found = bench.attempt.timing
    assert found is not None and found.eager_ms == 0.02 and found.speedup == 1.0
    assert 4 <= len(found.samples["eager"]) < timing.FEWEST_SAMPLES


def test_a_calls_kernels_are_told_from_the_clocks() -> None:
    add, reduce = "vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<int>>", "reduce_kernel<512, int>"
    flush = [(10, 50, add), (50, 51, "Memset (Device)"), (51, 60, reduce)]
    empty = [(0, 1, "spin_kernel"), (2, 3, "spin_kernel")]
    clock = [*empty, *flush, (61, 200, "spin_kernel")]
    call = [(70, 80, "on another stream"), (201, 210, "mine"), (211, 212, "spin_kernel")]
    before = [(-9, -8, "copy"), (-7, -6, reduce)]
    told = gpu_runner._after_the_clock
    staged = [(205, 400, "Memcpy HtoH (Pageable -> Pageable)")]
    assert told(clock + call + staged) == (call, True), "what the host does is no work of the device"
    assert told(clock + call) == told(before + clock + call) == (call, True)
    other = [*empty, (10, 50, "other"), (61, 200, "spin_kernel")]
    assert told(other + call) == (call, False), "the flush has another name"
    assert told(call[:2]) == (call[:2], False), "no clock was seen"
    assert told(flush + call[:2]) == (call[:2], False), "its long kernel's record was lost"
    assert told(before + empty + flush + call[:2]) == (call[:2], False), "the same behind what was left from before"


def test_a_calls_kernels_are_those_that_were_launched_after_the_clocks() -> None:
    """On a shared device, work on another stream begins before the clock's own, which waits."""
    add, reduce = "vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<int>>", "reduce_kernel<512, int>"
    clock = [(3, 10, 50, add), (4, 51, 60, reduce), (5, 61, 200, "spin_kernel")]
    call = [(9, 1, 2000, "on another stream"), (12, 201, 210, "mine")]
    told = gpu_runner._after_the_clock(gpu_runner._as_launched(sorted(clock + call, key=lambda record: record[1])))
    assert told == ([record[1:] for record in call], True)
    unnumbered = [(0, *record[1:]) for record in clock + call]
    assert gpu_runner._after_the_clock(gpu_runner._as_launched(unnumbered)) == ([call[1][1:]], True)
    assert gpu_runner._union([(0, 10), (5, 12), (20, 30), (22, 25)]) == 22


def test_numbers_of_a_docstring_are_no_constants() -> None:
    reference = '"""\nN = 128 4096\n"""\nK = 4_096\nrows, cols = 2048, 96  # both\n'
    assert declared_sizes("f(4096, 2048)\ng(2048, 4096)", reference) == {"K", "rows"}
