from torch.utils.cpp_extension import load_inline
import torch.nn as nn

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
#include <cub/block/block_scan.cuh>

namespace cg = cooperative_groups;

template <int THREADS, int ITEMS>
struct Policy {
    static constexpr int kThreads = THREADS;
    static constexpr int kItems = ITEMS;
    static constexpr int kTile = THREADS * ITEMS;
};

template <class P>
__global__ void __launch_bounds__(P::kThreads) prefix_kernel(const float* in, float* out, float* totals, int n) {
    using Scan = cub::BlockScan<float, P::kThreads>;
    __shared__ typename Scan::TempStorage storage;
    auto grid = cg::this_grid();
    auto block = cg::this_thread_block();
    const int first = blockIdx.x * P::kTile + threadIdx.x * P::kItems;
    float items[P::kItems];
#pragma unroll
    for (int k = 0; k < P::kItems; ++k) items[k] = first + k < n ? in[first + k] : 0.f;
    float total;
    Scan(storage).InclusiveSum(items, items, total);
    if (block.thread_rank() == 0) totals[blockIdx.x] = total;
    grid.sync();
    if (blockIdx.x == 0) {
        auto warp = cg::tiled_partition<32>(block);
        if (warp.meta_group_rank() == 0) {
            const int lane = warp.thread_rank();
            const float mine = lane < static_cast<int>(gridDim.x) ? totals[lane] : 0.f;
            const float before = cg::exclusive_scan(warp, mine, cg::plus<float>());
            if (lane < static_cast<int>(gridDim.x)) totals[lane] = before;
        }
    }
    grid.sync();
    const float before = totals[blockIdx.x];
#pragma unroll
    for (int k = 0; k < P::kItems; ++k)
        if (first + k < n) out[first + k] = items[k] + before;
}

torch::Tensor prefix_sum(const torch::Tensor& x) {
    using P = Policy<128, 4>;
    c10::cuda::CUDAGuard guard(x.device());
    auto input = x.contiguous();
    auto out = torch::empty_like(input);
    int n = input.numel();
    int blocks = (n + P::kTile - 1) / P::kTile;
    auto totals = input.new_empty({blocks});
    int device, per_sm = 0;
    C10_CUDA_CHECK(cudaGetDevice(&device));
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    C10_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, prefix_kernel<P>, P::kThreads, 0));
    TORCH_CHECK(properties.cooperativeLaunch && blocks <= 32 && blocks <= per_sm * properties.multiProcessorCount,
                "too many blocks for one grid: ", blocks);
    const float* in = input.data_ptr<float>();
    float* result = out.data_ptr<float>();
    float* sums = totals.data_ptr<float>();
    void* arguments[] = {&in, &result, &sums, &n};
    C10_CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(prefix_kernel<P>), dim3(blocks),
                                               dim3(P::kThreads), arguments, 0, c10::cuda::getCurrentCUDAStream()));
    return out;
}
"""
prefix = load_inline(
    name="prefix", cpp_sources=["torch::Tensor prefix_sum(const torch::Tensor& x);"], cuda_sources=[source],
    functions=["prefix_sum"],
)  # fmt: skip


class ModelNew(nn.Module):
    def forward(self, x):
        return prefix.prefix_sum(x)
