// `using namespace std` with aliases and classes over vector, map, pair and string without std::.
#include <iostream>
#include <vector>
#include <map>
#include <string>
#include <sstream>
#include <iomanip>
#include <fstream>
#include <set>
#include <queue>
#include <cuda_runtime.h>
using namespace std;

typedef vector<vector<int>> table;
typedef pair<int, int> edge;
typedef map<string, vector<edge>> named;
using matrix = vector<double>;
template <typename T> using grid2 = vector<vector<T>>;
const string title = "edges";
static const vector<int> sizes = {3, 4, 5};

class Graph {
 public:
  explicit Graph(int n) : next(n) {}
  void add(int a, int b) { next[a].push_back(b); next[b].push_back(a); }
  vector<int> degrees() const {
    vector<int> d;
    for (const auto &row : next) d.push_back((int)row.size());
    return d;
  }
 private:
  vector<vector<int>> next;
  set<edge> seen;
  priority_queue<int> waiting;
};

ostream &operator<<(ostream &out, const edge &e) { return out << e.first << "-" << e.second; }

__global__ void twice(const int *degrees, int *out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = 2 * degrees[i];
}

int main() {
  Graph g(6);
  named groups;
  table t(2, vector<int>(6));
  grid2<float> f(2, vector<float>(2));
  for (int i = 0; i < 5; i++) {
    g.add(i, i + 1);
    groups[title].push_back(edge(i, i + 1));
  }
  auto degrees = g.degrees();
  int *a, *b;
  cudaMalloc(&a, 6 * sizeof(int));
  cudaMalloc(&b, 6 * sizeof(int));
  cudaMemcpy(a, degrees.data(), 6 * sizeof(int), cudaMemcpyHostToDevice);
  twice<<<1, 32>>>(a, b, 6);
  cudaMemcpy(t[1].data(), b, 6 * sizeof(int), cudaMemcpyDeviceToHost);
  stringstream text;
  text << setw(4) << setprecision(3) << 1.2345 << " " << groups[title][2];
  ofstream("edges.txt") << text.str() << endl;
  string line;
  ifstream file("edges.txt");
  getline(file, line);
  bool good = line == "1.23 2-3" && sizes.size() == 3 && f[1][1] == 0;
  for (int i = 0; i < 6; i++) good = good && t[1][i] == 2 * ((i == 0 || i == 5) ? 1 : 2);
  cout << (good ? "PASS" : "FAIL " + line) << endl;
  return !good;
}
