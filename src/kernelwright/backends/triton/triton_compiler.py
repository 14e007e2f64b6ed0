"""Runs Triton's compiler without ptxas and without a device, for the simulated card and for the functional machine.

A kernel is compiled twice from the same source. The first target is sm_90, the simulated card: its errors, shared
memory and PTX are those of a real GPU. The second is sm_80, whose tensor-core instructions the machine runs
(`mma.sync`, `ldmatrix`, `cp.async` instead of `wgmma` and TMA); a Triton kernel's semantics do not depend on the
target. Kernels with fp8 values use sm_89, the first target with fp8 conversions.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend, CUDAOptions

CARD = GPUTarget("cuda", 90, 32)
FUNCTION_ARCH, FP8_ARCH = 80, 89
CARD_SHARED = 232448
"""The bound on a block's shared memory in bytes, on sm_90 and on the machine."""
PTX_VERSION = 88
"""The version of PTX that Triton emits; fixed, because querying ptxas would start a program."""


class MachineBackend(CUDABackend):  # type: ignore[misc]
    """Triton's CUDA backend up to PTX. Its binary is the PTX, which the builder assembles by `ptxas`."""

    def parse_options(self, opts: dict[str, Any]) -> Any:
        return super().parse_options({"ptx_version": PTX_VERSION, **{k: v for k, v in opts.items() if v is not None}})

    def add_stages(self, stages: dict[str, Any], options: Any, language: Any) -> None:
        super().add_stages(stages, options, language)

        def binary(ptx: str, metadata: dict[str, Any]) -> bytes:
            # Warp specialisation changes `num_warps`; the second compilation needs the requested value.
            metadata["requested_warps"] = options.num_warps
            return ptx.encode()

        stages["cubin"] = binary

    def hash(self) -> str:
        return f"kernelwright-{self.target.arch}"


@dataclass(frozen=True)
class MachineCode:
    """A kernel compiled for the machine. `scratch_bytes` is global memory per program."""

    name: str
    ptx: str
    threads: int
    shared: int
    scratch_bytes: int
    tensor_descriptors: Any


def machine_code(source: Any, card: Any) -> MachineCode:
    """Compiles `source` (Triton's ASTSource) for the machine. `card`: the metadata of its compilation for sm_90."""
    arch = FP8_ARCH if _uses_fp8(source) else FUNCTION_ARCH
    wanted: dict[str, Any] = {f.name: _hashable(getattr(card, f.name, None)) for f in dataclasses.fields(CUDAOptions)}
    # Blocks of a cluster (num_ctas) and pipeline stages divide a program's work without changing its result.
    wanted |= {
        "arch": f"sm{arch}",
        "num_ctas": 1,
        "num_warps": card.requested_warps,
        "max_num_imprecise_acc_default": None,
    }
    wanted |= {"launch_pdl": False, "ir_override": None}
    done = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=wanted)
    if done.metadata.shared > CARD_SHARED and card.num_stages > 1:
        done = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={**wanted, "num_stages": 1})
    made = done.metadata
    return MachineCode(
        made.name,
        with_true_lines(done.asm["ptx"]),
        made.num_warps * 32,
        made.shared,
        made.global_scratch_size,
        getattr(made, "tensordesc_meta", None),
    )


def with_true_lines(ptx: str) -> str:
    """Removes wrong line numbers from PTX: LLVM increments the line within inline assembly, as which Triton emits loads
    and stores. Only the first `.loc` of each block is right."""
    kept: list[str] = []
    inside = seen = False
    for line in ptx.split("\n"):
        text = line.strip()
        if text == "// begin inline asm":
            inside, seen = True, False
        elif text == "// end inline asm":
            inside = False
        elif inside and text.startswith(".loc"):
            if seen:
                continue
            seen = True
        kept.append(line)
    return "\n".join(kept)


def _hashable(value: Any) -> Any:
    """Converts lists back to tuples, which JSON had turned into lists."""
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _uses_fp8(source: Any) -> bool:
    """Tells whether arguments or the kernel's text use the fp8 type that sm_80 lacks (e4m3)."""
    fn = source.fn
    texts = [str(list(source.signature.values())), str(list(source.constants.values())), fn.src]
    return any(word in text for text in texts for word in ("fp8e4nv", "float8e4nv", "float8_e4m3fn"))
