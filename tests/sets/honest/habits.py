"""Authors' habits: workspaces, guards, memory formats, outputs of odd layout, whole scripts, several extensions."""

from __future__ import annotations

from .case import HEAD, Case, bound, inline, model, plain, task

_FLAT = "n = 4_300_051"
_SCALE = task(_FLAT, "torch.randn(n)", "x", "return torch.relu(x) * 2.0")
_MATRIX = "rows = 1999\ncols = 2203"
_KERNEL = r"""
__global__ void scale_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * fmaxf(x[i], 0.f);
}
"""
_PLAIN = _KERNEL.replace("__global__", 'extern "C" __global__')
_CALL = "n = x.numel()\nmodule.scale_kernel[(n + 255) // 256, 256](x, y, n)\n"

OWN_MEMORY = bound(
    "row_sums",
    r"""
// Partial sums go to memory from cudaMallocAsync, given back before the function returns.
__global__ void partial(const float* x, float* part, int cols) {
    __shared__ float warps[4];
    float s = 0.f;
    for (int j = blockIdx.y * 128 + threadIdx.x; j < cols; j += gridDim.y * 128) s += x[(size_t)blockIdx.x * cols + j];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) part[blockIdx.x * gridDim.y + blockIdx.y] = warps[0] + warps[1] + warps[2] + warps[3];
}
__global__ void join(const float* part, float* y, int rows, int parts) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float s = 0.f;
    for (int k = 0; k < parts; ++k) s += part[row * parts + k];
    y[row] = s;
}
torch::Tensor row_sums(torch::Tensor x) {
    const int rows = x.size(0), cols = x.size(1), parts = 4;
    auto y = torch::empty({rows}, x.options());
    float* part = nullptr;
    cudaMallocAsync(&part, rows * parts * sizeof(float), 0);
    partial<<<dim3(rows, parts), 128>>>(x.data_ptr<float>(), part, cols);
    join<<<(rows + 127) / 128, 128>>>(part, y.data_ptr<float>(), rows, parts);
    cudaFreeAsync(part, 0);
    return y;
}
""",
    model("x", "return extension.row_sums(x)"),
)

GUARDED = inline(
    "torch::Tensor scale(torch::Tensor x);",
    "#include <c10/cuda/CUDAGuard.h>\n#include <c10/cuda/CUDAException.h>\n#include <cstdio>\n"
    + _KERNEL
    + r"""
torch::Tensor scale(torch::Tensor x) {
    const at::cuda::OptionalCUDAGuard device_guard(device_of(x));
    TORCH_CHECK(x.scalar_type() == torch::kFloat32, "float32 is needed, not ", x.scalar_type());
    auto y = torch::empty_like(x);
    const int n = static_cast<int>(x.numel());
    if (n == 0) return y;
    scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_CHECK(cudaGetLastError());
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    return y;
}
""",
    model("x", "return extension.scale(x)"),
)

WHOLE_SCRIPT = (
    HEAD
    + '''import logging
import os
import warnings
from functools import lru_cache
from typing import Dict, Optional

os.environ["TORCH_CUDA_ARCH_LIST"] = "8.0;9.0"
os.environ.setdefault("MAX_JOBS", "2")
warnings.filterwarnings("ignore", category=UserWarning)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.benchmark = True
logger = logging.getLogger(__name__)


class Model(nn.Module):
    """The original, for comparison."""

    def forward(self, x):
        return torch.relu(x) * 2.0


@lru_cache(maxsize=None)
def build():
    from torch.utils.cpp_extension import load_inline

    logger.info("compiling")
    return load_inline(name="whole_script", cpp_sources=["torch::Tensor scale(torch::Tensor x);"], cuda_sources=[r"""
#include <torch/extension.h>
'''
    + _KERNEL
    + '''
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""], functions=["scale"], verbose=False, with_cuda=True, extra_cuda_cflags=["-O3"])


class ModelNew(nn.Module):
    cache: Dict[str, Optional[torch.Tensor]] = {}

    def __init__(self, *args, **kwargs) -> None:
        super().__init__()

    @torch.inference_mode()
    def forward(self, x: torch.Tensor, *_args, **_kwargs) -> torch.Tensor:
        with torch.profiler.record_function("scale"):
            return build().scale(x if x.is_contiguous() else x.contiguous())


def get_inputs():
    return [torch.randn(4_300_051)]


def get_init_inputs():
    return []


if __name__ == "__main__":
    x = get_inputs()[0].cuda()
    torch.testing.assert_close(Model()(x), ModelNew().cuda()(x))
    print("passed")
'''
)

TWO_EXTENSIONS = (
    HEAD
    + "from torch.utils.cpp_extension import load_inline\n\n"
    + "".join(
        f'''{name} = load_inline(name="{name}_part", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=r"""
#include <torch/extension.h>
__global__ void kernel(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {expression};
}}
torch::Tensor run(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    kernel<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
""", functions=["run"])
'''
        for name, expression in (("relu", "fmaxf(x[i], 0.f)"), ("twice", "x[i] + x[i]"))
    )
    + """

class Step(nn.Module):
    def __init__(self, extension):
        super().__init__()
        self.run = extension.run

    def forward(self, x):
        return self.run(x)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.Sequential(Step(relu), Step(twice))

    def forward(self, x):
        return self.steps(x)
"""
)

CHANNELS_LAST = plain(
    r"""
extern "C" __global__ void nhwc_scale(const float* x, const float* w, float* y, int channels, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * w[i % channels];
}
""",
    model(
        "x, w",
        "x = x.contiguous(memory_format=torch.channels_last)\ny = torch.empty_like(x)\nn = x.numel()\n"
        "module.nhwc_scale[(n + 255) // 256, 256](x, w, y, x.shape[1], n)\nreturn y  # as NHWC in memory",
    ),
)

