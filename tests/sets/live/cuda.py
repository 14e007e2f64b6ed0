"""Honest candidates in CUDA whose host code waits for values: branches, grids, loops, flags, tables of addresses."""

from __future__ import annotations

from . import tasks

HEAD = "import torch\nimport torch.nn as nn\nfrom kernelwright.cuda import Module\n"
INLINE = "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"


def python(kernels: str, forward: str, width: bool = False, more: str = "") -> str:
    """Returns a module whose kernels are a string and whose host code is Python."""
    init = "        self.scale = nn.Parameter(torch.ones(width))\n" if width else ""
    head = f"    def __init__(self{', width' if width else ''}):\n        super().__init__()\n{init}"
    body = forward.strip("\n").replace("\n", "\n        ")
    return (
        f'{HEAD}kernels = Module(r"""{kernels}""")\n{more}\nclass ModelNew(nn.Module):\n{head}'
        f"        self.kept, self.calls = None, 0\n    def forward(self, x):\n        {body}\n"
    )


def inline(source: str, width: bool = False) -> str:
    """Returns a module whose host code is C++."""
    args, given = ("torch::Tensor x, torch::Tensor s", "x, self.scale") if width else ("torch::Tensor x", "x")
    init = "        self.scale = nn.Parameter(torch.ones(width))\n" if width else ""
    head = f"    def __init__(self{', width' if width else ''}):\n        super().__init__()\n{init}"
    return (
        f'{INLINE}source = r"""{source}"""\n'
        f'module = load_inline("live", "torch::Tensor forward({args});", source, ["forward"])\n'
        f"class ModelNew(nn.Module):\n{head}    def forward(self, x):\n        return module.forward({given})\n"
    )


