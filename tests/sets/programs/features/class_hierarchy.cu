// A solver behind a virtual interface, with kernels launched from member functions and a factory with a map.
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

__global__ void k_square(float *x, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) x[i] *= x[i]; }
template <int K> __global__ void k_add(float *x, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) x[i] += K; }

class Buffer {
 public:
  explicit Buffer(const std::vector<float> &v) : n_(v.size()) {
    cudaMalloc(&p_, n_ * sizeof(float));
    cudaMemcpy(p_, v.data(), n_ * sizeof(float), cudaMemcpyHostToDevice);
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  Buffer(Buffer &&other) noexcept : p_(other.p_), n_(other.n_) { other.p_ = nullptr; }
  ~Buffer() { cudaFree(p_); }
  float *data() { return p_; }
  int size() const { return (int)n_; }
  std::vector<float> host() const {
    std::vector<float> v(n_);
    cudaMemcpy(v.data(), p_, n_ * sizeof(float), cudaMemcpyDeviceToHost);
    return v;
  }
 private:
  float *p_ = nullptr;
  size_t n_;
};

struct Step {
  virtual ~Step() = default;
  virtual void run(Buffer &b) const = 0;
  virtual std::string name() const { return "step"; }
};
struct Square final : Step {
  void run(Buffer &b) const override { k_square<<<(b.size() + 31) / 32, 32>>>(b.data(), b.size()); }
};
template <int K> struct Add final : Step {
  void run(Buffer &b) const override { k_add<K><<<(b.size() + 31) / 32, 32>>>(b.data(), b.size()); }
  std::string name() const override { return "add " + std::to_string(K); }
};

class Pipeline {
  std::vector<std::unique_ptr<Step>> steps;
  std::map<std::string, std::function<std::unique_ptr<Step>()>> makers;
 public:
  Pipeline() {
    makers["square"] = [] { return std::make_unique<Square>(); };
    makers["add3"] = [] { return std::make_unique<Add<3>>(); };
  }
  Pipeline &then(const std::string &what) { steps.push_back(makers.at(what)()); return *this; }
  void operator()(Buffer &b) const { for (auto &s : steps) s->run(b); }
  std::string last() const { return steps.back()->name(); }
};

int main() {
  std::vector<float> v(100);
  for (int i = 0; i < 100; i++) v[i] = i;
  Buffer first(v);
  Buffer b(std::move(first));
  Pipeline p;
  p.then("square").then("add3");
  p(b);
  auto out = b.host();
  int wrong = p.last() != "add 3";
  for (int i = 0; i < 100; i++) wrong += out[i] != v[i] * v[i] + 3;
  puts(wrong ? "FAIL" : "PASS");
  return wrong;
}
