#if BUILD_CUDA
#include <cuda_fp16.h>
#include <ATen/cuda/CUDAContext.h>
#include <ops.cuh>
#endif
#include <torch/extension.h>

#if BUILD_CUDA
void dequantizeBlockwise_fp16_nf4(
    unsigned char* A, float* absmax, half* out, int blocksize, const int n, cudaStream_t stream
) {
    dequantizeBlockwise<half, NF4>(A, absmax, out, blocksize, n, stream);
}
#endif

void cdequantize_blockwise_fp16_nf4(at::Tensor A, at::Tensor absmax, at::Tensor out, int64_t blocksize) {
#if BUILD_CUDA
    TORCH_CHECK(A.dtype() == torch::kUInt8 && absmax.dtype() == torch::kFloat32 && out.dtype() == torch::kFloat16);
    dequantizeBlockwise_fp16_nf4(A.data_ptr<unsigned char>(), absmax.data_ptr<float>(),
                                 reinterpret_cast<half*>(out.data_ptr<at::Half>()), blocksize, out.numel(),
                                 at::cuda::getCurrentCUDAStream());
#else
    TORCH_CHECK(false, "built without CUDA");
#endif
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("cdequantize_blockwise_fp16_nf4", &cdequantize_blockwise_fp16_nf4);
}
