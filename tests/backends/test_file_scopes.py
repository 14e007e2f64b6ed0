"""Names that only their own file sees stay apart when files become one text."""

from __future__ import annotations

import pytest

from kernelwright.backends.source_text import file_scopes
from kernelwright.backends.source_text.file_scopes import ToldApart


def told_apart(texts: list[str], own: list[str] | None = None) -> ToldApart:
    return file_scopes.told_apart(texts, own or texts)


OWN = [
    "static float f(float x) { return x; }\n",
    "__device__ float f(float x) { return x; }\n",
    "#define DEV __device__\nDEV float f(float x) { return x; }\n",
    "namespace { float f(float x) { return x; } }\n",
    "template <typename T> __global__ void f(T* x) { x[0] = 1; }\n",
    "static __global__ void f(float* x) { x[0] = 1; }\n",
    "namespace a { namespace b { inline int f() { return 1; } } }\n",
    "constexpr int f = 3;\n",
    "__constant__ float f[4];\n",
    "struct f { int x; };\n",
    "enum { e, f };\n",
    "#ifndef F\n#define F\nstatic int f() { return 1; }\n#endif\n",
    "typedef float f;\n",
    "using f = float;\n",
]
SHARED = [
    "void f(float* x) { x[0] = 1; }\n",
    "__global__ void f(float* x) { x[0] = 1; }\n",
    "__host__ __device__ float f(float x) { return x; }\n",
    "float f(float x);\n",
    "extern int f;\n",
    "template <> int f<int>(int x) { return x; }\n",
    "template <> struct f<int> { int x; };\n",
    "using std::f;\n",
    "struct f;\n",
]


@pytest.mark.parametrize("text", OWN)
def test_a_name_of_one_file_gets_a_suffix(text: str) -> None:
    made = told_apart([text, text + "int use = f;\n"]).texts
    assert made[0].startswith(text)
    assert "int use = f_file1;" in made[1] and " f(" not in made[1]
    assert made[1].count("\n") == text.count("\n") + 1


@pytest.mark.parametrize("text", SHARED)
def test_a_name_of_all_files_stays(text: str) -> None:
    assert told_apart([text, text]).texts == (text, text)


def test_overloads_of_headers_stay() -> None:
    header = "inline float f(float x) { return x; }\n"
    own = ["static int f(int x) { return x; }\n", "static double f(double x) { return x; }\n"]
    whole = [header + own[0], own[1]]
    assert told_apart(whole, own).texts == tuple(whole)
    assert "f_file1(" in told_apart(own).texts[1]


def test_template_parameters_may_have_other_names() -> None:
    texts = [f"template <typename {t}> __device__ {t} f({t} {x}) {{ return {x}; }}\n" for t, x in ("Tx", "Uy")]
    assert "f_file1(" in told_apart(texts).texts[1]


def test_macros_end_with_their_file() -> None:
    texts = ["#define N 3\n#define M 4\n", "#ifndef N\n#define N 5\n#endif\n"]
    assert told_apart(texts).texts == (texts[0] + "\n#undef N", texts[1])
    assert told_apart(texts, ["#define M 4\n", texts[1]]).texts == tuple(texts)


def test_members_and_other_namespaces_stay() -> None:
    text = "static int size(int n) { return n; }\nint g(X x) { return x.size() + std::size(x) + ::size(1); }\n"
    made = told_apart([text, text])
    assert "x.size() + std::size(x) + ::size_file1(1)" in made.texts[1]
    assert made.doubtful == ("size",)


@pytest.mark.parametrize(
    "text", ["", "}", "struct", "struct {", "template <", "namespace", "f(", "#define", "enum { f"]
)
def test_broken_text_is_left_to_the_compiler(text: str) -> None:
    assert told_apart([text, text]).texts[0] == text
