// A templated test with explicit specialisations of host functions, in namespaces, with std::transform.
#include <stdio.h>
#include <cuda_runtime.h>
#include <helper_functions.h>
#include <helper_cuda.h>
#include <vector>
#include <algorithm>
#include <typeinfo>
int g_TotalFailures = 0;

namespace shared {
template <typename T> struct SharedMemory {
  __device__ T *getPointer() {
    extern __device__ void error(void);
    error();
    return NULL;
  }
};
template <> struct SharedMemory<int> {
  __device__ int *getPointer() { extern __shared__ int s_int[]; return s_int; }
};
template <> struct SharedMemory<float> {
  __device__ float *getPointer() { extern __shared__ float s_float[]; return s_float; }
};
}  // namespace shared

template <class T> __global__ void testKernel(T *g_idata, T *g_odata) {
  shared::SharedMemory<T> smem;
  T *sdata = smem.getPointer();
  const unsigned int tid = threadIdx.x, num_threads = blockDim.x;
  sdata[tid] = g_idata[tid];
  __syncthreads();
  sdata[tid] = (T)num_threads * sdata[tid];
  __syncthreads();
  g_odata[tid] = sdata[tid];
}

template <class T> void computeGold(T *reference, T *idata, const unsigned int len) {
  const T T_len = static_cast<T>(len);
  std::transform(idata, idata + len, reference, [T_len](T v) { return v * T_len; });
}

template <class T> class ArrayComparator {
 public:
  bool compare(const T *reference, T *data, unsigned int len) {
    fprintf(stderr, "ArrayComparator::compare is not defined for %s\n", typeid(T).name());
    return false;
  }
};
template <> class ArrayComparator<int> {
 public:
  bool compare(const int *reference, int *data, unsigned int len) { return compareData(reference, data, len, 0.15f, 0.0f); }
};
template <> class ArrayComparator<float> {
 public:
  bool compare(const float *reference, float *data, unsigned int len) { return compareData(reference, data, len, 0.15f, 0.15f); }
};

template <class T> void runTest(int argc, char **argv, int len) {
  unsigned int num_threads = len, mem_size = sizeof(float) * num_threads;
  std::vector<T> h_idata(len), reference(len), h_odata(len);
  for (unsigned int i = 0; i < num_threads; ++i) h_idata[i] = (T)i;
  T *d_idata, *d_odata;
  checkCudaErrors(cudaMalloc((void **)&d_idata, mem_size));
  checkCudaErrors(cudaMalloc((void **)&d_odata, mem_size));
  checkCudaErrors(cudaMemcpy(d_idata, &h_idata[0], mem_size, cudaMemcpyHostToDevice));
  dim3 grid(1, 1, 1), threads(num_threads, 1, 1);
  testKernel<T><<<grid, threads, mem_size>>>(d_idata, d_odata);
  getLastCudaError("Kernel execution failed");
  checkCudaErrors(cudaMemcpy(&h_odata[0], d_odata, sizeof(T) * num_threads, cudaMemcpyDeviceToHost));
  computeGold<T>(reference.data(), h_idata.data(), num_threads);
  ArrayComparator<T> comparator;
  bool res = comparator.compare(reference.data(), h_odata.data(), num_threads);
  g_TotalFailures += (1 != res);
  cudaFree(d_idata);
  cudaFree(d_odata);
}

int main(int argc, char **argv) {
  printf("runTest<float,32>\n");
  runTest<float>(argc, argv, 32);
  printf("runTest<int,64>\n");
  runTest<int>(argc, argv, 64);
  printf("[simpleTemplates] -> Test Results: %d Failures\n", g_TotalFailures);
  puts(g_TotalFailures == 0 ? "PASS" : "FAIL");
  exit(g_TotalFailures == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}
