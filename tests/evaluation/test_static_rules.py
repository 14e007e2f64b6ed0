"""Rules that read text: rejections, advice, and robustness against any text in failures and time."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.evaluation.text import cuda_rules, static_rules
from kernelwright.records import Candidate, SourceFile, Task
from kernelwright.tasks import candidate_from_text

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "adversarial"))

TASK = Task(task_id="t", source="import torch\nx = torch.randn(3)\n")


def findings(text: str, path: str = "c.py", task: Task | None = TASK) -> list[tuple[str, str, int | None]]:
    candidate = Candidate(sources=(SourceFile(path=path, content=text),), language="torch")
    return [(f.rule, f.severity, f.line) for f in static_rules.static_findings(candidate, task)]


def rules(text: str) -> set[tuple[str, str]]:
    return {(rule, severity) for rule, severity, _line in findings(text)}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import gc\ngc.get_objects()", "frame-walk"),
        ("from inspect import stack\nstack()", "frame-walk"),
        ("import sys\nf = sys._getframe", "frame-walk"),
        ("import torch\ntorch.allclose = lambda *a: True", "patched-function"),
        ("import time\nsetattr(time, 'perf_counter', lambda: 0)", "patched-function"),
        ("import sys\nsys.modules['torch'] = None", "patched-function"),
        ("from kernelwright.evaluation.judge import worker", "harness-access"),
        ("import kernelwright\nkernelwright.evaluate(None, None)", "harness-access"),
        ("from kernelwright import evaluate", "harness-access"),
        ("from kernelwright import Task as T", "harness-access"),
        ("import traceback\ntraceback.extract_stack()", "frame-walk"),
        ("from traceback import walk_stack", "frame-walk"),
    ],
)
def test_rule_rejects(text: str, rule: str) -> None:
    assert (rule, "warning") in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "import time as clock\nclock.perf_counter = f",
        "import torch as th\nth.equal = f",
        "t = torch\nt.cuda.synchronize = f",
        "from torch import cuda\ncuda.synchronize = f",
        "from torch.cuda import Event as E\nE.elapsed_time = f",
        "import time\ntime.perf_counter, time.time = f, f",
        "import time\n[*time.kept] = f",
        "import time\ntime.perf_counter: object = f",
        "import time\ntime.count += 1",
        "import time\nfor time.perf_counter in [f]:\n    pass",
        "import time\nwith f() as time.perf_counter:\n    pass",
        "import time\ndel time.perf_counter",
        "import time\ntime.__dict__.update(perf_counter=f)",
        "import time\ntime.__dict__['perf_counter'] = f",
        "import time as m\nvars(m)['perf_counter'] = f",
        "import torch\ntype.__setattr__(torch.Tensor, '__eq__', f)",
        "from unittest import mock\nmock.patch('time.perf_counter', f).start()",
        "from unittest.mock import patch\nimport time\npatch.object(time, 'perf_counter', f).start()",
    ],
)
def test_functions_of_others_replaced_under_any_name_reject(text: str) -> None:
    assert ("patched-function", "warning") in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        "from torch.backends import cudnn\ncudnn.benchmark = True",
        "import torch._inductor.config as config\nconfig.max_autotune = True",
        "from torch.utils import cpp_extension\ncpp_extension.CUDA_HOME = '/usr/local/cuda'",
        "import time\nself.torch.perf_counter = time.perf_counter",
        "from torch import nn\nlayer = nn.Linear(3, 3)\nlayer.weight = None",
        "t = x.torch\nt.count = 1",
        "import os\nos.environ['X'] = '1'",
        "self.__dict__.update(vars(options))",
        "re.match('a', text).group(0)\nsome.patch('torch')",
        "import io\nimport sys\nsys.stdout = io.StringIO()\nsys.dont_write_bytecode = True\nsys.path = ['.']",
    ],
)
def test_settings_and_own_attributes_are_no_patches(text: str) -> None:
    assert "patched-function" not in {rule for rule, _ in rules(text)}


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "from kernelwright.cuda import Module",
        "import torch.nn as nn\nclass A(nn.Module):\n    def __init__(self):\n        self.x = 1",
        "import os\nname = f'ext_{os.getpid()}'",
        "this is not python (",
        "",
    ],
)
def test_honest_text_raises_nothing_that_rejects(text: str) -> None:
    assert not {severity for _rule, severity in rules(text)} & {"reject"}


def test_advice_does_not_reject() -> None:
    assert ("background-thread", "warning") in rules("import threading\nthreading.Thread(target=print).start()")
    assert ("dynamic-code", "warning") in rules("exec(some_text)")


@pytest.mark.parametrize(
    "text",
    [
        "def f(e):\n    return e.__traceback__.tb_frame.f_back",
        "def f(g):\n    return g.gi_frame.f_locals",
        "all_classes = object.__subclasses__()",
        "def f(g):\n    return g.__closure__[0].cell_contents",
    ],
)
def test_ways_to_the_inside_of_others_reject(text: str) -> None:
    assert ("frame-walk", "warning") in rules(text)


def test_naming_a_module_of_ours_rejects() -> None:
    assert ("harness-access", "warning") in rules(
        "import importlib\nimportlib.import_module('kernelwright.machine.runtime')"
    )
    assert not rules("import importlib\nimportlib.import_module('kernelwright.cuda')")


FORWARD = "class ModelNew:\n    def forward(self, x):\n        {}\n"
HABITS = [
    ("replay-cache", FORWARD.format("return self.kept[x.data_ptr()]")),
    ("replay-cache", FORWARD.format("key = tuple(x.shape)\n        return self.kept.get(key)")),
    ("replay-cache", FORWARD.format("return self.kept.setdefault(id(x), f(x))")),
    ("passthrough", FORWARD.format("return x.view(x.shape).contiguous()")),
    ("passthrough", FORWARD.format("x = x.contiguous()\n        return x")),
    ("code-replacement", "y.__class__ = Lazy"),
    ("code-replacement", "import types\nf = types.FunctionType(code, {})"),
    ("dynamic-code", "exec(some_text)"),
    ("dynamic-code", "import base64\nexec(base64.b64decode('eA=='))"),
    ("dynamic-code", "getattr(torch, 'soft' + 'max')(x)"),
    ("cuda-graph", "import torch\ng = torch.cuda.CUDAGraph()"),
    ("package-install", "import os\nos.system('pip install some-kernels')"),
    ("package-install", "subprocess.run([sys.executable, '-m', 'pip', 'install', 'x'])"),
    ("package-install", "from pip import main"),
    ("evaluator-branch", "import torch\nif torch.is_grad_enabled():\n    pass"),
    ("evaluator-branch", "import os\ny = 1 if os.environ.get('X') else 2"),
    ("config-cache", "import json\njson.dump({}, open('tuned.json', 'w'))"),
    ("file-access", "text = open('notes.txt').read()"),
    ("file-access", "import torch\ny = torch.load('first.pt')"),
    ("lower-precision", "y = x.half()"),
    ("lower-precision", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True"),
    ("own-stream", "import torch\ns = torch.cuda.Stream()"),
    (
        "fallback",
        FORWARD.format("try:\n            return k(x)\n        except Exception:\n            return relu(x)"),
    ),
    ("fallback", "try:\n    module = build()\nexcept RuntimeError:\n    module = None"),
    ("inherits-model", "class ModelNew(Model):\n    pass"),
    ("background-thread", "import threading\nthreading.Thread(target=print).start()"),
    ("process-or-network", "import subprocess"),
]
CUDA = [
    ("l2-persistence", "void f() { a.accessPolicyWindow.num_bytes = 4; }"),
    ("l2-persistence", '__global__ void k() { asm volatile("ld.global.L2::evict_last.f32 %0, [%1];"); }'),
    ("programmatic-launch", '__global__ void k() { asm volatile("griddepcontrol.launch_dependents;"); }'),
    ("programmatic-launch", "__global__ void k() { cudaTriggerProgrammaticLaunchCompletion(); }"),
    ("own-stream", "void f() { cudaStream_t s; cudaStreamCreateWithFlags(&s, 1); }"),
    ("own-stream", "void f() { auto s = c10::cuda::getStreamFromPool(); }"),
    ("cuda-graph", "void f() { cudaGraphLaunch(g, 0); }"),
    ("background-thread", "#include <thread>\nvoid f() { std::thread([] {}).detach(); }"),
    ("process-or-network", 'void f() { system("true"); }'),
    ("file-access", 'void f() { std::ifstream in("/proc/self/maps"); }'),
    ("code-replacement", "void f() { mprotect(page, 4096, 7); }"),
    ("timer-patch", "void f() { void* p = (void*)cudaEventElapsedTime; }"),
    ("evaluator-branch", 'void f() { if (getenv("X")) return; }'),
    ("lower-precision", "__global__ void k(const __half* x) { }"),
    ("lower-precision", '__global__ void k() { asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {};"); }'),
    ("pasted-name", "#define CALL(x) cuda##x\n__global__ void k() { }"),
    ("pasted-name", "#define P_(a, b) a##b\n#define P(a, b) P_(a, b)\nvoid f() { P(cuda, StreamCreate)(&s); }"),
]


@pytest.mark.parametrize(("rule", "text"), HABITS, ids=lambda v: v if "\n" not in v and len(v) < 20 else "")
def test_habits_are_advice(rule: str, text: str) -> None:
    assert (rule, "warning") in rules(text), rules(text)


@pytest.mark.parametrize(("rule", "text"), CUDA, ids=lambda v: v if "\n" not in v and len(v) < 20 else "")
def test_cuda_text_is_read_bare_and_in_strings(rule: str, text: str) -> None:
    last = text.count("\n") + 1
    assert (rule, "warning", last) in findings(text, "c.cu") or (rule, "warning", 1) in findings(text, "c.cu")
    lines = [line for name, _, line in findings(f'x = 1\nsource = """__global__ {text}"""\n') if name == rule]
    assert lines and all(2 <= line <= last + 1 for line in lines if line)


def test_lines_are_the_candidates() -> None:
    text = 'a = 1\nsource = """\n__global__ void k() {}\nvoid f() { cudaStreamCreate(&s); }\n"""\n'
    assert ("own-stream", "warning", 4) in findings(text)


def test_names_of_other_things_are_no_hint() -> None:
    text = 'void f(int open) { file.open(open); int system = 1; x.half_step(); // fork()\n auto s = "fork()"; }'
    assert findings(text, "c.cu") == []


@pytest.mark.parametrize(
    "text",
    [
        FORWARD.format("return self.rows[: x.shape[0]]"),
        FORWARD.format("y = x.relu()\n        return y"),
        "try:\n    import triton\nexcept ImportError:\n    triton = None",
        "try:\n    build()\nexcept Exception as e:\n    raise RuntimeError('no') from e",
        "for m in self.modules():\n    pass",
        "def kernel_of(shape):\n    return grids[0]",
        FORWARD.format("for layer in self.layers:\n            x = layer(x)\n        return x"),
        FORWARD.format("x, state = self.step(x)\n        return x"),
        "torch.backends.cuda.matmul.allow_tf32 = False",
        FORWARD.format("with torch.autocast('cuda', enabled=False):\n            return self.run(x)"),
    ],
)
def test_usual_python_is_no_hint(text: str) -> None:
    assert findings(text) == []


def test_precision_is_measured_by_the_task() -> None:
    half = Task(task_id="t", source="x = torch.randn(3).half()")
    assert rules("y = x.half()") == {("lower-precision", "warning")}
    assert findings("y = x.half()", task=half) == [] == findings("y = x.half()", task=None)


def test_much_advice_hides_nothing_that_rejects() -> None:
    text = "import torch, gc\n" + "exec(t)\n" * 60 + "s = torch.cuda.Stream()\ngc.get_objects()\n"
    found = findings(text)
    assert len(found) == static_rules.MOST_FINDINGS
    assert found[0][:2] == ("frame-walk", "warning") and "own-stream" in {rule for rule, _, _ in found}


def test_modes_of_torch_are_out_of_bounds() -> None:
    text = "import torch\ntorch.utils._python_dispatch._get_current_dispatch_mode_stack()[0].seen.clear()"
    assert ("harness-access", "warning") in rules(text)
    assert ("harness-access", "warning") in rules("from torch._C import _DisableTorchDispatch as D")


@pytest.mark.parametrize(
    "text",
    [
        "with torch._C._ExcludeDispatchKeyGuard(keys):\n    pass",
        "getattr(torch._C, '_ExcludeDispatchKeyGuard')(keys)",
        "y = torch.ops.aten.gelu.default.redispatch(keys, x)",
        "with torch._C.DisableTorchFunction():\n    pass",
    ],
)
def test_ways_past_the_modes_of_torch_are_out_of_bounds(text: str) -> None:
    assert ("harness-access", "warning") in rules(text)


def test_every_rule_is_documented() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    named = {rule for rule, _ in HABITS} | {rule for rule, _ in CUDA}
    for name in ("python_advice", "cuda_rules", "static_rules"):
        text = (ROOT / "src" / "kernelwright" / "evaluation" / "text" / f"{name}.py").read_text()
        named |= set(re.findall(r'(?:Habit|Hint)\(\s*"([a-z0-9-]+)"', text))
    named |= {rule for rule, _, _ in (*cuda_rules._NAMES, *cuda_rules._IN_ASSEMBLY)}
    assert named == {rule for rule, _ in HABITS} | {rule for rule, _ in CUDA}, "each rule has an example above"
    assert [rule for rule in sorted(named) if f"`{rule}`" not in page] == []


def test_honest_candidates_get_nothing_that_rejects() -> None:
    from honest_sources import HONEST
    from sets.honest import CASES
    from tasks import TASKS

    pairs = [(TASKS[task], candidate_from_text(source, name)) for name, (task, source) in HONEST.items()]
    pairs += [(case.task_source, case.candidate()) for case in CASES]
    for source, candidate in pairs:
        found = static_rules.static_findings(candidate, Task(task_id="t", source=source))
        assert not [f for f in found if f.severity == "reject"], (candidate.provenance, found)


PIECES = st.sampled_from(
    ["__global__", "void k(", ")", "{", "}", "<<<", ">>>", '"', "\\", "asm(", "#define A(x)", "##x", "\n", "if(x", ";"]
    + ["a<", "[[", "//", "/*", "*/", "\x00", "é", "🙂", "cudaStreamCreate(", "\ud800", "'", "std::", 'R"(', "?:"]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map(" ".join)), st.sampled_from([".cu", ".py"]))
def test_no_text_makes_it_raise(text: str, suffix: str) -> None:
    candidate = Candidate(sources=(SourceFile(path="c" + suffix, content=text or " "),), language="cuda")
    static_rules.static_findings(candidate, TASK)
    wrapped = f"source = {'__global__ ' + text!r}\n"
    candidate = Candidate(sources=(SourceFile(path="c.py", content=wrapped),), language="cuda")
    static_rules.static_findings(candidate, TASK)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    cuda_rules.hints(data.decode("latin-1"), time.process_time() + 1)
    cuda_rules.hints(data.decode("utf-8", errors="replace"), time.process_time() + 1)


@pytest.mark.parametrize("piece", ["a<", "(", "{", "x[[[", "if(", "#define A(x) x##x\n", "template<", '"', "/*"])
def test_time_is_bounded(piece: str) -> None:
    text = "__global__ " + piece * (200_000 // len(piece))
    started = time.monotonic()
    static_rules.static_findings(Candidate(sources=(SourceFile(path="c.cu", content=text),), language="cuda"), TASK)
    static_rules.static_findings(
        Candidate(sources=(SourceFile(path="c.py", content=f"a = {text!r}\n" * 9),), language="cuda"), TASK
    )
    assert time.monotonic() - started < 6
