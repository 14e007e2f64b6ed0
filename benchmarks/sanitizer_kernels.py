"""Small kernels with one planted fault each, and correct ones, for the two judges of `gpu_sanitizer.py`.

The lines that take part in a fault end in `// fault`. Races are in shared memory only, because NVIDIA's racecheck sees
no others. Their values differ from thread to thread, because equal values do no harm. Buffers hold 4000 and 4004 bytes.
Allocators leave a gap up to 4096 behind them, and no stray access goes further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["race", "oob read", "oob write", "misaligned", "clean"]
KINDS: tuple[Kind, ...] = ("race", "oob read", "oob write", "misaligned", "clean")


@dataclass(frozen=True)
class Planted:
    """A kernel named `kernel`: it takes the buffers' addresses, then the numbers as ints."""

    name: str
    kind: Kind
    source: str
    buffers: tuple[tuple[str, int], ...]
    """C type and count of each buffer: `float` or `int`."""
    numbers: tuple[int, ...] = ()
    grid: int = 1
    block: int = 128
    shared: int = 0
    beyond: str = ""
    """The reason that the functional machine does not see the fault; empty if it must."""

    @property
    def lines(self) -> tuple[int, ...]:
        """Returns the source lines that a finding may name."""
        return tuple(i for i, line in enumerate(self.source.split("\n"), 1) if line.rstrip().endswith("// fault"))


def _kernel(parameters: str, body: str) -> str:
    return f'extern "C" __global__ void kernel({parameters}) {{\n{body.strip(chr(10))}\n}}\n'


def _race(name: str, body: str, block: int = 128, beyond: str = "") -> Planted:
    buffers = (("float", 1000), ("float", 1001))
    return Planted(name, "race", _kernel("const float* x, float* y", body), buffers, block=block, beyond=beyond)


RACES = (
    _race(
        "reduction-without-barrier",
        """
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int h = 64; h > 0; h /= 2)
    if (t < h) s[t] += s[t + h];  // fault
  if (t == 0) y[0] = s[0];""",
    ),
    _race(
        "neighbour-read-after-write",
        """
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];  // fault
  y[t] = s[(t + 37) % 128];  // fault""",
    ),
    _race(
        "tile-reused-too-early",
        """
  __shared__ float s[128];
  int t = threadIdx.x;
  float sum = 0.f;
  for (int k = 0; k < 4; ++k) {
    s[t] = x[k * 128 + t];  // fault
    __syncthreads();
    sum += s[127 - t];  // fault
  }
  y[t] = sum;""",
    ),
    _race(
        "write-write",
        """
  __shared__ float s[32];
  int t = threadIdx.x;
  s[t % 32] = x[t];  // fault
  __syncthreads();
  if (t < 32) y[t] = s[t];""",
    ),
    _race(
        "warp-without-syncwarp",
        """
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  s[t + 32] = x[t + 32];
  __syncwarp();
  for (int h = 32; h > 0; h /= 2)
    if (t < h) s[t] += s[t + h];  // fault
  __syncwarp();
  if (t == 0) y[0] = s[0];""",
        block=32,
        beyond="threads of one warp run in lock-step on the functional machine and are taken as ordered",
    ),
    _race(
        "partial-sums-read-too-early",
        """
  __shared__ float warps[4];
  int t = threadIdx.x;
  float v = x[t];
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffffu, v, o);
  if (t % 32 == 0) warps[t / 32] = v;  // fault
  if (t == 0) y[0] = warps[0] + warps[1] + warps[2] + warps[3];  // fault""",
    ),
    _race(
        "double-buffer",
        """
  __shared__ float s[2][128];
  int t = threadIdx.x;
  float sum = 0.f;
  s[0][t] = x[t];
  __syncthreads();
  for (int k = 0; k < 6; ++k) {
    s[(k + 1) % 2][t] = x[(k + 1) * 128 + t];  // fault
    sum += s[k % 2][(t + 64) % 128];  // fault
  }
  y[t] = sum;""",
    ),
    Planted(
        "histogram-not-cleared-yet",
        "race",
        _kernel(
            "const int* x, int* y",
            """
  __shared__ int bins[32];
  int t = threadIdx.x;
  if (t < 32) bins[t] = 0;  // fault
  atomicAdd(&bins[x[t] % 32], 1);  // fault
  __syncthreads();
  if (t < 32) y[t] = bins[t];""",
        ),
        (("int", 1000), ("int", 1001)),
    ),
    _race(
        "broadcast-without-barrier",
        """
  __shared__ float first;
  int t = threadIdx.x;
  if (t == 0) first = x[0] * 2.f;  // fault
  y[t] = x[t] - first;  // fault""",
    ),
    _race(
        "scan-in-place",
        """
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int o = 1; o < 128; o *= 2) {
    if (t >= o) s[t] += s[t - o];  // fault
    __syncthreads();
  }
  y[t] = s[t];""",
    ),
    _race(
        "counter-without-atomics",
        """
  __shared__ float total;
  int t = threadIdx.x;
  if (t == 0) total = 0.f;
  __syncthreads();
  total += x[t];  // fault
  __syncthreads();
  if (t == 0) y[0] = total;""",
    ),
)


