"""Wrong Triton candidates: each is an honest one with one planted fault and its expected verdicts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sets.honest import CASES, Case


@dataclass(frozen=True)
class Wrong:
    """A candidate with a planted fault.

    `verdicts` are the expected ones without a GPU. `rule` is the finding that decides there, if any, and `marked` the
    text of the line that it must name.
    """

    case: Case
    verdicts: tuple[str, ...]
    rule: str = ""
    marked: str = ""
    gpu_verdicts: tuple[str, ...] = ()
    """The expected verdicts on a GPU, if they differ: a card detects neither faults of bounds nor races."""

    def on(self, backend: str) -> tuple[str, ...]:
        return self.gpu_verdicts if backend == "gpu" and self.gpu_verdicts else self.verdicts


_HONEST = {case.name.removeprefix("triton-"): case for case in CASES}
_SMALLER = {
    "n = 4_300_027": "n = 300_027",
    "rows = 1601\ncols = 2803": "rows = 203\ncols = 1303",
    "rows = 2003\nwidth = 1537": "rows = 203\nwidth = 1537",
    "m = 1000\nk = 515\nn = 777": "m = 200\nk = 515\nn = 277",
    "m = 777\nk = 1024\nn = 1536": "m = 177\nk = 256\nn = 336",
    "rows = 2003\ncols = 1777": "rows = 403\ncols = 777",
    "rows = 800\nsteps": "rows = 80\nsteps",
}
"""Smaller constants, since a failing candidate is judged again at the task's own size."""
_LUCK = ("wrong", "runtime_error", "correct")
"""An access out of bounds on a card may hit mapped memory and change nothing."""


def _broken(
    name: str,
    of: str,
    changes: dict[str, str],
    *verdicts: str,
    rule: str = "",
    marked: str = "",
    gpu: tuple[str, ...] = (),
) -> Wrong:
    case, text = _HONEST[of], _HONEST[of].candidate_source
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{name}: {old!r} is not in {of}")
        text = text.replace(old, new)
    source = case.task_source
    for large, small in _SMALLER.items():
        source = source.replace(large, small)
    made = Case(f"wrong-{name}", source, text, needs="triton", reason=case.reason, tolerance=case.tolerance)
    return Wrong(made, verdicts, rule, marked, gpu)


_RACY = {
    "tl.atomic_add(y_ptr + j, total, mask=j < cols)": (
        "tl.store(y_ptr + j, tl.load(y_ptr + j, mask=j < cols) + total, mask=j < cols)"
    )
}
_FALLBACK = {
    "        swish_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)\n": (
        "        try:\n            swish_kernel[(triton.cdiv(n, 1000),)](x, y, n, BLOCK=1000)\n"
        "        except Exception:\n            return torch.nn.functional.silu(x)\n"
    )
}

