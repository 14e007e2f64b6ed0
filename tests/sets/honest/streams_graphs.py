"""Streams and graphs in honest use: side streams join the current one, replayed graphs get fresh inputs.

Every candidate returns only results for which the current stream has waited. `needs="gpu"` marks cases that have no
meaning without a device: graphs cannot be pretended.
"""

from __future__ import annotations

from .case import HEAD, Case, bound, inline, model, plain, task

_GRAPH = "CUDA graphs need a device"

TWO_HALVES = r"""
__global__ void squares(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
__global__ void cubes(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
}
__global__ void sum(const float* a, const float* b, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] + b[i];
}
"""
POLYNOMIAL = task("n = 4_300_033", "torch.randn(n)", "x", "return x * x + x * x * x")

POOL_STREAM = inline(
    "torch::Tensor polynomial(torch::Tensor x);",
    "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAStream.h>\n"
    + TWO_HALVES
    + r"""
torch::Tensor polynomial(torch::Tensor x) {
    auto a = torch::empty_like(x), b = torch::empty_like(x), y = torch::empty_like(x);
    const int64_t n = x.numel(), blocks = (n + 255) / 256;
    cudaStream_t current = at::cuda::getCurrentCUDAStream();
    cudaStream_t side = at::cuda::getStreamFromPool();
    cudaEvent_t forked, joined;
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    cudaEventRecord(forked, current);
    cudaStreamWaitEvent(side, forked, 0);
    squares<<<blocks, 256, 0, side>>>(x.data_ptr<float>(), a.data_ptr<float>(), n);
    cubes<<<blocks, 256, 0, current>>>(x.data_ptr<float>(), b.data_ptr<float>(), n);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(current, joined, 0);
    sum<<<blocks, 256, 0, current>>>(a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    return y;
}
""",
    model("x", "return extension.polynomial(x)"),
)

OWN_STREAMS = bound(
    "polynomial",
    "#include <c10/cuda/CUDAStream.h>\n"
    + TWO_HALVES
    + r"""
struct Lanes {
    cudaStream_t streams[2];
    cudaEvent_t start, done[2];
    Lanes() {
        cudaEventCreateWithFlags(&start, cudaEventDisableTiming);
        for (int i = 0; i < 2; ++i) {
            cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking);
            cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming);
        }
    }
};
torch::Tensor polynomial(torch::Tensor x) {
    static Lanes lanes;  // made once
    auto a = torch::empty_like(x), b = torch::empty_like(x), y = torch::empty_like(x);
    const int64_t n = x.numel();
    const int blocks = (n + 511) / 512;
    cudaEventRecord(lanes.start, c10::cuda::getCurrentCUDAStream().stream());
    for (int i = 0; i < 2; ++i) {
        cudaStreamWaitEvent(lanes.streams[i], lanes.start, 0);
        if (i == 0) squares<<<blocks, 512, 0, lanes.streams[i]>>>(x.data_ptr<float>(), a.data_ptr<float>(), n);
        else cubes<<<blocks, 512, 0, lanes.streams[i]>>>(x.data_ptr<float>(), b.data_ptr<float>(), n);
        cudaEventRecord(lanes.done[i], lanes.streams[i]);
        cudaStreamWaitEvent(c10::cuda::getCurrentCUDAStream().stream(), lanes.done[i], 0);
    }
    sum<<<blocks, 512, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                                                        y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.polynomial(x.contiguous())"),
)

EVENT_CLASS = inline(
    "torch::Tensor polynomial(torch::Tensor x);",
    "#include <ATen/cuda/CUDAContext.h>\n#include <ATen/cuda/CUDAEvent.h>\n#include <c10/cuda/CUDAGuard.h>\n"
    + TWO_HALVES
    + r"""
torch::Tensor polynomial(torch::Tensor x) {
    auto a = torch::empty_like(x), b = torch::empty_like(x), y = torch::empty_like(x);
    const int64_t n = x.numel(), blocks = (n + 127) / 128;
    at::cuda::CUDAStream current = at::cuda::getCurrentCUDAStream(), side = at::cuda::getStreamFromPool(true);
    at::cuda::CUDAEvent forked, joined;
    forked.record(current);
    forked.block(side);
    {
        c10::cuda::CUDAStreamGuard guard(side);
        squares<<<blocks, 128, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), a.data_ptr<float>(), n);
        joined.record(side);
    }
    cubes<<<blocks, 128, 0, current>>>(x.data_ptr<float>(), b.data_ptr<float>(), n);
    joined.block(current);
    sum<<<blocks, 128, 0, current>>>(a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    model("x", "return extension.polynomial(x)"),
)

