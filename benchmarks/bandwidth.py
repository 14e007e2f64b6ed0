"""Compares kernels that are bound by memory with a copy of the same bytes, on this machine's GPU.

    python benchmarks/bandwidth.py OUT.json [--schedule NAME] [--only WORD,...] [--compile] [--scale 1] [--seconds 60]

Each case is a task's text. The solution library writes its answer from the text; the answer is checked against torch in
float64 and timed beside eager, by request beside `torch.compile`, and beside a device-to-device copy that moves as many
bytes as the task must (inputs, weights and result once). Every call comes after a write of 256 MB, so that the L2 cache
holds nothing of the inputs. Rows have raw samples in milliseconds. `--scale 0.001` shrinks every case.
"""

from __future__ import annotations

import argparse
import statistics
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speed_common import Results, Row, loaded

TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
FLUSHED_BYTES = 256 << 20
NAMES = "xzw"


@dataclass(frozen=True)
class Case:
    """A task: forward's value, the sizes of its inputs (the first size is scaled), and the constructor's line."""

    name: str
    body: str
    shapes: tuple[tuple[int, ...], ...]
    init: str = "pass"

    def source(self, scale: float) -> str:
        """Returns the task's text with scaled sizes."""
        sizes = [(max(1, int(s[0] * scale)) if s[0] > 1 else 1, *s[1:]) for s in self.shapes]
        inputs = ", ".join(f"torch.randn({', '.join(map(str, s))})" for s in sizes)
        return TASK.format(init=self.init, names=", ".join(NAMES[: len(sizes)]), body=self.body, inputs=inputs)


CASES = (
    Case("relu", "torch.relu(x)", ((16384, 16384),)),
    Case("add", "x + z", ((8192, 16384), (8192, 16384))),
    Case("addcmul", "torch.addcmul(x, z, w, value=0.5)", ((8192, 8192), (8192, 8192), (8192, 8192))),
    Case("chain", "F.gelu(x * 0.5 + z) * torch.sigmoid(x)", ((8192, 16384), (8192, 16384))),
    Case("mish", "F.mish(torch.tanh(x))", ((8192, 16384),)),
    Case("columns", "F.silu(x + self.b) * self.s", ((16384, 8192),),
         "self.b, self.s = nn.Parameter(torch.randn(8192)), nn.Parameter(torch.randn(8192))"),
    Case("channels", "x * self.s + self.b", ((64, 128, 112, 112),),
         "self.b, self.s = nn.Parameter(torch.randn(128, 1, 1)), nn.Parameter(torch.randn(128, 1, 1))"),
    Case("odd_columns", "torch.tanh(x + self.b)", ((16384, 8191),), "self.b = nn.Parameter(torch.randn(8191))"),
    Case("softmax_128", "torch.softmax(x, dim=1)", ((524288, 128),)),
    Case("softmax_1024", "torch.softmax(x, dim=1)", ((65536, 1024),)),
    Case("softmax_4096", "torch.softmax(x, dim=1)", ((32768, 4096),)),
    Case("softmax_16384", "torch.softmax(x, dim=1)", ((8192, 16384),)),
    Case("softmax_262144", "torch.softmax(x, dim=1)", ((512, 262144),)),
    Case("log_softmax_5000", "torch.log_softmax(x, dim=1)", ((16384, 5000),)),
    Case("layer_norm", "self.n(x)", ((32768, 2048),), "self.n = nn.LayerNorm(2048)"),
    Case("layer_norm_residual", "self.n(x + z)", ((16384, 4096), (16384, 4096)), "self.n = nn.LayerNorm(4096)"),
    Case("rms_norm_channels", "x / torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)", ((64, 64, 256, 256),)),
    Case("group_norm", "self.n(x)", ((64, 64, 128, 128),), "self.n = nn.GroupNorm(8, 64)"),
    Case("instance_norm", "self.n(x)", ((32, 64, 256, 256),), "self.n = nn.InstanceNorm2d(64)"),
    Case("batch_norm", "self.n(x)", ((64, 64, 128, 128),), "self.n = nn.BatchNorm2d(64)"),
    Case("sum_last", "x.sum(dim=1)", ((65536, 4096),)),
    Case("sum_middle", "x.sum(dim=1)", ((64, 2048, 1024),)),
    Case("sum_first", "x.sum(dim=0)", ((262144, 512),)),
    Case("max_last", "x.amax(dim=-1)", ((1048576, 128),)),
    Case("sum_all", "x.sum()", ((16384, 8192),)),
    Case("mse_loss", "F.mse_loss(x, z)", ((8192, 8192), (8192, 8192))),
    Case("argmax_last", "torch.argmax(x, dim=1)", ((65536, 4096),)),
    Case("argmax_middle", "torch.argmax(x, dim=1)", ((64, 1024, 1024),)),
    Case("cumsum_4096", "torch.cumsum(x, dim=1)", ((32768, 4096),)),
    Case("cumsum_262144", "torch.cumsum(x, dim=1)", ((256, 262144),)),
    Case("cumprod_first", "torch.cumprod(x, dim=0)", ((512, 131072),)),
    Case("max_pool", "F.max_pool2d(x, 2)", ((64, 64, 256, 256),)),
    Case("avg_pool_3", "F.avg_pool2d(x, 3, 1, 1)", ((64, 64, 128, 128),)),
    Case("global_pool", "F.adaptive_avg_pool2d(x, 1)", ((256, 256, 56, 56),)),
    Case("transpose", "x.t().contiguous()", ((16384, 8192),)),
    Case("permute", "x.permute(0, 2, 3, 1).contiguous()", ((64, 64, 128, 128),)),
    Case("swap_heads", "x.transpose(1, 2).contiguous()", ((16, 2048, 16, 128),)),
)  # fmt: skip


