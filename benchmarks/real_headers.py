"""Compares what the host stand-in accepts with torch's own headers, on the wrappers of the tests.

    python benchmarks/real_headers.py [NAME ...]

The host halves of the sources in tests/backends/wrapper_sources go through `g++ -fsyntax-only` with the headers of the
installed torch (and those of the CUDA wheels), all in one translation unit, each in a namespace of its own, because
reading the headers takes most of a minute. Prints for each if torch's headers accept it, and whether the tests expect
that. Sources that include headers which are not installed here (cuBLAS, ATen/cuda, cuDNN) are left out.
Needs no GPU; about a minute and 3 GB of memory.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import nvidia
import torch

from kernelwright.backends.source_text.split import UnsupportedSource, split

TESTS = Path(__file__).parent.parent / "tests" / "backends"
SOURCES = TESTS / "wrapper_sources"
NOT_HERE = re.compile(r"#include\s*<(?:ATen/cuda|ATen/native/cuda|cublas|cudnn|curand|thrust|cub|THC)")
PRELUDE = """
#include <torch/extension.h>
#include <torch/torch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/AccumulateType.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace kw {
inline void configure(dim3, dim3, size_t = 0, cudaStream_t = nullptr) {}
inline void launch(const char*, const void* const*, const unsigned*, int) {}
struct Expression {
  explicit Expression(const char*) {}
  template <class T> Expression& type() { return *this; }
  template <auto V> Expression& constant() { return *this; }
};
inline void launch(const char*, const Expression&, const void* const*, const unsigned*, int) {}
}
"""


def unit(names: list[str]) -> str:
    """Returns all sources in one text; `#line` names each in the compiler's messages."""
    out = [PRELUDE]
    standard = set()
    for number, name in enumerate(names):
        text = split((SOURCES / f"{name}.cu").read_text()).host
        standard |= set(re.findall(r"^#\s*include\s*<(\w+)>", text, re.MULTILINE))
        text = re.sub(r"^#\s*include[^\n]*", "", text, flags=re.MULTILINE)
        text = re.sub(r"\bPYBIND11_MODULE\s*\(\s*\w+", f"PYBIND11_MODULE(module_{number}", text)
        defined = re.findall(r"^#\s*define\s+(\w+)", text, re.MULTILINE)
        out.append(f'namespace source_{number} {{\n#line 1 "{name}.cu"\n{text}\n}}\n')
        out += [f"#undef {macro}\n" for macro in defined]
    return "".join(f"#include <{header}>\n" for header in sorted(standard)) + "".join(out)


def include_flags() -> list[str]:
    """Returns the flags for the headers' folders."""
    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"])]
    folders += [Path(path) / "cu13" / "include" for path in nvidia.__path__]
    return [f"-I{folder}" for folder in folders]


def expected(name: str) -> bool:
    """Tells whether the tests expect a source's host half to compile. Those that fail only in device code do."""
    sys.path.insert(0, str(TESTS))
    from wrappers_more import REFUSED

    device_only = ("refused_half_atomic", "refused_shared_of_two_types")
    return name not in REFUSED or REFUSED[name][0] == "unsupported" or name in device_only


def main() -> int:
    names = sys.argv[1:] or sorted(p.stem for p in SOURCES.glob("*.cu"))
    usable = []
    for name in names:
        text = (SOURCES / f"{name}.cu").read_text()
        try:
            split(text)
        except UnsupportedSource:
            continue
        if not NOT_HERE.search(text) and not (SOURCES / f"{name}.cpp").exists():
            usable.append(name)
    # An unfinished statement may hide what follows it.
    usable.sort(key=lambda name: name == "refused_missing_return_type")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "unit.cpp"
        # A header that only builds of torch with CUDA bring.
        missing = Path(folder) / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
        missing.parent.mkdir(parents=True)
        missing.write_text("")
        path.write_text(unit(usable))
        flags = ["-std=c++20", "-fsyntax-only", "-w", "-fmax-errors=0", "-D_GLIBCXX_USE_CXX11_ABI=1"]
        done = subprocess.run(
            ["g++", *flags, *include_flags(), f"-I{folder}", str(path)], capture_output=True, text=True, check=False
        )
    return report(usable, faults(done.stderr))


NVCC_ONLY = re.compile(r"const void\*|RestrictPtrTraits")
"""Matches errors about declarations for nvcc alone: runtime calls that take kernels or symbols, some pointers."""


def faults(log: str) -> dict[str, list[str]]:
    """Returns errors by source. An error inside a header belongs to the source that the lines below it name."""
    out: dict[str, list[str]] = {}
    lines = log.splitlines()
    for k, line in enumerate(lines):
        if " error: " not in line or NVCC_ONLY.search(line):
            continue
        named = next((m for at in lines[k : k + 12] if (m := re.search(r"\b(\w+)\.cu:(\d+)", at))), None)
        where = named.group(1) if named else "elsewhere"
        out.setdefault(where, []).append(line.split(" error: ")[1])
    return out


def report(usable: list[str], found: dict[str, list[str]]) -> int:
    """Prints a line for each source and a summary; returns 1 if a result is not as the tests expect."""
    differing = 0
    for name in usable:
        own = found.get(name, [])
        agrees = (not own) == expected(name)
        differing += not agrees
        print(f"{name}: {'refused' if own else 'accepted'}{'' if agrees else ', NOT AS EXPECTED'} {own[:1] or ''}")
    elsewhere = found.get("elsewhere", [])
    print(
        f"{len(usable)} sources, {differing} not as expected, {len(elsewhere)} errors elsewhere {elsewhere[:2] or ''}"
    )
    return 1 if differing or elsewhere else 0


if __name__ == "__main__":
    sys.exit(main())
