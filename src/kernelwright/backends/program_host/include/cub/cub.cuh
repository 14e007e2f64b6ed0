// CUB's algorithms for a whole device, for the host half of a program: computed here, on device memory. Block and warp
// algorithms are device code, which gets CUB's own headers.
#pragma once
#include <cuda_runtime.h>
#include <kw_tree.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <numeric>
#include <type_traits>
#include <vector>

// Device memory is open to the host between these; the first also waits for the device and gives its error.
extern "C" cudaError_t kw_open_memory(cudaStream_t stream);
extern "C" void kw_close_memory();
extern "C" void kw_unsupported(const char* what);

namespace cub {
namespace kw {
template <class It>
using Value = typename std::iterator_traits<It>::value_type;

// Asked for its size first: every algorithm needs some bytes, so that programs allocate them.
template <class Work>
cudaError_t run(void* temporary, size_t& bytes, cudaStream_t stream, Work work) {
  if (!temporary) {
    bytes = 512;
    return cudaSuccess;
  }
  cudaError_t error = kw_open_memory(stream);
  if (error != cudaSuccess) return error;
  work();
  kw_close_memory();
  return cudaSuccess;
}
using ::kw_reduce::fold;
using ::kw_reduce::tree;
}  // namespace kw

struct Sum {
  template <class A, class B>
  auto operator()(const A& a, const B& b) const { return a + b; }
};
struct Max {
  template <class T>
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
struct Min {
  template <class T>
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <class K, class V>
struct KeyValuePair {
  K key;
  V value;
};
template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

struct DeviceReduce {
  template <class In, class Out, class N, class Op, class T>
  static cudaError_t Reduce(void* t, size_t& b, In in, Out out, N n, Op op, T init, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] { *out = kw::fold<T>(in, n, op, init); });
  }
  template <class In, class Out, class N>
  static cudaError_t Sum(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return Reduce(t, b, in, out, n, cub::Sum(), kw::Value<In>(), s);
  }
  template <class In, class Out, class N>
  static cudaError_t Max(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return Reduce(t, b, in, out, n, cub::Max(), std::numeric_limits<kw::Value<In>>::lowest(), s);
  }
  template <class In, class Out, class N>
  static cudaError_t Min(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return Reduce(t, b, in, out, n, cub::Min(), std::numeric_limits<kw::Value<In>>::max(), s);
  }
  template <class In, class Out, class N>
  static cudaError_t ArgMax(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      auto at = std::max_element(in, in + n);
      out->key = int(at - in), out->value = *at;
    });
  }
  template <class In, class Out, class N>
  static cudaError_t ArgMin(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      auto at = std::min_element(in, in + n);
      out->key = int(at - in), out->value = *at;
    });
  }
  template <class K, class UK, class V, class A, class C, class Op, class N>
  static cudaError_t ReduceByKey(void* t, size_t& b, K keys, UK unique, V values, A sums, C count, Op op, N n,
                                 cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      std::ptrdiff_t runs = 0, end = 0;
      for (std::ptrdiff_t k = 0; k < (std::ptrdiff_t)n; k = end, runs++) {
        for (end = k + 1; end < (std::ptrdiff_t)n && keys[end] == keys[k];) end++;
        unique[runs] = keys[k];
        sums[runs] = kw::tree<kw::Value<V>>(values + k, end - k, op);
      }
      *count = runs;
    });
  }
};

struct DeviceSegmentedReduce {
  template <class In, class Out, class B, class E, class Op, class T>
  static cudaError_t Reduce(void* t, size_t& b, In in, Out out, int segments, B begin, E end, Op op, T init,
                            cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      for (int k = 0; k < segments; k++) out[k] = kw::fold<T>(in + begin[k], end[k] - begin[k], op, init);
    });
  }
  template <class In, class Out, class B, class E>
  static cudaError_t Sum(void* t, size_t& b, In in, Out out, int segments, B begin, E end, cudaStream_t s = 0) {
    return Reduce(t, b, in, out, segments, begin, end, cub::Sum(), kw::Value<In>(), s);
  }
};

