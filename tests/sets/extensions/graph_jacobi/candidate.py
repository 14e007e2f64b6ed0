import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>

#define CUDA_OK(call)                                                                       \
    do {                                                                                    \
        cudaError_t status_ = (call);                                                       \
        TORCH_CHECK(status_ == cudaSuccess, #call, " failed: ", cudaGetErrorString(status_)); \
    } while (0)

__global__ void jacobi_step(const float* __restrict__ in, float* __restrict__ out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float left = in[i > 0 ? i - 1 : 0];
    const float right = in[i + 1 < n ? i + 1 : n - 1];
    out[i] = 0.5f * in[i] + 0.25f * (left + right);
}

torch::Tensor relax(torch::Tensor x, int64_t steps) {
    TORCH_CHECK(at::globalContext().hasCUDA(), "CUDA is needed");
    const c10::cuda::OptionalCUDAGuard device_guard(at::device_of(x));
    auto front = torch::empty_like(x), back = torch::empty_like(x);
    const int n = static_cast<int>(x.numel()), threads = 128, blocks = (n + threads - 1) / threads;

    c10::cuda::CUDAStream outer = c10::cuda::getCurrentCUDAStream();
    c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, x.device().index());
    at::cuda::CUDAEvent ready;
    ready.record(outer);
    ready.block(side);
    {
        c10::cuda::CUDAStreamGuard guard(side);
        CUDA_OK(cudaMemcpyAsync(front.data_ptr<float>(), x.data_ptr<float>(), x.nbytes(), cudaMemcpyDeviceToDevice, side));
        cudaGraph_t graph;
        cudaGraphExec_t instance;
        CUDA_OK(cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal));
        jacobi_step<<<blocks, threads, 0, side>>>(front.data_ptr<float>(), back.data_ptr<float>(), n);
        jacobi_step<<<blocks, threads, 0, side.stream()>>>(back.data_ptr<float>(), front.data_ptr<float>(), n);
        CUDA_OK(cudaStreamEndCapture(side, &graph));
        size_t nodes = 0;
        CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
        TORCH_CHECK(nodes == 2, "two nodes were captured, not ", nodes);
        CUDA_OK(cudaGraphInstantiate(&instance, graph, NULL, NULL, 0));
        for (int64_t step = 0; step < steps; step += 2) CUDA_OK(cudaGraphLaunch(instance, side));
        at::cuda::CUDAEvent done(cudaEventDisableTiming);
        done.record(side);
        done.block(outer);
        side.synchronize();
        CUDA_OK(cudaGraphExecDestroy(instance));
        CUDA_OK(cudaGraphDestroy(graph));
    }
    return front;
}
"""
ext = load_inline(
    "jacobi_graph", "torch::Tensor relax(torch::Tensor x, int64_t steps);", CUDA, functions=["relax"], verbose=True
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.relax(x, 6)
