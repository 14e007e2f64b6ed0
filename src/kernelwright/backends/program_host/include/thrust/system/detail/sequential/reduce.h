// Takes the place of Thrust's header of this name: reduces in a tree, as a device does, because a long sum of floats one
// after another would lose what a device keeps.
#pragma once
#include <thrust/detail/config.h>
#include <thrust/system/detail/sequential/execution_policy.h>

#include <cstddef>

THRUST_NAMESPACE_BEGIN
namespace system::detail::sequential {
template <class T, class Iterator, class Operation>
T kw_tree(Iterator first, std::ptrdiff_t n, Operation& operation) {
  if (n > 128) {
    T left = kw_tree<T>(first, n / 2, operation);
    return operation(left, kw_tree<T>(first + n / 2, n - n / 2, operation));
  }
  T result = *first;
  for (std::ptrdiff_t k = 1; k < n; k++) result = operation(result, *++first);
  return result;
}
template <class Policy, class Iterator, class T, class Operation>
T reduce(execution_policy<Policy>&, Iterator first, Iterator last, T init, Operation operation) {
  std::ptrdiff_t n = last - first;
  return n > 0 ? T(operation(init, kw_tree<T>(first, n, operation))) : init;
}
}  // namespace system::detail::sequential
THRUST_NAMESPACE_END