CASES_WRONG: tuple[Wrong, ...] = (
    _broken(
        "store-without-mask",
        "swish",
        {"x * tl.sigmoid(x), mask=mask)": "x * tl.sigmoid(x))"},
        "runtime_error",
        rule="out-of-bounds-write",
        marked="tl.store(y_ptr + at",
        gpu=_LUCK,
    ),
    _broken(
        "load-without-mask",
        "swish",
        {"tl.load(x_ptr + at, mask=mask)": "tl.load(x_ptr + at)"},
        "runtime_error",
        rule="out-of-bounds-read",
        marked="tl.load(x_ptr + at)",
        gpu=_LUCK,
    ),
    _broken(
        "off-by-one-mask",
        "swish",
        {"mask = at < n": "mask = at <= n"},
        "runtime_error",
        rule="out-of-bounds-read",
        gpu=_LUCK,
    ),
    _broken("missing-tail", "swish", {"triton.cdiv(n, 1024)": "n // 1024"}, "wrong"),
    _broken(
        "wrong-stride",
        "transpose",
        {"y_ptr + j[:, None] * rows": "y_ptr + j[:, None] * cols"},
        "runtime_error",
        "wrong",
        gpu=("wrong", "runtime_error"),
    ),
    _broken(
        "swapped-strides",
        "linear-bf16",
        {"w.stride(0), w.stride(1)": "w.stride(1), w.stride(0)"},
        "wrong",
        "runtime_error",
    ),
    _broken(
        "accumulates-in-half",
        "matmul",
        {
            "acc = tl.zeros((BM, BN), dtype=tl.float32)": "acc = tl.zeros((BM, BN), dtype=tl.float16)",
            'acc = tl.dot(a, b, acc, input_precision="ieee")': (
                'acc = (acc + tl.dot(a, b, input_precision="ieee")).to(tl.float16)'
            ),
        },
        "wrong",
    ),
    _broken(
        "sums-in-bf16",
        "layer-norm",
        {
            "total = tl.zeros([BLOCK], dtype=tl.float32)": "total = tl.zeros([BLOCK], dtype=tl.bfloat16)",
            "total += tl.load(x_ptr + j, mask=j < cols, other=0.0)": (
                "total += tl.load(x_ptr + j, mask=j < cols, other=0.0).to(tl.bfloat16)"
            ),
            "total += d * d": "total += (d * d).to(tl.bfloat16)",
        },
        "wrong",
    ),
    _broken(
        "race-instead-of-atomic", "column-sum-atomics", _RACY, "wrong", rule="data-race", marked="tl.store(y_ptr + j"
    ),
    _broken(
        "tuned-without-reset",
        "split-k-half",
        {', reset_to_zero=["c_ptr"],': ","},
        "wrong",
    ),
    _broken(
        "padding-in-maximum",
        "softmax",
        {'other=-float("inf")': "other=0.0"},
        "wrong",
    ),
    _broken(
        "padding-in-variance",
        "layer-norm",
        {
            "d = tl.where(j < cols, tl.load(x_ptr + j, mask=j < cols, other=0.0) - mean, 0.0)": (
                "d = tl.load(x_ptr + j, mask=j < cols, other=0.0) - mean"
            )
        },
        "wrong",
    ),
    _broken(
        "attention-without-tail-mask",
        "flash-attention-backward",
        {"        keep = j[None, :] < n\n": "        keep = j[None, :] >= 0\n"},
        "wrong",
    ),
    _broken(
        "attention-without-rescaling",
        "flash-attention-half",
        {"acc = acc * shrink[:, None] + tl.dot": "acc = acc + tl.dot"},
        "wrong",
    ),
    _broken(
        "gradient-without-delta",
        "flash-attention-backward",
        {"dk += tl.dot(tl.trans(p * (dp - delta[:, None]) * scale)": "dk += tl.dot(tl.trans(p * dp * scale)"},
        "wrong",
    ),
    _broken("histogram-off-by-one", "histogram-atomics", {"mask=at < n, sem": "mask=at < n - 1, sem"}, "wrong"),
    _broken(
        "histogram-overflows",
        "histogram-atomics",
        {"BINS - 1)\n": "BINS)\n"},
        "runtime_error",
        "wrong",
        rule="out-of-bounds-write",
    ),
    _broken("other-seed", "dropout-rand", {"1234, BLOCK": "1235, BLOCK"}, "wrong"),
    _broken("carry-lost", "cumsum", {"        carry += tl.sum(x, axis=0)\n": ""}, "wrong"),
    _broken(
        "scan-in-wrong-order", "linear-recurrence", {"return a * c, b * c + d": "return a * c, d * a + b"}, "wrong"
    ),
    _broken(
        "never-stores", "swish", {"    tl.store(y_ptr + at, x * tl.sigmoid(x), mask=mask)\n": ""}, "wrong", "rejected"
    ),
    _broken(
        "undefined-name",
        "swish",
        {"tl.sigmoid(x)": "tl.sigmoidal(x)"},
        "compile_error",
        rule="kernel-compile-error",
        marked="tl.sigmoidal(x)",
    ),
    _broken(
        "block-of-no-power-of-two",
        "swish",
        {"BLOCK=1024": "BLOCK=1000"},
        "compile_error",
        rule="kernel-compile-error",
        marked="tl.arange(0, BLOCK)",
    ),
    _broken(
        "too-much-shared-memory",
        "matmul-tf32",
        {"BM=64, BN=64, BK=32, num_warps=4": "BM=64, BN=64, BK=512, num_warps=8"},
        "runtime_error",
    ),
    _broken(
        "failing-assert",
        "swish",
        {
            "    tl.store(y_ptr": '    tl.device_assert(x < -1e30, "never")\n    tl.store(y_ptr',
            "BLOCK=1024)": "BLOCK=1024, debug=True)",
        },
        "runtime_error",
        rule="assert",
        marked="tl.device_assert",
    ),
    _broken("falls-back-to-torch", "swish", _FALLBACK, "compile_error", "rejected", gpu=("rejected", "compile_error")),
)
