"""Lists torch extensions of our own in the manner of public repositories, each with a planted bug.

Each folder holds the task in `task.py`, the candidate in `candidate.py`, and the files that the candidate builds. The
folders were written before their verdicts were known and are not edited to make a verdict better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Planted:
    """A torch extension, and an edit of one of its files that makes the extension wrong. `old` occurs exactly once."""

    name: str
    file: str
    old: str
    new: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name


EXTENSIONS = (
    Planted(
        "apex_layer_norm",
        "csrc/layer_norm_cuda_kernel.cu",
        "      __syncthreads();\n      mu = ubuf[0];",
        "mu = ubuf[0];",
    ),
    Planted("apex_multi_tensor", "csrc/multi_tensor_axpby_kernel.cu", "    n -= chunk_idx*chunk_size;\n", ""),
    Planted("causal_conv1d", "csrc/causal_conv1d_fwd.cu", "if (tidx < kNThreads - 1) {", "{"),
    Planted("complex_filter", "csrc/filter_kernel.cu", "im[blockIdx.x][j])", "im[0][j])"),
    Planted("flash_minimal", "flash.cu", "cg::this_thread_block().sync();  // such", "// such"),
    Planted("graph_jacobi", "candidate.py", "step < steps; step += 2", "step < steps; step += 1"),
    Planted("grid_prefix", "candidate.py", "    grid.sync();\n    const float before", "    const float before"),
    Planted("kbench_forward", "forward.cu", "int offset = kGroupSize / 2;", "int offset = kGroupSize / 4;"),
    Planted(
        "leetcuda_gemm",
        "kernels/sgemm_async.cu",
        "    __syncthreads();\n  }\n  const int last",
        "  }\n  const int last",
    ),
    Planted("leetcuda_hardshrink", "hardshrink.cu", "if ((idx + 7) < N) {", "if ((idx + 8) < N) {"),
    Planted(
        "leetcuda_reduce",
        "candidate.py",
        "    reduce_smem[warp] = sum;\n  __syncthreads();",
        "    reduce_smem[warp] = sum;",
    ),
    Planted("llmc_classifier", "candidate.py", "    thread_sumval *= expf(thread_maxval - block_maxval);\n", ""),
    Planted("llmc_layernorm", "llmc/layernorm.cuh", "    __syncthreads();\n\n    int idx", "\n    int idx"),
    Planted("mamba_scan", "csrc/selective_scan_common.h", "ab1.x * ab0.y + ab1.y", "ab0.x * ab0.y + ab1.y"),
    Planted(
        "muladd_package",
        "muladd_ext/csrc/cuda/muladd.cu",
        "if (idx < numel) result[idx] = a[idx] * b[idx] + c;",
        "result[idx] = a[idx] * b[idx] + c;",
    ),
    Planted("nf4_dequant", "csrc/kernels.cu", "qvals[j] & 0x0F", "qvals[j] & 0x07"),
    Planted("philox_dropout", "candidate.py", "bias[li % cols]", "bias[li / cols]"),
    Planted("pointnet2", "ops_lib/src/ball_query_gpu.cu", "l < nsample; ++l", "l < nsample - 1; ++l"),
    Planted("rwkv_wkv", "cuda/wkv_cuda.cu", "_b * T * C + _c", "_b * C + _c"),
    Planted("texture_sample", "candidate.py", "p.x + 0.5f, p.y + 0.5f", "p.x, p.y"),
    Planted(
        "vision_pool",
        "csrc/ops/cuda/box_pool_kernel.cu",
        "gpuAtomicAdd(output + index, plane[y * width + x] * share)",
        "output[index] = plane[y * width + x] * share",
    ),
    Planted("vllm_ops", "csrc/layernorm_kernels.cu", "  }\n  __syncthreads();\n", "  }\n"),
)