PYTHON_STREAM = plain(
    TWO_HALVES.replace("__global__", 'extern "C" __global__'),
    model(
        "x",
        "n, grid = x.numel(), (x.numel() + 255) // 256\n"
        "a, b, y = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)\n"
        "current = torch.cuda.current_stream()\nself.side.wait_stream(current)\n"
        "with torch.cuda.stream(self.side):\n    module.squares[grid, 256](x, a, n)\n"
        "module.cubes[grid, 256](x, b, n)\ncurrent.wait_stream(self.side)\n"
        "module.sum[grid, 256](a, b, y, n)\n"
        "x.record_stream(self.side)\na.record_stream(self.side)\nreturn y",
        setup="self.side = torch.cuda.Stream()",
    ),
)

ROW_PARTS = (
    "#include <ATen/cuda/CUDAContext.h>\n"
    + r"""
__global__ void row_norms(const float* x, float* y, int cols) {
    __shared__ float warps[4];
    float s = 0.f;
    for (int j = threadIdx.x; j < cols; j += 128) { float v = x[(size_t)blockIdx.x * cols + j]; s += v * v; }
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sqrtf(warps[0] + warps[1] + warps[2] + warps[3]);
}
void row_norms_into(torch::Tensor x, torch::Tensor y) {
    row_norms<<<x.size(0), 128, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
}
"""
)
PYTHON_EVENTS = inline(
    "void row_norms_into(torch::Tensor x, torch::Tensor y);",
    ROW_PARTS,
    model(
        "x",
        "y = torch.empty(x.shape[0], device=x.device)\nready = torch.cuda.Event()\nready.record()\n"
        "done = []\nfor part, out, stream in zip(x.chunk(3), y.chunk(3), self.streams):\n"
        "    stream.wait_event(ready)\n    with torch.cuda.stream(stream):\n"
        "        extension.row_norms_into(part, out)\n        event = torch.cuda.Event()\n        event.record(stream)\n"
        "    done.append(event)\nfor event in done:\n    torch.cuda.current_stream().wait_event(event)\nreturn y",
        setup="self.streams = [torch.cuda.Stream() for _ in range(3)]",
    ),
)

COPY_ON_SIDE = inline(
    "torch::Tensor scaled(torch::Tensor x);",
    r"""
#include <ATen/cuda/CUDAContext.h>
__global__ void scale(float* y, const float* factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= *factor;
}
torch::Tensor scaled(torch::Tensor x) {
    auto y = torch::empty_like(x);
    auto stream = at::cuda::getCurrentCUDAStream();
    cudaMemcpyAsync(y.data_ptr<float>(), x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToDevice, stream);
    auto factor = torch::full({1}, 1.5, x.options());
    const int n = x.numel();
    scale<<<(n + 255) / 256, 256, 0, stream>>>(y.data_ptr<float>(), factor.data_ptr<float>(), n);
    return y;
}
""",
    model(
        "x",
        "side = self.side\nside.wait_stream(torch.cuda.current_stream())\n"
        "with torch.cuda.stream(side):\n    y = extension.scaled(x)\n"
        "torch.cuda.current_stream().wait_stream(side)\ny.record_stream(torch.cuda.current_stream())\nreturn y",
        setup="self.side = torch.cuda.Stream(priority=-1)",
    ),
)

CAPTURE = """
class Graphed:
    \"\"\"One graph for each shape: inputs are copied into its own memory, outputs come out as a copy.\"\"\"

    def __init__(self, function):
        self.function = function
        self.graphs = {}

    def __call__(self, *inputs):
        key = tuple((x.shape, x.dtype) for x in inputs)
        if key not in self.graphs:
            self.graphs[key] = self.captured(inputs)
        graph, static, output = self.graphs[key]
        for mine, given in zip(static, inputs):
            mine.copy_(given)
        graph.replay()
        return output.clone()

    def captured(self, inputs):
        static = [x.clone() for x in inputs]
        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            self.function(*static)
        torch.cuda.current_stream().wait_stream(warm)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = self.function(*static)
        return graph, static, output
"""

GRAPH_PLAIN = plain(
    r"""
extern "C" __global__ void affine(const float* x, const float* w, float* y, int cols, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i] * w[i % cols]);
}
""",
    CAPTURE
    + model(
        "x",
        "return self.graphed(x)",
        init="width",
        setup="self.weight = nn.Parameter(torch.randn(width))\nself.graphed = Graphed(self.compute)",
    )
    + r"""
    def compute(self, x):
        n, grid = x.numel(), (x.numel() + 255) // 256
        for _ in range(3):
            y = torch.empty_like(x)
            module.affine[grid, 256](x, self.weight, y, x.shape[1], n)
            x = y
        return x
""",
)

GRAPH_EXTENSION = inline(
    "torch::Tensor step(torch::Tensor x);",
    r"""
#include <ATen/cuda/CUDAContext.h>
__global__ void step_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] + sinf(x[i]);
}
torch::Tensor step(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    step_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
""",
    CAPTURE
    + model(
        "x",
        "return self.graphed(x)",
        setup="self.graphed = Graphed(lambda x: extension.step(extension.step(extension.step(x))))",
    ),
)

