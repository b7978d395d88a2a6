/// Detects resources that grow steadily from step to step: memory, file handles, threads.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/device/device.hpp"
#include "npu_train/engine/parts.hpp"
#include "npu_train/train/callback.hpp"

namespace npu_train {

/// The resources of this process; -1 if unknown.
struct ProcessUse {
  int64_t device_bytes = -1;  ///< bytes of tensors on the device; -1 on a CPU
  int64_t host_bytes = -1;    ///< anonymous memory, without mapped files
  int64_t handles = -1;       ///< open files, sockets, pipes
  int64_t threads = -1;
};

/// Reads /proc/self and the device's allocator. Takes well below a millisecond.
ProcessUse process_use(const Device& device);

/// Returns the growth per step of the readings (step, value) if it is steady: the medians of the four quarters of the readings rise, a
/// straight line explains the growth, and the growth is at least `least`. Returns nullopt for a resource that only warms up, jumps once or
/// oscillates. The growth is the Theil-Sen slope, which is the median of the slopes of all pairs of readings.
std::optional<double> steady_growth(const std::vector<std::pair<double, double>>& samples, double least);

/// Reads the resources every 10 steps (every 50 after step 200). From step 200 on, warns once about each kind that has grown steadily over
/// the last readings, of which it keeps at most 20.
class LeakWatch final : public Callback {
 public:
  using Read = std::function<ProcessUse(const Device&)>;
  explicit LeakWatch(Read read = process_use) : read_(std::move(read)) {}

  void on_step_end(TrainLoop& loop, const StepReport& report) override;
  /// Returns the warnings so far: "file handles grow by 1 per step (41 at step 20, 221 at step 200)".
  const std::vector<std::string>& findings() const { return findings_; }

 private:
  static constexpr size_t kKinds = 4;
  void note(int64_t step, const ProcessUse& use);
  void judge();

  Read read_;
  int64_t steps_ = 0;
  std::deque<std::pair<double, std::array<double, kKinds>>> samples_;
  std::array<bool, kKinds> told_{};
  std::vector<std::string> findings_;
};

/// Adds a LeakWatch to every run.
void add_leak_watch(Parts& parts);

}  // namespace npu_train
