/// An interface for time, so that tests of time limits need not wait.
#pragma once

#include <chrono>
#include <memory>

namespace npu_train {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds from an arbitrary start; never decreases.
  virtual double now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double now() const override { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
};

/// For tests: the time changes only when it is set.
class ManualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double now_ = 0;
};

inline std::shared_ptr<const Clock> steady_clock() { return std::make_shared<SteadyClock>(); }

}  // namespace npu_train
