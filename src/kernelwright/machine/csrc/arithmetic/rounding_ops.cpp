// Arithmetic that rounds toward zero, down or up: the same loops with the processor's rounding mode changed around
// them. Compiled with -frounding-math; the arrays are read and written between two compiler barriers.
#include <cfenv>

#include "decode/decode.h"
#include "arithmetic/half.h"
#include "arithmetic/lanes.h"

namespace kw {
namespace {
int host_mode(u8 m) { return m == 1 ? FE_TOWARDZERO : m == 2 ? FE_DOWNWARD : FE_UPWARD; }

class Rounding {
 public:
  explicit Rounding(u8 m) : old_(std::fegetround()) {
    std::fesetround(host_mode(m));
    asm volatile("" ::: "memory");
  }
  ~Rounding() {
    asm volatile("" ::: "memory");
    std::fesetround(old_);
  }

 private:
  int old_;
};

enum Kind { Add, Sub, Mul, Div, FmaK, Rcp, Sqrt };

// in->x: mode 1 zero, 2 down, 3 up; in->y: bit 0 ftz, bit 1 sat
template <class T, int K>
[[gnu::noinline]] void compute(const T* a, const T* b, const T* c, T* r) {
  for (int i = 0; i < LANES; i++) {
    if (K == Add) r[i] = a[i] + b[i];
    if (K == Sub) r[i] = a[i] - b[i];
    if (K == Mul) r[i] = a[i] * b[i];
    if (K == Div) r[i] = a[i] / b[i];
    if (K == FmaK) r[i] = std::fma(a[i], b[i], c[i]);
    if (K == Rcp) r[i] = (T)1 / a[i];
    if (K == Sqrt) r[i] = std::sqrt(a[i]);
  }
}

template <class T, int K>
const Inst* op_directed(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b), *c = slot<T>(w, in->c);
  alignas(64) T r[LANES], fa[LANES], fb[LANES], fc[LANES];
  if constexpr (sizeof(T) == 4) {
    if (in->y & 1) {
      for (int i = 0; i < LANES; i++) {
        fa[i] = flush(a[i]);
        if (K != Rcp && K != Sqrt) fb[i] = flush(b[i]);
        if (K == FmaK) fc[i] = flush(c[i]);
      }
      a = fa, b = fb, c = fc;
    }
  }
  {
    Rounding mode(in->x);
    compute<T, K>(a, b, c, r);
  }
  if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < LANES; i++) {
      if (r[i] != r[i]) r[i] = bit_cast<T>(0x7fffffffu);
      if (in->y & 1) r[i] = flush(r[i]);
      if (in->y & 2) r[i] = r[i] > 0 ? (r[i] < 1 ? r[i] : 1.0f) : 0.0f;
    }
  }
  blend(slot<T>(w, in->d), r, active(w, in));
  return in + 1;
}

template <class T>
Fn pick(string_view op) {
  if (op == "add") return op_directed<T, Add>;
  if (op == "sub") return op_directed<T, Sub>;
  if (op == "mul") return op_directed<T, Mul>;
  if (op == "div") return op_directed<T, Div>;
  if (op == "fma" || op == "mad") return op_directed<T, FmaK>;
  if (op == "rcp") return op_directed<T, Rcp>;
  if (op == "sqrt") return op_directed<T, Sqrt>;
  return nullptr;
}
}  // namespace

Fn directed(string_view op, Ty t) { return t == Ty::F32 ? pick<float>(op) : t == Ty::F64 ? pick<double>(op) : nullptr; }
}  // namespace kw
