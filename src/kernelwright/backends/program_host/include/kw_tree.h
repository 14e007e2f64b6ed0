// Reduces in a tree, as a device does: a long sum of floats one after another would lose what a device keeps.
#pragma once
#include <cstddef>

namespace kw_reduce {
template <class T, class Iterator, class Operation>
T tree(Iterator first, std::ptrdiff_t n, Operation& operation) {
  if (n > 128) {
    T left = tree<T>(first, n / 2, operation);
    return operation(left, tree<T>(first + n / 2, n - n / 2, operation));
  }
  T result = *first;
  for (std::ptrdiff_t k = 1; k < n; k++) result = operation(result, *++first);
  return result;
}
template <class T, class Iterator, class Operation>
T fold(Iterator first, std::ptrdiff_t n, Operation operation, T init) {
  return n > 0 ? T(operation(init, tree<T>(first, n, operation))) : init;
}
}  // namespace kw_reduce
