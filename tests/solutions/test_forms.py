"""Candidates that launch from Python, exported as files that need torch only: same verdicts, clear refusals."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "adversarial"))

from honest_sources import HONEST
from running import Command
from sets.honest import CASES

from kernelwright.errors import CandidateError
from kernelwright.evaluation import EvalOptions, Evaluator
from kernelwright.evaluation.processes.pool import Pool
from kernelwright.records import Task
from kernelwright.solutions.forms import export
from kernelwright.solutions.kernels.annotate import annotated
from kernelwright.solutions.kernels.signature import Signatures
from kernelwright.tasks import candidate_from_text, load_task

DATA = Path(__file__).parents[2] / "src" / "kernelwright" / "data" / "candidates"
BUNDLED = {f"{p.parent.name}/{p.stem}": p for p in sorted(DATA.glob("*/*.py")) if "kernelwright.cuda" in p.read_text()}
FROM_PYTHON = {
    **{name: path.read_text() for name, path in BUNDLED.items()},
    **{name: source for name, (_, source) in HONEST.items() if "kernelwright.cuda" in source},
    **{case.name: case.candidate_source for case in CASES if "kernelwright.cuda" in case.candidate_source},
}
JUDGED_CASES = ("uint8-normalise", "matmul-batched-template", "habit-number-beside-tensor", "conv-depthwise-halo")

HEAD = "import torch\nimport torch.nn as nn\n"
SCALE = f"""{HEAD}
rows = 24

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(rows, 130)]

def get_init_inputs():
    return []
"""
KERNEL = """
extern "C" __global__ void __launch_bounds__(128) scale(const float* __restrict__ x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
"""
MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        GET[(x.numel() + 127) // 128, 128](x, y, x.numel())
        return y
"""


def written(setup: str, get: str = "kernels.scale") -> str:
    return HEAD + setup + MODEL.replace("GET", get)


PLAIN = f'from kernelwright.cuda import Module\nkernels = Module(r"""{KERNEL}""")\n'
OTHER_WAYS = {
    "another name": written(f'from kernelwright.cuda import Module as M\nkernels = M("""{KERNEL}""")\n'),
    "through the package": written(f'import kernelwright.cuda\nkernels = kernelwright.cuda.Module("""{KERNEL}""")\n'),
    "through cuda": written(f'from kernelwright import cuda\nkernels = cuda.Module(source="""{KERNEL}""")\n'),
    "text in a variable, with constants": written(
        "from kernelwright.cuda import Module\nBLOCK = 64 * 2\nFACTOR = '2.0f'\n"
        f'SOURCE = """{KERNEL.replace("128", "@")}""".replace("@", "128").replace("2.0f", FACTOR)\n'
        "SOURCE = SOURCE\n".replace("SOURCE = SOURCE\n", "")
        + 'kernels = Module(f"#define SIZE {BLOCK}\\n" + SOURCE)\n'
    ),
    "in a constructor": HEAD
    + "from kernelwright.cuda import Module\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
    + f'        super().__init__()\n        self.kernels = Module("""{KERNEL}""")\n'
    + MODEL.partition("class ModelNew(nn.Module):\n")[2].replace("GET", "self.kernels.scale"),
    "two texts, none annotated": written(
        "from kernelwright.cuda import Module\n"
        'first = Module("""\nfloat twice(float v) { return v + v; }\nconst float ZERO[2] = {0.0f, 1.0f};\n'
        "struct Op { float least; float operator()(float v) const { return fmaxf(v, least); } };\n"
        + KERNEL.replace("fmaxf(x[i], 0.0f) * 2.0f", "twice(Op{ZERO[n < 0]}(x[i]))")
        + '""")\n'
        'second = Module("""extern "C" __global__ void none(float* p, bool b, double d, unsigned char c) {}""")\n',
        "first.scale",
    ),
    "a template, its instance from a table": written(
        'from kernelwright.cuda import Module\nNAMES = {torch.float32: "float", torch.float64: "double"}\n'
        'kernels = Module("""using index_t = long long;\nnamespace own {\n'
        "template <typename T, int UNIT = 2, bool RELU = (UNIT > 1)>\n"
        "__global__ void scale(const T* x, T* const y, index_t n) {\n"
        "    index_t i = blockIdx.x * (index_t)blockDim.x + threadIdx.x;\n"
        '    if (i < n) y[i] = (RELU && x[i] < T(0)) ? T(0) : x[i] * T(UNIT);\n}\n}\n""")\n',
        'kernels.get(f"own::scale<{NAMES[x.dtype]}, 2>")',
    ),
    "a name that the C library has": written(
        'from kernelwright.cuda import Module\nkernels = Module("""' + KERNEL.replace(" scale(", " div(") + '""")\n',
        "kernels.div",
    ),
    "no pointer, much shared memory": written(
        'from kernelwright.cuda import Module\nkernels = Module("""'
        + KERNEL.replace("float* y, int n)", "float* y, const int* none, size_t n)")
        .replace("int i", "extern __shared__ float buffer[];\n    buffer[threadIdx.x + 12400] = 2.0f;\n    int i")
        .replace("if (i < n)", "if (i < n && none == nullptr)")
        .replace("* 2.0f", "* buffer[threadIdx.x + 12400]")
        + '""")\n'
    ).replace("128](x, y, ", "128, 50 << 10](x, y, None, "),
}


@pytest.fixture(scope="module")
def evaluator(pool: Pool) -> Iterator[Evaluator]:
    with Evaluator(EvalOptions(backend="cpu", seed=6, trials=2), pool=pool) as shared:
        yield shared


def same_verdict(evaluator: Evaluator, task: Task, source: str) -> str:
    """Returns the verdict on a candidate, asserted to equal that on its other form."""
    exported = export(source)
    assert "kernelwright" not in exported
    before, after = (evaluator.evaluate(task, candidate_from_text(t, "c")) for t in (source, exported))
    assert after.verdict == before.verdict, f"{after.verdict}: {after.reason}\n{after.log}\n{exported}"
    return before.verdict


@pytest.mark.parametrize("name", FROM_PYTHON)
def test_every_candidate_can_be_exported(name: str) -> None:
    source = FROM_PYTHON[name]
    exported = export(source)
    tree = ast.parse(exported)
    assert "kernelwright" not in exported.replace("kernelwright-", "")
    assert export(exported) == exported
    before = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == "forward")
    after = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "forward"]
    assert ast.unparse(before) in [ast.unparse(n) for n in after], "forward was changed"


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_candidates_keep_their_verdicts(evaluator: Evaluator, name: str) -> None:
    same_verdict(evaluator, load_task(name.partition("/")[0]), BUNDLED[name].read_text())


