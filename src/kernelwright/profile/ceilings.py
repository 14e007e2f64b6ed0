"""A card's attainable bandwidths, arithmetic rates and launch latency, measured once or taken from the data sheet.

Measured ceilings are cached by card and driver. No program reaches a data sheet's rates, so comparisons with them look
slightly too pessimistic. They serve for unmeasured cards and for machines without a GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from kernelwright.records import Record

KINDS = ("float32", "tf32", "float16", "bfloat16", "float64")
VERSION = 1
"""Part of the cache key; raised when the measurement changes."""


class Ceilings(Record):
    """The best rates of one card."""

    card: str
    source: Literal["measured", "datasheet"]
    dram_bytes: float
    """Bytes per second, reads and writes together."""
    l2_bytes: float
    flops: dict[str, float]
    """Operations per second by kind of arithmetic (`float32` on CUDA cores, others on tensor cores)."""
    launch_us: float = 3.0
    """Microseconds between the starts of consecutive empty kernels."""
    driver: str = ""

    def rate(self, dtype: str) -> float:
        """Returns operations per second for a kind of arithmetic; float32's rate for an unknown kind."""
        return self.flops.get(dtype) or self.flops["float32"]


def _sheet(card: str, dram: float, l2: float, fp32: float, tf32: float, fp16: float, fp64: float) -> Ceilings:
    """Builds ceilings from a data sheet; rates in TB/s and dense TFLOP/s."""
    flops = dict(zip(KINDS, (fp32 * 1e12, tf32 * 1e12, fp16 * 1e12, fp16 * 1e12, fp64 * 1e12), strict=True))
    return Ceilings(card=card, source="datasheet", dram_bytes=dram * 1e12, l2_bytes=l2 * 1e12, flops=flops)


DATASHEETS: tuple[Ceilings, ...] = (
    _sheet("B200", 8.0, 20.0, 75.0, 1100.0, 2250.0, 37.0),
    _sheet("H200", 4.8, 10.0, 67.0, 494.0, 989.0, 34.0),
    _sheet("H100 PCIe", 2.04, 8.0, 51.0, 378.0, 756.0, 26.0),
    _sheet("H100", 3.35, 10.0, 67.0, 494.0, 989.0, 34.0),
    _sheet("A100-SXM4-80GB", 2.04, 6.0, 19.5, 156.0, 312.0, 9.7),
    _sheet("A100", 1.94, 6.0, 19.5, 156.0, 312.0, 9.7),
    _sheet("L40S", 0.864, 5.0, 91.6, 183.0, 362.0, 1.4),
    _sheet("L4", 0.30, 2.0, 30.3, 60.0, 121.0, 0.5),
    _sheet("A10", 0.60, 2.5, 31.2, 62.5, 125.0, 1.0),
    _sheet("RTX 5090", 1.79, 8.0, 105.0, 105.0, 210.0, 1.6),
    _sheet("RTX 4090", 1.01, 5.0, 82.6, 82.6, 165.0, 1.3),
    _sheet("RTX 3090", 0.936, 3.0, 35.6, 35.6, 71.0, 0.6),
    _sheet("T4", 0.32, 1.3, 8.1, 8.1, 65.0, 0.25),
    _sheet("V100", 0.90, 2.5, 15.7, 15.7, 125.0, 7.8),
)
"""NVIDIA's data sheets; the first name contained in the card's name applies. L2 rates are not published: these come
from microbenchmarks of each generation, rounded up."""


def datasheet(card: str) -> Ceilings | None:
    """Returns the data sheet's rates of a card by the driver's name for it; None for an unlisted card."""
    found = next((c for c in DATASHEETS if c.card in card), None)
    return None if found is None else found.model_copy(update={"card": card})


def cached(card: str, driver: str, cache: Path) -> Ceilings | None:
    """Returns the cached measurement of this card and driver; None if missing or invalid."""
    try:
        return Ceilings.model_validate_json(_path(card, driver, cache).read_text())
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def keep(ceilings: Ceilings, cache: Path) -> None:
    """Writes measured ceilings to the cache."""
    path = _path(ceilings.card, ceilings.driver, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(ceilings.plain(), indent=1))
    temporary.replace(path)


def _path(card: str, driver: str, cache: Path) -> Path:
    key = hashlib.sha256(f"{VERSION}\0{card}\0{driver}".encode()).hexdigest()[:16]
    return cache / "ceilings" / f"{key}.json"


