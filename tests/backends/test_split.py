"""The splitter: placement of text, line numbers, launches, and no crash on any text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wrappers import WRAPPERS

from kernelwright.backends.source_text.split import UnsupportedSource, split
from kernelwright.backends.source_text.tokens import Token, matching_angle, tokenize

SAMPLE = """#include <torch/extension.h>
#include <vector>
#define N 4
struct P { int a; };
__device__ float twice(float v) { return 2 * v; }  // <<< not a launch >>>
__global__ void k(const float* x, float*, P p) {
  x[threadIdx.x]; twice(1);
}
int host_only(int a) { return a; }
torch::Tensor forward(torch::Tensor x) {
  k<<<dim3(1, 2), 256>>>(x.data_ptr<float>(), nullptr, P{1});
  const char* s = "k<<<1, 2>>>(x)";
  return x;
}
"""


def test_each_side_gets_its_own() -> None:
    parts = split(SAMPLE)
    assert "threadIdx" in parts.device and "threadIdx" not in parts.host
    assert "twice(float" in parts.device and "twice" not in parts.host
    assert "host_only" in parts.host and "host_only" not in parts.device
    for text in (parts.device, parts.host):
        assert "struct P" in text and "#define N 4" in text
    assert "torch" not in parts.device
    assert [k.name for k in parts.kernels] == ["k"] and not parts.kernels[0].template


def test_launch_becomes_a_configured_call_and_strings_stay() -> None:
    host = split(SAMPLE).host
    assert "(::kw::configure(dim3(1, 2), 256), k(x.data_ptr<float>(), nullptr, P{1}));" in host
    assert '"k<<<1, 2>>>(x)"' in host


def test_line_numbers_are_kept() -> None:
    parts = split(SAMPLE)
    for word in ("twice(float v)", "void k(", "struct P"):
        line = SAMPLE[: SAMPLE.index(word)].count("\n")
        assert parts.device.splitlines()[line].count(word.split("(")[0].split()[-1]) == 1
    line = SAMPLE[: SAMPLE.index("return x;")].count("\n")
    assert "return x;" in parts.host.splitlines()[line]


def test_unnamed_parameters_get_names_in_the_stub() -> None:
    host = split(SAMPLE).host
    assert re.search(r"void k\(const float\* x, float\* kw_a1, P p\)", host)
    assert "(unsigned)sizeof(x), (unsigned)sizeof(kw_a1), (unsigned)sizeof(p)" in host


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w.name)
def test_no_launch_or_annotation_is_left(wrapper) -> None:  # type: ignore[no-untyped-def]
    parts = split(wrapper.cuda)
    words = [t.text for t in tokenize(parts.host) if t.kind != "string"]
    assert "<<<" not in words
    assert not {"__global__", "__device__", "__launch_bounds__"} & set(words)
    assert parts.kernels


@pytest.mark.parametrize(
    ("source", "name", "template"),
    [
        ("namespace a { namespace b { __global__ void k() {} } }", "a::b::k", False),
        ("namespace a::b { template <class T> __global__ void k(T* x) {} }", "a::b::k", True),
        ("namespace { static __global__ void k(int n) {} }", "k", False),
        ('extern "C" { __global__ void k(int n) {} }', "k", False),
        ('extern "C" __global__ void __launch_bounds__(256, 2) k(int n) {}', "k", False),
        ("__global__ __launch_bounds__(4 * 32) void k(float (*f)[3]) {}", "k", False),
        ("#define KERNEL __global__ void\nKERNEL k(int n) { int b[2] = {1, 2}; }", "k", False),
    ],
)
def test_kernel_names(source: str, name: str, template: bool) -> None:
    kernels = split(source).kernels
    assert [(k.name, k.template) for k in kernels] == [(name, template)]


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("#define L k<<<1, 2>>>\n__global__ void k(int n) {}\nvoid f() { L(3); }", "macro"),
        ("__managed__ int x;", "__managed__"),
        ("template <template <int> class F> __global__ void k(int n) {}", "template parameter"),
    ],
)
def test_what_cannot_be_taken_apart_is_named(source: str, what: str) -> None:
    with pytest.raises(UnsupportedSource, match=what):
        split(source)


def test_likely_instances_are_guessed() -> None:
    source = "template <class T, int B> __global__ void k(T* x) {}\nvoid f(float* x) { k<float, 4><<<1, 1>>>(x); }"
    assert split(source).guesses == ("k<float , 4>",)


PIECES = [
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    "<<<",
    ">>>",
    ";",
    "__global__",
    "void",
    "k",
    "template",
    "namespace",
    '"',
    "'",
    "#",
    "\n",
]
PIECES += ["/*", "*/", "//", "\\", "=", "::", "struct", "extern", "x", "1", ",", "#define A __global__ {", 'R"(']


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.booleans())
def test_any_text_is_split_or_refused(pieces: list[str], whole: bool) -> None:
    try:
        split(" ".join(pieces), whole=whole).device_for("")
    except UnsupportedSource:
        pass


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(WRAPPERS), st.integers(0, 3000), st.integers(0, 40), st.sampled_from(PIECES), st.booleans())
def test_damaged_candidates_are_split_or_refused(wrapper, start: int, length: int, piece: str, whole: bool) -> None:  # type: ignore[no-untyped-def]
    source = wrapper.cuda
    start %= len(source)
    try:
        split(source[:start] + piece + source[start + length :], whole=whole).device_for("")
    except UnsupportedSource:
        pass


class Counted(list[Token]):
    """A list of tokens that counts how often one is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)


def test_less_than_signs_that_close_nowhere_are_not_followed_to_the_end() -> None:
    tokens = Counted(tokenize("a < " * 2000))
    signs = [k for k, token in enumerate(list(tokens)) if token.text == "<"]
    assert all(matching_angle(tokens, k, len(tokens)) == len(tokens) for k in signs)
    assert tokens.looks <= 600 * len(signs)
    closed = tokenize("a<" + "b, " * 100 + "c>")
    assert matching_angle(closed, 1, len(closed)) == len(closed) - 1


@pytest.mark.parametrize(
    "end",
    [
        "struct A",
        "class",
        "enum",
        "typedef struct",
        "struct A { int f(",
        "struct A { int (",
        "template <class T> struct",
        "int f() { [",
    ],
)
def test_a_program_that_breaks_off_is_split(end: str) -> None:
    kernel = "__global__ void k(int* p) { p[0] = 1; }\n"
    assert "k" in split(kernel + end, whole=True).device_for("")
