"""CUDA spans: included and excluded text, in every kind of text, broken ones too."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.errors import ConfigError
from kernelwright.prompts import cuda_scan
from kernelwright.prompts.spans import cuda_spans, thought_mask, token_mask

DATA = Path(__file__).parents[2] / "src" / "kernelwright" / "data" / "candidates"

# Pieces of a CUDA file: « and » enclose the spans to be found.
KERNELS = [
    "«__global__ void k(float* x, int n) { if (n) { x[0] = '}'; } }»",
    "«template <typename T, int N>\n__global__ void __launch_bounds__(256, 2) k(const T* __restrict__ x,\n  int n = 3)"
    "\n"
    '{\n  /* } */ // }\n  const char* s = "}"; x[0] = s[0];\n}»',
    '«extern "C" __global__ void k() {}»',
    "«static __global__ void k(int n) { for (int i = 0; i < n; ++i) { f<<1; } }»",
    "«__launch_bounds__(128) __global__ void k(float4 v) { __shared__ float s[32]; }»",
]
DEVICE = [
    "«__device__ __forceinline__ float f(float v) { return v > 0 ? v : 0; }»",
    "«__host__ __device__ inline int cdiv(int a, int b) { return (a + b - 1) / b; }»",
    "struct Op { «__device__ float operator()(float x) const { return x * 2; }» };",
]
HOST = [
    "void h(float* x, int n) {\n  «k<<<1, 32>>>(x, n);»\n  int y = 1 << 3;\n}",
    "void h(float* x, int n) {\n  «const int threads = 256;»\n  int other = 5;\n"
    "  «dim3 grid((n + threads - 1) / threads);»\n"
    "  if (n > 0) «k<float, 4><<<grid, threads, 0, stream>>>(x,\n    n);»\n  cudaDeviceSynchronize();\n}",
    "void h(float* x, int n) { for (int i = 0; i < 3; ++i) «k<<<dim3(1, 2), dim3(3)>>>(x, n);» }",
    "void h() { «void* args[] = {&a};» «cudaLaunchKernel((void*)k, «grid», «block», args, 0, 0);» }".replace(
        "«grid»", "grid"
    )
    .replace("«block»", "block")
    .replace("«void* args[] = {&a};»", "void* args[] = {&a};"),
    "void h() { «cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 98304);» return; }",
    'torch::Tensor h(torch::Tensor x) {\n  auto y = torch::empty_like(x);\n  AT_DISPATCH(x.type(), "k", ([&] {\n'
    "    «k<scalar_t><<<x.size(0), 128>>>(x.data_ptr<scalar_t>());»\n  }));\n  return y;\n}",
    "«#define BLOCK 128»\nvoid h(int* x) { «k<<<1, BLOCK>>>(x);» }",
    "#define OTHER 1\n«#define GO(x) k<<<1, 1>>>(x)»\nvoid h(int* x) { «GO(x);» x[0] = 1; }",
    "int later(int threads) { return threads; }\nvoid h(int threads) { «k<<<2, threads>>>();» }",
]
NEUTRAL = [
    "#include <cuda_runtime.h>",
    "__global__ void k(float* x, int n);",
    "__device__ float table[4] = {1, 2, 3, 4};",
    "__constant__ float weights[9];",
    '// __global__ void no() {}\n/* k<<<1, 1>>>(); */\nconst char* s = "usage: k<<<1,1>>>();";',
    "int add(int a, int b) { return a + b; }",
    "#ifdef USE_IT\nint flag = 1;\n#endif",
    "// größer 日本語 🚀 −",
]
PLAIN = [*KERNELS, *DEVICE, *HOST, *NEUTRAL]


def marked(text: str) -> tuple[str, set[int]]:
    """Returns a text without its marks, and the ranges that they enclosed."""
    plain, inside, places = [], False, set()
    for character in text:
        if character in "«»":
            inside = character == "«"
            continue
        if inside:
            places.add(len(plain))
        plain.append(character)
    return "".join(plain), places


def covered(text: str, **options: Any) -> set[int]:
    return {i for span in cuda_spans(text, **options) for i in range(span.start, span.end)}


def shown(text: str, places: set[int]) -> str:
    return "".join(c if i in places else "·" if not c.isspace() else c for i, c in enumerate(text))


def check(source: str) -> None:
    text, expected = marked(source)
    assert shown(text, covered(text)) == shown(text, expected)


@pytest.mark.parametrize("piece", PLAIN)
def test_each_piece_by_itself(piece: str) -> None:
    check(piece)


files = st.lists(st.sampled_from(PLAIN), max_size=6).map("\n\n".join)


@settings(max_examples=60, deadline=None)
@given(files)
def test_files_of_pieces(source: str) -> None:
    check(source)


WRAPPED = [
    'import torch\nfrom torch.utils.cpp_extension import load_inline\nsource = r"""\n{}\n"""\n'
    'm = load_inline(name="m", cuda_sources=source, cpp_sources="torch::Tensor h(torch::Tensor x);", functions=["h"])\n'
    "\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return m.h(x)\n",
    "from kernelwright.cuda import Module\n\n# größer 🚀 __global__ void no() {{}}\nkernels = Module(r'''{}''')\n",
    "Here is the kernel, k<<<1, 1>>>():\n\n```python\nimport torch\nsource = '''{}'''\n```\n\nIt uses __global__ void.",
    "<think>\n```cuda\n__global__ void no() {{}}\n```\n</think>\n```cuda\n{}\n```\n",
    "```cpp\nint main() {{}}\n```\nand\n~~~cu\n{}\n~~~\n",
]


@settings(max_examples=40, deadline=None)
@given(files, st.sampled_from(WRAPPED))
def test_files_in_strings_and_fences(source: str, wrapping: str) -> None:
    if "<<<" not in source and "__global__" not in source and "import" not in wrapping:
        return
    check(wrapping.format(source))


def test_triton_functions_and_their_launches() -> None:
    check(
        "import triton\nimport triton.language as tl\n\n\n«@triton.autotune(configs=[], key=['n'])\n@triton.jit\n"
        "def add(x, y, n, BLOCK: tl.constexpr):\n    pid = tl.program_id(0)\n    # größer\n    tl.store(y + pid, 1)»"
        "\n\n\n"
        "def helper(n):\n    return n + 1\n\n\nclass ModelNew:\n    def forward(self, x):\n        n = x.numel()\n"
        "        «grid = (triton.cdiv(n, 128),)»\n        y = x.new_empty(n)\n"
        "        «add[grid](x, y, n, BLOCK=128)»\n        other[0](x)\n        return y\n"
    )


def test_launches_of_a_module() -> None:
    check(
        'from kernelwright.cuda import Module\n\nkernels = Module(r"""\n«extern "C" __global__ void k(float* x) {}»\n'
        '""")\n'
        "«BLOCK = 256»\n\n\nclass ModelNew:\n    def forward(self, x):\n        y = x.contiguous()\n"
        "        «grid = 4»\n"
        '        «kernels.k[grid, BLOCK](y)»\n        «kernels.get("t<float>")[(x.shape[0], 1), 128, 0](y)»\n'
        "        table[grid, BLOCK](y)\n        return y[0]\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "«#define KERNEL(NAME, OP) __global__ void NAME(float* x) { \\\n  x[0] = OP(x[0]); }»\nKERNEL(relu, max0)",
        "#define GLOBAL __global__\nint main() {}",
        'static const char* s = R"CUDA(\n«extern "C" __global__ void k(float* x) { x[0] = 1; }»\n)CUDA";',
        'auto s = "«__global__ void k(float* x) {\\n" // one\n  "  // note\\n  x[0] = \\"a\\"[0];\\n"\n  "}»\\n";',
        'import torch\ns = ("«__global__ void k(float* x) {"\n     "  x[0] = 1;"\n     "}»" "«void h() {»")'.replace(
            "«void h() {»", "void h() {"
        ),
        'import torch\ns = "// größe\\n«__global__ void k() {\\n // a\\n" \\\n  "}»\\n" "«k<<<1, 2>>>();»"',
        'import torch\ns = "\\n".join([\n  "«__global__ void k() { // a",\n  "  x[0] = 1;",\n  "}»",\n])',
        'L = [\n  "«__global__ void k() { // a",\n  "  x[0] = 1;",\n  "}»",\n]\ns = "\\n".join(L)',
        'L = []\nL.append("«__global__ void k() {")\nL.extend(["  x[0] = 1; // a", "}»"])\ns = "\\n".join(L)',
        's = "«__global__ void k() {\\n"\ns = s + "  x[0] = 1; // a\\n"\ns = s + "}»"',
        "struct V { int v; «__device__ V(int a) : v{a}, w{2} { x(); }» int q; };",
        "void h(int n) { «int t{256};» «int b(n / 256);» int o{3}; «k<<<dim3{b, 1}, t>>>(x);» g(); }",
        "void h(int n) { «int b = n;» «b = min(b, 9);» int o = 3; o = 4; «k<<<b, 2>>>(x);» b = 5; }",
        "void h(int n) { int b; if (n) { «b = 4;» } else { «b = 5;» } «k<<<b, 2>>>(x);» }",
        "void g(int b) { b = 3; }\nvoid h(int b) { «k<<<b, 2>>>(x);» }",
        "void h(int n) { «auto [g, b] = dims(n);» «::dim3 d(4);» «k<<<g, b>>>(x);» }",
        "void h() { «CHECK((k<<<1, 2>>>(x), last_error()));» g(); }",
        "Write a __global__ kernel and launch it with <<<grid, block>>> syntax; good luck.",
        "```python\n#include <cuda.h>\n«__global__ void k() {}»\n```",
        '```cpp\nimport torch\ns = """«__global__ void k() {}»"""\n```',
        "#define DEV __device__ \\\n  __forceinline__ // fast\n#define GLOBAL __global__ void\n#define N 4\n"
        "«static DEV int f() { return N; }»\ntemplate <int K> struct S { «GLOBAL k() {}» };\nint h() { return N; }",
        "#define CHECK(x) if (x) abort()\nvoid h() { CHECK(f()); }\n"
        "«#define RUN(k, n) do { k<<<n, 1>>>(); } while (0)»\nvoid g() { if (a) «RUN(f, 2);» CHECK(f()); }",
        "void h(int n) { «dim3 g;» «g.x = n / 2;» x.x = 3; «k<<<g, 1>>>();» }",
        'import torch\ns = ("«__global__ void k() {\\n" +\n  "  // a }\\n" + str(3) +\n  "  f(); }»" + "int h() {}")',
        'import torch\ns = "«__global__ void k() {"\nfor i in x:\n  s += f"  x[{i}] = {v[\'a\']}; "\n'
        's += "}» int h() {}"\nt = head()\n'
        't += "«__global__ void k() {"\nt += "}»"\ns = "int h() {}"\ns += "int f() {}"',
        'import torch\ns = f"""«__global__ void {names[")"]}_k(float* x) {{ x[0] = {v}; }}» void h() {{}}"""',
        'import torch\ndef f():\n    """Like:\n    ```\n    f()\n    ```\n    """\ns = """«__global__ void k() {}»"""',
        "/* k\nimport from\n*/\n«__global__ void k() {}»",
        "draft\n```cuda\n__global__ void no() {}\n```\n</think>\n```cuda\n«__global__ void k() {}»\n```",
    ],
)
def test_kernels_in_macros_literals_and_answers(source: str) -> None:
    check(source)


