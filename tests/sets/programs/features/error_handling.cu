// findings: invalid-launch
// Errors that a program provokes on purpose and recovers from, with a class of exception of its own.
#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <cuda_runtime_api.h>

class cuda_error : public std::runtime_error {
 public:
  cuda_error(cudaError_t code, const std::string &what) : std::runtime_error(what + ": " + cudaGetErrorString(code)), code_(code) {}
  cudaError_t code() const noexcept { return code_; }
 private:
  cudaError_t code_;
};
inline void check(cudaError_t code, const char *what) {
  if (code != cudaSuccess) throw cuda_error(code, what);
}
#define TRY(x) check((x), #x)

__global__ void nothing(int *p) { if (p) *p = 1; }

int main() {
  int caught = 0;
  try {
    nothing<<<1, 2048>>>(nullptr);
    TRY(cudaGetLastError());
  } catch (const cuda_error &e) {
    caught += e.code() == cudaErrorInvalidConfiguration;
  }
  try {
    TRY(cudaSetDevice(7));
  } catch (const std::exception &e) {
    caught += std::string(e.what()).find("cudaSetDevice(7)") == 0;
  }
  try {
    int *p;
    TRY(cudaMalloc(&p, (size_t)1 << 50));
  } catch (cuda_error &e) {
    caught += e.code() == cudaErrorMemoryAllocation;
  }
  cudaGetLastError();
  try {
    nothing<<<1, 32, 1 << 20>>>(nullptr);
    TRY(cudaPeekAtLastError());
  } catch (cuda_error &) {
    caught++;
  }
  std::ostringstream name;
  name << cudaGetErrorName(cudaGetLastError());
  caught += name.str() == "cudaErrorInvalidValue";
  int *ok = nullptr, host = 0;
  TRY(cudaMalloc(&ok, 4));
  nothing<<<1, 1>>>(ok);
  TRY(cudaMemcpy(&host, ok, 4, cudaMemcpyDeviceToHost));
  printf("caught %d\n", caught);
  puts(caught == 5 && host == 1 ? "PASS" : "FAIL");
  return !(caught == 5 && host == 1);
}
