"""Captures and generated text of device lambdas in host code, without a compiler."""

from __future__ import annotations

import pytest

from kernelwright.backends.source_text.local_names import visible
from kernelwright.backends.source_text.split import split
from kernelwright.backends.source_text.tokens import tokenize

BODY = """
void f(int argc, const float* in, T (&grid)[4]) {
  using Acc = double;
  const int n = 64, m = 2 * 32;
  const int from_argument = argc;
  constexpr float half = 0.5f;
  static int calls = 0;
  std::vector<float> host(n), *other = nullptr;
  unsigned long long mask{1};
  auto value = in[0], &alias = host[0];
  cudaMalloc(&in, n * sizeof(float)); host[0] = value;
  for (int gone = 0; gone < 3; gone++) { int inner = gone; }
  if (argc) { int also_gone; } else int never = 0;
  while (argc--) {
    for (size_t step = 0, last = 9; step < last; ++step) {
      auto go = [&](int first, float by) { HERE; };
    }
  }
}
"""


def test_local_names() -> None:
    tokens = tokenize(BODY)
    texts = [t.text for t in tokens]
    found = visible(BODY, tokens, texts.index("("), texts.index("{"), texts.index("HERE"))
    kinds = {kind: {n for n, local in found.items() if local.kind == kind} for kind in ("variable", "constant", "type")}
    assert kinds["type"] == {"Acc"} and kinds["constant"] == {"n", "m", "half"}
    assert found["calls"].kind == "static" and found["m"].text == "const int n = 64, m = 2 * 32;"
    variables = "argc in grid from_argument host other mask value alias step last go first by"
    assert kinds["variable"] == set(variables.split())


@pytest.mark.parametrize(
    ("lambda_", "captured"),
    [
        ("[=] __device__ (int i) { x[i] = a * s.b; }", ["x", "a", "s"]),
        ("[=] __device__ (int a) { x[a] = ns::s; }", ["x"]),
        ("[x, k = a + 1] __host__ __device__ (int i) -> void { x[i] = k; }", ["x", "k"]),
        ("[] __device__ { return 1; }", []),
        ("[=] __device__ (int i) mutable { a++; for (int x = 0; x < a; x++) {} }", ["a", "x"]),
    ],
)
def test_what_is_captured(lambda_: str, captured: list[str]) -> None:
    parts = split(f"void f(float* x, S s) {{ int a = 1; k<<<1, 1>>>({lambda_}, a); }}", whole=True)
    (one,) = parts.device_lambdas
    assert [name for name, _ in one.captures] == captured
    assert "__device__" not in parts.host and "kw_make" in parts.host
    assert lambda_[lambda_.index("{") :] in parts.device


def test_lines_stay_where_they_are() -> None:
    lines = [
        "void f() {",
        "  k<<<1, 1>>>([=] __device__ (int i) {",
        "    // words",
        "#pragma unroll",
        "    i++;",
        "  });",
    ]
    parts = split("\n".join([*lines, "  g();", "}"]), whole=True)
    assert parts.host.splitlines()[6].strip() == "g();" and "pragma" not in parts.host and "pragma" in parts.device


def test_annotated_lambdas_of_kernels_are_plain_ones() -> None:
    body = "auto f = [=] __host__ __device__ (int i) { x[i] = 1; }; f(0);"
    parts = split(f"__global__ void k(int* x) {{ {body} }}", whole=True)
    assert "[=]" in parts.device and "__host__" not in parts.device and "__device__" not in parts.device
    assert not parts.device_lambdas
