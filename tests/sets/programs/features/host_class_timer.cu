// A stop watch class over gettimeofday, and records with std::string, that only host code uses.
#include <cstdio>
#include <sys/time.h>
#include <string>
#include <map>
#include <cuda_runtime.h>
using namespace std;

struct Record {
  string name;
  timeval at;
  map<string, double> numbers;
};

class Stopwatch {
 public:
  Stopwatch() { gettimeofday(&begin, NULL); }
  double seconds() const {
    struct timeval now;
    gettimeofday(&now, NULL);
    return (now.tv_sec - begin.tv_sec) + 1e-6 * (now.tv_usec - begin.tv_usec);
  }
 private:
  struct timeval begin;
};

double rtclock() {
  struct timezone Tzp;
  struct timeval Tp;
  int stat = gettimeofday(&Tp, &Tzp);
  if (stat != 0) printf("Error return from gettimeofday: %d", stat);
  return (Tp.tv_sec + Tp.tv_usec * 1.0e-6);
}

__global__ void scale(float *x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}

int main() {
  Stopwatch watch;
  Record record;
  record.name = "scale";
  gettimeofday(&record.at, 0);
  double t0 = rtclock();
  const int n = 1000;
  float *h = new float[n], *d;
  for (int i = 0; i < n; i++) h[i] = i;
  cudaMalloc(&d, n * sizeof(float));
  cudaMemcpy(d, h, n * sizeof(float), cudaMemcpyHostToDevice);
  scale<<<(n + 127) / 128, 128>>>(d, 3.0f, n);
  cudaMemcpy(h, d, n * sizeof(float), cudaMemcpyDeviceToHost);
  record.numbers["seconds"] = rtclock() - t0;
  bool good = watch.seconds() >= 0 && record.numbers["seconds"] >= 0 && record.name.size() == 5 && record.at.tv_sec > 0;
  for (int i = 0; i < n; i++) good = good && h[i] == 3.0f * i;
  delete[] h;
  cudaFree(d);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
