// Lambdas of host code that kernels are called with (backends/source_text/lambdas.py): one object, with the same layout on both sides.
// The host makes it and knows what was captured by type only; the device has the lambda's body in a specialisation.
#pragma once
#ifndef __CUDACC_RTC__
#include <functional>
#include <type_traits>
#include <utility>
#endif

template <class... T>
struct kw_with;  // template arguments of the function around the lambda
template <auto V>
struct kw_value;

template <class... A>
struct kw_fields {};
template <class A, class... R>
struct kw_fields<A, R...> {
  A value;
  kw_fields<R...> rest;
#ifndef __CUDACC_RTC__
  kw_fields(const A& a, const R&... r) : value(a), rest{r...} {}
#endif
};
template <class A, decltype(sizeof(0)) N, class... R>
struct kw_fields<A[N], R...> {
  A value[N];
  kw_fields<R...> rest;
#ifndef __CUDACC_RTC__
  kw_fields(const A (&a)[N], const R&... r) : rest{r...} {
    for (decltype(sizeof(0)) i = 0; i < N; ++i) value[i] = a[i];
  }
#endif
};

#ifdef __CUDACC_RTC__
template <int L, int N, class W, class... A>
struct kw_device;
template <int L, int N, class W, class S, class... A>
struct kw_both;
#else
template <class A>
using kw_plain = std::remove_cv_t<std::remove_reference_t<A>>;

template <int L, int N, class W, class... A>
struct kw_device {
  kw_fields<A...> kw_captured;
};
template <int L, int N, class W, class... A>
kw_device<L, N, W, kw_plain<A>...> kw_make_device(A&&... a) {
  return {kw_fields<kw_plain<A>...>{a...}};
}

// What the host may call as well keeps the host's own lambda, for as long as the program runs.
template <int L, int N, class W, class S, class... A>
struct kw_both;
template <int L, int N, class W, class R, class... P, class... A>
struct kw_both<L, N, W, R(P...), A...> {
  kw_fields<A...> kw_captured;
  const void* kw_host;
  R operator()(P... p) const { return (*static_cast<const std::function<R(P...)>*>(kw_host))(std::forward<P>(p)...); }
};
template <class M>
struct kw_signature;
template <class C, class R, class... P>
struct kw_signature<R (C::*)(P...) const> {
  using type = R(P...);
};
template <class C, class R, class... P>
struct kw_signature<R (C::*)(P...)> {
  using type = R(P...);
};
template <int L, int N, class W, class F, class... A>
auto kw_make_both(F f, A&&... a) {
  using S = typename kw_signature<decltype(&F::operator())>::type;
  return kw_both<L, N, W, S, kw_plain<A>...>{kw_fields<kw_plain<A>...>{a...}, new std::function<S>(f)};
}
#endif
