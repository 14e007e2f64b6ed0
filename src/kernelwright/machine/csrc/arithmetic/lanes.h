// Shapes of arithmetic instructions: one C++ template per operand count; the operation itself is a small functor.
#pragma once
#include "launch/machine.h"

namespace kw {
template <class Op, class T, class R = T>
const Inst* unary(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  put<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i]); });
  return in + 1;
}

template <class Op, class T, class R = T>
const Inst* binary(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b);
  put<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i], b[i]); });
  return in + 1;
}

template <class Op, class T, class R = T>
const Inst* ternary(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b), *c = slot<T>(w, in->c);
  put<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i], b[i], c[i]); });
  return in + 1;
}

// The same for functions that are slow or unsafe on lanes that take no part.
template <class Op, class T, class R = T>
const Inst* unary_each(Warp& w, const Inst* in) {
  const T* a = slot<T>(w, in->a);
  put_each<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i]); });
  return in + 1;
}

template <class Op, class T, class R = T>
const Inst* binary_each(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b);
  put_each<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i], b[i]); });
  return in + 1;
}

template <class Op, class T, class R = T>
const Inst* ternary_each(Warp& w, const Inst* in) {
  const T *a = slot<T>(w, in->a), *b = slot<T>(w, in->b), *c = slot<T>(w, in->c);
  put_each<R>(w, active(w, in), in->d, [&](int i) { return Op::f(a[i], b[i], c[i]); });
  return in + 1;
}
}  // namespace kw