struct DeviceScan {
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t ExclusiveScan(void* t, size_t& b, In in, Out out, Op op, T init, N n, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      T sum = init;
      for (std::ptrdiff_t k = 0; k < (std::ptrdiff_t)n; k++) {
        T next = op(sum, in[k]);
        out[k] = sum;
        sum = next;
      }
    });
  }
  template <class In, class Out, class Op, class N>
  static cudaError_t InclusiveScan(void* t, size_t& b, In in, Out out, Op op, N n, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      if (n <= 0) return;
      kw::Value<In> sum = in[0];
      out[0] = sum;
      for (std::ptrdiff_t k = 1; k < (std::ptrdiff_t)n; k++) out[k] = sum = op(sum, in[k]);
    });
  }
  template <class In, class Out, class N>
  static cudaError_t ExclusiveSum(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return ExclusiveScan(t, b, in, out, cub::Sum(), kw::Value<In>(), n, s);
  }
  template <class In, class Out, class N>
  static cudaError_t InclusiveSum(void* t, size_t& b, In in, Out out, N n, cudaStream_t s = 0) {
    return InclusiveScan(t, b, in, out, cub::Sum(), n, s);
  }
};

struct DeviceRadixSort {
  // Whether x comes before y by the bits [low, high) of keys; other keys than unsigned integers are compared whole.
  template <class K>
  static bool before(const K& x, const K& y, int low, int high) {
    if constexpr (std::is_unsigned_v<K>) {
      const K mask = high - low >= int(sizeof(K) * 8) ? K(~K(0)) : K((K(1) << (high - low)) - 1);
      return K((x >> low) & mask) < K((y >> low) & mask);
    } else {
      if (low != 0 || high < int(sizeof(K) * 8)) kw_unsupported("cub::DeviceRadixSort by some bits of signed keys");
      return x < y;
    }
  }
  template <class K, class V, class N>
  static cudaError_t pairs(void* t, size_t& b, const K* keys, K* to, const V* values, V* to_values, N n, bool down,
                           int low, int high, cudaStream_t s) {
    return kw::run(t, b, s, [&] {
      std::vector<std::size_t> order((std::size_t)n);
      std::iota(order.begin(), order.end(), std::size_t(0));
      std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
        return down ? before(keys[y], keys[x], low, high) : before(keys[x], keys[y], low, high);
      });
      std::vector<K> sorted;
      for (std::size_t k : order) sorted.push_back(keys[k]);
      if (values) {
        std::vector<V> moved;
        for (std::size_t k : order) moved.push_back(values[k]);
        std::copy(moved.begin(), moved.end(), to_values);
      }
      std::copy(sorted.begin(), sorted.end(), to);
    });
  }