def test_launches_of_triton_functions_by_other_paths() -> None:
    check(
        "import triton\n\nclass M:\n    «@staticmethod\n    @triton.jit\n    def k(x):\n        pass»\n\n"
        "    def __init__(self):\n        self.run = M.k\n\n    def forward(self, x):\n        «self.k[(1,)](x)»\n"
        "        «M.k[(1,)](x)»\n        «self.run[(1,)](x)»\n        fn = self.run\n        «fn[(1,)](x)»\n"
        "        other.table[0](x)\n"
    )


def test_launches_of_triton_functions_in_two_steps() -> None:
    check(
        "import triton\n\n«@triton.jit\ndef k(x):\n    pass»\n\ndef f(x):\n    n = 2\n"
        "    «def grid(meta):\n        return (n,)»\n    «run = k[grid]»\n    «run(x)»\n    other(x)\n\n"
        "class M:\n    def __init__(self, n):\n        «size = (n,)»\n        «self.go = k[size]»\n\n"
        "    def forward(self, x):\n        «self.go(x)»\n        return x[0](x)\n"
    )


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        ("import triton as tr", "«@tr.jit\ndef k(x):\n    pass»", ""),
        ("import torch, triton as tr", "«@tr.autotune(configs=[], key=[])\n@tr.jit\ndef k(x):\n    pass»", ""),
        ("from triton import jit as compiled", "«@compiled\ndef k(x):\n    pass»", ""),
        ("import triton", "«def g(x):\n    pass»", "k = triton.jit(g)\n"),
        ("import triton as tr", "«def g(x):\n    pass»", "k = tr.autotune([], key=['n'])(tr.jit(g))\n"),
        ("from triton import (\n    jit,\n)", "«def g(x):\n    pass»", "k = jit(g)\n"),
    ],
)
def test_triton_by_other_names_and_as_a_call(head: str, before: str, after: str) -> None:
    rest = "def f(x):\n    «n = 2»\n    «k[(n,)](x)»\n    «k.run(x, grid=(n,), warmup=False)»\n    k.run(x)\n"
    check(f"{head}\n\n{before}\n\n{after}\n{rest}")


