#pragma once
#include <chrono>
#include <string>
namespace common {
class ScopedTimer {
  using clock = std::chrono::steady_clock;
  std::string name_;
  clock::time_point start_ = clock::now();
 public:
  explicit ScopedTimer(std::string name) : name_(std::move(name)) {}
  std::chrono::duration<double> elapsed() const { return clock::now() - start_; }
};
}  // namespace common
