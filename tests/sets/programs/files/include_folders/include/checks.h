#pragma once
#include <iostream>
#include <cstdlib>
inline void check_at(cudaError_t e, const char *file, int line) {
  if (e == cudaSuccess) return;
  std::cerr << file << ":" << line << " " << cudaGetErrorString(e) << "\n";
  std::exit(1);
}
#define CHECK(x) check_at((x), __FILE__, __LINE__)
