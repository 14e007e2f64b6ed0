// Takes the place of Thrust's header of this name: reduces in a tree, as a device does, because a long sum of floats one
// after another would lose what a device keeps.
#pragma once
#include <thrust/detail/config.h>
#include <thrust/system/detail/sequential/execution_policy.h>

#include <kw_tree.h>

THRUST_NAMESPACE_BEGIN
namespace system::detail::sequential {
template <class Policy, class Iterator, class T, class Operation>
T reduce(execution_policy<Policy>&, Iterator first, Iterator last, T init, Operation operation) {
  return ::kw_reduce::fold<T>(first, last - first, operation, init);
}
}  // namespace system::detail::sequential
THRUST_NAMESPACE_END
