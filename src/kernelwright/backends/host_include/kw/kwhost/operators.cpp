// The forwarded operators of at::, with torch's own signatures: each passes its arguments to the runner by schema name.
#include "impl.h"

namespace kw {

template <size_t... I>
static auto as_tuple(std::vector<at::Tensor>&& list, std::index_sequence<I...>) {
  list.resize(sizeof...(I));
  return std::make_tuple(std::move(list[I])...);
}
#define KW_RETURNS(n)                                                                \
  static auto returns_##n(const char* name, std::initializer_list<Arg> args) {       \
    return as_tuple(returns_list(name, args), std::make_index_sequence<n>());        \
  }
KW_RETURNS(2) KW_RETURNS(3) KW_RETURNS(4) KW_RETURNS(5)
#undef KW_RETURNS

}  // namespace kw

namespace at {
#include "../aten_definitions.inc"
}  // namespace at
