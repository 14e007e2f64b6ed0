"""What of a whole program's declarations reaches the device compiler: what device code names, and nothing else."""

from __future__ import annotations

import pytest

from kernelwright.backends.source_text.reachable import words_in
from kernelwright.backends.source_text.split import split

KERNEL = "__global__ void k(Row* rows, int n) { rows[n].a = LIMIT; twice(n); }\nint main() {}\n"


def device(text: str, expressions: str = "") -> frozenset[str]:
    return words_in(split(text, whole=True).device_for(expressions))


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("class Watch { struct timeval begin; };", "Watch"),
        ("struct Record { string name; map<int, int> numbers; };", "Record"),
        ("typedef vector<vector<int>> table;", "table"),
        ("typedef struct { FILE* log; } Params;", "Params"),
        ("typedef void* (*routine)(pthread_t);", "routine"),
        ("using Clock = std::chrono::steady_clock;", "Clock"),
        ("template <class T> using grid = vector<T>;", "grid"),
        ("template <class T> struct Holder { unique_ptr<T> held; };", "Holder"),
        ("enum class Mode { fast, slow };", "slow"),
        ('const string title = "edges";', "title"),
        ("static const vector<int> sizes = {3, 4};", "sizes"),
        ("constexpr int size(const string& s) { return s.size(); }", "size"),
        ("union Bits { FILE* f; };", "Bits"),
        ("static_assert(sizeof(FILE*) == 8);", "FILE"),
    ],
)
def test_host_declarations_stay_away(declaration: str, name: str) -> None:
    found = device(f"struct Row {{ int a; }};\n#define LIMIT 3\n__device__ int twice(int n);\n{declaration}\n{KERNEL}")
    assert name not in found and "Row" in found


@pytest.mark.parametrize(
    ("declaration", "use"),
    [
        ("struct P { float x; };", "P p;"),
        ("typedef struct { float x; } P;", "P p;"),
        ("typedef struct p_t { float x; } P;", "struct p_t p;"),
        ("typedef float (*P)(float);", "P p;"),
        ("typedef float P[4];", "P p;"),
        ("using P = float;", "P p;"),
        ("template <int N> struct P { float x[N]; };", "P<3> p;"),
        ("enum { A, P = 4 };", "int p = P;"),
        ("const int O = 1, P = 2;", "int p = P;"),
        ("constexpr int P(int n) { return n; }", "int p = P(2);"),
        ("struct Q { int a; };\nstruct P { Q q; };", "P p; p.q.a = 1;"),
        ("struct Q { int a; };\n#define P Q\n", "P p; p.a = 1;"),
        ("struct Base { int a; };\nstruct P : public Base { };", "P p; p.a = 1;"),
        ("template <class T> struct P { };\ntemplate <> struct P<int> { int own; };", "P<int> p;"),
    ],
)
def test_what_device_code_names_is_there(declaration: str, use: str) -> None:
    text = f"{declaration}\n__global__ void k() {{ {use} }}\nint main() {{}}\n"
    assert words_in(declaration.replace("#define", "")) <= device(text)


def test_types_that_only_an_instance_of_a_kernel_names_are_there() -> None:
    text = "struct Add { int n; };\ntemplate <class T> __global__ void k(T t) {}\nint main() {}\n"
    assert "Add" not in device(text) and "Add" in device(text, "k<Add>")


def test_host_members_of_a_shared_type_stay_away() -> None:
    text = (
        "class V {\n public:\n  V(const string& text) : x(stof(text)) {}\n  ~V() { cudaFree(p); }\n"
        "  ostream& print(ostream& out) const;\n  static V read(FILE* f) { return V(f); }\n"
        "  __device__ float twice() const { return 2 * x; }\n  float x = half(3);\n  float *p;\n};\n"
        "__global__ void k(V v) { v.twice(); }\nint main() {}\n"
    )
    found = device(text)
    assert {"twice", "half", "p"} <= found and not {"string", "cudaFree", "ostream", "FILE"} & found
