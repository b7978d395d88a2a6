/// The interface through which tensor dumps, the profiler, out-of-memory reports and overflow replay observe the step. Without observers it
/// costs one branch.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <type_traits>
#include <vector>

namespace npu_train {

class Batch;

enum class Phase { DataWait, Transfer, Forward, Backward, Reduce, Unscale, Clip, Optimizer, Callbacks, Validation, Checkpoint };

/// Returns the name of a phase in reports ("forward").
constexpr const char* phase_name(Phase phase) {
  constexpr const char* names[] = {"data_wait", "transfer",  "forward",   "backward",   "reduce",    "unscale",
                                   "clip",      "optimizer", "callbacks", "validation", "checkpoint"};
  return names[static_cast<int>(phase)];
}

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// `attempt` counts windows from 0; `micro_batch` is the index in the window.
  virtual void phase_begin(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/) {}
  virtual void phase_end(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/) {}
  /// Called before the forward pass of a micro-batch. The batch is on the task's device and not yet cast by the precision.
  virtual void on_batch(const Batch& /*batch*/, int64_t /*attempt*/, int /*micro_batch*/) {}
  /// Called after the forward pass of a micro-batch. `loss` is its mean loss, on the device that computed it.
  virtual void on_loss(const at::Tensor& /*loss*/, int64_t /*attempt*/, int /*micro_batch*/) {}
  /// Called if the phase ends with an exception, which is rethrown afterwards.
  virtual void phase_error(Phase /*phase*/, int64_t /*attempt*/, int /*micro_batch*/, std::exception_ptr /*error*/) {}
};

/// The observers of one trainer; not owned.
class Observers {
 public:
  void add(StepObserver* observer) { list_.push_back(observer); }
  void remove(StepObserver* observer) { list_.erase(std::remove(list_.begin(), list_.end(), observer), list_.end()); }

  bool empty() const { return list_.empty(); }

  void show_batch(const Batch& batch, int64_t attempt, int micro_batch) const {
    for (auto* o : list_) o->on_batch(batch, attempt, micro_batch);
  }
  void show_loss(const at::Tensor& loss, int64_t attempt, int micro_batch) const {
    for (auto* o : list_) o->on_loss(loss, attempt, micro_batch);
  }

  /// Runs `fn` as `phase`. Passes an exception to the observers and rethrows it.
  template <class Fn>
  decltype(auto) run(Phase phase, int64_t attempt, int micro_batch, Fn&& fn) const {
    if (list_.empty()) [[likely]]
      return fn();
    for (auto* o : list_) o->phase_begin(phase, attempt, micro_batch);
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<Fn>>) {
        fn();
        for (auto* o : list_) o->phase_end(phase, attempt, micro_batch);
      } else {
        std::invoke_result_t<Fn> result = fn();
        for (auto* o : list_) o->phase_end(phase, attempt, micro_batch);
        return result;
      }
    } catch (...) {
      for (auto* o : list_) o->phase_error(phase, attempt, micro_batch, std::current_exception());
      throw;
    }
  }

 private:
  std::vector<StepObserver*> list_;
};

}  // namespace npu_train
