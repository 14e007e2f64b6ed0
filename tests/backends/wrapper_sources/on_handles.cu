#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cublas_v2.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <thread>

__constant__ float table[4];
__device__ float variable[4];
template <class T> __global__ void scaled(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x] * T(table[threadIdx.x]); }
__global__ void doubled(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
__global__ void store(float* y, float value) { y[threadIdx.x] = value; }
__global__ void load(float* y) { y[threadIdx.x] = variable[threadIdx.x]; }
struct Pair { const float* x; float* y; };
__global__ void of_pair(Pair p) { p.y[threadIdx.x] = p.x[threadIdx.x]; }

int copied(torch::Tensor x, std::string kind) {
  std::vector<float> h(x.numel());
  void* d = x.data_ptr();
  if (kind == "to device") return cudaMemcpy(d, h.data(), x.nbytes(), cudaMemcpyHostToDevice);
  if (kind == "to host") return cudaMemcpy(h.data(), d, x.nbytes(), cudaMemcpyDeviceToHost);
  if (kind == "default") return cudaMemcpyAsync(h.data(), d, x.nbytes(), cudaMemcpyDefault);
  if (kind == "host is target") return cudaMemcpy(h.data(), d, x.nbytes(), cudaMemcpyHostToDevice);
  if (kind == "host is source") return cudaMemcpy(d, h.data(), x.nbytes(), cudaMemcpyDeviceToDevice);
  return cudaMemcpy(d, h.data(), x.nbytes(), cudaMemcpyKind(9));
}
int host_to_host() {
  int a = 7, b = 0;
  cudaMemcpy(&b, &a, sizeof a, cudaMemcpyHostToHost);
  return b;
}
torch::Tensor left_half(torch::Tensor x) {
  auto y = torch::empty({x.size(0), x.size(1) / 2});
  cudaMemcpy2D(y.data_ptr(), y.size(1) * 4, x.data_ptr(), x.size(1) * 4, y.size(1) * 4, x.size(0), cudaMemcpyDeviceToHost);
  return y;
}
torch::Tensor whole_rows(torch::Tensor x) {
  auto y = torch::empty_like(x, torch::device(torch::kCPU));
  cudaMemcpy2D(y.data_ptr(), x.size(1) * 4, x.data_ptr(), x.size(1) * 4, x.size(1) * 4, x.size(0), cudaMemcpyDeviceToHost);
  return y;
}
torch::Tensor cleared(torch::Tensor x) {
  cudaMemsetAsync(x.data_ptr(), 0, x.nbytes());
  return x;
}
int set_on_host() {
  int a = 0;
  return cudaMemset(&a, 1, sizeof a);
}
std::vector<int64_t> freed() {
  float* p;
  cudaMalloc(&p, 64);
  int first = cudaFree(p), second = cudaFree(p), host = cudaFree(&first);
  return {first, second, host};
}
void write_table(std::vector<double> values) {
  float h[4];
  for (int k = 0; k < 4; ++k) h[k] = values[k];
  cudaMemcpyToSymbol(table, h, sizeof h);
}
torch::Tensor run_table(torch::Tensor x) {
  auto y = torch::empty_like(x);
  scaled<float><<<1, 4>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}
torch::Tensor by_table(torch::Tensor x, std::vector<double> values) {
  write_table(values);
  return run_table(x);
}
torch::Tensor table_of_device(torch::Tensor x) {
  cudaMemcpyToSymbol(table, x.data_ptr(), 16, 0, cudaMemcpyDeviceToDevice);
  return run_table(x);
}
std::vector<double> read_table() {
  float h[4];
  cudaMemcpyFromSymbol(h, table, sizeof h);
  return {h[0], h[1], h[2], h[3]};
}
template <class T> void run_generic(torch::Tensor x, torch::Tensor y) {
  auto kernel = scaled<T>;
  kernel<<<1, 4>>>((T*)x.data_ptr(), (T*)y.data_ptr());
}
torch::Tensor by_table_of(torch::Tensor x) {
  auto y = torch::empty_like(x);
  run_generic<double>(x, y);
  return y;
}
torch::Tensor through_address(torch::Tensor x) {
  float* at;
  cudaGetSymbolAddress((void**)&at, variable);
  store<<<1, 4>>>(at, 9.f);
  load<<<1, 4>>>(x.data_ptr<float>());
  return x;
}
torch::Tensor second_half(torch::Tensor x) {
  auto y = torch::from_blob(x.data_ptr<float>() + 4, {4}, torch::device(torch::kCUDA));
  TORCH_CHECK(y.is_cuda() && y.is_alias_of(x) && y.data_ptr<float>() == x.data_ptr<float>() + 4);
  auto z = torch::empty_like(y);
  doubled<<<1, 4>>>(y.data_ptr<float>(), z.data_ptr<float>());
  return z;
}
torch::Tensor over_own_memory() {
  float* p = static_cast<float*>(c10::cuda::CUDACachingAllocator::raw_alloc(16));
  store<<<1, 4>>>(p, 3.f);
  auto y = torch::from_blob(p, {4}, torch::TensorOptions().dtype(torch::kFloat).device(torch::kCUDA)).clone();
  c10::cuda::CUDACachingAllocator::raw_delete(p);
  return y;
}
torch::Tensor over_host_array() {
  float h[3] = {1, 2, 3};
  return torch::from_blob(h, {3}).clone();
}
torch::Tensor host_array_as_cuda() {
  float h[3] = {1, 2, 3};
  return torch::from_blob(h, {3}, torch::device(torch::kCUDA));
}
torch::Tensor device_as_host(torch::Tensor x) { return torch::from_blob(x.data_ptr(), {8}); }
std::tuple<torch::Tensor, torch::Tensor, bool> moved(torch::Tensor x) {
  auto h = x.cpu();
  for (int k = 0; k < h.numel(); ++k) h.data_ptr<float>()[k] += 1;
  auto there = h.to(x.device());
  auto back = there.to(torch::kCPU);
  return {there, back, x.to(x.options()).is_alias_of(x)};
}
std::vector<bool> places(torch::Tensor x) {
  return {x.is_cuda(), torch::empty({2}).is_cuda(), torch::zeros({2}, x.options()).is_cuda(), x.cpu().is_cuda(),
          torch::tensor({1.f, 2.f}, x.options()).is_cuda()};
}
double first(torch::Tensor x) { return x[0].item<float>(); }
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
  int m = a.size(0), k = a.size(1), n = b.size(1);
  auto y = torch::empty({m, n}, a.options());
  float one = 1, zero = 0;
  cublasSgemm(at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.data_ptr<float>(), n,
              a.data_ptr<float>(), k, &zero, y.data_ptr<float>(), n);
  return y;
}
void far_store(torch::Tensor x, bool checked) {
  store<<<1, 4>>>(x.data_ptr<float>() + (1 << 20), 1.f);
  if (checked) C10_CUDA_CHECK(cudaStreamSynchronize(at::cuda::getCurrentCUDAStream()));
}