def test_what_is_not_tritons_is_no_kernel() -> None:
    text = "import jax, triton\nfrom jax import jit\n\ndef g(x):\n    pass\n\nk = jit(g)\nk.run(1, grid=2)\n"
    assert cuda_spans(text) == ()
    check("import triton as tr\n\n«@tr.jit\ndef k(x):\n    i = = 1\n\n»def f(x):\n    «k[(1,)](x)»\n")


def test_launches_of_a_triton_function_that_does_not_parse() -> None:
    check(
        "import triton\n\n«@triton.jit\ndef k(x):\n    i = = tl.arange(0, 4)\n    tl.store(x, i)\n\n»"
        "def f(x):\n    «n = 2»\n    «k[(n,)](x)»\n    return x\n"
    )


def test_many_launches_take_time_in_line() -> None:
    text = "import triton\n@triton.jit\ndef k(x): pass\ndef f(x):\n    n = 3\n" + "    k[(n,)](x)\n" * 2000
    started = time.process_time()
    assert sum(s.kind == "launch" for s in cuda_spans(text)) == 2000
    assert time.process_time() - started < 3


def test_many_launches_that_are_never_closed_take_time_in_line() -> None:
    started = time.process_time()
    assert any(s.kind == "launch" for s in cuda_spans("__global__ void k() {}\n" + "k<<<" * 20_000))
    assert time.process_time() - started < 3


