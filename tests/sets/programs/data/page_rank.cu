// PageRank with std::unordered_map on the host, a reduction by warps, and the difference as the stopping rule.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>
class WebGraph {
  std::unordered_map<std::string, int> ids;
  std::list<std::pair<int, int>> links;
 public:
  int id(const std::string &name) { return ids.emplace(name, (int)ids.size()).first->second; }
  void link(const std::string &a, const std::string &b) { links.emplace_back(id(a), id(b)); }
  size_t size() const { return ids.size(); }
  const std::list<std::pair<int, int>> &edges() const { return links; }
};
__global__ void spread(const int *from, const int *to, const int *out_degree, const float *rank, float *next, int edges) {
  int e = blockIdx.x * blockDim.x + threadIdx.x;
  if (e < edges) atomicAdd(&next[to[e]], rank[from[e]] / out_degree[from[e]]);
}
__global__ void damp(float *rank, float *next, float *change, int n, float d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float delta = 0;
  if (i < n) {
    float v = (1 - d) / n + d * next[i];
    delta = fabsf(v - rank[i]);
    rank[i] = v;
    next[i] = 0;
  }
  for (int o = 16; o; o /= 2) delta += __shfl_down_sync(0xffffffff, delta, o);
  if (threadIdx.x % 32 == 0) atomicAdd(change, delta);
}
int main() {
  WebGraph web;
  for (int i = 0; i < 50; i++)
    for (int k = 1; k < 4; k++) web.link("page" + std::to_string(i), "page" + std::to_string((i * k + k * k) % 50));
  int n = web.size(), edges = std::distance(web.edges().begin(), web.edges().end());
  int *from, *to, *degree;
  float *rank, *next, *change;
  cudaMallocManaged(&from, edges * 4); cudaMallocManaged(&to, edges * 4); cudaMallocManaged(&degree, n * 4);
  cudaMallocManaged(&rank, n * 4); cudaMallocManaged(&next, n * 4); cudaMallocManaged(&change, 4);
  for (int i = 0; i < n; i++) { degree[i] = 0; rank[i] = 1.0f / n; next[i] = 0; }
  int e = 0;
  for (auto &l : web.edges()) { from[e] = l.first; to[e++] = l.second; degree[l.first]++; }
  std::vector<double> r(n, 1.0 / n);
  int rounds = 0;
  do {
    *change = 0;
    spread<<<(edges + 63) / 64, 64>>>(from, to, degree, rank, next, edges);
    damp<<<(n + 63) / 64, 64>>>(rank, next, change, n, 0.85f);
    cudaDeviceSynchronize();
    std::vector<double> s(n, 0.15 / n);
    for (int i = 0; i < edges; i++) s[to[i]] += 0.85 * r[from[i]] / degree[from[i]];
    r = s;
  } while (*change > 1e-5f && ++rounds < 100);
  double worst = 0;
  for (int i = 0; i < n; i++) worst = std::fmax(worst, std::fabs(r[i] - rank[i]));
  bool good = worst < 1e-5 && rounds < 100;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
