// torch's loop over a grid (ATen/cuda/detail/KernelUtils.h). Included only where a text includes that header.
#pragma once
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                           \
  int64_t _i_n_d_e_x = ((int64_t)blockIdx.x) * blockDim.x + threadIdx.x;  \
  for (index_type i = _i_n_d_e_x; _i_n_d_e_x < (n); _i_n_d_e_x += blockDim.x * gridDim.x, i = _i_n_d_e_x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
