"""The host's layouts of CUB's shared memory are the device's."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

from kernelwright.backends import host_build
from kernelwright.backends.source_text.includes import MORE
from kernelwright.machine import nvrtc

TYPES = ("float", "double", "unsigned char", "short", "float2", "float4", "uint4")
THREADS = (17, 32, 40, 62, 64, 96, 256)


def _layouts() -> list[str]:
    found = [
        f"cub::{kind}<{one}, {lanes}>" for kind, one, lanes in product(("WarpScan", "WarpReduce"), TYPES, (32, 16, 7))
    ]
    for one, threads in product(TYPES, THREADS):
        found += [f"cub::BlockScan<{one}, {threads}, cub::BLOCK_SCAN_{a}>" for a in ("RAKING", "WARP_SCANS")]
        reductions = ("RAKING", "WARP_REDUCTIONS", "RAKING_COMMUTATIVE_ONLY")
        found += [f"cub::BlockReduce<{one}, {threads}, cub::BLOCK_REDUCE_{a}>" for a in reductions]
        ways = ["DIRECT", "TRANSPOSE", *(["WARP_TRANSPOSE", "WARP_TRANSPOSE_TIMESLICED"] if threads % 32 == 0 else [])]
        for items, way in product((1, 3, 4, 8), ways):
            found.append(f"cub::BlockLoad<{one}, {threads}, {items}, cub::BLOCK_LOAD_{way}>")
            found.append(f"cub::BlockStore<{one}, {threads}, {items}, cub::BLOCK_STORE_{way}>")
    return found


def test_bytes_and_alignment_of_temporary_storage(tmp_path: Path) -> None:
    layouts = _layouts()
    asked = "".join(f'std::printf("%zu %zu\\n", sizeof({x}::TempStorage), alignof({x}::TempStorage));' for x in layouts)
    vectors = host_build.STAND_IN / "kw" / "vectors.h"
    (tmp_path / "ask.cpp").write_text(
        f'#include <cstdio>\n#include <type_traits>\n#include "{vectors}"\n#include "{MORE / "cub_blocks.h"}"\n'
        f"int main() {{ {asked} }}\n"
    )
    command = [host_build.compiler(), "-std=gnu++20", "-w", "ask.cpp", "-o", "ask"]
    subprocess.run(command, cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    checks = [
        f"static_assert(sizeof({x}::TempStorage) == {size} && alignof({x}::TempStorage) == {align});"
        for x, (size, align) in zip(layouts, (line.split() for line in told), strict=True)
    ]
    headers = "block/block_load block/block_store block/block_scan block/block_reduce warp/warp_scan warp/warp_reduce"
    source = "".join(f"#include <cub/{name}.cuh>\n" for name in headers.split()) + "\n".join(checks)
    done = nvrtc.compile_ptx(source)
    assert done.ok, done.log[:2000]