def measure(driver: str = "") -> Ceilings:
    """Measures the current GPU with torch, in about a second and with at most 4 GB of its memory.

    Copy bandwidth counts bytes read and written. Matrix products use random values: on zeros they run faster than on
    real data. Raises RuntimeError if torch sees no GPU.
    """
    import torch

    properties = torch.cuda.get_device_properties(0)
    free, _ = torch.cuda.mem_get_info()
    dram = _copy_rate(max(1 << 26, min(1 << 30, free // 4)), 10)
    l2 = _copy_rate((int(getattr(properties, "L2_cache_size", 0)) or 4 << 20) // 4, 200)
    flops = {"float32": _fma_rate(), **_product_rates()}
    tiny = torch.zeros(1, device="cuda")
    launch = _seconds(lambda: tiny.add_(1), 1000)
    return Ceilings(
        card=properties.name,
        source="measured",
        dram_bytes=dram,
        l2_bytes=max(l2, dram),
        flops=flops,
        launch_us=launch * 1e6,
        driver=driver,
    )


def _copy_rate(nbytes: int, times: int) -> float:
    """Measures bytes per second, read plus written, of copies between two buffers of `nbytes` bytes."""
    import torch

    source, target = torch.randn(nbytes // 4, device="cuda"), torch.empty(nbytes // 4, device="cuda")
    return 2 * source.nbytes / _seconds(lambda: target.copy_(source), times)


def _seconds(call: Callable[[], Any], times: int, rounds: int = 5) -> float:
    """Measures seconds per call by events around `times` calls; the best of `rounds`, as a ceiling is a best case."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    call()
    for _ in range(rounds):
        start.record()
        for _ in range(times):
            call()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1e3 / times)
    return min(found)


_FMA = """
extern "C" __global__ void chain(float* out, float a, float b, int n) {
    float x[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k) x[k] = a + k + threadIdx.x;
    for (int i = 0; i < n; ++i) {
        #pragma unroll
        for (int u = 0; u < 16; ++u) {
            #pragma unroll
            for (int k = 0; k < 8; ++k) x[k] = fmaf(x[k], a, b);
        }
    }
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < 8; ++k) sum += x[k];
    if (sum == 12345.678f) out[0] = sum;
}
"""
_FMA_A_TURN = 16 * 8


def _fma_rate() -> float:
    """Measures float32 operations per second of independent fused multiply-adds in registers."""
    import torch

    from kernelwright.backends.gpu import architecture
    from kernelwright.machine import driver
    from kernelwright.machine.nvrtc import compile_ptx

    cubin = compile_ptx(_FMA, arch=architecture()).cubin
    program = driver.DeviceProgram(cubin)
    out = torch.zeros(1, device="cuda")
    blocks, threads, turns = torch.cuda.get_device_properties(0).multi_processor_count * 8, 256, 1024
    words = (out.data_ptr().to_bytes(8, "little"), _float(0.999), _float(0.001), turns.to_bytes(4, "little"))
    stream = torch.cuda.current_stream().cuda_stream
    seconds = _seconds(lambda: program.launch("chain", (blocks, 1, 1), (threads, 1, 1), 0, words, stream), 5)
    return 2.0 * _FMA_A_TURN * turns * blocks * threads / seconds


def _float(value: float) -> bytes:
    import struct

    return struct.pack("<f", value)


def _product_rates() -> dict[str, float]:
    """Measures operations per second of large matrix products by kind of arithmetic."""
    import torch

    found: dict[str, float] = {}
    before = torch.backends.cuda.matmul.allow_tf32
    cases = (("tf32", torch.float32, 4096), ("float16", torch.float16, 8192), ("bfloat16", torch.bfloat16, 8192))
    try:
        for kind, dtype, size in (*cases, ("float64", torch.float64, 2048)):
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
            out = torch.empty_like(a)
            found[kind] = 2.0 * size**3 / _seconds(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), 5, 3)  # type: ignore[misc]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return found


def for_card(card: str, driver: str, cache: Path) -> Ceilings | None:
    """Returns cached measurements of a card, else its data sheet; measures nothing."""
    return cached(card, driver, cache) or datasheet(card)


PROGRAM = "from kernelwright.profile.ceilings import main; raise SystemExit(main())"
"""The program of `python -c PROGRAM DRIVER`: measuring in a subprocess keeps the caller from opening the GPU."""


def main() -> int:
    """Measures this GPU, caches the result for the driver named on the command line, and prints it as JSON."""
    import sys

    from kernelwright.config import cache_dir

    found = measure(sys.argv[1] if len(sys.argv) > 1 else "")
    keep(found, cache_dir())
    print(json.dumps(found.plain()))
    return 0
