// arguments: graph.txt
// Breadth-first search on a graph that the program writes and reads with fscanf; flags on the device.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <vector>
#define MAX_THREADS_PER_BLOCK 128
struct Node { int starting; int no_of_edges; };
typedef std::vector<std::vector<int>> Adjacency;

__global__ void Kernel(const Node *nodes, const int *edges, char *mask, char *updating, const char *visited, int *cost, int n) {
  int tid = blockIdx.x * MAX_THREADS_PER_BLOCK + threadIdx.x;
  if (tid < n && mask[tid]) {
    mask[tid] = 0;
    for (int i = nodes[tid].starting; i < nodes[tid].starting + nodes[tid].no_of_edges; i++) {
      int id = edges[i];
      if (!visited[id]) {
        atomicExch(&cost[id], cost[tid] + 1);
        updating[id] = 1;
      }
    }
  }
}
__global__ void Kernel2(char *mask, char *updating, char *visited, char *over, int n) {
  int tid = blockIdx.x * MAX_THREADS_PER_BLOCK + threadIdx.x;
  if (tid < n && updating[tid]) {
    mask[tid] = 1;
    visited[tid] = 1;
    *over = 1;
    updating[tid] = 0;
  }
}
static void write_graph(const char *name, int n) {
  FILE *f = fopen(name, "w");
  fprintf(f, "%d\n", n);
  for (int i = 0; i < n; i++) fprintf(f, "%d %d %d\n", (i * 7 + 3) % n, (i * 5 + 1) % n, (i + 1) % n);
  fclose(f);
}
int main(int argc, char **argv) {
  if (argc != 2) { fprintf(stderr, "Usage: %s <input_file>\n", argv[0]); exit(0); }
  write_graph(argv[1], 300);
  FILE *fp = fopen(argv[1], "r");
  int n = 0;
  if (!fp || fscanf(fp, "%d", &n) != 1) return 2;
  Node *h_nodes = (Node *)malloc(sizeof(Node) * n);
  Adjacency next(n);
  std::vector<int> edges;
  for (int i = 0; i < n; i++) {
    h_nodes[i].starting = edges.size();
    h_nodes[i].no_of_edges = 3;
    for (int k = 0, id; k < 3; k++) {
      if (fscanf(fp, "%d", &id) != 1) return 3;
      edges.push_back(id);
      next[i].push_back(id);
    }
  }
  fclose(fp);
  char *mask, *updating, *visited, *d_over, over;
  int *cost, *d_edges;
  Node *d_nodes;
  cudaMalloc((void **)&d_nodes, sizeof(Node) * n);
  cudaMalloc((void **)&d_edges, sizeof(int) * edges.size());
  cudaMalloc((void **)&mask, n); cudaMalloc((void **)&updating, n); cudaMalloc((void **)&visited, n); cudaMalloc((void **)&d_over, 1);
  cudaMalloc((void **)&cost, sizeof(int) * n);
  cudaMemcpy(d_nodes, h_nodes, sizeof(Node) * n, cudaMemcpyHostToDevice);
  cudaMemcpy(d_edges, edges.data(), sizeof(int) * edges.size(), cudaMemcpyHostToDevice);
  cudaMemset(mask, 0, n); cudaMemset(updating, 0, n); cudaMemset(visited, 0, n);
  cudaMemset(cost, 0xff, sizeof(int) * n);
  cudaMemset(mask, 1, 1); cudaMemset(visited, 1, 1); cudaMemset(cost, 0, sizeof(int));
  int blocks = (n + MAX_THREADS_PER_BLOCK - 1) / MAX_THREADS_PER_BLOCK;
  do {
    over = 0;
    cudaMemcpy(d_over, &over, 1, cudaMemcpyHostToDevice);
    Kernel<<<blocks, MAX_THREADS_PER_BLOCK>>>(d_nodes, d_edges, mask, updating, visited, cost, n);
    Kernel2<<<blocks, MAX_THREADS_PER_BLOCK>>>(mask, updating, visited, d_over, n);
    cudaMemcpy(&over, d_over, 1, cudaMemcpyDeviceToHost);
  } while (over);
  std::vector<int> got(n), want(n, -1);
  cudaMemcpy(got.data(), cost, sizeof(int) * n, cudaMemcpyDeviceToHost);
  std::queue<int> todo;
  want[0] = 0;
  for (todo.push(0); !todo.empty(); todo.pop())
    for (int id : next[todo.front()])
      if (want[id] < 0) { want[id] = want[todo.front()] + 1; todo.push(id); }
  puts(got == want ? "PASS" : "FAIL");
  return got != want;
}
