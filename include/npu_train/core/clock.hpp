/// A clock interface, so that tests of time limits do not have to wait.
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

/// A clock for tests: time passes only with advance().
class ManualClock final : public Clock {
 public:
  double now() const override { return now_; }
  void advance(double seconds) { now_ += seconds; }

 private:
  double now_ = 0;
};

inline std::shared_ptr<const Clock> steady_clock() { return std::make_shared<SteadyClock>(); }

}  // namespace npu_train
