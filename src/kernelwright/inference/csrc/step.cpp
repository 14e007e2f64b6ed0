// One token for some rows of a Llama- or Qwen2-shaped decoder, on one core.
//
// Weights are bfloat16 (which is what checkpoints hold) in panels of 16 outputs, widened on the way: half the memory
// traffic of float32, and the same products. Everything else is float32. A row's sums are taken in the same order however
// many rows there are, so that a sample does not depend on what runs beside it. `compiled.py` holds the other side.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

using V = float __attribute__((vector_size(32)));
using U = uint32_t __attribute__((vector_size(32)));
using H = uint16_t __attribute__((vector_size(16)));
using Index = int64_t;

constexpr Index LANES = 8, PANEL = 16;

struct Layer {
  const float* norm;
  const uint16_t* qkv;
  const float* bias;  // of q, k and v; null where there is none
  const uint16_t* out;
  const float* norm_after;
  const uint16_t* gate_up;
  const uint16_t* down;
};

struct Model {
  Index vocabulary, hidden, layers, heads, kv_heads, width, feed_forward;
  double epsilon;
  const float* embedding;
  const float* norm;
  const uint16_t* head;
  const float* cosines;  // (context, width / 2)
  const float* sines;
  const Layer* layer;
};

struct Cache {
  float* keys;  // (layers, rows, kv heads, capacity, width)
  float* values;
  Index rows, capacity;
};

