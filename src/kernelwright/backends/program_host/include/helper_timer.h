// The samples' stop watches. Ours, from the interface of helper_timer.h.
#pragma once
#include <chrono>

class StopWatchInterface {
 public:
  virtual ~StopWatchInterface() {}
  virtual void start() = 0;
  virtual void stop() = 0;
  virtual void reset() = 0;
  virtual float getTime() = 0;
  virtual float getAverageTime() = 0;
};
class StopWatchLinux : public StopWatchInterface {
  using Clock = std::chrono::steady_clock;
  Clock::time_point began_ = Clock::now();
  float last_ = 0.0f, total_ = 0.0f;
  bool running_ = false;
  int sessions_ = 0;
  float since() const { return std::chrono::duration<float, std::milli>(Clock::now() - began_).count(); }

 public:
  void start() override {
    began_ = Clock::now();
    running_ = true;
  }
  void stop() override {
    last_ = since();
    total_ += last_;
    sessions_++;
    running_ = false;
  }
  void reset() override {
    last_ = total_ = 0.0f;
    sessions_ = 0;
    began_ = Clock::now();
  }
  float getTime() override { return total_ + (running_ ? since() : 0.0f); }
  float getAverageTime() override { return sessions_ ? total_ / sessions_ : 0.0f; }
};

inline bool sdkCreateTimer(StopWatchInterface** timer) { return (*timer = new StopWatchLinux()) != nullptr; }
inline bool sdkDeleteTimer(StopWatchInterface** timer) {
  delete *timer;
  *timer = nullptr;
  return true;
}
inline bool sdkStartTimer(StopWatchInterface** timer) { return *timer ? ((*timer)->start(), true) : false; }
inline bool sdkStopTimer(StopWatchInterface** timer) { return *timer ? ((*timer)->stop(), true) : false; }
inline bool sdkResetTimer(StopWatchInterface** timer) { return *timer ? ((*timer)->reset(), true) : false; }
inline float sdkGetAverageTimerValue(StopWatchInterface** timer) { return *timer ? (*timer)->getAverageTime() : 0.0f; }
inline float sdkGetTimerValue(StopWatchInterface** timer) { return *timer ? (*timer)->getTime() : 0.0f; }
