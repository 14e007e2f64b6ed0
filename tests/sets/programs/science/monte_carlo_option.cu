// A Monte-Carlo price with its own generator, reduction by blocks, and double sums on the host.
#include <cstdint>
#include <cstdio>
#include <cmath>
#include <random>
#include <vector>

struct OptionData { float S, X, T, R, V; };
struct OptionValue { double sum, sum2; };
class RandomSeeds {
  std::mt19937_64 engine;
 public:
  explicit RandomSeeds(uint64_t seed) : engine(seed) {}
  std::vector<uint32_t> take(int n) { std::vector<uint32_t> v; while (n--) v.push_back((uint32_t)engine() | 1u); return v; }
};

__device__ inline uint32_t xorshift(uint32_t &s) { s ^= s << 13; s ^= s >> 17; s ^= s << 5; return s; }
__device__ inline float uniform(uint32_t &s) { return (xorshift(s) >> 8) * (1.0f / 16777216.0f) + 2.98e-8f; }

__global__ void simulate(const uint32_t *seeds, OptionValue *out, OptionData o, int paths) {
  __shared__ double s1[128], s2[128];
  uint32_t s = seeds[blockIdx.x * blockDim.x + threadIdx.x];
  double a = 0, b = 0;
  for (int i = 0; i < 8; i++) xorshift(s);
  for (int i = 0; i < paths; i++) {
    float u = uniform(s), v = uniform(s), z = sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
    float end = o.S * expf((o.R - 0.5f * o.V * o.V) * o.T + o.V * sqrtf(o.T) * z), pay = fmaxf(end - o.X, 0.0f);
    a += pay;
    b += (double)pay * pay;
  }
  s1[threadIdx.x] = a;
  s2[threadIdx.x] = b;
  for (int d = blockDim.x / 2; d > 0; d /= 2) {
    __syncthreads();
    if (threadIdx.x < d) { s1[threadIdx.x] += s1[threadIdx.x + d]; s2[threadIdx.x] += s2[threadIdx.x + d]; }
  }
  if (threadIdx.x == 0) out[blockIdx.x] = OptionValue{s1[0], s2[0]};
}

static double cnd(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

int main() {
  const int blocks = 8, threads = 128, paths = 100;
  OptionData o{30.0f, 32.0f, 1.5f, 0.03f, 0.25f};
  auto seeds = RandomSeeds(2024).take(blocks * threads);
  uint32_t *d_seeds;
  OptionValue *d_out, h[blocks];
  cudaMalloc(&d_seeds, seeds.size() * sizeof(uint32_t));
  cudaMalloc(&d_out, sizeof h);
  cudaMemcpy(d_seeds, seeds.data(), seeds.size() * sizeof(uint32_t), cudaMemcpyHostToDevice);
  simulate<<<blocks, threads>>>(d_seeds, d_out, o, paths);
  cudaMemcpy(h, d_out, sizeof h, cudaMemcpyDeviceToHost);
  double sum = 0, sum2 = 0, n = (double)blocks * threads * paths, e = exp(-o.R * o.T);
  for (auto &v : h) { sum += v.sum; sum2 += v.sum2; }
  double price = e * sum / n, width = 4 * e * sqrt((sum2 / n - sum * sum / n / n) / n);
  double d1 = (log(o.S / o.X) + (o.R + 0.5 * o.V * o.V) * o.T) / (o.V * sqrt(o.T));
  double exact = o.S * cnd(d1) - o.X * e * cnd(d1 - o.V * sqrt(o.T));
  bool good = fabs(price - exact) < width && width < 0.1;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