GRAPH_STATIC_OUTPUT = GRAPH_EXTENSION.replace("return output.clone()", "return output  # read before the next call")

GRAPH_LIBRARY = (
    HEAD
    + CAPTURE
    + model(
        "x, w",
        "return self.graphed(x, w)",
        setup="self.graphed = Graphed(lambda x, w: torch.relu(x @ w).softmax(dim=1))",
    )
)

GRAPH_CALLABLES = (
    HEAD
    + """

class Tail(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) * 0.5 + x
"""
    + model(
        "x",
        "if x.shape not in self.graphed:\n"
        "    self.graphed[x.shape] = torch.cuda.make_graphed_callables(Tail(), (torch.zeros_like(x),))\n"
        "return self.graphed[x.shape](x).clone()",
        setup="self.graphed = {}",
    )
)

GRAPH_CPP = inline(
    "torch::Tensor twice(torch::Tensor x);",
    r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
__global__ void add_half(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 0.5f * x[i] * x[i];
}
// The graph is made for this call's addresses, launched on the current stream and given up again.
torch::Tensor twice(torch::Tensor x) {
    auto a = torch::empty_like(x), y = torch::empty_like(x);
    const int n = x.numel(), blocks = (n + 255) / 256;
    static bool loaded = false;
    if (!loaded) add_half<<<1, 32, 0, at::cuda::getCurrentCUDAStream()>>>(nullptr, nullptr, 0);  // not while capturing
    loaded = true;
    cudaStream_t capture = at::cuda::getStreamFromPool();
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    C10_CUDA_CHECK(cudaStreamBeginCapture(capture, cudaStreamCaptureModeThreadLocal));
    add_half<<<blocks, 256, 0, capture>>>(x.data_ptr<float>(), a.data_ptr<float>(), n);
    add_half<<<blocks, 256, 0, capture>>>(a.data_ptr<float>(), y.data_ptr<float>(), n);
    C10_CUDA_CHECK(cudaStreamEndCapture(capture, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&ready, graph, 0));
    C10_CUDA_CHECK(cudaGraphLaunch(ready, at::cuda::getCurrentCUDAStream()));
    C10_CUDA_CHECK(cudaGraphExecDestroy(ready));
    C10_CUDA_CHECK(cudaGraphDestroy(graph));
    return y;
}
""",
    model("x", "return extension.twice(x)"),
)

_N = "n = 1_500_007"
_STEP = "for _ in range(3):\n    x = 0.5 * x + torch.sin(x)\nreturn x"
CASES = (
    Case("stream-from-pool", POLYNOMIAL, POOL_STREAM),
    Case("streams-of-its-own", POLYNOMIAL, OWN_STREAMS),
    Case("stream-event-class", POLYNOMIAL, EVENT_CLASS),
    Case("stream-in-python", POLYNOMIAL, PYTHON_STREAM),
    Case(
        "streams-three-chunks",
        task("rows = 3001\ncols = 1409", "torch.randn(rows, cols)", "x", "return torch.linalg.vector_norm(x, dim=1)"),
        PYTHON_EVENTS,
    ),
    Case("stream-with-copy", task("n = 4_200_037", "torch.randn(n)", "x", "return x * 1.5"), COPY_ON_SIDE),
    Case(
        "graph-plain-kernels",
        task(
            "rows = 1031\nwidth = 509",
            "torch.randn(rows, width)",
            "x",
            "for _ in range(3):\n    x = torch.tanh(x * self.weight)\nreturn x",
            init="width",
            setup="self.weight = nn.Parameter(torch.randn(width))",
            init_inputs="width",
        ),
        GRAPH_PLAIN,
        needs="gpu",
        reason=_GRAPH,
    ),
    Case("graph-extension", task(_N, "torch.randn(n)", "x", _STEP), GRAPH_EXTENSION, needs="gpu", reason=_GRAPH),
    Case(
        "graph-static-output",
        task(_N, "torch.randn(n)", "x", _STEP),
        GRAPH_STATIC_OUTPUT,
        needs="gpu",
        reason=_GRAPH,
    ),
    Case(
        "graph-of-library-calls",
        task(
            "m = 701\nk = 515\nn = 633",
            "torch.randn(m, k), torch.randn(k, n)",
            "x, w",
            "return torch.relu(x @ w).softmax(dim=1)",
        ),
        GRAPH_LIBRARY,
        policy="libraries",
        needs="gpu",
        reason=_GRAPH,
    ),
    Case(
        "graph-callables",
        task(_N, "torch.randn(n)", "x", "return F.gelu(x) * 0.5 + x"),
        GRAPH_CALLABLES,
        policy="libraries",
        needs="gpu",
        reason=_GRAPH,
    ),
    Case(
        "graph-in-cpp",
        task(_N, "torch.randn(n)", "x", "for _ in range(2):\n    x = x + 0.5 * x * x\nreturn x"),
        GRAPH_CPP,
        needs="gpu",
        reason=_GRAPH,
    ),
)