@pytest.mark.parametrize("piece", [' + \n  "f(x); // a\\n"', "; x = f(y)\ns += 'f(x);\\n'"])
def test_many_pieces_of_a_source_take_time_in_line(piece: str) -> None:
    text = "import torch\ns = '__global__ void k() {'" + piece * 5000
    started = time.process_time()
    assert len(cuda_spans(text)) == 1
    assert time.process_time() - started < 6


def test_device_functions_can_be_left_out() -> None:
    text, places = marked("__device__ int f() { return 1; }\n«__global__ void k() {}»")
    assert covered(text, device_functions=False) == places


@pytest.mark.parametrize(
    "source",
    [
        "«__global__ void k(float* x) {\n  if (x) {\n    x[0] = 1;\n}»\n\nvoid h() {\n  «k<<<1, 1>>>(x);»\n}",
        "«__global__ void a() {\n  if (1) {\n»«__global__ void b() { }»",
        "«__global__ void k(float* x, in»",
        "«__global__ void k(float* x) { x[0] = (1 + ; }»\nvoid h() { «k<<<1, 1>>>(x;» }",
        "void h() { «k<<<grid, 32»",
        "void h() { «k<<<1, 1>>>(x)» }",
        'import torch\ns = r"""\n«__global__ void k() { x',
        "import torch\ns = '''«__global__ void k() { }»'''\ndef f(:\n  retur",
        "import triton\n«@triton.jit\ndef k(x,\n      y):\n    pid = (\n    z\n»\nclass M:\n    pass",
        "```python\nimport torch\ns = '''\n«__global__ void k() {}»\n",
        "} } ) «__global__ void k() {}»",
    ],
)
def test_broken_and_cut_off_code(source: str) -> None:
    text, expected = marked(source)
    found = covered(text)
    strip = {i for i in expected | found if not text[i].isspace()}
    assert shown(text, found & strip) == shown(text, expected & strip)