class Clock:
    """Times calls by CUDA events, each after the L2 cache was overwritten. The host enqueues all calls without waiting.

    `speed_common.GpuClock` waits after each call; its times were not compared with these on a card.
    """

    def __init__(self, repeats: int) -> None:
        import torch

        self._torch, self._repeats = torch, repeats
        self._flushed = torch.empty(FLUSHED_BYTES // 4, device="cuda")

    def samples(self, call: Callable[[], Any]) -> list[float]:
        """Returns milliseconds of each call."""
        torch = self._torch
        for _ in range(3):
            call()
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self._repeats)]
        torch.cuda.synchronize()
        for first, last in marks:
            self._flushed.zero_()
            self._flushed.zero_()  # gives the host time to enqueue the call before the GPU reaches it
            first.record()
            call()
            last.record()
        torch.cuda.synchronize()
        return [round(first.elapsed_time(last), 5) for first, last in marks]


def errors(ours: Any, eager: Any, exact: Any) -> dict[str, float]:
    """Returns the largest error of our result and of eager's against float64, over the largest magnitude."""
    if not exact.is_floating_point():
        return {"ours": float((ours != exact).sum()), "eager": float((eager != exact).sum())}
    scale = float(exact.abs().max()) or 1.0
    return {name: float((y.double() - exact).abs().max()) / scale for name, y in (("ours", ours), ("eager", eager))}


def bytes_of(values: Any) -> int:
    """Returns the bytes that tensors hold."""
    return sum(v.numel() * v.element_size() for v in values)


