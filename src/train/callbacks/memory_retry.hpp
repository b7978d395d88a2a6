// Runs windows. With trainer.on_oom: retry, repeats a window that does not fit into memory, from the state before it and in smaller
// micro-batches. All later windows then run in micro-batches of that size.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "npu_train/base/batch.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/data/loader.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/train/failed_window.hpp"
#include "npu_train/train/step.hpp"

namespace npu_train::detail {

class MemoryRetry final : public Stateful {
 public:
  struct Context {
    Task& task;
    WindowStep& step;
    const Observers& observers;
    Device device;
    bool enabled;                // trainer.on_oom: retry
    const Loader* train_loader;  // may be nullptr
    int64_t ranks;
    int64_t accumulate;                   // micro-batches per window, on each rank
    std::optional<FailedWindow>& failed;  // receives the window that ends the run
  };
  explicit MemoryRetry(Context context) : run_(std::move(context)) {}

  // Copies the newest micro-batch of `window` to the device. If it does not fit, moves the window to the host: from then on each
  // micro-batch is copied just before it runs, and is divided if it still does not fit. `micro_batches`: number of micro-batches in the
  // complete window.
  void copy_newest(std::vector<Batch>& window, int64_t micro_batches);
  StepResult run(std::vector<Batch>& window);
  // Returns the maximum number of samples in a micro-batch; 0: no limit.
  int64_t limit() const { return limit_; }

  State state() const override { return {{}, {{"micro_batch_limit", limit_}}}; }
  void load_state(const State& state) override;

 private:
  double full_weight(size_t batches) const;
  bool shrink(const std::vector<Batch>& batches, const Error& failure);
  void leave_on_host(std::vector<Batch>& window);

  Context run_;
  int64_t limit_ = 0;
  bool copies_late_ = false;  // windows stay on the host
};

}  // namespace npu_train::detail