static V load(const float* at) {
  V v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

static void store(float* at, V v) { std::memcpy(at, &v, sizeof v); }

static V widen(const uint16_t* at) {
  H half;
  std::memcpy(&half, at, sizeof half);
  U bits = __builtin_convertvector(half, U) << 16;
  V v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

static float sum(V v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

// e^x to about 2e-7 relative: 2^n times a polynomial in the rest (Cephes).
static V exponential(V x) {
  x = x < -87.0f ? V{} - 87.0f : x > 88.0f ? V{} + 88.0f : x;
  V n = x * 1.44269504f + 12582912.0f - 12582912.0f;
  V r = x - n * 0.693359375f + n * 2.12194440e-4f;
  V p = V{} + 1.9875691500e-4f;
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f}) p = p * r + c;
  p = p * r * r + r + 1.0f;
  U bits = __builtin_convertvector(n + 127.0f, U) << 23;
  V scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

// R rows of x (stride k) by one panel of 16 outputs.
template <int R>
static void panel(const float* x, const uint16_t* weights, Index k, V (&sums)[4][2]) {
  V a[R][2] = {};
  for (Index i = 0; i < k; ++i) {
    V first = widen(weights + i * PANEL), second = widen(weights + i * PANEL + LANES);
    for (int r = 0; r < R; ++r) {
      V one = x[r * k + i] - V{};
      a[r][0] += first * one;
      a[r][1] += second * one;
    }
  }
  for (int r = 0; r < R; ++r) sums[r][0] = a[r][0], sums[r][1] = a[r][1];
}

// out (rows, n) = x (rows, k) times weights, plus a bias, plus what is there already.
static void product(const float* x, Index rows, const uint16_t* weights, Index k, Index n, const float* bias, bool add,
                    float* out) {
  for (Index p = 0; p < n; p += PANEL) {
    for (Index row = 0; row < rows; row += 4) {
      V sums[4][2];
      Index many = std::min<Index>(4, rows - row);
      const float* from = x + row * k;
      const uint16_t* at = weights + p * k;
      if (many == 4) panel<4>(from, at, k, sums);
      if (many == 3) panel<3>(from, at, k, sums);
      if (many == 2) panel<2>(from, at, k, sums);
      if (many == 1) panel<1>(from, at, k, sums);
      for (Index r = 0; r < many; ++r) {
        float values[PANEL];
        store(values, sums[r][0]), store(values + LANES, sums[r][1]);
        float* to = out + (row + r) * n + p;
        for (Index j = 0; j < std::min(PANEL, n - p); ++j)
          to[j] = (add ? to[j] : 0.0f) + (values[j] + (bias ? bias[p + j] : 0.0f));
      }
    }
  }
}

static void normalise(const float* x, Index rows, Index n, const float* weight, double epsilon, float* out) {
  for (Index r = 0; r < rows; ++r) {
    V squares{};
    for (Index i = 0; i < n; i += LANES) squares += load(x + r * n + i) * load(x + r * n + i);
    float scale = 1.0f / std::sqrt(sum(squares) / n + static_cast<float>(epsilon));
    for (Index i = 0; i < n; i += LANES) store(out + r * n + i, load(x + r * n + i) * scale * load(weight + i));
  }
}

// Turns the pairs (i, i + width / 2) of one head by its position's angles.
static void turn(float* head, const float* cosines, const float* sines, Index half) {
  for (Index i = 0; i < half; ++i) {
    float first = head[i], second = head[i + half];
    head[i] = first * cosines[i] - second * sines[i];
    head[i + half] = second * cosines[i] + first * sines[i];
  }
}

// softmax(q k^T / sqrt(width)) v of one head over `length` tokens; `scores` has room for them, rounded up to 8.
static void attend(const float* q, const float* keys, const float* values, Index length, Index width, float* scores,
                   float* out) {
  float scale = 1.0f / std::sqrt(static_cast<float>(width)), most = -INFINITY;
  for (Index t = 0; t < length; ++t) {
    V dot{};
    for (Index d = 0; d < width; d += LANES) dot += load(q + d) * load(keys + t * width + d);
    scores[t] = sum(dot) * scale;
    most = std::max(most, scores[t]);
  }
  Index padded = (length + LANES - 1) / LANES * LANES;
  for (Index t = length; t < padded; ++t) scores[t] = -INFINITY;
  V total{};
  for (Index t = 0; t < padded; t += LANES) {
    V powers = exponential(load(scores + t) - most);
    if (t + LANES > length)
      for (Index j = length - t; j < LANES; ++j) powers[j] = 0.0f;
    store(scores + t, powers);
    total += powers;
  }
  float inverse = 1.0f / sum(total);
  for (Index d = 0; d < width; d += 4 * LANES) {
    Index parts = std::min<Index>(4, (width - d) / LANES);
    V sums[4] = {};
    for (Index t = 0; t < length; ++t) {
      const float* at = values + t * width + d;
      if (parts == 4) {
        for (int j = 0; j < 4; ++j) sums[j] += load(at + j * LANES) * scores[t];
      } else {
        for (Index j = 0; j < parts; ++j) sums[j] += load(at + j * LANES) * scores[t];
      }
    }
    for (Index j = 0; j < parts; ++j) store(out + d + j * LANES, sums[j] * inverse);
  }
}

// The attention of one layer: writes the new keys and values, then the heads' results (rows, hidden) to `out`.
static void attention(const Model& m, Index layer, const Cache& c, Index first, Index rows, const Index* positions,
                      float* qkv, float* scores, float* out) {
  Index span = (m.heads + 2 * m.kv_heads) * m.width, group = m.heads / m.kv_heads;
  for (Index r = 0; r < rows; ++r) {
    float* q = qkv + r * span;
    Index position = positions[first + r];
    const float *cosines = m.cosines + position * (m.width / 2), *sines = m.sines + position * (m.width / 2);
    for (Index h = 0; h < m.heads + m.kv_heads; ++h) turn(q + h * m.width, cosines, sines, m.width / 2);
    for (Index g = 0; g < m.kv_heads; ++g) {
      Index start = (((layer * c.rows + first + r) * m.kv_heads) + g) * c.capacity * m.width;
      float *keys = c.keys + start, *values = c.values + start;
      std::memcpy(keys + position * m.width, q + (m.heads + g) * m.width, m.width * sizeof(float));
      std::memcpy(values + position * m.width, q + (m.heads + m.kv_heads + g) * m.width, m.width * sizeof(float));
      for (Index h = g * group; h < (g + 1) * group; ++h)
        attend(q + h * m.width, keys, values, position + 1, m.width, scores, out + (r * m.heads + h) * m.width);
    }
  }
}

static void gate(float* both, Index rows, Index n, float* out) {
  for (Index r = 0; r < rows; ++r) {
    for (Index i = 0; i < n; i += LANES) {
      V g = load(both + 2 * r * n + i);
      store(out + r * n + i, g / (1.0f + exponential(-g)) * load(both + (2 * r + 1) * n + i));
    }
  }
}

// Draws nothing: logits (all rows, vocabulary) of the rows first to first + rows, whose keys and values are kept.
extern "C" void kw_step(const Model* model, const Index* tokens, const Index* positions, Index first, Index rows,
                        const Cache* cache, float* logits) {
  const Model& m = *model;
  Index span = (m.heads + 2 * m.kv_heads) * m.width, inner = m.heads * m.width;
  std::vector<float> x(rows * m.hidden), h(rows * m.hidden), qkv(rows * span), attended(rows * inner);
  std::vector<float> both(rows * 2 * m.feed_forward), gated(rows * m.feed_forward), scores(cache->capacity + LANES);
  for (Index r = 0; r < rows; ++r)
    std::memcpy(&x[r * m.hidden], m.embedding + tokens[first + r] * m.hidden, m.hidden * sizeof(float));
  for (Index l = 0; l < m.layers; ++l) {
    const Layer& layer = m.layer[l];
    normalise(x.data(), rows, m.hidden, layer.norm, m.epsilon, h.data());
    product(h.data(), rows, layer.qkv, m.hidden, span, layer.bias, false, qkv.data());
    attention(m, l, *cache, first, rows, positions, qkv.data(), scores.data(), attended.data());
    product(attended.data(), rows, layer.out, inner, m.hidden, nullptr, true, x.data());
    normalise(x.data(), rows, m.hidden, layer.norm_after, m.epsilon, h.data());
    product(h.data(), rows, layer.gate_up, m.hidden, 2 * m.feed_forward, nullptr, false, both.data());
    gate(both.data(), rows, m.feed_forward, gated.data());
    product(gated.data(), rows, layer.down, m.feed_forward, m.hidden, nullptr, true, x.data());
  }
  normalise(x.data(), rows, m.hidden, m.norm, m.epsilon, h.data());
  product(h.data(), rows, m.head, m.hidden, m.vocabulary, nullptr, false, logits + first * m.vocabulary);
}
