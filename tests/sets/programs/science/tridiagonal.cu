// Cyclic reduction of many small systems in shared memory, with a class for the systems on the host.
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>
#include <ctime>

template <class T> class TriSystems {
 public:
  TriSystems(int n, int count) : n(n), count(count), a(n * count), b(n * count), c(n * count), d(n * count) {
    std::default_random_engine rng(5);
    std::uniform_real_distribution<T> u(-1, 1);
    for (size_t i = 0; i < a.size(); i++) {
      a[i] = i % n ? u(rng) : 0;
      c[i] = (int)(i % n) < n - 1 ? u(rng) : 0;
      b[i] = 4 + u(rng);
      d[i] = u(rng);
    }
  }
  T residual(const std::vector<T> &x) const {
    T worst = 0;
    for (int s = 0; s < count; s++)
      for (int i = 0; i < n; i++) {
        int k = s * n + i;
        T r = b[k] * x[k] - d[k];
        if (i) r += a[k] * x[k - 1];
        if (i < n - 1) r += c[k] * x[k + 1];
        worst = std::max(worst, std::fabs(r));
      }
    return worst;
  }
  const int n, count;
  std::vector<T> a, b, c, d;
};

template <class T> __global__ void pcr(const T *da, const T *db, const T *dc, const T *dd, T *x, int n) {
  extern __shared__ char memory[];
  T *a = (T *)memory, *b = a + n, *c = b + n, *d = c + n;
  int t = threadIdx.x, at = blockIdx.x * n + t;
  a[t] = da[at]; b[t] = db[at]; c[t] = dc[at]; d[t] = dd[at];
  __syncthreads();
  for (int delta = 1; delta < n; delta *= 2) {
    int l = t - delta, r = t + delta;
    T na = 0, nb = b[t], nc = 0, nd = d[t];
    if (l >= 0) { T k = a[t] / b[l]; na = -a[l] * k; nb -= c[l] * k; nd -= d[l] * k; }
    if (r < n) { T k = c[t] / b[r]; nc = -c[r] * k; nb -= a[r] * k; nd -= d[r] * k; }
    __syncthreads();
    a[t] = na; b[t] = nb; c[t] = nc; d[t] = nd;
    __syncthreads();
  }
  x[at] = d[t] / b[t];
}

template <class T> bool test(int n, int count, T tolerance) {
  TriSystems<T> systems(n, count);
  T *d[5];
  const std::vector<T> *parts[4] = {&systems.a, &systems.b, &systems.c, &systems.d};
  size_t bytes = sizeof(T) * n * count;
  for (int i = 0; i < 5; i++) {
    cudaMalloc((void **)&d[i], bytes);
    if (i < 4) cudaMemcpy(d[i], parts[i]->data(), bytes, cudaMemcpyHostToDevice);
  }
  clock_t t = clock();
  pcr<<<count, n, 4 * n * sizeof(T)>>>(d[0], d[1], d[2], d[3], d[4], n);
  std::vector<T> x(n * count);
  cudaMemcpy(x.data(), d[4], bytes, cudaMemcpyDeviceToHost);
  t = clock() - t;
  for (auto p : d) cudaFree(p);
  return systems.residual(x) < tolerance && t >= 0;
}

int main() {
  bool good = test<float>(64, 5, 1e-5f) && test<double>(100, 3, 1e-12);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