#define KW_SORT(SUFFIX, DOWN)                                                                                         \
  template <class K, class N>                                                                                         \
  static cudaError_t SortKeys##SUFFIX(void* t, size_t& b, const K* in, K* out, N n, int low = 0,                      \
                                      int high = sizeof(K) * 8, cudaStream_t s = 0) {                                 \
    return pairs<K, char>(t, b, in, out, nullptr, nullptr, n, DOWN, low, high, s);                                    \
  }                                                                                                                   \
  template <class K, class N>                                                                                         \
  static cudaError_t SortKeys##SUFFIX(void* t, size_t& b, DoubleBuffer<K>& k, N n, int low = 0,                       \
                                      int high = sizeof(K) * 8, cudaStream_t s = 0) {                                 \
    cudaError_t error = pairs<K, char>(t, b, k.Current(), k.Alternate(), nullptr, nullptr, n, DOWN, low, high, s);    \
    if (t) k.selector ^= 1;                                                                                           \
    return error;                                                                                                     \
  }                                                                                                                   \
  template <class K, class V, class N>                                                                                \
  static cudaError_t SortPairs##SUFFIX(void* t, size_t& b, const K* in, K* out, const V* v, V* to, N n, int low = 0,  \
                                       int high = sizeof(K) * 8, cudaStream_t s = 0) {                                \
    return pairs(t, b, in, out, v, to, n, DOWN, low, high, s);                                                        \
  }                                                                                                                   \
  template <class K, class V, class N>                                                                                \
  static cudaError_t SortPairs##SUFFIX(void* t, size_t& b, DoubleBuffer<K>& k, DoubleBuffer<V>& v, N n, int low = 0,  \
                                       int high = sizeof(K) * 8, cudaStream_t s = 0) {                                \
    const V* values = v.Current();                                                                                    \
    cudaError_t error = pairs(t, b, k.Current(), k.Alternate(), values, v.Alternate(), n, DOWN, low, high, s);        \
    if (t) k.selector ^= 1, v.selector ^= 1;                                                                          \
    return error;                                                                                                     \
  }
  KW_SORT(, false)
  KW_SORT(Descending, true)
#undef KW_SORT
};

struct DeviceSelect {
  template <class In, class Out, class C, class N, class Keep>
  static cudaError_t pick(void* t, size_t& b, In in, Out out, C count, N n, Keep keep, cudaStream_t s) {
    return kw::run(t, b, s, [&] {
      std::ptrdiff_t found = 0;
      for (std::ptrdiff_t k = 0; k < (std::ptrdiff_t)n; k++)
        if (keep(k)) out[found++] = in[k];
      *count = found;
    });
  }
  template <class In, class F, class Out, class C, class N>
  static cudaError_t Flagged(void* t, size_t& b, In in, F flags, Out out, C count, N n, cudaStream_t s = 0) {
    return pick(t, b, in, out, count, n, [&](std::ptrdiff_t k) { return bool(flags[k]); }, s);
  }
  template <class In, class Out, class C, class N, class P>
  static cudaError_t If(void* t, size_t& b, In in, Out out, C count, N n, P predicate, cudaStream_t s = 0) {
    return pick(t, b, in, out, count, n, [&](std::ptrdiff_t k) { return bool(predicate(in[k])); }, s);
  }
  template <class In, class Out, class C, class N>
  static cudaError_t Unique(void* t, size_t& b, In in, Out out, C count, N n, cudaStream_t s = 0) {
    return pick(t, b, in, out, count, n, [&](std::ptrdiff_t k) { return !k || !(in[k] == in[k - 1]); }, s);
  }
};

struct DeviceRunLengthEncode {
  template <class In, class U, class L, class C, class N>
  static cudaError_t Encode(void* t, size_t& b, In in, U unique, L lengths, C count, N n, cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      std::ptrdiff_t runs = 0, end = 0;
      for (std::ptrdiff_t k = 0; k < (std::ptrdiff_t)n; k = end, runs++) {
        for (end = k + 1; end < (std::ptrdiff_t)n && in[end] == in[k];) end++;
        unique[runs] = in[k], lengths[runs] = end - k;
      }
      *count = runs;
    });
  }
};

struct DeviceHistogram {
  template <class In, class C, class L, class N>
  static cudaError_t HistogramEven(void* t, size_t& b, In in, C* histogram, int levels, L lower, L upper, N n,
                                   cudaStream_t s = 0) {
    return kw::run(t, b, s, [&] {
      int bins = levels - 1;
      std::fill(histogram, histogram + bins, C(0));
      for (std::ptrdiff_t k = 0; k < (std::ptrdiff_t)n; k++) {
        L v = L(in[k]);
        if (v < lower || !(v < upper)) continue;
        double where = (double(v) - double(lower)) * bins / (double(upper) - double(lower));
        histogram[std::min(bins - 1, int(where))]++;
      }
    });
  }
};
}  // namespace cub