_RELU = """
extern "C" __global__ void scaled_relu(const float* x, const float* s, float* y, int rows, int cols) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < (long)rows * cols) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
extern "C" __global__ void strided_relu(const float* x, const float* s, float* y, int rows, int cols) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < (long)rows * cols; i += gridDim.x * (long)blockDim.x)
    y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
extern "C" __global__ void finite(const float* x, int* bad, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n && !isfinite(x[i])) atomicOr(bad, 1);
}
"""
_BRANCH = """
y, n = torch.empty_like(x), x.numel()
bad = torch.zeros(1, dtype=torch.int32, device=x.device)
kernels.finite[(n + 255) // 256, 256](x, bad, n)
if bad.item():
    raise ValueError("infinite values")
kernels.scaled_relu[(n + 255) // 256, 256](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""
_WEIGHT = """
y, n = torch.empty_like(x), x.numel()
block = 128 if self.scale[0].item() > 1 else 256
kernels.scaled_relu[(n + block - 1) // block, block](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""
_EVENTS = """
y, n = torch.empty_like(x), x.numel()
ways = [("scaled_relu", (n + 255) // 256), ("strided_relu", min((n + 255) // 256, 1056))]
if self.kept is None:
    times = []
    for name, grid in ways:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        getattr(kernels, name)[grid, 256](x, self.scale, y, x.shape[0], x.shape[1])
        start.record()
        getattr(kernels, name)[grid, 256](x, self.scale, y, x.shape[0], x.shape[1])
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    self.kept = ways[times.index(min(times))][0]
grid = dict(ways)[self.kept]
getattr(kernels, self.kept)[grid, 256](x, self.scale, y, x.shape[0], x.shape[1])
return y
"""
_LARGEST = """
extern "C" __global__ void largest(const float* x, unsigned* found, long n) {
  float best = 0.f;
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (long)blockDim.x)
    best = fmaxf(best, fabsf(x[i]));
  for (int d = 16; d; d /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, d));
  if (threadIdx.x % 32 == 0) atomicMax(found, __float_as_uint(best));
}
extern "C" __global__ void divided(const float* x, float* y, float by, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / by;
}
"""
_BY_ITEM = """
y, n = torch.empty_like(x), x.numel()
found = torch.zeros(1, device=x.device)
kernels.largest[min((n + 255) // 256, 1056), 256](x, found, n)
kernels.divided[(n + 255) // 256, 256](x, y, found.item(), n)
return y
"""
_POSITIVE = """
extern "C" __global__ void positive(const float* x, int* list, int* count, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0.f) list[atomicAdd(count, 1)] = i;
}
extern "C" __global__ void computed(const float* x, const int* list, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[list[i]] = expf(-x[list[i]]);
}
"""
_BY_GRID = """
y, n = torch.zeros_like(x), x.numel()
list_ = torch.empty(n, dtype=torch.int32, device=x.device)
count = torch.zeros(1, dtype=torch.int32, device=x.device)
kernels.positive[(n + 255) // 256, 256](x, list_, count, n)
left = int(count.item())
if left:
    kernels.computed[(left + 255) // 256, 256](x, list_, y, left)
return y
"""
_NEWTON = """
extern "C" __global__ void stepped(const float* x, float* y, int* changed, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float before = y[i], now = 0.5f * (before + x[i] / before);
  y[i] = now;
  if (fabsf(now - before) > 1e-6f * now) *changed = 1;
}
extern "C" __global__ void begun(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = 0.5f * (1.f + x[i]);
}
"""
_UNTIL = """
y, n = torch.empty_like(x), x.numel()
grid = (n + 255) // 256
kernels.begun[grid, 256](x, y, n)
for _ in range(64):
    changed = torch.zeros(1, dtype=torch.int32, device=x.device)
    kernels.stepped[grid, 256](x, y, changed, n)
    if not changed.item():
        break
return y
"""
_SWAPS = """
extern "C" __global__ void swapped(float* y, int* any, long rows, int cols, int odd) {
  long pairs = (cols - odd) / 2, i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (pairs == 0 || i >= rows * pairs) return;
  float* two = y + i / pairs * cols + odd + 2 * (i % pairs);
  float a = two[0], b = two[1];
  if (b < a) { two[0] = b; two[1] = a; *any = 1; }
}
extern "C" __global__ void copied(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
"""
_BY_FLAG = """
y, (rows, cols) = torch.empty_like(x), x.shape
kernels.copied[(x.numel() + 255) // 256, 256](x, y, x.numel())
any_ = torch.empty(1, dtype=torch.int32, device=x.device)
for _ in range(cols + 1):
    any_.zero_()
    for odd in (0, 1):
        kernels.swapped[(rows * max(cols // 2, 1) + 255) // 256, 256](y, any_, rows, cols, odd)
    if any_.item() == 0:
        break
return y
"""
_CPP_BRANCH = """
__global__ void counted(const float* x, int* bad, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n && !isfinite(x[i])) atomicOr(bad, 1);
}
__global__ void scaled(const float* x, const float* s, float* y, long n, int cols) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.f) * s[i % cols];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor s) {
  auto y = torch::empty_like(x);
  long n = x.numel();
  int *bad, host = 0;
  cudaMalloc(&bad, sizeof(int));
  cudaMemset(bad, 0, sizeof(int));
  counted<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), bad, n);
  cudaMemcpy(&host, bad, sizeof(int), cudaMemcpyDeviceToHost);
  cudaFree(bad);
  TORCH_CHECK(host == 0, "infinite values");
  scaled<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), s.data_ptr<float>(), y.data_ptr<float>(), n, (int)x.size(1));
  return y;
}
"""
_CPP_TABLE = """
struct Part { const float* x; float* y; long n; };
__global__ void halves(const Part* parts, const float* s, int cols) {
  Part p = parts[blockIdx.y];
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < p.n; i += gridDim.x * (long)blockDim.x)
    p.y[i] = fmaxf(p.x[i], 0.f) * s[i % cols];
}
torch::Tensor forward(torch::Tensor x, torch::Tensor s) {
  auto y = torch::empty_like(x);
  long cols = x.size(1), half = x.size(0) / 2 * cols;
  float first = s[0].item<float>();
  int block = first > 1.f ? 128 : 256;
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  Part parts[2] = {{from, to, half}, {from + half, to + half, x.numel() - half}};
  Part* there;
  cudaMalloc(&there, sizeof(parts));
  cudaMemcpy(there, parts, sizeof(parts), cudaMemcpyHostToDevice);
  halves<<<dim3(512, 2), block>>>(there, s.data_ptr<float>(), (int)cols);
  cudaFree(there);
  return y;
}
"""
_BACKWARD = """
extern "C" __global__ void silu(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] / (1.f + expf(-x[i]));
}
extern "C" __global__ void silu_back(const float* x, const float* g, float* d, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 1.f / (1.f + expf(-x[i]));
  d[i] = g[i] * s * (1.f + x[i] * (1.f - s));
}
"""
_FUNCTION = """
class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y, n = torch.empty_like(x), x.numel()
        kernels.silu[(n + 255) // 256, 256](x, y, n)
        return y
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d, n = torch.empty_like(x), x.numel()
        kernels.silu_back[(n + 255) // 256, 256](x, g.contiguous(), d, n)
        return d
"""

TEXTS = [
    ("branch-by-flag", tasks.RELU, python(_RELU, _BRANCH, width=True)),
    ("branch-by-weight", tasks.RELU, python(_RELU, _WEIGHT, width=True)),
    ("chosen-by-events", tasks.RELU, python(_RELU, _EVENTS, width=True)),
    ("argument-by-item", tasks.LARGEST, python(_LARGEST, _BY_ITEM)),
    ("grid-by-count", tasks.SPARSE, python(_POSITIVE, _BY_GRID)),
    ("until-convergence", tasks.ROOT, python(_NEWTON, _UNTIL)),
    ("early-exit", tasks.SORTED, python(_SWAPS, _BY_FLAG)),
    ("cpp-branch", tasks.RELU, inline(_CPP_BRANCH, width=True)),
    ("cpp-table", tasks.RELU, inline(_CPP_TABLE, width=True)),
    ("autograd", tasks.SQUARES, python(_BACKWARD, "return Silu.apply(x)", more=_FUNCTION)),
]