def real_candidates() -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*/*")) if path.suffix in (".py", ".cu")]


@pytest.mark.parametrize("text", real_candidates())
def test_every_launch_and_kernel_of_real_candidates(text: str) -> None:
    places = covered(text)
    for marker in ("<<<", "__global__ "):
        at = text.find(marker)
        while at >= 0:
            assert at in places or "//" in text[text.rfind("\n", 0, at) : at], text[at - 40 : at + 40]
            at = text.find(marker, at + 1)
    kernels = [s for s in cuda_spans(text) if s.kind in ("kernel", "device")]
    assert all(text[s.start : s.end].count("{") == text[s.start : s.end].count("}") for s in kernels)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(real_candidates()), st.data())
def test_a_cut_anywhere_leaves_what_was_complete_before(text: str, data: Any) -> None:
    cut = data.draw(st.integers(0, len(text)))
    whole = [s for s in cuda_spans(text) if s.kind in ("kernel", "device") and s.end <= cut]
    spans = cuda_spans(text[:cut])
    assert all(0 <= s.start < s.end <= cut for s in spans)
    found = {i for s in spans for i in range(s.start, s.end)}
    assert all(i in found for s in whole for i in range(s.start, s.end))


@pytest.mark.parametrize("text", real_candidates())
def test_a_cut_behind_a_function_leaves_it(text: str) -> None:
    """If a file ends after a device function, before any kernel, only that function identifies it as CUDA."""
    for span in [s for s in cuda_spans(text) if s.kind in ("kernel", "device")]:
        for more in (0, 1, 20):
            found = {i for s in cuda_spans(text[: span.end + more]) for i in range(s.start, s.end)}
            assert found >= set(range(span.start, span.end))


BITS = [
    *"{}()<>;\"'`\n #=ä🚀",
    "\\",
    "\ud800",
    "__global__",
    "<<<",
    "dim3 ",
    "@triton.jit\n",
    "import a\n",
    '"""',
    "```\n",
]
noise = st.lists(st.sampled_from(BITS), max_size=30).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.one_of(noise, st.text(), st.tuples(noise, files, noise).map("".join)))
def test_no_text_makes_it_fail(text: str) -> None:
    for span in cuda_spans(text):
        assert 0 <= span.start < span.end <= len(text)


@st.composite
def tokenised(draw: Callable[..., Any]) -> tuple[str, list[tuple[int, int]]]:
    text, _ = marked(draw(files))
    cuts = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=30))})
    offsets = list(zip(cuts, cuts[1:], strict=False))
    return text, [(0, 0), *offsets, (len(text), len(text))]


@settings(max_examples=60, deadline=None)
@given(tokenised())
def test_a_token_counts_when_any_character_of_it_does(case: tuple[str, list[tuple[int, int]]]) -> None:
    text, offsets = case
    places = covered(text)
    expected = [any(i in places for i in range(start, end)) for start, end in offsets]
    assert token_mask(text, offsets).tolist() == expected


def test_offsets_outside_of_the_text_are_an_error() -> None:
    assert token_mask("", []).tolist() == []
    assert token_mask("", [(0, 0)]).tolist() == [False]
    with pytest.raises(ConfigError):
        token_mask("abc", [(0, 4)])


def test_thoughts() -> None:
    text = "<think>__global__ void k() {}</think>done"
    assert cuda_spans(text) == ()
    assert thought_mask(text, [(0, 7), (7, 20), (37, 41), (0, 0)]).tolist() == [True, True, False, False]
    assert thought_mask("one</think>two", [(0, 3), (3, 11), (11, 14)]).tolist() == [True, True, False]
    assert thought_mask("<think> never closed", [(0, 7), (8, 13)]).tolist() == [True, True]


@pytest.mark.parametrize(
    "piece", ["{(", "k<<<", "k<<<g,b>>>(x) ", "__device__ f(", "dim3 g(n) ", "int g = n; k<<<g, 1>>>();"]
)
@pytest.mark.parametrize("before", ["", "import torch\ns = '''"])
def test_no_text_takes_long(piece: str, before: str) -> None:
    started = time.process_time()
    cuda_spans(before + "__global__ void k() {" + piece * 1500)
    assert time.process_time() - started < 5


ENDLESS = ["#/*", "#/**", '"/*', "#include <", "# include<a", "a /*", "#if /*\n", 'R"(', "<think>", "#define A(/*"]
"""What begins and does not end, over and over."""


@pytest.mark.parametrize("piece", ENDLESS)
def test_the_parser_reads_a_text_twice_as_long_in_twice_the_steps(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    parser = cuda_scan._parser()
    asked = 0

    class Counting:
        def parse(self, data: bytes) -> Any:
            def part(offset: int, _point: object) -> bytes:
                nonlocal asked
                asked += 1
                return data[offset : offset + 8]

            return parser.parse(part)

    monkeypatch.setattr(cuda_scan, "_parser", Counting)
    steps = []
    for count in (400, 800):
        asked = 0
        cuda_spans("__global__ void k() {}\n" + piece * count)
        steps.append(asked)
    assert steps[1] <= 2.5 * max(steps[0], 100)