TRANSPOSED_OUTPUT = plain(
    r"""
extern "C" __global__ void cube_columns(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y;
    if (row < rows) y[(size_t)col * rows + row] = x[(size_t)row * cols + col] * 3.f;
}
""",
    model(
        "x",
        "rows, cols = x.shape\ny = torch.empty(cols, rows, device=x.device)\n"
        "module.cube_columns[((rows + 127) // 128, cols), 128](x, y, rows, cols)\nreturn y.t()",
    ),
)

PADDED_OUTPUT = plain(
    r"""
extern "C" __global__ void shifted(const float* x, float* y, int cols, int pitch) {
    for (int j = threadIdx.x; j < cols; j += blockDim.x) y[(size_t)blockIdx.x * pitch + j] = x[(size_t)blockIdx.x * cols + j] + 1.f;
}
""",
    model(
        "x",
        "rows, cols = x.shape\npitch = (cols + 31) // 32 * 32\ny = torch.empty(rows, pitch, device=x.device)\n"
        "module.shifted[rows, 256](x, y, cols, pitch)\nreturn y[:, :cols]",
    ),
)

DICTIONARY = plain(
    r"""
extern "C" __global__ void parts(const float* x, float* low, float* high, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { low[i] = fminf(x[i], 0.f); high[i] = fmaxf(x[i], 0.f); }
}
""",
    model(
        "x",
        'out = {"low": torch.empty_like(x), "high": torch.empty_like(x)}\nn = x.numel()\n'
        'module.parts[(n + 255) // 256, 256](x, out["low"], out["high"], n)\nreturn out',
    ),
)

PRINTS_AND_ASSERTS = inline(
    "torch::Tensor scale(torch::Tensor x);",
    r"""
#include <cassert>
#include <cstdio>
#ifdef DEBUG
#define SAY(...) printf(__VA_ARGS__)
#else
#define SAY(...)
#endif
__global__ void scale_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(blockDim.x == 256);
    if (i == 0) SAY("n is %d\n", n);
    if (i < 0) printf("never\n");
    if (i < n) y[i] = 2.f * fmaxf(x[i], 0.f);
}
torch::Tensor scale(torch::Tensor x) {
    auto y = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    if (cudaPeekAtLastError() != cudaSuccess) printf("launch failed\n");
    return y;
}
""",
    model("x", "y = extension.scale(x)\ntorch.cuda.synchronize()\nreturn y"),
)

FLATTENED_WEIGHTS = plain(
    r"""
extern "C" __global__ void conv_1x1(const float* x, const float* wt, const float* b, float* y, int channels, int filters, int plane) {
    int p = blockIdx.x * blockDim.x + threadIdx.x, f = blockIdx.y, n = blockIdx.z;
    if (p >= plane) return;
    float s = b[f];
    for (int c = 0; c < channels; ++c) s = fmaf(x[((size_t)n * channels + c) * plane + p], wt[c * filters + f], s);
    y[((size_t)n * filters + f) * plane + p] = s;
}
""",
    model(
        "x",
        "b, c, h, w = x.shape\nf = self.wt.shape[1]\ny = torch.empty(b, f, h, w, device=x.device)\n"
        "module.conv_1x1[((h * w + 127) // 128, f, b), 128](x, self.wt.to(x.device), self.conv.bias, y, c, f, h * w)\nreturn y",
        init="channels, filters",
        setup="self.conv = nn.Conv2d(channels, filters, 1)\n"
        "self.wt = self.conv.weight.detach().view(filters, channels).t().contiguous()  # prepared once",
    ),
)

NUMBERS = plain(
    _PLAIN,
    model(
        "x, factor",
        "y = torch.empty_like(x)\n" + _CALL + "return y.mul_(1.0) if factor is None else (y, float(factor) * 2)",
    ),
)

CASES = (
    Case("habit-own-workspace", task(_MATRIX, "torch.randn(rows, cols)", "x", "return x.sum(1)"), OWN_MEMORY),
    Case("habit-guards-and-checks", _SCALE, GUARDED),
    Case("habit-whole-script", _SCALE, WHOLE_SCRIPT),
    Case("habit-two-extensions", _SCALE, TWO_EXTENSIONS),
    Case(
        "habit-channels-last",
        task(
            "batch = 8\nchannels = 40\nside = 119",
            "torch.randn(batch, channels, side, side), torch.randn(channels)",
            "x, w",
            "return x * w[:, None, None]",
        ),
        CHANNELS_LAST,
    ),
    Case("habit-transposed-output", task(_MATRIX, "torch.randn(rows, cols)", "x", "return x * 3"), TRANSPOSED_OUTPUT),
    Case("habit-padded-output", task(_MATRIX, "torch.randn(rows, cols)", "x", "return x + 1"), PADDED_OUTPUT),
    Case(
        "habit-dictionary-output",
        task(_FLAT, "torch.randn(n)", "x", 'return {"low": x.clamp(max=0), "high": x.clamp(min=0)}'),
        DICTIONARY,
    ),
    Case("habit-prints-and-asserts", _SCALE, PRINTS_AND_ASSERTS),
    Case(
        "habit-flattened-weights",
        task(
            "batch = 8\nchannels = 48\nfilters = 56\nside = 61",
            "torch.randn(batch, channels, side, side)",
            "x",
            "return self.conv(x)",
            init="channels, filters",
            setup="self.conv = nn.Conv2d(channels, filters, 1)",
            init_inputs="channels, filters",
        ),
        FLATTENED_WEIGHTS,
    ),
    Case(
        "habit-number-beside-tensor",
        task(_FLAT, "torch.randn(n), 1.25", "x, factor", "return torch.relu(x) * 2.0, factor * 2"),
        NUMBERS,
    ),
)
