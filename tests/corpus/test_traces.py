"""Traces agree with the texts: every number is in them or derived, every statement holds for the answer."""

from __future__ import annotations

import math
import re

import pytest

from kernelwright.corpus.pairs import Pair, make_chunk, recipe
from kernelwright.corpus.traces import cuda_strings, kernel_bodies, launches, trace


@pytest.fixture(scope="module")
def made() -> list[Pair]:
    return [p for i in range(2) for p in make_chunk(recipe(seed=31, schedules="all"), i, 10).pairs]


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])\d+", text))


def test_every_number_is_in_the_texts_or_worked_out(made: list[Pair]) -> None:
    checked = 0
    for pair in made:
        known = numbers(pair.task.source) | set(re.findall(r"\d+", pair.answer))
        for line in pair.trace.splitlines():
            worked = set()
            for left, result in re.findall(r"((?:\d+ x )+\d+) = (\d+)", line):
                assert math.prod(map(int, left.split(" x "))) == int(result), line
                worked |= {result, *left.split(" x ")}
            count = re.search(r"There are (\d+) such loops", line)
            plain = re.search(r": (\d+) elements", line)
            worked |= {m[1] for m in (count, plain) if m}
            assert numbers(line) <= known | worked, (line, pair.answer)
            checked += 1
    assert checked > 200


def test_sizes_are_those_of_the_inputs(made: list[Pair]) -> None:
    """Inputs are made as the task makes them, and their elements counted."""
    import torch

    seen = 0
    for pair in made[::4]:
        stated = [line for line in pair.trace.splitlines() if line.endswith("bytes to read.")]
        if not stated or math.prod([int(n) for n in re.findall(r"(\d+) elements", pair.trace)] or [0]) > 2_000_000:
            continue
        scope: dict[str, object] = {}
        exec(pair.task.source, scope)  # our own generator's text
        tensors = [t for t in scope["get_inputs"]() if isinstance(t, torch.Tensor)]  # type: ignore[operator]
        have = {(t.numel(), t.numel() * t.element_size()) for t in tensors}
        for line in stated:
            found = re.search(r"(\d+) elements.* = (\d+) bytes", line)
            assert found is not None and (int(found[1]), int(found[2])) in have, (line, pair.task.source)
            seen += 1
    assert seen > 2


def test_every_launch_has_its_line_as_it_is_written(made: list[Pair]) -> None:
    for pair in made:
        found = launches(pair.answer)
        assert found, pair.answer
        for launch in found:
            assert f"{launch.kernel}: {launch.grid} blocks of {launch.block} threads." in pair.trace


def test_statements_hold_for_the_text(made: list[Pair]) -> None:
    said = {"shuffles": "__shfl", "atomicAdd": "atomicAdd(", "float4": "float4", "wmma": "wmma::", "barrier": "__sync"}
    seen: set[str] = set()
    for pair in made:
        cuda = "\n".join(cuda_strings(pair.answer))
        for word, proof in said.items():
            if word in pair.trace:
                seen.add(word)
                assert proof in cuda, (word, cuda)
        for arrays in re.findall(r"Shared memory holds ([^;.]*)", pair.trace):
            assert all(a in " ".join(cuda.split()) for a in arrays.split(", ")), arrays
        for condition in re.findall(r"Tail: \w+ with (.*?) (?:return|are skipped)\.", pair.trace):
            assert f"if ({condition})" in cuda
        if "Without a loop" in pair.trace:
            assert any("for (" not in b and "__shared__" not in b for b in kernel_bodies(pair.answer).values())
    assert {"shuffles", "barrier"} <= seen


def test_tiles_are_told_with_their_reuse() -> None:
    kernel = (
        'extern "C" __global__ void matmul_kernel(const float* a, float* y, int M, int N) {\n'
        "    __shared__ float ta[8][64], tb[8][32];\n"
        "    long long m0 = blockIdx.x * 64LL, n0 = blockIdx.y * 32LL;\n"
        "    float sums[4][2] = {};\n"
        "    for (int k0 = 0; k0 < 9; k0 += 8) { __syncthreads(); }\n}\n"
    )
    answer = f'k = Module(r"""{kernel}""")\nk.matmul_kernel[(M, N), 256](a, y)\n'
    text = trace("", answer)
    assert "a tile of 64 x 32 results, so a loaded value serves 32 or 64 of them" in text
    assert "in steps of 8" in text and "4 x 2 = 8 sums" in text


def test_broken_text_gives_no_statement() -> None:
    assert trace("not python (", "nor ( this") == ""
