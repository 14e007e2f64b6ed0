"""A small corpus of honest pairs for tests: elementwise tasks in many spellings, each with its kernel."""

from __future__ import annotations

import json
import random
from pathlib import Path

OPERATORS = {
    "relu": ("torch.relu(x)", "v > 0.0f ? v : 0.0f"),
    "sigmoid": ("torch.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    "tanh": ("torch.tanh(x)", "tanhf(v)"),
    "exp": ("torch.exp(x)", "expf(v)"),
    "abs": ("torch.abs(x)", "fabsf(v)"),
    "square": ("x * x", "v * v"),
}

REFERENCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """{doc}"""

    def forward(self, {arg}):
        return {expression} * {scale}


rows = {rows}


def get_inputs():
    return [torch.randn(rows, {columns})]


def get_init_inputs():
    return []
'''

ANSWER = '''import torch
import torch.nn as nn

from kernelwright.cuda import Module

kernels = Module(r"""
extern "C" __global__ void {name}_kernel(const float* x, float* y, long long n) {{
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {{
        float v = x[i];
        y[i] = ({body}) * {scale}f;
    }}
}}
""")


class ModelNew(nn.Module):
    def forward(self, {arg}):
        {arg} = {arg}.contiguous()
        y = torch.empty_like({arg})
        n = {arg}.numel()
        kernels.{name}_kernel[((n + 255) // 256,), (256,)]({arg}, y, n)
        return y
'''


def pair(rng: random.Random) -> tuple[str, str]:
    """Returns one task and its correct answer."""
    name = rng.choice(list(OPERATORS))
    expression, body = OPERATORS[name]
    arg = rng.choice(["x", "input", "a", "tensor"])
    scale = round(rng.uniform(0.1, 9.0), 2)
    doc = rng.choice(["Scaled.", f"Applies {name}.", "A model."])
    reference = REFERENCE.format(
        doc=doc,
        arg=arg,
        expression=expression.replace("(x)", f"({arg})") if "(" in expression else f"{arg} * {arg}",
        scale=scale,
        rows=rng.randint(2, 64),
        columns=rng.randint(2, 300),
    )
    return reference, ANSWER.format(name=name, body=body, scale=scale, arg=arg)


def write_corpus(folder: Path, count: int, seed: int = 0, files: int = 2) -> Path:
    """Writes a corpus folder of `count` pairs in several JSONL shards."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    made = [pair(rng) for _ in range(count)]
    for number in range(files):
        rows = [json.dumps({"reference": r, "answer": a}) for r, a in made[number::files]]
        (folder / f"part-{number}.jsonl").write_text("\n".join(rows) + "\n")
    return folder