using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
                      const float*, const int*, const float*, float*, const int*);
torch::Tensor touched(torch::Tensor x, std::string way) {
  float* p = x.data_ptr<float>();
  if (way == "read") return torch::full({1}, p[3]);
  if (way == "write") p[3] = 1;
  if (way == "by_memcpy") {
    float h[8];
    std::memcpy(h, p, sizeof h);
    return torch::full({1}, h[7]);
  }
  if (way == "by_blas") {
    void* library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    auto gemm = reinterpret_cast<Gemm>(dlsym(library ? library : RTLD_DEFAULT, "sgemm_"));
    TORCH_CHECK(gemm, "no BLAS is found");
    int two = 2;
    float one = 1, h[4];
    gemm("N", "N", &two, &two, &two, &one, p, &two, p, &two, &one, h, &two);
    return torch::full({1}, h[0]);
  }
  if (way == "through_callback") {
    auto y = x + 1;
    p[0] = 2;
  }
  if (way == "arguments") {
    auto fetched = [&]() -> float { return *p; };
    store<<<1, 4>>>(p, fetched());
  }
  return x;
}
double mapped_over(torch::Tensor x) {
  auto page = reinterpret_cast<uintptr_t>(x.data_ptr()) / 4096 * 4096;
  void* at = mmap((void*)page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  TORCH_CHECK(at == (void*)page);
  float seen = x.data_ptr<float>()[0];
  x.data_ptr<float>()[0] = 42;
  munmap(at, 4096);
  return seen;
}
int opened(torch::Tensor x) {
  auto page = reinterpret_cast<uintptr_t>(x.data_ptr()) / 4096 * 4096;
  return mprotect((void*)page, 4096, PROT_READ | PROT_WRITE);
}
void by_thread(torch::Tensor x) {
  volatile float* p = x.data_ptr<float>();
  std::thread([p] { p[0] = p[1]; }).join();
}
torch::Tensor zero_copy(torch::Tensor x, std::string way) {
  float *h = nullptr, *y = x.data_ptr<float>();
  static float own[1024];
  torch::Tensor kept;
  if (way == "cudaMallocHost" || way == "in a struct") cudaMallocHost(&h, 32);
  if (way == "cudaHostRegister") cudaHostRegister(h = own, sizeof own, 0);
  if (way == "pinned options") h = (kept = torch::zeros({8}, torch::TensorOptions().pinned_memory(true))).data_ptr<float>();
  if (way == "in a struct") of_pair<<<1, 8>>>(Pair{h, y});
  else doubled<<<1, 8>>>(h, y);
  return x;
}
torch::Tensor staged(torch::Tensor x) {
  float* h;
  cudaMallocHost(&h, x.nbytes());
  cudaMemcpyAsync(h, x.data_ptr(), x.nbytes(), cudaMemcpyDeviceToHost);
  cudaStreamSynchronize(0);
  for (int k = 0; k < x.numel(); ++k) h[k] *= 2;
  auto y = torch::empty_like(x);
  cudaMemcpyAsync(y.data_ptr(), h, x.nbytes(), cudaMemcpyHostToDevice);
  cudaFreeHost(h);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("copied", &copied); m.def("host_to_host", &host_to_host); m.def("left_half", &left_half);
  m.def("whole_rows", &whole_rows); m.def("cleared", &cleared); m.def("set_on_host", &set_on_host); m.def("freed", &freed);
  m.def("write_table", &write_table); m.def("by_table", &by_table); m.def("table_of_device", &table_of_device);
  m.def("read_table", &read_table); m.def("by_table_of", &by_table_of); m.def("through_address", &through_address);
  m.def("second_half", &second_half); m.def("over_own_memory", &over_own_memory);
  m.def("over_host_array", &over_host_array); m.def("host_array_as_cuda", &host_array_as_cuda);
  m.def("device_as_host", &device_as_host); m.def("moved", &moved); m.def("places", &places); m.def("first", &first);
  m.def("product", &product); m.def("far_store", &far_store); m.def("touched", &touched);
  m.def("mapped_over", &mapped_over); m.def("opened", &opened); m.def("by_thread", &by_thread);
  m.def("zero_copy", &zero_copy); m.def("staged", &staged);
}