@pytest.mark.parametrize("name", JUDGED_CASES)
def test_honest_candidates_stay_correct(evaluator: Evaluator, name: str) -> None:
    case = next(c for c in CASES if c.name == name)
    assert same_verdict(evaluator, case.task(), case.candidate_source) == "correct"


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_other_ways_of_writing_it(evaluator: Evaluator, way: str) -> None:
    assert same_verdict(evaluator, Task(task_id="scale", source=SCALE), OTHER_WAYS[way]) == "correct"


def test_a_file_without_a_module_is_left_alone() -> None:
    text = (DATA / "bias_gelu" / "load_inline.py").read_text()
    assert export(text) == text
    assert export("# about kernelwright\nx = 1\n") == "# about kernelwright\nx = 1\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN.replace("int n", "float4 n"), "float4 n"),
        (PLAIN.replace("int n", "const int& n"), "neither a pointer nor a number"),
        (PLAIN.replace("int n", "__half n"), "argument 2"),
        (PLAIN.replace('r"""', 'open("x").read() + """'), "not known before the file runs"),
        (PLAIN.replace('extern "C"', "template <typename T>"), "no constant names an instance"),
        (PLAIN.replace('extern "C"', "template <typename... T>") + 'kernels.get("scale<float>")', "pack"),
        (PLAIN.replace('extern "C"', "template <int N>") + 'kernels.get("scale<1, 2>")', "no instance"),
        (PLAIN.replace('extern "C"', "template <int N, int M>") + 'kernels.get("scale<1>")', "leaves open M"),
        (PLAIN.replace("__global__", ""), "no __global__"),
        (PLAIN + "\nclass Mine(Module): pass\n", "without calling it"),
        ("from kernelwright.cuda import Module, compile_kernel\n", "compile_kernel"),
        ("import kernelwright.runs.store\n", "more of kernelwright"),
        ("from kernelwright.cuda import Module\nModule(", "not Python"),
    ],
)
def test_what_has_no_other_form_is_refused(source: str, message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        export(source)


def test_signatures_are_read() -> None:
    found = Signatures(
        """
        // __global__ void commented(int a);
        #define REAL double
        typedef unsigned char byte;
        enum Mode { A, B };
        struct S { int inner; };
        __global__ void first(const float *__restrict__ x, byte* y, const Mode mode, REAL d, unsigned long int n);
        extern "C" { static __global__ void __launch_bounds__(256, 2) second(void) {} }
        namespace outer { namespace { __global__ void third(int const, float w[3], bool third, long) {} } }
        __global__ void first(const float *__restrict__ x, byte* y, const Mode mode, REAL d, unsigned long int n) {}
        """
    ).kernels(())
    assert {k.name: [a.kind for a in k.arguments] for k in found} == {
        "first": ["tensor", "tensor", "integer", "real", "integer"],
        "second": [],
        "outer::third": ["integer", "tensor", "boolean", "integer"],
    }
    first = found[0].arguments
    assert [a.type for a in first] == ["const float*", "byte*", "const Mode", "REAL", "unsigned long int"]
    assert [a.name for a in found[2].arguments] == ["argument0", "w", "third", "argument3"]


def test_only_what_lacks_an_annotation_gets_one() -> None:
    text = """
template <typename T> T twice(T v) { return v + v; }
extern "C" int one() { return 1; }
__device__ float fine(float v) { return v; }
const float table[2] = {1.0f, 2.0f};
constexpr int N = 3;
struct Pair { float a; float sum() const { return a; } private: Pair(float v) : a(v) {} };
namespace own { inline void nothing() {} }
static_assert(N == 3, "three");
typedef float (*function)(float);
#define CALL(x) one()
"""
    found = annotated(text)
    assert found.replace("__device__ ", "") == text.replace("__device__ ", "")
    assert found.count("__device__") == 7
    for line in (
        "template <typename T> __device__ T twice",
        'extern "C" __device__ int one',
        "__device__ const float table",
        "__device__ float sum() const",
        "private: __device__ Pair(",
        "__device__ inline void nothing",
    ):
        assert line in found
    assert annotated(found) == found


def test_from_the_command_line(kernelwright: Command, tmp_path: Path) -> None:
    candidate = DATA / "row_softmax" / "module.py"
    printed = kernelwright("export", candidate)
    assert printed.returncode == 0 and "load_inline" in printed.stdout
    out = tmp_path / "deep" / "out.py"
    written_out = kernelwright("export", candidate, "--out", out)
    assert written_out.returncode == 0 and out.read_text() == printed.stdout
    bad = tmp_path / "bad.py"
    bad.write_text(PLAIN.replace("int n", "float4 n"))
    refused = kernelwright("export", bad)
    assert refused.returncode == 2 and "error:" in refused.stderr and "hint:" in refused.stderr
    missing = kernelwright("export", tmp_path / "missing.py")
    assert missing.returncode == 2 and "Traceback" not in missing.stderr


_RUN = """
import importlib.util, sys, torch
modules = []
for path in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location(f"m{len(modules)}", path)
    modules.append(importlib.util.module_from_spec(spec))
    spec.loader.exec_module(modules[-1])
assert "kernelwright" not in sys.modules
x = torch.randn(24, 130, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    got = modules[1].ModelNew().cuda()(x)
    assert torch.equal(got, modules[0].Model().cuda()(x))
print("same")
"""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_torch_itself_builds_and_runs_it(way: str, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(SCALE)
    (tmp_path / "exported.py").write_text(export(OTHER_WAYS[way]))
    command = [sys.executable, "-c", _RUN, str(tmp_path / "task.py"), str(tmp_path / "exported.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.stdout.strip() == "same", done.stdout + done.stderr
