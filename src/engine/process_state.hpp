// The process-wide settings of libtorch that a run wants, for a scope. What a run does not ask for is left alone.
#pragma once

#include <ATen/Context.h>

#include <mutex>
#include <optional>

#include "npu_train/device/random.hpp"
#include "npu_train/device/threads.hpp"
#include "npu_train/engine/run_config.hpp"

namespace npu_train {

/// Deterministic operators, while one or more live: trainers in several threads end in any order.
class DeterministicOperators {
 public:
  DeterministicOperators(bool on, bool warn_only) : on_(on) {
    if (!on_) return;
    auto& context = at::globalContext();
    const std::lock_guard lock(before().mutex);
    if (before().users++ == 0) {
      before().on = context.deterministicAlgorithms();
      before().warn_only = context.deterministicAlgorithmsWarnOnly();
      before().fill = context.deterministicFillUninitializedMemory();
    }
    context.setDeterministicAlgorithms(true, warn_only);
    context.setDeterministicFillUninitializedMemory(false);  // filling every fresh tensor costs time and changes no result
  }
  ~DeterministicOperators() {
    if (!on_) return;
    const std::lock_guard lock(before().mutex);
    if (--before().users > 0) return;
    at::globalContext().setDeterministicAlgorithms(before().on, before().warn_only);
    at::globalContext().setDeterministicFillUninitializedMemory(before().fill);
  }
  DeterministicOperators(const DeterministicOperators&) = delete;
  DeterministicOperators& operator=(const DeterministicOperators&) = delete;

 private:
  struct Before {
    std::mutex mutex;
    int users = 0;
    bool on = false, warn_only = false, fill = true;
  };
  static Before& before() {
    static Before instance;
    return instance;
  }
  bool on_;
};

/// A call of a Trainer: threads, determinism, and the run's own random numbers. The generators are the process's: the run's state goes in
/// at the beginning and out at the end, and the program's is put back.
class ProcessState {
 public:
  /// `rng` is empty before the first call. `inside` is true while this lives.
  ProcessState(const RunConfig& config, State& rng, bool& inside)
      : threads_(static_cast<int>(config.trainer.threads)),
        deterministic_(config.deterministic != "false", config.deterministic == "warn"),
        rng_(rng),
        inside_(inside),
        host_(rng_state()) {
    if (config.rng == "portable") portable_.emplace(static_cast<uint64_t>(config.seed));
    if (!rng_.tensors.empty()) set_rng_state(rng_);
    inside_ = true;
  }
  ~ProcessState() {
    inside_ = false;
    rng_ = rng_state();
    set_rng_state(host_);
  }
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

 private:
  ThreadCount threads_;
  DeterministicOperators deterministic_;
  State& rng_;
  bool& inside_;
  State host_;
  std::optional<PortableRandom> portable_;
};

}  // namespace npu_train
