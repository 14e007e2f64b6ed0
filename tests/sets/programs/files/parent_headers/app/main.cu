// Headers in a folder beside the program's own: "../common/...", with templates that the program instantiates.
#include "../common/timer.hpp"
#include "../common/reduce.cuh"
#include <cstdio>
using namespace common;
int main() {
  ScopedTimer timer("all");
  const int n = 1000;
  std::vector<int> h(n);
  for (int i = 0; i < n; i++) h[i] = i;
  int sum = reduce<int, Plus>(h), most = reduce<int, Greatest>(h);
  bool good = sum == 499500 && most == 999 && timer.elapsed().count() >= 0;
  puts(good ? "PASS" : "FAIL");
  return !good;
}
