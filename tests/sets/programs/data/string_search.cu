// Counts a pattern by a shift table in constant memory and finds the first match by atomicMin; text from the host.
#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>
#define ALPHABET 256
__constant__ int shift_table[ALPHABET];
__constant__ char pattern_c[64];

__device__ bool same(const char *text, int m) {
  for (int i = 0; i < m; i++) if (text[i] != pattern_c[i]) return false;
  return true;
}
__global__ void horspool(const char *text, int n, int m, int chunk, unsigned long long *count, int *first) {
  int start = (blockIdx.x * blockDim.x + threadIdx.x) * chunk, stop = min(start + chunk, n - m + 1);
  for (int i = start; i < stop;) {
    if (same(text + i, m)) {
      atomicAdd(count, 1ULL);
      atomicMin(first, i);
    }
    i += shift_table[(unsigned char)text[i + m - 1]];
  }
}
std::string lower(std::string_view s) {
  std::string t(s);
  std::transform(t.begin(), t.end(), t.begin(), [](unsigned char c) { return std::tolower(c); });
  return t;
}
int main() {
  std::string text, pattern = "ana";
  for (int i = 0; i < 60; i++) text += lower(i % 7 ? "Banana bread; " : "ANANAS and pear. ");
  int table[ALPHABET], m = pattern.size(), n = text.size();
  std::fill(std::begin(table), std::end(table), m);
  for (int i = 0; i < m - 1; i++) table[(unsigned char)pattern[i]] = m - 1 - i;
  cudaMemcpyToSymbol(shift_table, table, sizeof table);
  cudaMemcpyToSymbol(pattern_c, pattern.c_str(), m + 1);
  char *d;
  unsigned long long *count, found;
  int *first, at = INT_MAX;
  cudaMalloc(&d, n); cudaMalloc(&count, 8); cudaMalloc(&first, 4);
  cudaMemcpy(d, text.data(), n, cudaMemcpyHostToDevice);
  cudaMemcpy(first, &at, 4, cudaMemcpyHostToDevice);
  cudaMemset(count, 0, 8);
  horspool<<<4, 32>>>(d, n, m, (n + 127) / 128, count, first);
  cudaMemcpy(&found, count, 8, cudaMemcpyDeviceToHost);
  cudaMemcpy(&at, first, 4, cudaMemcpyDeviceToHost);
  unsigned long long want = 0;
  for (size_t p = text.find(pattern); p != std::string::npos; p = text.find(pattern, p + 1)) want++;
  bool good = found == want && at == (int)text.find(pattern);
  puts(good ? "PASS" : "FAIL");
  return !good;
}
