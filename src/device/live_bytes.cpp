#include "npu_train/device/live_bytes.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_set>

#include "npu_train/device/backend.hpp"

namespace npu_train {

class LiveBytes::Count final : public HostBlockWatcher {
 public:
  void reportMemoryUsage(void* block, int64_t size, size_t, size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (size < 0 && seen_.erase(block) == 0) return;  // skips blocks of earlier scopes, which are also reported
    if (size > 0) seen_.insert(block);
    now_ += size;
    peak_ = std::max(peak_, now_);
  }

  int64_t now() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return now_;
  }
  int64_t peak() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<void*> seen_;
  int64_t now_ = 0, peak_ = 0;
};

LiveBytes::LiveBytes() : count_(std::make_shared<Count>()), guard_(c10::DebugInfoKind::PROFILER_STATE, count_) {}
LiveBytes::~LiveBytes() = default;

int64_t LiveBytes::now() const { return count_->now(); }
int64_t LiveBytes::peak() const { return count_->peak(); }

int64_t peak_bytes_of(const Device& device, const std::function<void()>& fn) {
  if (device.is_cpu()) {
    const LiveBytes live;
    fn();
    return live.peak();
  }
  const auto& backend = backend_of(device);
  backend.synchronize(device);
  backend.reset_peak(device);
  const auto before = backend.memory(device).allocated;
  fn();
  backend.synchronize(device);
  return before < 0 ? -1 : backend.memory(device).peak - before;
}

}  // namespace npu_train
