// files: matrix.cu
// main is a .cpp without kernels; a class in a .cu has them.
#include <iostream>
#include "matrix.hpp"
int main() {
  Matrix a(20, 30), b(30, 10);
  a.fill([](int r, int c) { return r - c; });
  b.fill([](int r, int c) { return (r * c) % 4; });
  Matrix c = a * b;
  int wrong = 0;
  for (int i = 0; i < 20; i++)
    for (int j = 0; j < 10; j++) {
      double s = 0;
      for (int k = 0; k < 30; k++) s += a(i, k) * b(k, j);
      wrong += s != c(i, j);
    }
  std::cout << (wrong ? "FAIL" : "PASS") << std::endl;
  return wrong;
}