def copied(count: int, clock: Clock) -> list[float]:
    """Returns milliseconds of device-to-device copies that read and write `count` bytes together."""
    import torch

    start = torch.empty(count // 8, device="cuda")
    target = torch.empty_like(start)
    return clock.samples(lambda: target.copy_(start))


def measured(case: Case, given: argparse.Namespace, clock: Clock) -> Row:
    """Returns a case's row: error, bytes, samples of each way."""
    import torch

    from kernelwright.solutions import write
    from kernelwright.solutions.kernels.schedule import named

    source = case.source(given.scale)
    task = loaded(source, f"task_{case.name}")
    answer = loaded(write(source, named(given.schedule)), f"answer_{case.name}")
    with torch.no_grad(), torch.device("cuda"):
        torch.manual_seed(7)
        model = task.Model().cuda()
        torch.manual_seed(7)
        ours = answer.ModelNew().cuda()
        inputs = task.get_inputs()
    row: Row = {"case": case.name, "body": case.body, "shapes": case.shapes}
    with torch.no_grad():
        result, eager = ours(*inputs), model(*inputs)
        row["bytes"] = bytes_of([*inputs, *model.parameters(), result])
        small = sum(i.numel() for i in inputs) <= 3 << 27  # float64 copies of more would take long
        if small:
            exact = model.double()(*[i.double() for i in inputs])
            model.float()
            row["error"] = errors(result, eager, exact)
            del exact
        else:
            row["error"] = errors(result, eager, eager)
        same_shape = result.shape == eager.shape and result.dtype == eager.dtype
        limit = max(4 * row["error"]["eager"], 1e-6) if result.is_floating_point() else 0
        row["right"] = bool(same_shape and row["error"]["ours"] <= limit)
        del result, eager
        row["copy"] = copied(row["bytes"], clock)
        row["ours"] = clock.samples(lambda: ours(*inputs))
        row["eager"] = clock.samples(lambda: model(*inputs))
        if given.compile:
            compiled = torch.compile(model)
            row["compiled"] = clock.samples(lambda: compiled(*inputs))
            torch._dynamo.reset()
    return row


def shown(row: Row) -> str:
    """Returns a row as a line: megabytes, milliseconds, share of the copy's speed, gain over eager, errors."""
    if "failed" in row:
        return f"{row['case']:20s} FAILED {row['failed']}"
    copy, ours, eager = (statistics.median(row[k]) for k in ("copy", "ours", "eager"))
    row["share"] = round(copy / ours, 4)
    row["gain"] = round(eager / ours, 4)
    told = f"{row['case']:20s} {row['bytes'] / 1e6:7.0f} MB  ours {ours:8.4f}  copy {copy:8.4f}  eager {eager:8.4f} ms"
    told += f"  share {row['share']:.3f}  eager/ours {row['gain']:.2f}"
    if "compiled" in row:
        told += f"  compiled/ours {statistics.median(row['compiled']) / ours:.2f}"
    return told + f"  error {row['error']['ours']:.1e} / {row['error']['eager']:.1e} {'' if row['right'] else 'WRONG'}"


def parser(what: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options that both scripts have."""
    made = argparse.ArgumentParser(description=(what or "").partition("\n")[0])
    made.add_argument("out", type=Path)
    made.add_argument("--only", default="")
    made.add_argument("--seconds", type=float, default=60.0)
    return made


def chosen(cases: Iterable[Case], given: argparse.Namespace, results: Results) -> Iterator[Case]:
    """Yields the cases whose names hold a word of `--only`, until the time is over."""
    words = [w for w in given.only.split(",") if w]
    for case in cases:
        if words and not any(w in case.name for w in words):
            continue
        if results.over:
            print(f"{case.name:20s} left out: no time")
            continue
        yield case


def main() -> int:
    made = parser(__doc__)
    made.add_argument("--schedule", default="")
    made.add_argument("--compile", action="store_true")
    made.add_argument("--scale", type=float, default=1.0)
    made.add_argument("--repeats", type=int, default=20)
    given = made.parse_args()
    import torch

    from kernelwright.solutions.kernels.schedule import TUNED

    given.schedule = given.schedule or TUNED.name
    results = Results(given.out, "bandwidth", ("case",), given.seconds)
    results.facts = {"device": torch.cuda.get_device_name(), "schedule": given.schedule}
    clock = Clock(given.repeats)
    for case in chosen(CASES, given, results):
        try:
            row = measured(case, given, clock)
        except Exception as error:  # one case must not end the others
            row = {"case": case.name, "failed": f"{type(error).__name__}: {error}"[:300]}
            traceback.print_exc(limit=-3)
        results.add(row, shown(row))
        torch.cuda.empty_cache()
    shares = [r["share"] for r in results.rows if "share" in r]
    median = statistics.median(shares) if shares else None
    print(f"median share {median}, wrong {[r['case'] for r in results.rows if not r.get('right')]}")
    results.write(wall_s=round(results.spent, 1), median_share=median)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