def _stray(name: str, kind: Kind, body: str, grid: int = 4, block: int = 256, shared: int = 0) -> Planted:
    source = _kernel("const float* x, float* y, int n", body)
    return Planted(name, kind, source, (("float", 1000), ("float", 1001)), (1000,), grid, block, shared)


OUT_OF_BOUNDS = (
    _stray(
        "read-past-the-end",
        "oob read",
        """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i + 1] - 1.f;  // fault""",
    ),
    _stray(
        "read-before-the-check",
        "oob read",
        """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];  // fault
  y[i < n ? i : n] = v;""",
    ),
    _stray(
        "vector-tail",
        "oob read",
        """
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4 + 2 * 4;
  if (i < n + 4) {
    float4 v = *reinterpret_cast<const float4*>(x + i);  // fault
    y[i / 4] = v.x + v.y + v.z + v.w;
  }""",
        grid=1,
    ),
    _stray(
        "row-stride-too-long",
        "oob read",
        """
  int row = blockIdx.x, cols = n / 8;  // eight rows
  float sum = 0.f;
  for (int j = threadIdx.x; j < cols; j += blockDim.x)
    sum += x[row * (cols + 3) + j];  // fault
  atomicAdd(y + row, sum);""",
        grid=8,
        block=64,
    ),
    _stray(
        "stencil-before-the-start",
        "oob read",
        """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float right = i + 1 < n ? x[i + 1] : 0.f;
  y[i] = x[i - 1] + right;  // fault""",
    ),
    _stray(
        "write-past-the-end",
        "oob write",
        """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) y[i + 1] = x[n - 1] + i;  // fault""",
    ),
    _stray(
        "write-before-the-start",
        "oob write",
        """
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i - 1] = x[i];  // fault""",
    ),
    Planted(
        "shared-past-the-end",
        "oob write",
        _kernel(
            "const float* x, float* y",
            """
  extern __shared__ float s[];
  int t = threadIdx.x;
  s[t * 1024] = x[t];  // fault
  __syncthreads();
  y[t] = s[(127 - t) % 2];""",
        ),
        (("float", 1000), ("float", 1001)),
        block=128,
        shared=512,
    ),
    _stray(
        "misaligned-float4",
        "misaligned",
        """
  int i = threadIdx.x;
  if (i * 4 + 5 <= n) {
    float4 v = *reinterpret_cast<const float4*>(x + i * 4 + 1);  // fault
    y[i] = v.x + v.y + v.z + v.w;
  }""",
        grid=1,
        block=64,
    ),
    _stray(
        "misaligned-eight-bytes",
        "misaligned",
        """
  int i = threadIdx.x;
  float2 v = make_float2(x[2 * i], x[2 * i + 1]);
  *reinterpret_cast<float2*>(y + 2 * i + 1) = v;  // fault""",
        grid=1,
        block=64,
    ),
)

CLEAN = (
    Planted(
        "clean-reduction",
        "clean",
        _kernel(
            "const float* x, float* y",
            """
  __shared__ float s[128];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (int h = 64; h > 0; h /= 2) {
    if (t < h) s[t] += s[t + h];
    __syncthreads();
  }
  if (t == 0) y[0] = s[0];""",
        ),
        (("float", 1000), ("float", 1001)),
    ),
    Planted(
        "clean-double-buffer",
        "clean",
        _kernel(
            "const float* x, float* y",
            """
  __shared__ float s[2][128];
  int t = threadIdx.x;
  float sum = 0.f;
  s[0][t] = x[t];
  __syncthreads();
  for (int k = 0; k < 6; ++k) {
    s[(k + 1) % 2][t] = x[(k + 1) * 128 + t];
    sum += s[k % 2][(t + 64) % 128];
    __syncthreads();
  }
  y[t] = sum;""",
        ),
        (("float", 1000), ("float", 1001)),
    ),
    _stray(
        "clean-vector-tail",
        "clean",
        """
  int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i + 4 <= n) *reinterpret_cast<float4*>(y + i) = *reinterpret_cast<const float4*>(x + i);
  else for (; i < n; ++i) y[i] = x[i];""",
        grid=2,
    ),
    Planted(
        "clean-warp-and-histogram",
        "clean",
        _kernel(
            "const int* x, int* y",
            """
  __shared__ int bins[32];
  int t = threadIdx.x;
  if (t < 32) bins[t] = 0;
  __syncthreads();
  atomicAdd(&bins[x[t] % 32], 1);
  __syncthreads();
  if (t >= 32) return;
  for (int h = 16; h > 0; h /= 2) {
    int v = bins[(t + h) % 32];
    __syncwarp();
    bins[t] += v;
    __syncwarp();
  }
  y[t] = bins[t];""",
        ),
        (("int", 1000), ("int", 1001)),
    ),
)

KERNELS: tuple[Planted, ...] = (*RACES, *OUT_OF_BOUNDS, *CLEAN)
