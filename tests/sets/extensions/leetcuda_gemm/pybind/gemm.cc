#include <torch/extension.h>
#include <torch/types.h>

#define STRINGFY(str) #str
#define TORCH_BINDING_COMMON_EXTENSION(func)                                   \
  m.def(STRINGFY(func), &func, STRINGFY(func));

// from sgemm_async.cu
void sgemm_t_4x4_sliced_k_async(torch::Tensor a, torch::Tensor b, torch::Tensor c);
// from hgemm_wmma.cu
void hgemm_wmma_m16n16k16_mma2x2(torch::Tensor a, torch::Tensor b, torch::Tensor c);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  TORCH_BINDING_COMMON_EXTENSION(sgemm_t_4x4_sliced_k_async)
  TORCH_BINDING_COMMON_EXTENSION(hgemm_wmma_m16n16k16_mma2x2)
}
